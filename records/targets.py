"""The targets of a run: when its evaluations reach them, in time, samples and updates, and whether it diverges.

* Targets are compared with the smoothed curve, the mean of the last `SMOOTHING` evaluations. Time, samples and updates
  to a target are interpolated linearly between the two evaluations around the crossing; the distance of these
  evaluations is the resolution of the figure. A figure is None if the target is not reached or not set.
* Samples and updates to a target show the statistical efficiency of a method alone; the time to a target also depends
  on the speed of the cluster.
* The same rules apply to the figures of a finished run and to the decision to end a run, in every interpreter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from paceline.algorithms.core.job import Budget, Evaluation, Reason
from paceline.records.metrics import smoothed

if TYPE_CHECKING:
    import pandas as pd

SMOOTHING = 3
"""number of evaluations in the trailing mean that is compared with targets; provenance: ours"""

DIVERGED = 10.0
"""a loss larger than this multiple of the first one counts as diverged; provenance: ours"""


def reading(smoothing: int = SMOOTHING) -> str:
    """Returns a description of how figures at a target are computed.

    >>> reading()
    'interpolated linearly between evaluations, on the mean of the last 3'
    """
    return f"interpolated linearly between evaluations, on the mean of the last {smoothing}"


def has_diverged(losses: Sequence[float]) -> bool:
    """Returns whether the last loss is NaN or infinite, or more than ten times the first one.

    A run whose first loss is not finite never counts as diverged.

    >>> has_diverged([2.3, 0.1]), has_diverged([2.3, float("nan")]), has_diverged([float("nan")] * 2)
    (False, True, False)
    """
    if not losses or not math.isfinite(losses[0]):
        return False
    return not math.isfinite(losses[-1]) or 0 < DIVERGED * losses[0] < losses[-1]


@dataclass(frozen=True, slots=True)
class Crossing:
    """Where a curve first reaches a target: at the fraction `share` between evaluations `index` − 1 and `index`.

    >>> Crossing(2, 0.5).at([0.0, 10.0, 20.0]), Crossing(2, 0.5).resolution([0.0, 10.0, 20.0])
    (15.0, 10.0)
    """

    index: int
    share: float = 1.0

    def at(self, positions: Sequence[float]) -> float:
        """Returns the interpolated position on an axis (times, samples, …), given the position of every evaluation."""
        end = positions[self.index]
        return float(end - (1 - self.share) * self.resolution(positions))

    def resolution(self, positions: Sequence[float]) -> float:
        """Returns the distance of the two evaluations around it; 0 at the first evaluation."""
        return float(positions[self.index] - positions[self.index - 1]) if self.index else 0.0


def crossing(target: float, values: Sequence[float], *, falling: bool = False) -> Crossing | None:
    """Finds where `values` first reach `target`, with linear interpolation; None if they do not.

    share = (target − before) / (value − before)

    Args:
        target: in the unit of `values`.
        values: one for each evaluation, in order. NaN does not reach a target, and there is no interpolation after NaN.
        falling: whether the target is reached from above, as for losses.

    >>> crossing(0.9, [0.1, 0.8, 1.0]), crossing(0.5, [2.0, 1.0, 0.5], falling=True), crossing(0.5, [0.1, 0.2])
    (Crossing(index=2, share=0.5), Crossing(index=2, share=1.0), None)
    """
    for index, value in enumerate(values):
        if value <= target if falling else value >= target:
            before = values[index - 1] if index else math.nan
            inside = math.isfinite(before) and math.isfinite(value)
            return Crossing(index, (target - before) / (value - before)) if inside else Crossing(index)
    return None


class Goal:
    """Decides whether an evaluation ends the run: by a smoothed accuracy, a smoothed loss, or divergence.

    The smoothed values are used because a single evaluation can reach a target before the mean does; a run that ended
    there would not have reached its target by its own figures.

    Args:
        budget: the targets for the mean of the last evaluations, and whether divergence ends the run.

    >>> goal = Goal(Budget(accuracy=0.5, divergence=True))
    >>> [goal.reached(Evaluation(1.0, accuracy)) for accuracy in (0.2, 0.6, 0.6, 0.6)]
    [None, None, None, 'accuracy']
    >>> goal.reached(Evaluation(11.0, 0.1))
    'divergence'
    """

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self._losses: list[float] = []
        self._accuracies: list[float] = []

    def reached(self, score: Evaluation) -> Reason | None:
        """Adds an evaluation; returns the reason if the run ends with it, else None."""
        self._losses.append(score.loss)
        self._accuracies.append(math.nan if score.accuracy is None else score.accuracy)
        if _reaches(self.budget.accuracy, self._accuracies):
            return "accuracy"
        if _reaches(self.budget.loss, self._losses, falling=True):
            return "loss"
        return "divergence" if self.budget.divergence and has_diverged(self._losses) else None

    @property
    def loss(self) -> float:
        """The smoothed loss; NaN before the first evaluation."""
        return _last_smoothed(self._losses)

    @property
    def accuracy(self) -> float:
        """The smoothed accuracy; NaN before the first evaluation, and if the problem has none."""
        return _last_smoothed(self._accuracies)


def _last_smoothed(values: Sequence[float]) -> float:
    return float(smoothed(values[-SMOOTHING:], SMOOTHING)[-1]) if values else math.nan


def _reaches(target: float | None, values: Sequence[float], *, falling: bool = False) -> bool:
    """Returns whether the last smoothed value has reached the target."""
    if target is None:
        return False
    return crossing(target, [_last_smoothed(values)], falling=falling) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """What a run aims at.

    Args:
        accuracy: the target accuracy, reached from below; None without one.
        loss: the target loss, reached from above; None without one.
        smoothing: number of evaluations in the trailing mean that is compared with them.
    """

    accuracy: float | None = None
    loss: float | None = None
    smoothing: int = SMOOTHING

    def crossings(self, *, losses: Sequence[float], accuracies: Sequence[float]) -> dict[str, Crossing | None]:
        """Returns where the smoothed curves of a run first reach the targets; None where they do not, or none is set.

        Args:
            losses: one for each evaluation.
            accuracies: the same.

        >>> Targets(accuracy=0.5, smoothing=1).crossings(losses=[2.0, 1.0], accuracies=[0.0, 1.0])
        {'accuracy': Crossing(index=1, share=0.5), 'loss': None}
        """
        up, down = (smoothed(values, self.smoothing).tolist() for values in (accuracies, losses))
        return {
            "accuracy": None if self.accuracy is None else crossing(self.accuracy, up),
            "loss": None if self.loss is None else crossing(self.loss, down, falling=True),
        }


NO_TARGETS = Targets()


@dataclass(frozen=True, slots=True)
class Axes:
    """The time, samples and updates at each evaluation of a run."""

    times_s: Sequence[float]
    samples: Sequence[float]
    updates: Sequence[float]


def axes_of(evaluations: pd.DataFrame, updates: pd.DataFrame) -> Axes:
    """Returns the axes of a run.

    Args:
        evaluations: the table.
        updates: one row for each update that counts; an evaluation at the time of an update follows it.
    """
    times_s = evaluations["time_s"].to_numpy()
    done = np.searchsorted(np.sort(updates["time_s"].to_numpy()), times_s, side="right")
    return Axes(times_s.tolist(), evaluations["samples"].tolist(), done.tolist())
