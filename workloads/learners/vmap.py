"""Gradients of one module at many weights and batches, computed together.

Rules of this file:

* `torch.func.vmap` says what is computed, for any module that it accepts; nothing is derived by hand.
* Blocks have few sizes, powers of two, and what is missing is filled with the last gradient's weights and batch, whose
  surplus answers are dropped: the rows of a block do not touch each other.
* The operations of a shape that has been asked for several times are recorded and repeated (`tensor_recording`): the
  same bits with a third of the calls, and intermediate results are dropped as soon as they have served.
* A block ends with its call: every answer is a vector of its own, which keeps nothing else alive.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap

from paceline.workloads.batches.examples import Batch
from paceline.workloads.models.tensor_recording import Function, recorded

LossAt = Callable[[tuple[Tensor, ...], Tensor, Tensor], Tensor]
"""mean loss at a module's parameters, of inputs and labels"""
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
        shapes: of the parameters, in the order in which they lie in a flat vector.
    """

    def __init__(self, loss_at: LossAt, shapes: Sequence[torch.Size]) -> None:
        self._shapes, self._sizes = shapes, [shape.numel() for shape in shapes]
        together = vmap(grad_and_value(loss_at))

        def flat(*given: Tensor) -> tuple[Tensor, ...]:
            *parameters, inputs, labels = given
            gradients, losses = together(tuple(parameters), inputs, labels)
            return (*gradients, losses)

        self._eager: Function = flat
        self._asked: Counter[Shape] = Counter()
        self._recorded: dict[Shape, Function] = {}
        self._blocks: dict[int, tuple[Tensor, Tensor]] = {}
        """for each size: room for weights and gradients, used again, since fresh memory costs as much as arithmetic"""

    def __call__(self, vectors: Sequence[Tensor], batch: Batch) -> list[tuple[Tensor, float]]:
        """Gradients, flat and new, and losses.

        Args:
            vectors: where, each flat.
            batch: of what, with a dimension in front for the vectors.
        """
        count = len(vectors)
        if count not in self._blocks:
            room = vectors[0].new_empty(2, count, len(vectors[0]))
            self._blocks[count] = room[0], room[1]
        weights, rows = self._blocks[count]
        with torch.no_grad():
            torch.stack(list(vectors), out=weights)
            parts = zip(weights.split(self._sizes, dim=1), self._shapes, strict=True)
            parameters = [part.view(count, *shape) for part, shape in parts]
            *gradients, losses = self._function(parameters, batch)(*parameters, *batch)
            torch.cat([gradient.reshape(count, -1) for gradient in gradients], dim=1, out=rows)
        return [(row.clone(), loss) for row, loss in zip(rows.unbind(), losses.tolist(), strict=True)]

    def _function(self, parameters: Sequence[Tensor], batch: Batch) -> Function:
        shape = batch.inputs.shape, batch.labels.shape
        if (known := self._recorded.get(shape)) is not None:
            return known
        self._asked[shape] += 1
        if self._asked[shape] > RECORDED_AFTER:
            self._recorded[shape] = recorded(self._eager, *parameters, *batch)
        return self._eager
