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

from paceline.workloads.reading.file import RecordFile

Loss = Callable[[Tensor, Tensor], Tensor]
"""of what the module answers and the labels: the mean over the batch, as a tensor without dimensions"""


class Batch(NamedTuple):
    """Inputs and labels, as many of the one as of the other; a batch of batches has a dimension more in front."""

    inputs: Tensor
    labels: Tensor

    def at(self, places: Tensor | slice) -> Batch:
        """The examples at these places; of a tensor of places, in its shape."""
        if isinstance(places, slice):
            return Batch(self.inputs[places], self.labels[places])
        chosen = (part.index_select(0, places.reshape(-1)) for part in self)  # five times as fast as part[places]
        return Batch(*(part.view(*places.shape, *part.shape[1:]) for part in chosen))

    def rounded(self, dtype: torch.dtype) -> Batch:
        """The same, with numbers in this precision; bytes and whole numbers stay."""
        return Batch(*(part.to(dtype) if part.is_floating_point() else part for part in self))


def as_they_are(inputs: Tensor, _: torch.dtype) -> Tensor:
    """Inputs that are kept as a model takes them."""
    return inputs


@dataclass(frozen=True, slots=True)
class Shaped:
    """Makes samples into the model's shape, and into numbers if they are bytes.

    Args:
        shape: of a sample as the model takes it.
        kept: dimensions of a sample as it is kept.

    >>> Shaped((1, 2, 2))(torch.zeros(5, 4), torch.float32).shape
    torch.Size([5, 1, 2, 2])
    """

    shape: tuple[int, ...]
    kept: int = 1

    def __call__(self, inputs: Tensor, dtype: torch.dtype) -> Tensor:
        return inputs.to(dtype).reshape(*inputs.shape[: inputs.dim() - self.kept], *self.shape)


@dataclass(frozen=True, slots=True)
class Standardised:
    """Makes bytes of pictures into numbers of mean 0 and deviation 1 in each channel, in the model's shape.

    Args:
        mean: of each channel, channels × 1 × 1.
        deviation: likewise.
        shape: of a sample as the model takes it.

    >>> bright, two = torch.full((5, 1, 2, 2), 9, dtype=torch.uint8), torch.full((1, 1, 1), 2.0)
    >>> Standardised(two / 2, two, (4,))(bright, torch.float64)[0]
    tensor([4., 4., 4., 4.], dtype=torch.float64)
    """

    mean: Tensor
    deviation: Tensor
    shape: tuple[int, ...]

    @staticmethod
    def by(pictures: Tensor, shape: tuple[int, ...]) -> Standardised:
        """By the mean and deviation of these: samples × channels × height × width. What never changes becomes 0."""
        return Standardised.counted(histogram(pictures), shape)

    @staticmethod
    def counted(counts: Tensor, shape: tuple[int, ...]) -> Standardised:
        """The same, by how often every value comes: see `histogram`."""
        values = torch.arange(256, dtype=torch.float64)
        shares = counts.double() / counts.sum(dim=1, keepdim=True)  # of each value
        mean = shares @ values
        deviation = (shares @ values**2 - mean**2).clamp(min=0.0).sqrt()
        deviation[counts.count_nonzero(dim=1) == 1] = 1.0
        return Standardised(mean[:, None, None], deviation[:, None, None], shape)

    def __call__(self, inputs: Tensor, dtype: torch.dtype) -> Tensor:
        numbers = inputs.to(dtype).sub_(self.mean.to(dtype)).div_(self.deviation.to(dtype))
        return numbers.reshape(*inputs.shape[:-3], *self.shape)


def histogram(pictures: Tensor) -> Tensor:
    """How often every value of a byte comes in each channel: channels × 256.

    >>> histogram(torch.full((5, 1, 2, 2), 9, dtype=torch.uint8))[0, 8:11]
    tensor([ 0, 20,  0])
    """
    return torch.stack([channel.reshape(-1).bincount(minlength=256) for channel in pictures.unbind(1)])


@dataclass(frozen=True, slots=True)
class Examples:
    """A data set, split in two.

    Args:
        train: to learn from; where they stay in a file, its first few.
        test: held out.
        classes: how many there are; None where labels are no classes, and there is no accuracy.
        prepare: makes inputs as they are kept into what a model takes, in the run's precision.
        file: where all that is to learn from lies, if it is not in memory.
    """

    train: Batch
    test: Batch
    classes: int | None
    prepare: Callable[[Tensor, torch.dtype], Tensor] = as_they_are
    file: RecordFile | None = None

    @property
    def num_samples(self) -> int:
        """Samples to learn from."""
        return len(self.train.labels) if self.file is None else self.file.num_samples

    def rounded(self, dtype: torch.dtype) -> Examples:
        """The same examples, rounded."""
        return replace(self, train=self.train.rounded(dtype), test=self.test.rounded(dtype))

    def first(self, count: int) -> Batch:
        """The first few to learn from, as a model takes them in single precision."""
        return self.shaped(self.train.at(slice(0, count)).rounded(torch.float32), torch.float32)

    def shaped(self, batch: Batch, dtype: torch.dtype) -> Batch:
        """A batch as a model takes it."""
        return Batch(self.prepare(batch.inputs, dtype), batch.labels)
