"""Layer tables of transformers, computed from their shape.

Theory. With width d, h heads of e numbers and k heads of keys and values (mostly h e = d and k = h), L blocks, context
T and vocabulary V, the weight matrices of a block have 2 d h e + 2 d k e (attention) and 2 d m or, gated, 3 d m
parameters. The forward pass of a token takes 2 operations for each parameter of a matrix, the output's V d among them,
and 4 L T h e for the products of attention, without credit for a causal mask; the backward pass takes twice as many.
With N parameters of matrices this is 6 N + 12 L T h e for training (Kaplan et al., 2020; Chowdhery et al., 2022,
appendix B).

Rows are those that tracing gives (`layer_tracing`), with the same names, except for three differences, because a table
of this size stands for an efficient implementation: attention is one fused kernel, which stores no T × T matrix and
whose recomputation is not counted, unless the shape says that it is plain; a gated activation and rotary embeddings are
one kernel each; and an embedding reads only the rows of its tokens. Numbers are per sample of T tokens, in float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from paceline.workloads.models.layer_costs import LayerWork, Pass, Product

FLOAT, WORD = 4, 8
"""bytes of a number and of a token"""
PLAIN_FORWARD, PLAIN_BACKWARD = 5, 6
"""kernels of plain attention: two products, scale, mask and softmax; four products and two of the others; a dropout is
one more of both"""

Biased = Literal["inward", "outward", "mlp"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerShape:
    """The shape of a transformer: a decoder with pre-norm blocks and causal attention, or BERT.

    Args:
        width: d_model.
        layers: number of blocks.
        heads: heads of an attention; they divide the width if `head` is not given.
        vocabulary: number of tokens that are told apart.
        context: tokens of a sample.
        mlp: inner width of the network of a block.
        style: gpt: LayerNorm, learned positions, biases; llama: RMSNorm, rotary positions, a gated activation, no
            biases; bert: an encoder with LayerNorm after each part of a block, learned positions, biases, and the head
            that predicts masked words.
        tied: whether the output uses the weights of the embedding.
        attention: fused: one kernel that keeps no T × T matrix; plain: products, mask, softmax and dropout one by one.
        kv_heads: heads of keys and values, which divide the heads; None: as many as heads.
        head: numbers of a head; None: width / heads.
        positions: entries of the learned positions; None: the context.
        types: kinds of segments, of bert.
        biased: matrices of a block with a bias; None: all, or none in style llama.
        activation: of the network of a block; it has no price of its own.
        dropout: share that is dropped after each part of a block.
        attention_dropout: share of the weights of attention that is dropped.
        embedding_dropout: share of the sum of the embeddings that is dropped.

    >>> shape = TransformerShape(width=768, layers=12, heads=12, vocabulary=50257, context=1024, mlp=3072)
    >>> shape.parameters, shape.forward_flops_per_token
    (124439808, 284812800)
    """

    width: int
    layers: int
    heads: int
    vocabulary: int
    context: int
    mlp: int
    style: Literal["gpt", "llama", "bert"] = "gpt"
    tied: bool = True
    attention: Literal["fused", "plain"] = "fused"
    kv_heads: int | None = None
    head: int | None = None
    positions: int | None = None
    types: int = 2
    biased: tuple[Biased, ...] | None = None
    activation: Literal["gelu", "gelu_tanh", "relu", "silu"] = "gelu"
    dropout: float = 0.0
    attention_dropout: float = 0.0
    embedding_dropout: float = 0.0

    @property
    def gated(self) -> bool:
        """Whether the network of a block has a gate beside its first matrix."""
        return self.style == "llama"

    @property
    def head_width(self) -> int:
        """Numbers of a head."""
        return self.head or self.width // self.heads

    @property
    def queries(self) -> int:
        """Numbers of all queries of a token, h e."""
        return self.heads * self.head_width

    @property
    def keys(self) -> int:
        """Numbers of all keys of a token, k e, which are as many as of its values."""
        return (self.kv_heads or self.heads) * self.head_width

    @property
    def drops(self) -> bool:
        """Whether there is a dropout anywhere."""
        return max(self.dropout, self.attention_dropout, self.embedding_dropout) > 0

    def has_bias(self, part: Biased) -> bool:
        """Returns whether a matrix of a block has a bias."""
        return self.style != "llama" if self.biased is None else part in self.biased

    @property
    def parameters(self) -> int:
        return sum(row.parameters for row in shape_rows(self))

    @property
    def forward_flops_per_token(self) -> int:
        """Operations of a forward pass per token, with attention to the whole context.

        2 (L (2 d h e + 2 d k e + g d m) + V d) + 4 L T h e, with g = 2, or 3 if gated; bert's head has 2 d² more
        """
        d, inner = self.width, 3 if self.gated else 2
        block = 2 * d * (self.queries + self.keys) + inner * d * self.mlp
        matrices = self.layers * block + self.vocabulary * d + (d * d if self.style == "bert" else 0)
        return 2 * matrices + 4 * self.layers * self.context * self.queries

    @property
    def training_flops_per_token(self) -> int:
        """Operations of a forward and a backward pass per token."""
        return 3 * self.forward_flops_per_token

    def layer_bytes(self) -> dict[str, int]:
        """Returns the bytes of each layer's weights in float32, which are those of its gradient in a message."""
        return {row.name: FLOAT * row.parameters for row in shape_rows(self) if row.parameters}


GPT2_SMALL = TransformerShape(width=768, layers=12, heads=12, vocabulary=50257, context=1024, mlp=3072)
GPT3_XL = TransformerShape(width=2048, layers=24, heads=16, vocabulary=50257, context=2048, mlp=8192)
LLAMA2_7B = TransformerShape(
    width=4096, layers=32, heads=32, vocabulary=32000, context=4096, mlp=11008, style="llama", tied=False
)


def shape_rows(shape: TransformerShape) -> tuple[LayerWork, ...]:
    """Returns the rows of a transformer's layer table, in the order of its forward pass."""
    rows = [_embedding("embedding", shape, shape.vocabulary)]
    if shape.style == "bert":
        rows.append(_embedding("types", shape, shape.types, summed=True))
    if shape.style != "llama":
        rows.append(_embedding("positions", shape, shape.positions or shape.context, summed=True))
    if shape.style == "bert":
        rows.append(_norm("norm", shape, residual=False))
    if shape.embedding_dropout:
        rows.append(_dropout("dropout", shape, shape.width))
    for number in range(1, shape.layers + 1):
        rows += _block(f"block{number}", shape)
    if shape.style == "bert":
        rows.append(_dense("head.transform", shape, shape.width, shape.width, bias=True))
        rows.append(_activation("head.activation", shape, shape.width, gated=False))
        rows.append(_norm("head.norm", shape, residual=False))
    else:
        rows.append(_norm("norm", shape, residual=False))
    rows.append(_head(shape))
    return tuple(rows)


def _block(name: str, shape: TransformerShape) -> Iterator[LayerWork]:
    """The rows of a block; normalisations are before its parts, or after them in style bert."""
    d, after = shape.width, shape.style == "bert"
    norms = [_norm(f"{name}.norm{number}", shape, residual=True) for number in (1, 2)]
    if not after:
        yield norms[0]
    yield _dense(f"{name}.attention.inward", shape, d, shape.queries + 2 * shape.keys, bias=shape.has_bias("inward"))
    yield _attention(f"{name}.attention.core", shape)
    yield _dense(f"{name}.attention.outward", shape, shape.queries, d, bias=shape.has_bias("outward"), residual=True)
    yield norms[0] if after else norms[1]
    bias = shape.has_bias("mlp")
    if shape.gated:
        yield _dense(f"{name}.mlp.gate", shape, d, shape.mlp, bias=bias, shared_input=True)
    yield _dense(f"{name}.mlp.up", shape, d, shape.mlp, bias=bias)
    yield _activation(f"{name}.mlp.activation", shape, shape.mlp, gated=shape.gated)
    yield _dense(f"{name}.mlp.down", shape, shape.mlp, d, bias=bias, residual=True)
    if after:
        yield norms[1]


def _embedding(name: str, shape: TransformerShape, entries: int, *, summed: bool = False) -> LayerWork:
    """`summed`: its vectors are added to those of the embedding before."""
    tokens, row = shape.context, FLOAT * shape.width
    adds = 2 * tokens * row if summed else 0
    forward = Pass(0, tokens * (WORD + 2 * row) + adds, 0, 2 if adds else 1)
    backward = Pass(0, tokens * (WORD + row), entries * row, 1)
    return LayerWork(name, entries * shape.width, tokens * WORD, forward, backward)


def _dropout(name: str, shape: TransformerShape, width: int) -> LayerWork:
    """A dropout reads and writes each number, with a mask in bytes."""
    moved = (2 * FLOAT + 1) * shape.context * width
    return LayerWork(name, 0, shape.context * width, Pass(0, moved, 0, 1), Pass(0, moved, 0, 1))


def _norm(name: str, shape: TransformerShape, *, residual: bool) -> LayerWork:
    """`residual`: the gradient that passes around the block is added."""
    tokens, d = shape.context, shape.width
    vectors = 1 if shape.style == "llama" else 2  # weight and root mean square; or weight and bias, mean and deviation
    forward = Pass(0, FLOAT * tokens * (2 * d + vectors), FLOAT * vectors * d, 1)
    moved = FLOAT * tokens * (3 * d + vectors + (3 * d if residual else 0))
    backward = Pass(0, moved, 2 * FLOAT * vectors * d, 2 if residual else 1)
    return LayerWork(name, vectors * d, FLOAT * tokens * (d + vectors), forward, backward)


def _dense(
    name: str,
    shape: TransformerShape,
    inputs: int,
    outputs: int,
    *,
    bias: bool,
    residual: bool = False,
    shared_input: bool = False,
) -> LayerWork:
    """A product with a weight matrix; `residual`: its result is added to the block's input, after a dropout if any."""
    tokens, weights, biases = shape.context, inputs * outputs, outputs if bias else 0
    product, moved = Product("dense", tokens, inputs, outputs), FLOAT * tokens * (inputs + outputs)
    add = 3 * FLOAT * tokens * outputs if residual else 0
    dropped = _dropout(name, shape, outputs) if residual and shape.dropout else None
    drop_bytes, drop_kernels = (dropped.forward.moved_bytes, 1) if dropped else (0, 0)
    return LayerWork(
        name,
        weights + biases,
        (0 if shared_input else FLOAT * tokens * inputs) + (dropped.saved_bytes if dropped else 0),
        Pass(
            product.flops,
            moved + add + drop_bytes,
            FLOAT * (weights + biases),
            (2 if residual else 1) + drop_kernels,
        ),
        Pass(
            2 * product.flops,
            2 * moved + FLOAT * tokens * biases + drop_bytes,
            FLOAT * (2 * weights + biases),
            (3 if bias else 2) + drop_kernels,
        ),
        (product,),
    )


def _attention(name: str, shape: TransformerShape) -> LayerWork:
    """Attention, after rotary embeddings of queries and keys if there are any.

    Plain attention writes the scores, reads and writes them for scale, mask, softmax and dropout, and reads them for
    the product with the values; backward likewise, once more for the gradient of each product. A fused kernel draws
    its dropout inside and moves nothing for it.
    """
    tokens, heads, queries, keys = shape.context, shape.heads, shape.queries, shape.keys
    scores = Product("attention", heads, shape.head_width, tokens, height_in=tokens, height_out=tokens)
    values = Product("attention", heads, tokens, shape.head_width, height_in=tokens, height_out=tokens)
    rotation = 2 * FLOAT * tokens * (queries + keys) if shape.style == "llama" else 0
    kernels = 2 if rotation else 1
    flops = scores.flops + values.flops
    plain, drop = shape.attention == "plain", bool(shape.attention_dropout)
    square = FLOAT * heads * tokens * tokens if plain else 0
    forward, backward = (PLAIN_FORWARD - 1 + drop, PLAIN_BACKWARD - 1 + drop) if plain else (0, 0)
    in_and_out = FLOAT * tokens * (2 * queries + 2 * keys + heads) + rotation
    return LayerWork(
        name,
        0,  # saved: queries, keys, values, the normalisation of each row; the weights, dropped and not
        FLOAT * tokens * (queries + 2 * keys + heads) + (2 if drop else 1) * square,
        Pass(flops, in_and_out + 2 * forward * square, 0, kernels + forward),
        Pass(
            2 * flops,
            FLOAT * tokens * (4 * queries + 4 * keys + heads) + rotation + 2 * backward * square,
            0,
            kernels + backward,
        ),
        (scores, values),
    )


def _activation(name: str, shape: TransformerShape, width: int, *, gated: bool) -> LayerWork:
    size = FLOAT * shape.context * width
    inputs = 2 if gated else 1
    forward, backward = Pass(0, (inputs + 1) * size, 0, 1), Pass(0, (2 * inputs + 1) * size, 0, 1)
    return LayerWork(name, 0, inputs * size, forward, backward)


def _head(shape: TransformerShape) -> LayerWork:
    """The product with the output matrix; if it is the embedding, both gradients of it are added."""
    own = _dense("head", shape, shape.width, shape.vocabulary, bias=shape.style == "bert")
    if not shape.tied:
        return own
    weights = FLOAT * shape.width * shape.vocabulary
    backward = Pass(
        own.backward.flops, own.backward.moved_bytes, own.backward.fixed_bytes + 3 * weights, own.backward.kernels + 1
    )
    matrix = shape.width * shape.vocabulary
    return LayerWork(own.name, own.parameters - matrix, own.saved_bytes, own.forward, backward, own.products)
