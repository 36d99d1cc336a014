"""The interval of the mean step time that follows from the intervals of the gradients' times.

* The plan is simulated again with every gradient at the low end of its device's interval, and at the high end.
  Learning is off, because only times matter, and long runs are cut, because their steps are alike. (A server with
  unequal workers needs hundreds of steps for a ratio within 1 %, while collectives need one.)
* Rejected: scaling the computing share of a step. What is not computed is not constant: a longer gradient hides more
  communication (layerwise-sgd), and a busy server absorbs it (async-sgd). A trace does not tell what its own waits
  would become.
* All devices are at the same end in a run, since errors of similar predictions have common causes. Devices without an
  interval, given or measured, keep their times.
* All runs draw the same jitter, so that it has little effect on their ratio.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from paceline.algorithms.core.values import Rank
from paceline.records import Run
from paceline.records.keeping import Keeping
from paceline.records.prediction_interval import StepFactors
from paceline.records.trace import Schedule, Trace
from paceline.scenarios.resolution.plan import Plan
from paceline.simulator.kernel.timing import Timing
from paceline.simulator.runs.expected_steps import keeping_of
from paceline.simulator.runs.plan_timing import PlanTimes, PlanTiming
from paceline.simulator.runs.short_runs import Length, mean_of, shortened, windows_of, without_learning
from paceline.topologies.catalogue.device import Interval

MOST_SPANS = 20_000
"""recorded activities of a repeated run, about a second of simulation; a run with more is repeated only in its first
periods, at least one after the warm-up. Our choice"""


class Perform(Protocol):
    """Simulates a plan with a timing."""

    def __call__(self, plan: Plan, schedule: Schedule, *, timing: Timing, keeping: Keeping) -> Trace: ...


@dataclass(frozen=True)
class ScaledTiming(PlanTiming):
    """The timing of a plan with a factor on the time of every worker's gradients, by rank."""

    factors: Mapping[Rank, float] | None = None

    def compute_s(self, rank: Rank, step: int, samples: int, start_s: float = 0.0) -> float:
        factor = 1.0 if self.factors is None else self.factors[rank]
        return factor * super().compute_s(rank, step, samples, start_s)

    def many(self, ranks: Sequence[int]) -> PlanTimes | None:
        """Returns the times of many ranks together, as for `PlanTiming`."""
        factors = None if self.factors is None else np.array([self.factors[Rank(rank)] for rank in ranks])
        return None if self.costs.gradients else PlanTimes(self.plan, ranks, self.costs.late_s, factors)


def step_factors(plan: Plan, perform: Perform, made: Run) -> StepFactors | None:
    """Returns the factors on the mean step time; None if no device has an interval, or no worker two steps.

    factor = mean step time with scaled gradients / mean step time

    Args:
        plan: the run.
        perform: simulates a plan with a timing.
        made: the run's record.
    """
    intervals = intervals_of(plan)
    if not intervals or made.summary["step_s"]["mean"] is None:
        return None
    run, mean_s = _short(plan, made)
    keeping = keeping_of(run, "auto")  # of a large cluster, some workers are timed, the same ones each time

    def seconds(end: Callable[[Interval], float]) -> float:
        factors = {rank: end(intervals[rank]) if rank in intervals else 1.0 for rank in plan.job.team[0].workers.ranks}
        timing = ScaledTiming(run, factors=factors)
        return mean_s(perform(run, Schedule(every=math.inf), timing=timing, keeping=keeping))

    base_s = seconds(lambda _: 1.0)
    low, high = (seconds(end) / base_s for end in (lambda interval: interval.low, lambda interval: interval.high))
    if not math.isfinite(low * high):
        return None
    distinct = list(dict.fromkeys(intervals.values()))
    # a shorter gradient may lengthen a step, where it lets more messages meet
    return StepFactors(
        min(low, high, 1.0),
        max(low, high, 1.0),
        min(interval.share for interval in distinct),
        tuple(interval.similar for interval in distinct),
    )


def intervals_of(plan: Plan) -> dict[Rank, Interval]:
    """Returns the interval of each worker's device, where it has one."""
    ranks = plan.job.team[0].workers.ranks
    interval_of = {rank: plan.cluster.device_of(rank).interval for rank in ranks}
    return {rank: interval for rank, interval in interval_of.items() if interval is not None}


def _short(plan: Plan, made: Run) -> tuple[Plan, Callable[[Trace], float]]:
    """Returns the run that is repeated and a function for its mean step time: a short run whole, or its beginning."""
    workers = plan.job.workers
    period = plan.job.method.longest_period(workers)
    steps = made.summary["steps"] / workers
    spans = made.summary["records"]["spans"] if "records" in made.summary else len(made.tables.spans)
    length = Length(max(1, int(steps * MOST_SPANS / spans) // period) * period, period)
    if spans <= MOST_SPANS or steps <= length.warm_up + length.steps:
        whole, length = replace(plan.job.budget, seconds=None, samples=made.summary["samples"]), Length(0, 1)
        whole = replace(whole, accuracy=None, loss=None, divergence=False)
        run = without_learning(plan, whole)
    else:
        run = shortened(plan, length)
    return run, lambda trace: mean_of(windows_of(trace, workers, length))
