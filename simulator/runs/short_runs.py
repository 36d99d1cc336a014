"""Short runs of a plan that are evaluated for the times of their steps only.

* Weights have a size and no numbers, so a run costs only the time of its events.
* A run begins with a warm-up, until every worker has passed one longest period of the method. Then whole periods of
  each worker are evaluated.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

from paceline.algorithms.core.job import Budget
from paceline.algorithms.core.values import Rank
from paceline.records.trace import Trace
from paceline.scenarios.resolution.plan import Plan
from paceline.workloads.learners.stand_in import TimingOnly

FEWEST_STEPS, MOST_STEPS = 4, 100
"""evaluated steps of each worker, if the longest period allows; our choice"""
GRADIENTS = 1000
"""evaluated gradients of all workers together, if this is between these bounds; our choice"""
LONGEST = 2000
"""largest number of evaluated steps of each worker; our choice"""


@dataclass(frozen=True, slots=True)
class Length:
    """The length of a run, in steps of a worker."""

    steps: int
    """evaluated steps"""
    period: int
    """the longest period of the method"""
    note: str = ""
    """what the length leaves out"""

    @property
    def warm_up(self) -> int:
        return min(self.period, self.steps)


def length_of(plan: Plan, steps: int | None = None) -> Length:
    """Returns the length of a run: at least two of the longest periods of the method, up to `LONGEST`.

    Args:
        plan: the run.
        steps: the requested number of steps, rounded up to whole periods; None: a number by the number of workers.
    """
    workers = plan.job.workers
    period = plan.job.method.longest_period(workers)
    wanted = steps or max(2 * period, min(MOST_STEPS, max(FEWEST_STEPS, GRADIENTS // workers)))
    whole = -(-wanted // period) * period
    if whole <= LONGEST or steps is not None:
        return Length(whole, period)
    if period <= LONGEST:
        return Length(LONGEST // period * period, period)
    words = f"{plan.name}: its longest period is {period} steps, and {LONGEST} were simulated, which leave out what it"
    return Length(LONGEST, LONGEST, f"{words} does least often; --steps {period} includes it")


def times_only(plan: Plan, budget: Budget) -> Plan:
    """Returns the plan with vectors that have only sizes.

    Args:
        plan: the run.
        budget: its length.
    """
    learner = plan.job.learner
    sizes = TimingOnly(learner.layout, learner.num_samples, learner.initial().nbytes // learner.layout.size)
    return replace(plan, job=replace(plan.job, learner=sizes, budget=budget))


def without_learning(plan: Plan, budget: Budget) -> Plan:
    """Returns the plan with vectors that have only sizes, and without deaths; arguments are those of `times_only`."""
    alone = times_only(plan, budget)
    return replace(alone, job=replace(alone.job, deaths=()))


def shortened(plan: Plan, length: Length) -> Plan:
    """Returns the beginning of a plan's run, without learning.

    Args:
        plan: the run.
        length: the length of the beginning.
    """
    samples = (length.warm_up + length.steps + 1) * plan.job.global_batch
    return without_learning(plan, Budget(samples=samples))


@dataclass(frozen=True, slots=True)
class MeasuredWindow:
    """The evaluated part of a worker's time: whole steps, and whole periods if there are any."""

    start_s: float
    end_s: float
    steps: int

    def holds(self, time_s: float) -> bool:
        """Returns whether a time is in the window."""
        return self.start_s <= time_s < self.end_s


def windows_of(trace: Trace, workers: int, length: Length) -> dict[Rank, MeasuredWindow]:
    """Returns the window of each worker: from the start of one gradient to the start of another.

    Args:
        trace: the record of a short run.
        workers: the number of workers, ranks 0 … workers − 1.
        length: the length of the run.
    """
    starts: dict[Rank, dict[int, float]] = defaultdict(dict)
    for span in trace.spans:
        if span.activity == "compute" and span.rank < workers:
            own_starts = starts[span.rank]
            own_starts[span.step] = min(span.start_s, own_starts.get(span.step, span.start_s))
    times = {rank: sorted(starts[rank].values()) for rank in sorted(starts)}
    warm_s = max((each[min(length.warm_up, len(each) - 1)] for each in times.values()), default=0.0)
    windows = {}
    for rank, began_s in times.items():
        period, first = length.period, bisect_left(began_s, warm_s)
        if (count := len(began_s) - 1 - first) <= 0:  # a worker with so few steps has no warm-up
            first, count = 0, len(began_s) - 1
        count = count // period * period or count
        if count > 0:
            windows[rank] = MeasuredWindow(began_s[first], began_s[first + count], count)
    return windows


def mean_of(windows: Mapping[Rank, MeasuredWindow]) -> float:
    """Returns the mean time between the starts of successive gradients of a worker; NaN without windows."""
    steps = sum(window.steps for window in windows.values())
    return sum(window.end_s - window.start_s for window in windows.values()) / steps if steps else math.nan
