"""Decoder transformers as torch modules: pre-norm blocks with causal attention that predict the next token.

Module names are those of `transformer_shapes`. The scores have the tokens in dimension 1, samples × vocabulary ×
context, as `torch.nn.functional.cross_entropy` expects them: the loss is the mean over all tokens. This file imports
torch, so it is imported only for tracing and training.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paceline.workloads.models.paper_networks import chain
from paceline.workloads.models.transformer_shapes import TransformerShape

SMALL = TransformerShape(width=64, layers=2, heads=4, vocabulary=28, context=64, mlp=256, tied=False)
"""the shape of small-gpt; provenance: ours, trained on two cores within minutes"""


class CausalAttention(nn.Module):
    """Attention of each token to itself and to the tokens before it, in several heads, without parameters.

    Heads of keys and values are repeated where there are fewer than heads of queries.
    """

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        self.heads, self.head, self.rotary = shape.heads, shape.head_width, shape.style == "llama"
        self.kv_heads = shape.kv_heads or shape.heads
        self.dropout = nn.Dropout(shape.attention_dropout) if shape.attention_dropout else None

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, _ = x.shape
        parts = x.view(batch, tokens, self.heads + 2 * self.kv_heads, self.head).transpose(1, 2)
        query, key, value = parts.split([self.heads, self.kv_heads, self.kv_heads], dim=1)
        if self.rotary:
            query, key = rotated(query), rotated(key)
        if self.kv_heads < self.heads:
            key, value = (part.repeat_interleave(self.heads // self.kv_heads, dim=1) for part in (key, value))
        scores = query @ key.transpose(-2, -1) * self.head**-0.5
        later = torch.ones(tokens, tokens, dtype=torch.bool, device=x.device).triu(1)
        weights = F.softmax(scores.masked_fill(later, -torch.inf), dim=-1)
        weights = weights if self.dropout is None else self.dropout(weights)
        return (weights @ value).transpose(1, 2).reshape(batch, tokens, self.heads * self.head)  # type: ignore[no-any-return]


def rotated(x: Tensor, base: float = 10_000.0) -> Tensor:
    """Rotates pairs of numbers by an angle that grows with the position (Su et al., 2021).

    Args:
        x: queries or keys, … × positions × numbers.
        base: the ratio of the largest to the smallest wavelength.
    """
    half = x.shape[-1] // 2
    speeds = base ** (-torch.arange(half, dtype=x.dtype, device=x.device) / half)
    angles = torch.arange(x.shape[-2], dtype=x.dtype, device=x.device)[:, None] * speeds
    first, second = x.split(half, dim=-1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)


ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "gelu": nn.GELU,
    "gelu_tanh": partial(nn.GELU, "tanh"),
    "relu": nn.ReLU,
    "silu": nn.SiLU,
}


class Gated(nn.Module):
    """The network of a Llama block: a gate and a value, both from the input, multiplied."""

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        bias = shape.has_bias("mlp")
        self.gate = nn.Linear(shape.width, shape.mlp, bias=bias)
        self.up = nn.Linear(shape.width, shape.mlp, bias=bias)
        self.activation = ACTIVATIONS[shape.activation]()
        self.down = nn.Linear(shape.mlp, shape.width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.activation(self.gate(x)) * self.up(x))  # type: ignore[no-any-return]


def _norm(shape: TransformerShape) -> nn.Module:
    return nn.LayerNorm(shape.width) if shape.style == "gpt" else nn.RMSNorm(shape.width, eps=1e-5)


class DecoderBlock(nn.Module):
    """Attention and a network, each with a normalisation before it and a residual connection."""

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        width, bias = shape.width, shape.has_bias("mlp")
        self.norm1 = _norm(shape)
        self.attention = chain(
            inward=nn.Linear(width, shape.queries + 2 * shape.keys, bias=shape.has_bias("inward")),
            core=CausalAttention(shape),
            outward=nn.Linear(shape.queries, width, bias=shape.has_bias("outward")),
        )
        self.norm2 = _norm(shape)
        self.mlp = (
            Gated(shape)
            if shape.gated
            else chain(
                up=nn.Linear(width, shape.mlp, bias=bias),
                activation=ACTIVATIONS[shape.activation](),
                down=nn.Linear(shape.mlp, width, bias=bias),
            )
        )
        self.dropout = nn.Dropout(shape.dropout) if shape.dropout else None

    def forward(self, x: Tensor) -> Tensor:
        x = x + self._dropped(self.attention(self.norm1(x)))
        return x + self._dropped(self.mlp(self.norm2(x)))

    def _dropped(self, x: Tensor) -> Tensor:
        return x if self.dropout is None else self.dropout(x)


class Decoder(nn.Module):
    """The whole model.

    Args:
        shape: its sizes.
    """

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        self.tied = shape.tied
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        entries = shape.positions or shape.context
        self.positions = nn.Embedding(entries, shape.width) if shape.style == "gpt" else None
        self.dropout = nn.Dropout(shape.embedding_dropout) if shape.embedding_dropout else None
        self.blocks = [f"block{number}" for number in range(1, shape.layers + 1)]
        for name in self.blocks:
            self.add_module(name, DecoderBlock(shape))
        self.norm = _norm(shape)
        self.head = None if shape.tied else nn.Linear(shape.width, shape.vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        if self.positions is not None:
            x = x + self.positions(torch.arange(tokens.shape[-1], device=tokens.device))
        x = x if self.dropout is None else self.dropout(x)
        for name in self.blocks:
            x = self.get_submodule(name)(x)
        x = self.norm(x)
        scores = F.linear(x, self.embedding.weight) if self.head is None else self.head(x)
        return scores.transpose(1, 2)


def decoder(shape: TransformerShape = SMALL) -> tuple[nn.Module, Tensor]:
    """Returns the module and one sample."""
    return Decoder(shape), torch.empty(shape.context, dtype=torch.int64)
