"""Measures how near a run comes to the bound of a guarantee, for reports and for the directed search."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf, isnan
from typing import Any

import numpy as np

from paceline.algorithms.core.guarantees import AnyGuarantee, Guarantee
from paceline.algorithms.core.job import Job
from paceline.checking.cases.outcomes import Outcome
from paceline.checking.check_guarantees import clock_gaps, staleness_values
from paceline.checking.reference_runs import distance
from paceline.records.trace import Trace


@dataclass(frozen=True, slots=True)
class Measured:
    """The value of a quantity in a run.

    Args:
        quantity: its name.
        value: the value; larger is worse.
        bound: the largest value that the guarantee permits; None without a guarantee.
    """

    quantity: str
    value: float
    bound: float | None = None

    def worse_than(self, other: Measured | None) -> bool:
        """Whether this value is larger than another one, each relative to its bound; NaN is the largest."""
        return other is None or self._beyond > other._beyond

    @property
    def _beyond(self) -> tuple[float, float]:
        """By how much the value exceeds the bound, negative below it, and the value."""
        value = inf if isnan(self.value) else self.value
        return value - (self.bound or 0.0), value


def largest_staleness(trace: Trace) -> float:
    """Returns the largest staleness of the updates, of the method's own kind; 0 without updates."""
    return max(staleness_values(trace), default=0)


def clock_gap(job: Job, trace: Trace) -> float:
    """Returns the largest number of steps that a worker was ahead of the slowest when a step of it was applied."""
    return max((gap for _, gap in clock_gaps(job, trace)), default=0)


def replica_distance(job: Job, trace: Trace) -> float:
    """Returns the largest difference between the weights of two workers at the end of a run."""
    states = (trace.states.get(rank) for rank in job.team[0].workers)
    vectors: list[Any] = [weights.vector for state in states if (weights := getattr(state, "weights", None))]
    return float(np.ptp(np.array(vectors), axis=0).max()) if len(vectors) > 1 else 0.0


def idle_fraction(job: Job, trace: Trace) -> float:
    """Returns the fraction of the workers' time in which they computed no gradient; 0 for an empty run."""
    if not trace.wall_s:
        return 0.0
    busy_s = sum(
        span.end_s - span.start_s for span in trace.spans if span.activity == "compute" and span.rank < job.workers
    )
    return max(0.0, 1 - busy_s / (trace.wall_s * job.workers))


def _staleness(guarantee: Guarantee) -> Callable[[Job, Trace], Measured]:
    def measure(job: Job, trace: Trace) -> Measured:
        bound = 0.0 if guarantee is Guarantee.SYNCHRONOUS else job.method.bounds(job.workers).get(guarantee)
        return Measured("largest staleness", largest_staleness(trace), bound)

    return measure


def _clock_gap(job: Job, trace: Trace) -> Measured:
    bound = job.method.bounds(job.workers).get(Guarantee.BOUNDED_CLOCK_GAP)
    return Measured("largest clock gap", clock_gap(job, trace), bound)


def _replicas(job: Job, trace: Trace) -> Measured:
    return Measured("largest distance of replicas", replica_distance(job, trace), 0.0)


def _distance(guarantee: Guarantee, quantity: str) -> Callable[[Job, Trace], Measured]:
    return lambda job, trace: Measured(quantity, *distance(guarantee, job, trace))


MEASURES: dict[AnyGuarantee, Callable[[Job, Trace], Measured]] = {
    Guarantee.SYNCHRONOUS: _staleness(Guarantee.SYNCHRONOUS),
    Guarantee.EXACT_DELAY: _staleness(Guarantee.EXACT_DELAY),
    Guarantee.BOUNDED_STALENESS: _staleness(Guarantee.BOUNDED_STALENESS),
    Guarantee.BOUNDED_CLOCK_GAP: _clock_gap,
    Guarantee.REPLICAS_EQUAL: _replicas,
    Guarantee.DETERMINISTIC: _distance(Guarantee.DETERMINISTIC, "largest difference of weights"),
    Guarantee.SAME_AS_SYNC_SGD: _distance(Guarantee.SAME_AS_SYNC_SGD, "largest difference from sync-sgd"),
}
"""guarantees with a quantity"""


def measured(outcome: Outcome, guarantees: Iterable[AnyGuarantee] | None = None) -> dict[str, Measured]:
    """Returns the values of a run that came to its end, by the names of the guarantees.

    Args:
        outcome: of a case.
        guarantees: the guarantees; None: all that the method promises.

    >>> from paceline.algorithms import find
    >>> from paceline.checking.cases import Case, performed
    >>> outcome = performed(Case(method=find("agd")(delay=1), nodes=(1, 1), steps=3))
    >>> measured(outcome)["exact-delay"]
    Measured(quantity='largest staleness', value=1, bound=1)
    """
    if outcome.error is not None or not outcome.case.gradients:
        return {}
    promised = outcome.job.method.guarantees if guarantees is None else guarantees
    return {one.slug: MEASURES[one](outcome.job, outcome.trace) for one in promised if one in MEASURES}
