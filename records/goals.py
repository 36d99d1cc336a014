"""What a run is to reach, and what its evaluations say of it: how far it got, and whether it came apart.

Rules of this file:

* Targets are held against the smoothed curve, the mean of the last `SMOOTHING` evaluations. Time, samples and updates
  to a target are read from it by linear interpolation between the two evaluations around the crossing; how far these
  lie apart is the resolution of what is read.
* What is read afterwards and what ends a run while it lasts are the same rules, in every interpreter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.algorithms.core.job import Budget, Evaluation, Reason
from paceline.records.metrics import smoothed

SMOOTHING = 3
"""evaluations in the trailing mean that targets are held against; provenance: ours"""

DIVERGED = 10.0
"""a loss of more than so many times the first one counts as diverged; provenance: ours"""


def reading(smoothing: int = SMOOTHING) -> str:
    """How figures at a target are read, in words.

    >>> reading()
    'interpolated linearly between evaluations, on the mean of the last 3'
    """
    return f"interpolated linearly between evaluations, on the mean of the last {smoothing}"


def has_diverged(losses: Sequence[float]) -> bool:
    """Whether a loss that was a number is none any more, or has grown tenfold.

    >>> has_diverged([2.3, 0.1]), has_diverged([2.3, float("nan")]), has_diverged([float("nan")] * 2)
    (False, True, False)
    """
    if not losses or not math.isfinite(losses[0]):
        return False
    return not math.isfinite(losses[-1]) or 0 < DIVERGED * losses[0] < losses[-1]


@dataclass(frozen=True, slots=True)
class Crossing:
    """Where a curve first reaches a target: `share` of the way from the evaluation before to evaluation `index`.

    >>> Crossing(2, 0.5).at([0.0, 10.0, 20.0]), Crossing(2, 0.5).resolution([0.0, 10.0, 20.0])
    (15.0, 10.0)
    """

    index: int
    share: float = 1.0

    def at(self, positions: Sequence[float]) -> float:
        """Where on an axis (times, samples, …) that has a position for every evaluation."""
        end = positions[self.index]
        return float(end - (1 - self.share) * self.resolution(positions))

    def resolution(self, positions: Sequence[float]) -> float:
        """How far the evaluations around it lie apart; 0 where it is the first of all."""
        return float(positions[self.index] - positions[self.index - 1]) if self.index else 0.0


def crossing(target: float, values: Sequence[float], *, falling: bool = False) -> Crossing | None:
    """Where `values` first reach `target`, linearly between evaluations; None if they never do.

    share = (target − before) / (value − before)

    Args:
        target: in the unit of `values`.
        values: of the evaluations in order; NaN counts as not reached, and after a NaN nothing is interpolated.
        falling: whether values reach it from above, as losses do.

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
    """What ends a run at an evaluation: a smoothed accuracy, a smoothed loss, or that it has diverged.

    A single evaluation passes earlier than its mean with those before: a run that ended there would never have reached
    the accuracy for which it ended.

    Args:
        budget: what the mean of the last evaluations has to reach, if anything, and whether divergence ends the run.

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
        """Takes note of the next evaluation; answers why the run is to end with it, if it is."""
        self._losses.append(score.loss)
        self._accuracies.append(math.nan if score.accuracy is None else score.accuracy)
        if _reaches(self.budget.accuracy, self._accuracies):
            return "accuracy"
        if _reaches(self.budget.loss, self._losses, falling=True):
            return "loss"
        return "divergence" if self.budget.divergence and has_diverged(self._losses) else None


def _reaches(target: float | None, values: Sequence[float], *, falling: bool = False) -> bool:
    """Whether the last of the smoothed values has reached the target."""
    if target is None:
        return False
    last = smoothed(values[-SMOOTHING:], SMOOTHING)[-1:].tolist()
    return crossing(target, last, falling=falling) is not None
