"""Gradients of one module at many weights and batches, computed together.

Rules of this file:

* `torch.func.vmap` says what is computed, for any module that it accepts; nothing is derived by hand.
* Blocks have few sizes, powers of two, and what is missing is filled with the last gradient's weights and batch, whose
  surplus answers are dropped: the rows of a block do not touch each other.
* The plain tensor operations of a block are recorded once for each of its shapes and then repeated without functorch:
  the same operations on the same numbers, so the same bits, but a third of the calls and intermediate results that are
  dropped at once. Recording takes as long as a few hundred calls, so a shape must have been asked for often.
* A block ends with its call: every answer is a vector of its own, which keeps nothing else alive.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap
from torch.fx.experimental.proxy_tensor import make_fx

from paceline.workloads.examples import Batch

LossAt = Callable[[Tensor, Tensor, Tensor], Tensor]
"""mean loss at flat weights, of inputs and labels"""
Blockwise = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""gradients, one a row, and losses of stacked weights (or the one vector of all), inputs and labels"""

SMALLEST = 8
"""gradients in the smallest block"""
RECORDED_AFTER = 50
"""calls of one shape"""


class Shape(NamedTuple):
    """What must agree for a recording to be repeated."""

    same: bool
    """all gradients are at the same weights"""
    inputs: torch.Size
    labels: torch.Size


def block_size(wanted: int, most: int) -> int:
    """How many gradients a block has that holds as many of the `wanted` as it can.

    >>> [block_size(wanted, 32) for wanted in (5, 9, 32, 57)]
    [8, 16, 32, 32]
    """
    return min(most, max(SMALLEST, 1 << (wanted - 1).bit_length()))


class Joint:
    """A module's gradients, many at a time.

    Args:
        loss_at: what the gradients are of.
    """

    def __init__(self, loss_at: LossAt) -> None:
        one = grad_and_value(loss_at)
        self._each: Blockwise = vmap(one)
        self._same: Blockwise = vmap(one, in_dims=(None, 0, 0))
        self._asked: Counter[Shape] = Counter()
        self._recorded: dict[Shape, Blockwise] = {}

    def __call__(self, vectors: Sequence[Tensor], batch: Batch) -> list[tuple[Tensor, float]]:
        """Gradients, flat and new, and losses.

        Weights that are equal are not stacked: replicas that agree share one vector, and a product with it.

        Args:
            vectors: where, each flat.
            batch: of what, with a dimension in front for the vectors.
        """
        first = vectors[0]
        same = all(other is first or torch.equal(first, other) for other in vectors)
        weights = first if same else torch.stack(list(vectors))
        with torch.no_grad():
            gradients, losses = self._function(same, weights, batch)(weights, *batch)
        return [(row.clone(), loss) for row, loss in zip(gradients.unbind(), losses.tolist(), strict=True)]

    def _function(self, same: bool, weights: Tensor, batch: Batch) -> Blockwise:
        shape = Shape(same, batch.inputs.shape, batch.labels.shape)
        if (known := self._recorded.get(shape)) is not None:
            return known
        eager = self._same if same else self._each
        self._asked[shape] += 1
        if self._asked[shape] >= RECORDED_AFTER:
            self._recorded[shape] = _recorded(eager, weights, *batch)
        return eager


def _recorded(function: Blockwise, *examples: Tensor) -> Blockwise:
    """The operations of `function` on tensors of these shapes; itself where they cannot be recorded."""

    def called(weights: Tensor, inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        return function(weights, inputs, labels)  # tracing misreads the arguments of a bound method

    try:
        graph = make_fx(called)(*examples)
        agrees = all(map(torch.equal, graph(*examples), function(*examples)))
    except Exception:  # whatever tracing does not know; the function itself stays right
        return function
    for node in graph.graph.nodes:
        node.meta.clear()  # tensors of the recording
    forward: Any = graph.forward
    return forward if agrees else function
