"""The sources of a learner's batches: examples in memory, or a file.

A batch is a function of `Samples` alone, independent of earlier requests. Data that is cached between two batches only
saves time.
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
from paceline.workloads.batches.examples import LabelledBatch
from paceline.workloads.sampling import positions


class Draw(Protocol):
    """A source of batches in their stored form, which `Examples.shaped` converts for a model."""

    @property
    def num_samples(self) -> int:
        """Samples in one epoch."""
        ...

    def batch(self, samples: Samples) -> LabelledBatch:
        """Returns the examples of one step of one worker."""
        ...

    def batches(self, samples: Sequence[Samples]) -> LabelledBatch:
        """Returns the examples of several steps with equally many samples, with an additional first dimension."""
        ...


@runtime_checkable
class RequestCounting(Protocol):
    """A source that counts the requests of its workers to a file."""

    def reads(self, worker: int) -> tuple[int, int, int]:
        """Returns the requests, seeks and bytes of this process for a worker so far."""
        ...


@dataclass(frozen=True, slots=True)
class InMemoryExamples:
    """Draws from examples that are in memory.

    Args:
        train: the examples.
        order: returns the positions of a step's samples.
    """

    train: LabelledBatch
    order: Callable[[Samples], NDArray[np.int64]]

    @staticmethod
    def shuffled(train: LabelledBatch, seed: int) -> InMemoryExamples:
        """Returns a source whose order is shuffled in every epoch; see `sampling`.

        Args:
            train: the examples.
            seed: seed of the order.
        """
        return InMemoryExamples(train, partial(positions, num_samples=len(train.labels), seed=seed))

    @property
    def num_samples(self) -> int:
        return len(self.train.labels)

    def batch(self, samples: Samples) -> LabelledBatch:
        return self.train.at(torch.from_numpy(self.order(samples).copy()))

    def batches(self, samples: Sequence[Samples]) -> LabelledBatch:
        chosen = {sample: self.order(sample) for sample in samples}  # a block may be padded with copies
        return self.train.at(torch.from_numpy(np.stack([chosen[sample] for sample in samples])))
