"""Gradients of one module at many weights and batches, computed together.

Rules of this file:

* `torch.func.vmap` says what is computed, for any module that it accepts; nothing is derived by hand.
* Blocks have few sizes, powers of two, and what is missing is filled with the last gradient's weights and batch, whose
  surplus answers are dropped: the rows of a block do not touch each other.
* The operations of a shape that has been asked for several times are recorded and repeated (`recording`): the same bits
  with a third of the calls, and intermediate results are dropped as soon as they have served.
* A block ends with its call: every answer is a vector of its own, which keeps nothing else alive.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap

from paceline.workloads.examples import Batch
from paceline.workloads.recording import Function, recorded

LossAt = Callable[[Tensor, Tensor, Tensor], Tensor]
"""mean loss at flat weights, of inputs and labels"""
Shape = tuple[torch.Size, torch.Size]
"""of inputs and labels"""

SMALLEST = 8
"""gradients in the smallest block"""
RECORDED_AFTER = 20
"""calls of one shape; recording takes as long as they would gain"""


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
        self._eager: Function = vmap(grad_and_value(loss_at))
        self._asked: Counter[Shape] = Counter()
        self._recorded: dict[Shape, Function] = {}

    def __call__(self, vectors: Sequence[Tensor], batch: Batch) -> list[tuple[Tensor, float]]:
        """Gradients, flat and new, and losses.

        Args:
            vectors: where, each flat.
            batch: of what, with a dimension in front for the vectors.
        """
        weights = torch.stack(list(vectors))
        with torch.no_grad():
            gradients, losses = self._function(weights, batch)(weights, *batch)
        return [(row.clone(), loss) for row, loss in zip(gradients.unbind(), losses.tolist(), strict=True)]

    def _function(self, weights: Tensor, batch: Batch) -> Function:
        shape = batch.inputs.shape, batch.labels.shape
        if (known := self._recorded.get(shape)) is not None:
            return known
        self._asked[shape] += 1
        if self._asked[shape] > RECORDED_AFTER:
            self._recorded[shape] = recorded(self._eager, weights, *batch)
        return self._eager
