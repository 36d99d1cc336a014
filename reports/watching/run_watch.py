"""Predicted against measured progress of a real run while it runs: `paceline train --watch`.

* Progress is q, the number of gradients of all workers. T(q) is when the predicted run has computed as many.
* The speed is measured over the last half of the run: ratio = (t − t½) / (T(q) − T(q½)), where q½ gradients had been
  computed at t½ ≤ t / 2. It follows a change of speed, and averages over more and more steps.
* What the prediction has left takes `ratio` times as long: left = ratio · (T_end − T(q)); the same for a target. A
  limit in seconds is not scaled.
* A run that was resumed continues the predicted run at its step.
* The gradients of a rank are divided into blocks of at least n. A block is slow if its mean time is above the bound for
  this rank: above every mean of n successive predicted gradients, above their mean by more than `SIGMAS` standard
  deviations, and above it by more than `MARGIN`. Gradients are compared, not steps: a rank that waits for a slow one is
  not slow itself.
* A rank is slower than predicted if two successive blocks are slow. A single long pause, for example by the operating
  system, falls into one block.
* n is a tenth of the gradients that the rank is predicted to compute, and within `BLOCKS`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from paceline.algorithms.core.job import Budget
from paceline.backend.status.progress_counters import ProgressWindow, RankTotals, Scored, Totals
from paceline.records import Run
from paceline.records.figures import DURATION, significant
from paceline.records.pace import TOLERANCE
from paceline.reports.comparison.ranking import Aim
from paceline.reports.watching.predict_runs import PredictedProgress, Seconds

BLOCKS = 5, 20
"""smallest and largest number of gradients in a block; provenance: ours"""
SIGMAS = 3.3
"""standard deviations above the mean; provenance: DERIVED, one of 2000 means of a normal law is further above"""
MARGIN = TOLERANCE
"""smallest relative slowness that is reported: ranks of a run that keeps its pace are late by up to this"""
NOTHING = RankTotals(0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Expected:
    """The predicted gradient times of one rank, in seconds.

    Args:
        mean_s: their mean.
        bound_s: the largest expected mean of a block.
        block: the number of gradients in a block.
    """

    mean_s: float
    bound_s: float
    block: int

    @staticmethod
    def of(times_s: Seconds) -> Expected:
        """Returns what is expected of a rank with these predicted gradient times.

        >>> Expected.of(np.full(100, 0.5))
        Expected(mean_s=0.5, bound_s=0.525, block=10)
        """
        low, high = BLOCKS
        block = max(low, min(high, len(times_s) // 10))
        mean_s = float(times_s.mean())
        width = min(block, len(times_s))
        means = np.convolve(times_s, np.full(width, 1 / width), mode="valid")
        # few blocks have too small a deviation; that of independent times is then the better estimate
        deviation_s = max(float(means.std()), float(times_s.std()) / math.sqrt(block))
        bound_s = max(float(means.max()), mean_s + SIGMAS * deviation_s, mean_s * (1 + MARGIN))
        return Expected(mean_s, bound_s, block)


@dataclass(frozen=True, slots=True)
class SlowPeriod:
    """A part of a run in which a rank was slower than predicted.

    Args:
        rank: the rank.
        excess: mean measured gradient time / mean predicted − 1.
        from_step: the first step of the period.
        to_step: the step at which it ended; None if it lasts.
    """

    rank: int
    excess: float
    from_step: int
    to_step: int | None = None


@dataclass(slots=True)
class RankWatch:
    """The blocks of one rank."""

    rank: int
    expected: Expected
    _block: RankTotals = NOTHING
    """at the start of the present block"""
    _first: RankTotals | None = None
    """at the start of the first of successive slow blocks"""
    _slow: int = 0
    """number of successive slow blocks"""
    periods: list[SlowPeriod] = field(default_factory=list)

    def begin(self, now: RankTotals) -> None:
        """Starts the first block, for a run that has been resumed."""
        self._block = now

    def add(self, now: RankTotals) -> None:
        """Adds a reading of the rank's counters."""
        gradients = now.gradients - self._block.gradients
        if gradients < self.expected.block:
            return
        if (now.gradient_s - self._block.gradient_s) / gradients > self.expected.bound_s:
            self._first = self._first or self._block
            self._slow += 1
            self._note(self._first, now)
        else:
            if self._slow > 1:
                self.periods[-1] = replace(self.periods[-1], to_step=self._block.step)
            self._first, self._slow = None, 0
        self._block = now

    def _note(self, first: RankTotals, now: RankTotals) -> None:
        """Begins or extends a period, if two successive blocks were slow."""
        if self._slow < 2:
            return
        mean_s = (now.gradient_s - first.gradient_s) / (now.gradients - first.gradients)
        if self._slow > 2:
            self.periods.pop()
        self.periods.append(SlowPeriod(self.rank, mean_s / self.expected.mean_s - 1, first.step))


class SlowRanks:
    """Detects the slow ranks of one run.

    Args:
        predicted_s: the predicted gradient times of each worker, by rank.

    >>> watch = SlowRanks({0: np.full(50, 0.1), 1: np.full(50, 0.1)})
    >>> for step in range(1, 31):
    ...     watch.add([RankTotals(step, step, 0.1 * step), RankTotals(step, step, 0.15 * step)])
    >>> [(one.rank, round(one.excess, 3), one.from_step) for one in watch.slow]
    [(1, 0.5, 0)]
    """

    def __init__(self, predicted_s: Mapping[int, Seconds]) -> None:
        self._ranks = {
            rank: RankWatch(rank, Expected.of(times)) for rank, times in predicted_s.items() if len(times) > 0
        }

    @property
    def ranks(self) -> int:
        """The number of ranks that are watched."""
        return len(self._ranks)

    def begin(self, by_rank: Sequence[RankTotals]) -> None:
        """Starts at these readings instead of 0, for a run that has been resumed."""
        for rank, watch in self._ranks.items():
            watch.begin(by_rank[rank])

    def add(self, by_rank: Sequence[RankTotals]) -> None:
        """Adds a reading of all ranks' counters."""
        for rank, watch in self._ranks.items():
            watch.add(by_rank[rank])

    @property
    def periods(self) -> list[SlowPeriod]:
        """The periods of all ranks, the slowest first."""
        periods = [period for watch in self._ranks.values() for period in watch.periods]
        return sorted(periods, key=lambda period: -period.excess)

    @property
    def slow(self) -> list[SlowPeriod]:
        """The periods that last."""
        return [period for period in self.periods if period.to_step is None]


class ProgressReading(NamedTuple):
    """The progress of a run at one time."""

    elapsed_s: float
    gradients: float
    """of all workers"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
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
        self._window = ProgressWindow(workers)
        self._readings: deque[ProgressReading] = deque()
        """the newest is last; the oldest is at the middle of the run, or just before it"""
        self._before = 0.0
        """gradients before the run was resumed"""
        self._aim_reached = False

    def add(self, now: Totals) -> RunProgress:
        """Adds a reading and returns the progress."""
        workers = now.by_rank[: self._workers]
        if not self._readings:
            self._begin(now, workers)
        self.slow_ranks.add(now.by_rank)
        reading = ProgressReading(now.elapsed_s, self._before + sum(worker.gradients for worker in workers))
        self._readings.append(reading)
        while len(self._readings) > 2 and self._readings[1].elapsed_s <= now.elapsed_s / 2:
            self._readings.popleft()
        loss = self._window.add(now).loss
        return self._progress(reading, loss, now.scored)

    def _begin(self, now: Totals, workers: tuple[RankTotals, ...]) -> None:
        """Starts at 0, or where the run was resumed: ranks then have steps without gradients."""
        done = [max(0.0, worker.step - worker.gradients) for worker in workers]
        if min(done, default=0.0) < 1:
            self._readings.append(ProgressReading(0.0, 0.0))
            return
        self._before = sum(done)
        self.slow_ranks.begin(now.by_rank)
        self._readings.append(
            ProgressReading(now.elapsed_s, self._before + sum(worker.gradients for worker in workers))
        )

    def _progress(self, now: ProgressReading, loss: float | None, scored: Scored | None) -> RunProgress:
        predicted, workers, since = self.predicted, self._workers, self._readings[0]
        at_s, lasted_s = predicted.time_of(now.gradients), now.elapsed_s - since.elapsed_s
        gradients, predicted_s = now.gradients - since.gradients, at_s - predicted.time_of(since.gradients)
        ratio = lasted_s / predicted_s if predicted_s > 0 else None
        self._aim_reached = self._aim_reached or self._reaches(scored)
        return RunProgress(
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

    def _left_s(self, now: ProgressReading, at_s: float, ratio: float | None) -> float | None:
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


NAMED = 3
"""how many slow ranks are named one by one; the rest is counted"""


def seconds(value: float) -> str:
    """Formats a measured or predicted time with three digits.

    >>> [seconds(value) for value in (0.00123, 0.0412, 2.345, 98.7, 7100.0)]
    ['1.23 ms', '41.2 ms', '2.35 s', '98.7 s', '1 h 58 min']
    """
    if value < 600:
        return DURATION.text(value)
    minutes = round(value / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def about(value: float) -> str:
    """Formats an estimated time in whole seconds, minutes or hours.

    >>> [about(value) for value in (0.3, 42.4, 200.0, 7100.0)]
    ['1 s', '42 s', '3 min', '1 h 58 min']
    """
    if value < 95:
        return f"{max(1, round(value))} s"
    return seconds(value) if value >= 600 else f"{value / 60:.0f} min"


def step_words(now: RunProgress) -> str:
    """Returns the steps reached, those predicted for now, and those of the whole run.

    >>> step_words(RunProgress(elapsed_s=4.0, step=40.0, predicted_step=48.25, steps=100.0))
    'step 40 of 100 (predicted 48)'
    """
    return f"step {now.step:.0f} of {now.steps:.0f} (predicted {now.predicted_step:.0f})"


def step_time_words(now: RunProgress) -> str:
    """Returns measured and predicted step time; empty before the first step.

    >>> seen = RunProgress(elapsed_s=4, step=40, predicted_step=48, steps=100, step_s=0.12, predicted_step_s=0.1)
    >>> step_time_words(seen)
    '120 ms per step (predicted 100 ms, +20 %)'
    """
    if now.step_s is None or not now.predicted_step_s:
        return ""
    difference = change(now.step_s, now.predicted_step_s)
    return f"{seconds(now.step_s)} per step (predicted {seconds(now.predicted_step_s)}, {difference})"


def step_cell(now: RunProgress) -> str:
    """Returns `step_words` without the words, for a table."""
    return f"{now.step:.0f} of {now.steps:.0f} ({now.predicted_step:.0f})"


def step_time_cell(now: RunProgress) -> str:
    """Returns `step_time_words` without the words, for a table."""
    if now.step_s is None or not now.predicted_step_s:
        return ""
    difference = change(now.step_s, now.predicted_step_s)
    return f"{seconds(now.step_s)} ({seconds(now.predicted_step_s)}, {difference})"


def learning_words(now: RunProgress) -> str:
    """Returns the loss, and the accuracy if the run is evaluated while it runs; empty without both."""
    if now.scored is not None:
        loss, accuracy = now.scored
        return f"loss {significant(loss)}" + (f", accuracy {100 * accuracy:.1f} %" if math.isfinite(accuracy) else "")
    return "" if now.loss is None else f"training loss {significant(now.loss)}"


def left_words(now: RunProgress) -> str:
    """Returns the time until the run ends."""
    if now.left_s is None or not math.isfinite(now.left_s):
        return "time left unknown"
    return "should have ended" if now.left_s == 0 else f"about {about(now.left_s)} left"


def aim_words(now: RunProgress, aim: Aim | None, aim_s: float | None) -> str:
    """Returns the time until the target; empty without one.

    Args:
        now: the progress.
        aim: the target.
        aim_s: when the predicted run reaches it; None if it does not.

    >>> now = RunProgress(elapsed_s=4.0, step=40.0, predicted_step=48.0, steps=100.0, aim_left_s=2.2)
    >>> aim_words(now, Aim("accuracy", 0.93), 6.0)
    'about 2 s to 93 % accuracy'
    """
    if aim is None:
        return ""
    if now.aim_reached:
        return f"{aim.words} reached"
    if aim_s is None:
        return f"{aim.words} not reached in the prediction"
    if now.aim_left_s is None:
        return f"time to {aim.words} unknown"
    if now.aim_left_s == 0:
        return f"{aim.words} " + ("reached by the prediction" if now.scored is None else "is later than predicted")
    return f"about {about(now.aim_left_s)} to {aim.words}"


def slow_words(slow: Sequence[SlowPeriod], ranks: int) -> str:
    """Returns the ranks that are slower than predicted; empty if none is.

    Args:
        slow: the slow periods that last, the slowest first.
        ranks: the number of watched ranks.

    >>> slow_words([SlowPeriod(3, 0.18, 40)], ranks=4)
    'slower than predicted: rank 3 by 18 % from step 40 on'
    >>> slow_words([SlowPeriod(1, 0.11, 0), SlowPeriod(0, 0.08, 0)], ranks=2)
    'slower than predicted: all 2 ranks, by 8 to 11 %'
    """
    if not slow:
        return ""
    if (alike := _alike(slow, ranks)) is not None:
        return f"slower than predicted: all {ranks} ranks, by {alike}"
    named = [
        f"rank {period.rank} by {100 * period.excess:.0f} % from step {period.from_step} on" for period in slow[:NAMED]
    ]
    more = [f"{len(slow) - NAMED} more ranks"] if len(slow) > NAMED else []
    return "slower than predicted: " + ", ".join([*named, *more])


def _alike(slow: Sequence[SlowPeriod], ranks: int) -> str | None:
    """Returns the range of slowness if all ranks are about equally slow; else None, as the slowest are then named."""
    if not len(slow) == ranks > 1 or slow[0].excess > 2 * slow[-1].excess:
        return None
    low, high = f"{100 * slow[-1].excess:.0f}", f"{100 * slow[0].excess:.0f}"
    return f"{low} %" if low == high else f"{low} to {high} %"


def line(name: str, now: RunProgress, predicted: PredictedProgress, ranks: int) -> str:
    """Returns one line about a run.

    Args:
        name: the algorithm, with the seed if there are several.
        now: the progress.
        predicted: the prediction.
        ranks: the number of watched ranks.
    """
    first = [
        f"{seconds(now.elapsed_s)}",
        step_words(now),
        step_time_words(now),
        learning_words(now),
        left_words(now),
        aim_words(now, predicted.aim, predicted.aim_s),
    ]
    slow = slow_words(now.slow, ranks)
    return f"{name}: " + "; ".join(filter(None, [", ".join(filter(None, first)), slow]))


def change(measured: float, predicted: float) -> str:
    """Returns the relative difference, with its sign.

    >>> change(12.3, 11.8), change(1.0, 1.001)
    ('+4 %', '-0 %')
    """
    return f"{100 * (measured / predicted - 1):+.0f} %" if predicted else "no prediction"


def sentence(name: str, run: Run, predicted: PredictedProgress, periods: Sequence[SlowPeriod], ranks: int) -> str:
    """Returns one sentence about a run that has ended.

    Args:
        name: the algorithm, with the seed if there are several.
        run: the measured run.
        predicted: its prediction.
        periods: in which ranks were slower than predicted, the slowest first.
        ranks: the number of watched ranks.
    """
    summary = run.summary
    said = [_length(name, summary["wall_s"], summary["steps"], summary["stop_reason"], predicted)]
    aim = predicted.aim
    if aim is not None:
        reached_s = summary["time_to_accuracy_s" if aim.kind == "accuracy" else "time_to_loss_s"]
        said.append(_target(aim, reached_s, predicted.aim_s))
    said += _slow_periods(periods, ranks) or ["no rank was slower than predicted"]
    return "; ".join(said)


def _length(name: str, wall_s: float, gradients: int, reason: str | None, predicted: PredictedProgress) -> str:
    """Returns how long the run took, or how far it came if its length was given in seconds."""
    if reason == predicted.stop_reason == "seconds":
        done, expected = gradients, predicted.gradients
        return f"{name} computed {done} gradients in {seconds(wall_s)}, predicted {expected} ({change(done, expected)})"
    took = f"{name} took {seconds(wall_s)}, predicted {seconds(predicted.wall_s)} ({change(wall_s, predicted.wall_s)})"
    if reason == predicted.stop_reason:
        return took
    return f"{took}; it ended by {reason}, predicted {predicted.stop_reason}"


def _target(aim: Aim, reached_s: float | None, predicted_s: float | None) -> str:
    if reached_s is None:
        return f"{aim.words} was not reached, " + (
            "as predicted" if predicted_s is None else f"predicted after {seconds(predicted_s)}"
        )
    if predicted_s is None:
        return f"{aim.words} was reached after {seconds(reached_s)}, predicted never"
    difference = change(reached_s, predicted_s)
    return f"{aim.words} after {seconds(reached_s)}, predicted {seconds(predicted_s)} ({difference})"


def _slow_periods(periods: Sequence[SlowPeriod], ranks: int) -> list[str]:
    """Returns a part of the sentence for each of the slowest ranks, or one for all."""
    if (alike := _alike([period for period in periods if period.to_step is None], ranks)) is not None:
        return [f"all {ranks} ranks were {alike} slower than predicted"]
    said = []
    for period in periods[:NAMED]:
        when = "on" if period.to_step is None else f"to step {period.to_step}"
        slower = f"{100 * period.excess:.0f} % slower than predicted"
        said.append(f"rank {period.rank} was {slower} from step {period.from_step} {when}")
    return [*said, f"{len(periods) - NAMED} more slow periods"] if len(periods) > NAMED else said
