"""What a model is trained on and tested on: inputs and labels, in whatever form they are kept in memory.

Rules of this file: data never change, whatever the seed, so that results of different seeds are about the same problem.
They may be kept small (bytes of a picture) and are made into what a model takes when a batch is chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor


class Batch(NamedTuple):
    """Inputs and labels, as many of the one as of the other; a batch of batches has a dimension more in front."""

    inputs: Tensor
    labels: Tensor

    def at(self, places: Tensor | slice) -> Batch:
        """The examples at these places; of a tensor of places, in its shape."""
        return Batch(self.inputs[places], self.labels[places])


def as_they_are(inputs: Tensor, _: torch.dtype) -> Tensor:
    """Inputs that are kept as a model takes them."""
    return inputs


@dataclass(frozen=True, slots=True)
class Examples:
    """A data set, split in two.

    Args:
        train: to learn from.
        test: held out.
        classes: how many there are; None where labels are no classes, and there is no accuracy.
        prepare: makes inputs as they are kept into what a model takes, in the run's precision.
    """

    train: Batch
    test: Batch
    classes: int | None
    prepare: Callable[[Tensor, torch.dtype], Tensor] = as_they_are

    def rounded(self, dtype: torch.dtype) -> Examples:
        """The same examples, with inputs that are numbers in this precision; bytes and whole numbers stay."""
        if not self.train.inputs.is_floating_point():
            return self
        train, test = (Batch(part.inputs.to(dtype), part.labels) for part in (self.train, self.test))
        return replace(self, train=train, test=test)

    def shaped(self, batch: Batch, dtype: torch.dtype) -> Batch:
        """A batch as a model takes it."""
        return Batch(self.prepare(batch.inputs, dtype), batch.labels)
