"""How near a run comes to the bound of a guarantee, and a search for the worst schedule of a method.

Worst means the largest staleness, clock gap, distance of replicas, or idle time.

Rules of this file:

* The search is local: it changes a good schedule at random, and continues with the change if the value is not smaller.
  Of a schedule in any order it keeps a beginning and draws the rest again, or changes single choices; of a simulated
  one it changes the time of one gradient.
* For idle time, gradients take 1 to 2 s and messages take no time. Otherwise the worst case would simply be the
  longest gradient or the slowest network that the search may use.
* Every schedule is also checked for violations.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf, isnan
from typing import Any

import numpy as np

from paceline.algorithms.core.guarantees import AnyGuarantee, Guarantee
from paceline.algorithms.core.job import Job
from paceline.checking.cases.case import Case, Times
from paceline.checking.cases.performing import Chosen, Outcome, in_recorded_order, performed
from paceline.checking.check_guarantees import clock_gaps, distance, staleness_values
from paceline.checking.moves import Chooser, random_chooser
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
    return max((gap for _, gap, _ in clock_gaps(job, trace)), default=0)


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
    return {
        guarantee.slug: MEASURES[guarantee](outcome.job, outcome.trace)
        for guarantee in promised
        if guarantee in MEASURES
    }


STARTS = 0.3
"""the share of the tries that are random schedules, before the best one is changed; provenance: ours"""
SHORTEST_S, LONGEST_S = 1.0, 2.0
"""range of the times of gradients in the search for idle time"""
COUNT = 12
"""number of different times of gradients"""


@dataclass(frozen=True, slots=True)
class Objective:
    """What is maximised.

    Args:
        name: of the quantity.
        measure: returns its value in a run.
        bounded_by: the guarantee with its bound.
        fixed_by: guarantees under which it has the same value in every run.
        simulated: whether it needs simulated times.
    """

    name: str
    measure: Callable[[Job, Outcome], float]
    bounded_by: Guarantee | None = None
    fixed_by: frozenset[Guarantee] = frozenset()
    simulated: bool = False


OBJECTIVES = (
    Objective(
        "largest staleness",
        lambda _, outcome: largest_staleness(outcome.trace),
        Guarantee.BOUNDED_STALENESS,
        frozenset({Guarantee.SYNCHRONOUS, Guarantee.EXACT_DELAY}),
    ),
    Objective("largest clock gap", lambda job, outcome: clock_gap(job, outcome.trace), Guarantee.BOUNDED_CLOCK_GAP),
    Objective(
        "largest distance of replicas",
        lambda job, outcome: replica_distance(job, outcome.trace),
        None,
        frozenset({Guarantee.REPLICAS_EQUAL, Guarantee.DETERMINISTIC}),
    ),
    Objective(
        "largest idle fraction of workers",
        lambda job, outcome: idle_fraction(job, outcome.trace),
        simulated=True,
    ),
)


@dataclass
class Search:
    """A local search for the largest value of one objective.

    Args:
        objective: what is maximised.
        base: the cluster and the number of steps.
        random: selects the changes.

    >>> from paceline.algorithms import find
    >>> base = Case(method=find("async-sgd")(), nodes=(1, 1), steps=3)
    >>> search = Search(OBJECTIVES[0], base, np.random.default_rng(1))
    >>> for number in range(40):
    ...     _ = search.next_outcome(number < 12)
    >>> search.best  # the other worker takes the five other updates meanwhile
    Measured(quantity='largest staleness', value=5, bound=None)
    """

    objective: Objective
    base: Case
    random: np.random.Generator
    best: Measured | None = None
    best_case: Case | None = None

    def next_outcome(self, fresh: bool) -> Outcome:
        """Tries one schedule, and keeps it if its value is not below the best.

        Args:
            fresh: whether the schedule is a new one, instead of a change of the best one.

        Returns:
            The outcome.
        """
        outcome = self._simulated(fresh) if self.objective.simulated else self._in_any_order(fresh)
        if outcome.error is None:
            job = outcome.job
            bound, limit = self.objective.bounded_by, None
            if bound is not None and bound in job.method.guarantees:
                limit = job.method.bounds(job.workers).get(bound)
            value = Measured(self.objective.name, self.objective.measure(job, outcome), limit)
            if self.best is None or value.value >= self.best.value:
                self.best, self.best_case = value, outcome.case
        return outcome

    def _in_any_order(self, fresh: bool) -> Outcome:
        ranks, random = len(self.base.job().team), self.random
        rest = random_chooser(random, ranks)
        if fresh or self.best_case is None:
            return in_recorded_order(self.base, rest)
        choices = list(self.best_case.choices)
        if choices and random.random() < 0.5:
            for at in random.integers(len(choices), size=int(random.integers(1, 4))):
                choices[int(at)] = int(random.integers(2 * ranks))
            return in_recorded_order(self.base, Chosen(choices))
        kept = choices[: int(random.integers(len(choices) + 1))]
        return in_recorded_order(self.base, _continued(kept, rest))

    def _simulated(self, fresh: bool) -> Outcome:
        times = None if fresh or self.best_case is None else self.best_case.times
        if times is None:
            compute_s = np.round(self.random.uniform(SHORTEST_S, LONGEST_S, COUNT), 2).tolist()
        else:
            compute_s = list(times.compute_s)
            compute_s[int(self.random.integers(COUNT))] = float(self.random.choice([SHORTEST_S, LONGEST_S]))
        return performed(dataclasses.replace(self.base, times=Times(compute_s=tuple(compute_s))))


def _continued(choices: list[int], rest: Chooser) -> Chooser:
    """Follows the choices, and then another chooser."""
    follow = Chosen(choices)
    return lambda ready: follow(ready) if len(follow.made) < len(choices) else rest(ready)


def searches(base: Case, random: np.random.Generator) -> list[Search]:
    """Returns a search for each objective whose value is not the same in all runs of the method.

    Args:
        base: the cluster and the number of steps.
        random: selects the changes.
    """
    return [
        Search(objective, base, random) for objective in OBJECTIVES if not objective.fixed_by & base.method.guarantees
    ]
