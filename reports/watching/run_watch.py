"""Compares the readings of a real run's counters with its prediction, and estimates the time that is left.

Rules of this file:

* Progress is q, the number of gradients of all workers. T(q) is when the predicted run has computed as many.
* The speed is measured over the last half of the run: ratio = (t − t½) / (T(q) − T(q½)), where q½ gradients had been
  computed at t½ ≤ t / 2. It follows a change of speed, and averages over more and more steps.
* What the prediction has left takes `ratio` times as long: left = ratio · (T_end − T(q)); the same for a target. A
  limit in seconds is not scaled.
* A run that was resumed continues the predicted run at its step.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from paceline.algorithms.core.job import Budget
from paceline.backend.status.progress_counters import RankTotals, Scored, Totals, Window
from paceline.reports.watching.predicted_progress import PredictedProgress
from paceline.reports.watching.slow_ranks import SlowPeriod, SlowRanks


class Reading(NamedTuple):
    """The progress of a run at one time."""

    elapsed_s: float
    gradients: float
    """of all workers"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Measured and predicted progress at one time; a figure that cannot be estimated is None.

    Args:
        elapsed_s: seconds since the start.
        step: measured gradients per worker.
        predicted_step: those predicted for this time.
        steps: those predicted for the whole run.
        step_s: measured seconds per step, over the last half of the run.
        predicted_step_s: predicted seconds for the same steps.
        left_s: seconds until the run ends.
        aim_left_s: seconds until the target; 0 if it is reached or should have been.
        aim_reached: whether an evaluation during the run has reached the target.
        loss: recent training loss.
        scored: the last evaluation during the run.
        slow: the ranks that are slower than predicted, the slowest first.
    """

    elapsed_s: float
    step: float
    predicted_step: float
    steps: float
    step_s: float | None = None
    predicted_step_s: float | None = None
    left_s: float | None = None
    aim_left_s: float | None = None
    aim_reached: bool = False
    loss: float | None = None
    scored: Scored | None = None
    slow: tuple[SlowPeriod, ...] = ()


class RunWatch:
    """Compares one run with its prediction.

    Args:
        predicted: the prediction.
        budget: when the run ends.
        workers: number of workers, ranks 0 … workers − 1.

    >>> import numpy as np
    >>> steps_s = np.arange(1, 101) * 0.125  # 100 steps of 0.125 s
    >>> watch = RunWatch(PredictedProgress(ends_s=steps_s, gradient_s={}, wall_s=12.5), Budget(samples=100), workers=1)
    >>> for step in range(1, 41):  # measured: 0.1875 s
    ...     took_s = 0.1875 * step
    ...     now = watch.add(Totals(took_s, step, step, 0, 0, 0, step, (RankTotals(step, step, took_s),)))
    >>> now.step, now.predicted_step, now.step_s, now.left_s  # 60 steps of 0.1875 s are left
    (40.0, 60.0, 0.1875, 11.25)
    """

    def __init__(self, predicted: PredictedProgress, budget: Budget, workers: int) -> None:
        self.predicted, self._budget, self._workers = predicted, budget, workers
        self.slow_ranks = SlowRanks(predicted.gradient_s)
        self._window = Window(workers)
        self._readings: deque[Reading] = deque()
        """the newest is last; the oldest is at the middle of the run, or just before it"""
        self._before = 0.0
        """gradients before the run was resumed"""
        self._aim_reached = False

    def add(self, now: Totals) -> Progress:
        """Adds a reading and returns the progress."""
        mine = now.by_rank[: self._workers]
        if not self._readings:
            self._begin(now, mine)
        self.slow_ranks.add(now.by_rank)
        reading = Reading(now.elapsed_s, self._before + sum(one.gradients for one in mine))
        self._readings.append(reading)
        while len(self._readings) > 2 and self._readings[1].elapsed_s <= now.elapsed_s / 2:
            self._readings.popleft()
        loss = self._window.add(now).loss
        return self._progress(reading, loss, now.scored)

    def _begin(self, now: Totals, mine: tuple[RankTotals, ...]) -> None:
        """Starts at 0, or where the run was resumed: ranks then have steps without gradients."""
        done = [max(0.0, one.step - one.gradients) for one in mine]
        if min(done, default=0.0) < 1:
            self._readings.append(Reading(0.0, 0.0))
            return
        self._before = sum(done)
        self.slow_ranks.begin(now.by_rank)
        self._readings.append(Reading(now.elapsed_s, self._before + sum(one.gradients for one in mine)))

    def _progress(self, now: Reading, loss: float | None, scored: Scored | None) -> Progress:
        predicted, workers, since = self.predicted, self._workers, self._readings[0]
        at_s, lasted_s = predicted.time_of(now.gradients), now.elapsed_s - since.elapsed_s
        gradients, predicted_s = now.gradients - since.gradients, at_s - predicted.time_of(since.gradients)
        ratio = lasted_s / predicted_s if predicted_s > 0 else None
        self._aim_reached = self._aim_reached or self._reaches(scored)
        return Progress(
            elapsed_s=now.elapsed_s,
            step=now.gradients / workers,
            predicted_step=predicted.gradients_by(now.elapsed_s) / workers,
            steps=predicted.gradients / workers,
            step_s=lasted_s * workers / gradients if gradients else None,
            predicted_step_s=predicted_s * workers / gradients if gradients else None,
            left_s=self._left_s(now, at_s, ratio),
            aim_left_s=self._aim_left_s(at_s, ratio),
            aim_reached=self._aim_reached,
            loss=loss,
            scored=scored,
            slow=tuple(self.slow_ranks.slow),
        )

    def _left_s(self, now: Reading, at_s: float, ratio: float | None) -> float | None:
        limit_s = math.inf if self._budget.seconds is None else max(0.0, self._budget.seconds - now.elapsed_s)
        if self.predicted.stop_reason == "seconds":
            return limit_s
        if ratio is None:
            return None
        return min(limit_s, ratio * max(0.0, self.predicted.wall_s - at_s))

    def _aim_left_s(self, at_s: float, ratio: float | None) -> float | None:
        if self._aim_reached:
            return 0.0
        if self.predicted.aim_s is None or ratio is None:
            return None
        return ratio * max(0.0, self.predicted.aim_s - at_s)

    def _reaches(self, scored: Scored | None) -> bool:
        """Whether an evaluation during the run has reached the target."""
        aim = self.predicted.aim
        if aim is None or scored is None:
            return False
        return scored.accuracy >= aim.value if aim.kind == "accuracy" else scored.loss <= aim.value
