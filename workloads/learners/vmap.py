"""Gradients of one module at many weights and batches, computed together.

Rules of this file:

* `torch.func.vmap` derives the computation, for any module that it supports.
* Block sizes are powers of two. A block is padded with the last gradient's weights and batch, and the surplus results
  are dropped: the rows of a block are independent.
* If a shape is requested several times, its operations are recorded and repeated (`tensor_recording`): the same bits
  with a third of the calls, and intermediate results are freed after their last use.
* Every result is a separate vector, which does not keep its block alive.
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
"""the mean loss as a function of a module's parameters, inputs and labels"""
Shape = tuple[torch.Size, torch.Size]
"""the shapes of inputs and labels"""

SMALLEST = 8
"""number of gradients in the smallest block"""
RECORDED_AFTER = 20
"""number of calls of a shape before it is recorded; recording costs as much as these calls would save"""


def block_size(wanted: int, most: int) -> int:
    """Returns the size of a block for as many of the wanted gradients as possible.

    Args:
        wanted: number of gradients.
        most: largest size of a block.

    >>> [block_size(wanted, 32) for wanted in (5, 9, 32, 57)]
    [8, 16, 32, 32]
    """
    return min(most, max(SMALLEST, 1 << (wanted - 1).bit_length()))


class Joint:
    """Computes many gradients of a module together.

    Args:
        loss_at: the loss.
        shapes: shapes of the parameters, in their order in a flat vector.
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
        """reused buffers of weights and gradients by size, since new memory costs as much as the arithmetic"""

    def __call__(self, vectors: Sequence[Tensor], batch: Batch) -> list[tuple[Tensor, float]]:
        """Returns gradients, each a new flat vector, and losses.

        Args:
            vectors: the weights, each flat.
            batch: the batches, with an additional first dimension for the vectors.
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
