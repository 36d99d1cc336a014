"""A small transformer as a torch module: a decoder that predicts the next of 128 tokens.

Rules as in `paper_networks`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from paceline.workloads.models.paper_networks import chain

TOKENS, WORDS, WIDTH, HEADS, DEPTH = 128, 10_000, 256, 4, 4


class Attention(nn.Module):
    """Attention of all tokens to all tokens, in several heads, without a mask, which has no counted cost."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.inward = nn.Linear(width, 3 * width)
        self.softmax = nn.Softmax(dim=-1)
        self.outward = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        parts = self.inward(x).view(batch, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind()
        weights = self.softmax(query @ key.transpose(-2, -1) * (width // self.heads) ** -0.5)
        return self.outward((weights @ value).transpose(1, 2).reshape(batch, tokens, width))  # type: ignore[no-any-return]


class EncoderBlock(nn.Module):
    """Attention and a network of two layers, each with normalisation before it and a residual connection."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = chain(up=nn.Linear(width, 4 * width), gelu=nn.GELU(), down=nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))  # type: ignore[no-any-return]


def transformer() -> tuple[nn.Module, Tensor]:
    """Returns the module and one sample."""
    blocks = {f"block{number}": EncoderBlock(WIDTH, HEADS) for number in range(1, DEPTH + 1)}
    model = chain(
        embedding=nn.Embedding(WORDS, WIDTH), **blocks, norm=nn.LayerNorm(WIDTH), head=nn.Linear(WIDTH, WORDS)
    )
    return model, torch.empty(TOKENS, dtype=torch.int64)
