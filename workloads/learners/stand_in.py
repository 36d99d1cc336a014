"""A stand-in for a big model: the numbers of a small problem with the sizes and batches of the model.

Programs, networks and clocks use the layers, bytes and batches of the big model. Only gradients and evaluations are
those of the small problem. So the same events happen at the same times as without numbers. A batch of `batch` samples
of the model corresponds to `stand_for` samples of the problem, and other batches in proportion, rounded such that the
sum over a global batch is correct and no batch is empty.

A learner for timing only: weights and gradients have a size but no numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from paceline.algorithms.core.job import Evaluation, Learner, OneByOne
from paceline.algorithms.core.values import Layout, Null, Samples, length
from paceline.algorithms.runtime.sized import RepresentedSize, Sized


@dataclass(frozen=True, slots=True)
class TimingOnly(OneByOne):
    """A learner without numbers. Losses are NaN and there is no accuracy.

    Args:
        layout: the layers, which determine the size of the vectors.
        num_samples: number of samples in one epoch.
        item_bytes: bytes of one number, 4 or 8.
    """

    layout: Layout
    num_samples: int
    item_bytes: int = 4

    def initial(self) -> Null:
        return Null(self.layout.size, self.item_bytes)

    def load(self, samples: Samples) -> None:
        """Returns no data."""

    def gradient(self, vector: Null, data: None) -> tuple[Null, float]:
        return vector, math.nan

    def layer_gradients(self, vector: Null, data: None, ready: Callable[[str, Null], None]) -> float:
        for layer in reversed(self.layout.layers):
            ready(layer.name, vector[layer.part])
        return math.nan

    def evaluate(self, vector: Null) -> Evaluation:
        return Evaluation(math.nan, None)


@dataclass(frozen=True)
class StandIn:
    """A learner with the numbers of one problem and the sizes of another.

    Args:
        problem: the problem that is learned.
        layout: the model's layers.
        batch: samples of one gradient of the model.
        stand_for: samples of the problem that correspond to such a batch.
        item_bytes: bytes of one of the model's numbers.
    """

    problem: Learner
    layout: Layout
    batch: int
    stand_for: int
    item_bytes: int = 4
    fit: RepresentedSize = field(init=False)

    def __post_init__(self) -> None:
        numbers = length(self.problem.initial())
        object.__setattr__(self, "fit", RepresentedSize(numbers, self.layout.size, self.item_bytes))

    @property
    def num_samples(self) -> int:
        """Number of samples in one epoch of the problem, in samples of the model."""
        return self.problem.num_samples * self.batch // self.stand_for

    def initial(self) -> Sized:
        return self.fit.dress(self.problem.initial())

    def load(self, samples: Samples) -> Any:
        return self.problem.load(self.scaled(samples))

    def scaled(self, samples: Samples) -> Samples:
        """Returns the problem's samples that correspond to those of the model.

        If all workers have equal batches, those of the problem are equal too. Otherwise a worker's part is from
        ⌊first s / b⌋ to ⌊(first + count) s / b⌋, or one sample if that is empty.
        """
        if samples.before is None and samples.together is None:
            return replace(samples, count=max(1, self._fewer(samples.count)))
        first = samples.worker * samples.count if samples.before is None else samples.before
        whole = samples.workers * samples.count if samples.together is None else samples.together
        before, together = self._fewer(first), max(1, self._fewer(whole))
        count = max(1, self._fewer(first + samples.count) - before)
        return replace(samples, count=count, before=min(before, together - count), together=together)

    def _fewer(self, count: int) -> int:
        return count * self.stand_for // self.batch

    def gradient(self, vector: Sized, data: Any) -> tuple[Sized, float]:
        gradient, loss = self.problem.gradient(vector.numbers, data)
        return self.fit.dress(gradient), loss

    def gradients(self, vectors: Sequence[Sized], samples: Sequence[Samples]) -> list[tuple[Sized, float]]:
        answers = self.problem.gradients(
            [vector.numbers for vector in vectors], [self.scaled(sample) for sample in samples]
        )
        return [(self.fit.dress(gradient), loss) for gradient, loss in answers]

    def layer_gradients(self, vector: Sized, data: Any, ready: Callable[[str, Sized], None]) -> float:
        gradient, loss = self.gradient(vector, data)
        for layer in reversed(self.layout.layers):
            ready(layer.name, gradient[layer.part])
        return loss

    def evaluate(self, vector: Sized) -> Evaluation:
        return self.problem.evaluate(vector.numbers)
