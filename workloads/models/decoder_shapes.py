"""Layer tables of decoder transformers, computed from their shape.

Theory. With width d, L blocks, context T and vocabulary V, the weight matrices of a block have 4 d² (attention) and
2 d m (GPT, m = 4 d) or 3 d m (Llama, gated) parameters. The forward pass of a token takes 2 operations for each
parameter of a matrix, the output's V d among them, and 4 L T d for the products of attention, without credit for the
causal mask; the backward pass takes twice as many.

Rules of this file: rows are those that tracing gives (`layer_tracing`), with the same names, except for three
differences, because a table of this size stands for an efficient implementation: attention is one fused kernel, which
stores no T × T matrix and whose recomputation is not counted, unless the shape says that it is plain; a gated
activation and rotary embeddings are one kernel each; and an embedding reads only the rows of its tokens. Numbers are
per sample of T tokens, in float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from paceline.workloads.models.layer_costs import LayerWork, Pass, Product

FLOAT, WORD = 4, 8
"""bytes of a number and of a token"""
PLAIN_FORWARD, PLAIN_BACKWARD = 6, 7
"""kernels of plain attention: two products, scale, mask, softmax and dropout; four products and three of the others"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderShape:
    """The shape of a decoder transformer with pre-norm blocks and causal attention.

    Args:
        width: d_model.
        layers: number of blocks.
        heads: heads of an attention; they divide the width.
        vocabulary: number of tokens that are told apart.
        context: tokens of a sample.
        mlp: inner width of the network of a block.
        style: gpt: LayerNorm, learned positions, GELU, biases; llama: RMSNorm, rotary positions, a gated SiLU, none.
        tied: whether the output uses the weights of the embedding.
        attention: fused: one kernel that keeps no T × T matrix; plain: products, mask, softmax and dropout one by one,
            with a dropout after each part of a block.

    >>> shape = DecoderShape(width=768, layers=12, heads=12, vocabulary=50257, context=1024, mlp=3072)
    >>> shape.parameters, shape.forward_flops_per_token
    (124439808, 284812800)
    """

    width: int
    layers: int
    heads: int
    vocabulary: int
    context: int
    mlp: int
    style: Literal["gpt", "llama"] = "gpt"
    tied: bool = True
    attention: Literal["fused", "plain"] = "fused"

    @property
    def parameters(self) -> int:
        return sum(row.parameters for row in decoder_rows(self))

    @property
    def forward_flops_per_token(self) -> int:
        """Operations of a forward pass per token, with attention to the whole context.

        2 (L (4 d² + k d m) + V d) + 4 L T d, with k = 2, or 3 if gated
        """
        d, inner = self.width, 2 if self.style == "gpt" else 3
        matrices = self.layers * (4 * d * d + inner * d * self.mlp) + self.vocabulary * d
        return 2 * matrices + 4 * self.layers * self.context * d

    @property
    def training_flops_per_token(self) -> int:
        """Operations of a forward and a backward pass per token."""
        return 3 * self.forward_flops_per_token

    def layer_bytes(self) -> dict[str, int]:
        """Returns the bytes of each layer's weights in float32, which are those of its gradient in a message."""
        return {row.name: FLOAT * row.parameters for row in decoder_rows(self) if row.parameters}


GPT2_SMALL = DecoderShape(width=768, layers=12, heads=12, vocabulary=50257, context=1024, mlp=3072)
GPT3_XL = DecoderShape(width=2048, layers=24, heads=16, vocabulary=50257, context=2048, mlp=8192)
LLAMA2_7B = DecoderShape(
    width=4096, layers=32, heads=32, vocabulary=32000, context=4096, mlp=11008, style="llama", tied=False
)


def decoder_rows(shape: DecoderShape) -> tuple[LayerWork, ...]:
    """Returns the rows of a decoder's layer table, in the order of its forward pass."""
    rows = [_embedding("embedding", shape, shape.vocabulary)]
    if shape.style == "gpt":
        rows.append(_embedding("positions", shape, shape.context))
    for number in range(1, shape.layers + 1):
        rows += _block(f"block{number}", shape)
    rows.append(_norm("norm", shape, residual=False))
    rows.append(_head(shape))
    return tuple(rows)


def _block(name: str, shape: DecoderShape) -> Iterator[LayerWork]:
    d, biased = shape.width, shape.style == "gpt"
    yield _norm(f"{name}.norm1", shape, residual=True)
    yield _dense(f"{name}.attention.inward", shape, d, 3 * d, bias=biased)
    yield _attention(f"{name}.attention.core", shape)
    yield _dense(f"{name}.attention.outward", shape, d, d, bias=biased, residual=True)
    yield _norm(f"{name}.norm2", shape, residual=True)
    if not biased:
        yield _dense(f"{name}.mlp.gate", shape, d, shape.mlp, bias=False, shared_input=True)
    yield _dense(f"{name}.mlp.up", shape, d, shape.mlp, bias=biased)
    yield _activation(f"{name}.mlp.activation", shape)
    yield _dense(f"{name}.mlp.down", shape, shape.mlp, d, bias=biased, residual=True)


def _embedding(name: str, shape: DecoderShape, entries: int) -> LayerWork:
    tokens, row = shape.context, FLOAT * shape.width
    adds = 2 * tokens * row if name == "positions" else 0  # the sum of both embeddings
    forward = Pass(0, tokens * (WORD + 2 * row) + adds, 0, 2 if adds else 1)
    backward = Pass(0, tokens * (WORD + row), entries * row, 1)
    return LayerWork(name, entries * shape.width, tokens * WORD, forward, backward)


def _norm(name: str, shape: DecoderShape, *, residual: bool) -> LayerWork:
    """`residual`: the gradient that passes around the block is added."""
    tokens, d = shape.context, shape.width
    vectors = 2 if shape.style == "gpt" else 1  # weight and bias, mean and deviation; or weight and root mean square
    forward = Pass(0, FLOAT * tokens * (2 * d + vectors), FLOAT * vectors * d, 1)
    moved = FLOAT * tokens * (3 * d + vectors + (3 * d if residual else 0))
    backward = Pass(0, moved, 2 * FLOAT * vectors * d, 2 if residual else 1)
    return LayerWork(name, vectors * d, FLOAT * tokens * (d + vectors), forward, backward)


def _dense(
    name: str,
    shape: DecoderShape,
    inputs: int,
    outputs: int,
    *,
    bias: bool,
    residual: bool = False,
    shared_input: bool = False,
) -> LayerWork:
    """A product with a weight matrix; `residual`: its result is added to the block's input."""
    tokens, weights, biases = shape.context, inputs * outputs, outputs if bias else 0
    product, moved = Product("dense", tokens, inputs, outputs), FLOAT * tokens * (inputs + outputs)
    add = 3 * FLOAT * tokens * outputs if residual else 0
    dropped = (
        (2 * FLOAT + 1) * tokens * outputs if residual and shape.attention == "plain" else 0
    )  # with a mask in bytes
    more = 1 if dropped else 0
    return LayerWork(
        name,
        weights + biases,
        (0 if shared_input else FLOAT * tokens * inputs) + more * tokens * outputs,
        Pass(product.flops, moved + add + dropped, FLOAT * (weights + biases), (2 if residual else 1) + more),
        Pass(
            2 * product.flops,
            2 * moved + FLOAT * tokens * biases + dropped,
            FLOAT * (2 * weights + biases),
            (3 if bias else 2) + more,
        ),
        (product,),
    )


def _attention(name: str, shape: DecoderShape) -> LayerWork:
    """Attention, after rotary embeddings of queries and keys if there are any.

    Plain attention writes the scores, reads and writes them for scale, mask, softmax and dropout, and reads them for
    the product with the values; backward likewise, once more for the gradient of each product.
    """
    tokens, d, heads = shape.context, shape.width, shape.heads
    scores = Product("attention", heads, d // heads, tokens, height_in=tokens, height_out=tokens)
    values = Product("attention", heads, tokens, d // heads, height_in=tokens, height_out=tokens)
    rotation = 4 * FLOAT * tokens * d if shape.style == "llama" else 0
    kernels = 2 if rotation else 1
    flops = scores.flops + values.flops
    square = FLOAT * heads * tokens * tokens if shape.attention == "plain" else 0
    more = (PLAIN_FORWARD - 1, PLAIN_BACKWARD - 1) if square else (0, 0)
    return LayerWork(
        name,
        0,
        FLOAT * tokens * (3 * d + heads) + 2 * square,  # queries, keys, values, the normalisation of each row; weights
        Pass(
            flops, FLOAT * tokens * (4 * d + heads) + rotation + 2 * (PLAIN_FORWARD - 1) * square, 0, kernels + more[0]
        ),
        Pass(
            2 * flops,
            FLOAT * tokens * (8 * d + heads) + rotation + 2 * (PLAIN_BACKWARD - 1) * square,
            0,
            kernels + more[1],
        ),
        (scores, values),
    )


def _activation(name: str, shape: DecoderShape) -> LayerWork:
    size = FLOAT * shape.context * shape.mlp
    inputs = 1 if shape.style == "gpt" else 2
    forward, backward = Pass(0, (inputs + 1) * size, 0, 1), Pass(0, (2 * inputs + 1) * size, 0, 1)
    return LayerWork(name, 0, inputs * size, forward, backward)


def _head(shape: DecoderShape) -> LayerWork:
    """The product with the output matrix; if it is the embedding, both gradients of it are added."""
    own = _dense("head", shape, shape.width, shape.vocabulary, bias=False)
    if not shape.tied:
        return own
    weights = FLOAT * shape.width * shape.vocabulary
    backward = Pass(
        own.backward.flops, own.backward.moved_bytes, own.backward.fixed_bytes + 3 * weights, own.backward.kernels + 1
    )
    return LayerWork(own.name, 0, own.saved_bytes, own.forward, backward, own.products)
