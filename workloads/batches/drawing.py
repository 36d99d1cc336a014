"""Where a learner's batches come from: examples in memory, or a file.

Rules of this file: a batch follows from `Samples` alone, whoever asks, how often and in which order. What is kept
between two batches saves time and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray

from paceline.algorithms.core.values import Samples
from paceline.workloads.batches.examples import Batch
from paceline.workloads.sampling import positions


class Draw(Protocol):
    """Answers batches, as they are kept: `Examples.shaped` makes them into what a model takes."""

    @property
    def num_samples(self) -> int:
        """Samples in one epoch."""
        ...

    def batch(self, samples: Samples) -> Batch:
        """The examples of one step of one worker."""
        ...

    def batches(self, samples: Sequence[Samples]) -> Batch:
        """Those of several steps with as many samples each, with a dimension more in front."""
        ...


@runtime_checkable
class Counting(Protocol):
    """A draw that counts what its workers ask of a file."""

    def reads(self, worker: int) -> tuple[int, int, int]:
        """Requests, seeks and bytes of this process for a worker so far."""
        ...


@dataclass(frozen=True, slots=True)
class InMemory:
    """Draws from examples that are in memory.

    Args:
        train: the examples.
        order: where the samples of a step are among them.
    """

    train: Batch
    order: Callable[[Samples], NDArray[np.int64]]

    @staticmethod
    def shuffled(train: Batch, seed: int) -> InMemory:
        """In an order that is shuffled anew every epoch; see `sampling`."""
        return InMemory(train, partial(positions, num_samples=len(train.labels), seed=seed))

    @property
    def num_samples(self) -> int:
        return len(self.train.labels)

    def batch(self, samples: Samples) -> Batch:
        return self.train.at(torch.from_numpy(self.order(samples).copy()))

    def batches(self, samples: Sequence[Samples]) -> Batch:
        chosen = {one: self.order(one) for one in samples}  # a block may be filled up with one and the same
        return self.train.at(torch.from_numpy(np.stack([chosen[one] for one in samples])))
