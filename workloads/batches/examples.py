"""Training and test data of a model: inputs and labels in memory.

Data do not depend on the seed, so that results of different seeds are about the same problem. They may be stored in a
compact form (bytes of a picture), and are converted for the model when a batch is drawn.

Handwritten digits: scikit-learn's 1797 pictures of 8 × 8, split and standardised.

* The split does not depend on the seed, so that results of different seeds are about the same problem.
* The file of this package has the pictures as scikit-learn splits them, because importing it takes longer than many
  runs. A test compares the file with scikit-learn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import resources
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paceline.workloads.reading.file import RecordFile

Loss = Callable[[Tensor, Tensor], Tensor]
"""a function of the module's outputs and the labels: the mean over the batch, as a tensor without dimensions"""


class LabelledBatch(NamedTuple):
    """Equally many inputs and labels; a batch of batches has an additional first dimension."""

    inputs: Tensor
    labels: Tensor

    def at(self, places: Tensor | slice) -> LabelledBatch:
        """Returns the examples at these positions, in the shape of a tensor of positions."""
        if isinstance(places, slice):
            return LabelledBatch(self.inputs[places], self.labels[places])
        chosen = (part.index_select(0, places.reshape(-1)) for part in self)  # five times as fast as part[places]
        return LabelledBatch(*(part.view(*places.shape, *part.shape[1:]) for part in chosen))

    def rounded(self, dtype: torch.dtype) -> LabelledBatch:
        """Returns the batch with floating-point numbers in this type; bytes and integers are not converted."""
        return LabelledBatch(*(part.to(dtype) if part.is_floating_point() else part for part in self))


def as_they_are(inputs: Tensor, _: torch.dtype) -> Tensor:
    """Returns the inputs unchanged, for inputs stored in the model's form."""
    return inputs


@dataclass(frozen=True, slots=True)
class Shaped:
    """Reshapes samples for the model, and converts bytes to floating-point numbers.

    Args:
        shape: shape of a sample for the model.
        kept: number of dimensions of a stored sample.

    >>> Shaped((1, 2, 2))(torch.zeros(5, 4), torch.float32).shape
    torch.Size([5, 1, 2, 2])
    """

    shape: tuple[int, ...]
    kept: int = 1

    def __call__(self, inputs: Tensor, dtype: torch.dtype) -> Tensor:
        return inputs.to(dtype).reshape(*inputs.shape[: inputs.dim() - self.kept], *self.shape)


@dataclass(frozen=True, slots=True)
class Standardised:
    """Converts bytes of pictures to numbers of mean 0 and deviation 1 in each channel, in the model's shape.

    Args:
        mean: mean of each channel, shape (channels, 1, 1).
        deviation: standard deviation of each channel, same shape.
        shape: shape of a sample for the model.

    >>> bright, two = torch.full((5, 1, 2, 2), 9, dtype=torch.uint8), torch.full((1, 1, 1), 2.0)
    >>> Standardised(two / 2, two, (4,))(bright, torch.float64)[0]
    tensor([4., 4., 4., 4.], dtype=torch.float64)
    """

    mean: Tensor
    deviation: Tensor
    shape: tuple[int, ...]

    @staticmethod
    def by(pictures: Tensor, shape: tuple[int, ...]) -> Standardised:
        """Returns a conversion by the mean and deviation of pictures; constant channels become 0.

        Args:
            pictures: samples × channels × height × width.
            shape: shape of a sample for the model.
        """
        return Standardised.counted(histogram(pictures), shape)

    @staticmethod
    def counted(counts: Tensor, shape: tuple[int, ...]) -> Standardised:
        """Returns the same conversion from the counts of each value.

        Args:
            counts: channels × 256, see `histogram`.
            shape: shape of a sample for the model.
        """
        values = torch.arange(256, dtype=torch.float64)
        shares = counts.double() / counts.sum(dim=1, keepdim=True)  # fraction of each value
        mean = shares @ values
        deviation = (shares @ values**2 - mean**2).clamp(min=0.0).sqrt()
        deviation[counts.count_nonzero(dim=1) == 1] = 1.0
        return Standardised(mean[:, None, None], deviation[:, None, None], shape)

    def __call__(self, inputs: Tensor, dtype: torch.dtype) -> Tensor:
        numbers = inputs.to(dtype).sub_(self.mean.to(dtype)).div_(self.deviation.to(dtype))
        return numbers.reshape(*inputs.shape[:-3], *self.shape)


def histogram(pictures: Tensor) -> Tensor:
    """Counts every value of a byte in each channel: channels × 256.

    >>> histogram(torch.full((5, 1, 2, 2), 9, dtype=torch.uint8))[0, 8:11]
    tensor([ 0, 20,  0])
    """
    return torch.stack([channel.reshape(-1).bincount(minlength=256) for channel in pictures.unbind(1)])


@dataclass(frozen=True, slots=True)
class Examples:
    """A data set, split in two.

    Args:
        train: the training data; if they are in a file, only the first few.
        test: the held-out data.
        classes: number of classes; None if labels are not classes, so that there is no accuracy.
        prepare: converts stored inputs to inputs of the model, in the run's type.
        file: the file of all training data, if they are not in memory.
    """

    train: LabelledBatch
    test: LabelledBatch
    classes: int | None
    prepare: Callable[[Tensor, torch.dtype], Tensor] = as_they_are
    file: RecordFile | None = None

    @property
    def num_samples(self) -> int:
        """Number of training samples."""
        return len(self.train.labels) if self.file is None else self.file.num_samples

    def rounded(self, dtype: torch.dtype) -> Examples:
        """Returns the same examples, rounded to this type."""
        return replace(self, train=self.train.rounded(dtype), test=self.test.rounded(dtype))

    def limited(self, samples: int | None) -> Examples:
        """Returns a part of the data set: so many training samples, and the same share of the held-out ones.

        They are the first of an order that is the same for all seeds, so a smaller part lies in a larger one.

        Args:
            samples: the number of training samples, at most those that there are; None: all.
        """
        if samples is None or samples == self.num_samples:
            return self
        return _part(self, samples)

    def first(self, count: int) -> LabelledBatch:
        """Returns the first training samples in the model's form, in single precision."""
        return self.shaped(self.train.at(slice(0, count)).rounded(torch.float32), torch.float32)

    def shaped(self, batch: LabelledBatch, dtype: torch.dtype) -> LabelledBatch:
        """Converts a batch to the model's form.

        Args:
            batch: a batch in its stored form.
            dtype: the type of floating-point numbers.
        """
        return LabelledBatch(self.prepare(batch.inputs, dtype), batch.labels)


@lru_cache(maxsize=2)
def _part(examples: Examples, samples: int) -> Examples:
    held_out = max(1, round(len(examples.test.labels) * samples / examples.num_samples))
    train, test = (
        half.at(torch.from_numpy(np.sort(np.random.default_rng(0).permutation(len(half.labels))[:count])))
        for half, count in ((examples.train, samples), (examples.test, held_out))
    )
    return replace(examples, train=train, test=test)


FILE = "digits.npz"
"""FOUND UCI's optical recognition of handwritten digits (CC BY 4.0), as `sklearn.datasets.load_digits` returns it, in
the two parts of `train_test_split(pixels, labels, test_size=0.2, stratify=labels, random_state=0)`: ``train``,
``train_labels``, ``test``, ``test_labels``, as bytes; ``train_places`` and ``test_places`` are their places there"""


def pixels_and_labels() -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Returns all digits in the order of UCI's file: 1797 × 64 pixels from 0 to 16, and the labels.

    >>> pixels, labels = pixels_and_labels()
    >>> pixels.shape, labels[:10].tolist()
    ((1797, 64), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    """
    parts = _file()
    order = np.argsort(np.concatenate([parts["train_places"], parts["test_places"]]))
    pixels = np.concatenate([parts["train"], parts["test"]])
    return pixels[order], np.concatenate([parts["train_labels"], parts["test_labels"]])[order]


def _file() -> dict[str, NDArray[Any]]:
    with resources.files("paceline.workloads").joinpath("tables", FILE).open("rb") as file, np.load(file) as parts:
        return dict(parts)


@lru_cache(maxsize=1)
def digits() -> Examples:
    """Returns the digits: 80 % for training, 20 % held out, each class split the same (seed 0 in every run).

    Each pixel is standardised by its mean and deviation over the training part; pixels that are constant there stay 0.
    """
    parts = _file()
    train, test = (parts[name].astype(np.float64) for name in ("train", "test"))
    labels = [torch.tensor(parts[name].astype(np.int64)) for name in ("train_labels", "test_labels")]
    mean, deviation = train.mean(axis=0), train.std(axis=0)
    changes = deviation > 0

    def standardised(part: NDArray[np.float64]) -> Tensor:
        return torch.tensor(np.where(changes, (part - mean) / np.where(changes, deviation, 1.0), 0.0))

    return Examples(
        train=LabelledBatch(standardised(train), labels[0]),
        test=LabelledBatch(standardised(test), labels[1]),
        classes=10,
    )
