"""Searches for the worst schedule of a method: the largest staleness, clock gap, distance of replicas, or idle time.

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
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from paceline.algorithms.core.guarantees import Guarantee
from paceline.algorithms.core.job import Job
from paceline.checking.cases.case import Case, Times
from paceline.checking.cases.orders import random_chooser
from paceline.checking.cases.outcomes import Outcome
from paceline.checking.cases.performing import Chosen, in_recorded_order, performed
from paceline.checking.cases.worst_values import (
    Measured,
    clock_gap,
    idle_fraction,
    largest_staleness,
    replica_distance,
)
from paceline.checking.moves import Chooser

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
    return [Search(one, base, random) for one in OBJECTIVES if not one.fixed_by & base.method.guarantees]
