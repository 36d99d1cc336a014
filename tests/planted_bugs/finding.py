"""Searches a method for a planted bug as `paceline check` does, and measures how long that takes."""

from __future__ import annotations

import time
from dataclasses import dataclass

from paceline.algorithms.core.method import Method
from paceline.checking.cases import Case, Violation, performed, shrunk, violations
from paceline.checking.cases.checking_methods import COSTLY_EVERY, COSTLY_FIRST, Effort, outcome_of
from paceline.checking.cases.random_cases import RandomCases
from paceline.checking.cases.shrinking import switches
from tests.planted_bugs.bug import PlantedBug


@dataclass(frozen=True, kw_only=True)
class Found:
    """A counterexample of a planted bug.

    Args:
        violation: by the smallest case.
        schedules: number of cases until the first violation.
        seconds: until the first violation.
        shrink_s: seconds for making its case smaller.
    """

    violation: Violation
    schedules: int
    seconds: float
    shrink_s: float

    @property
    def ranks(self) -> int:
        """The number of workers and servers."""
        return len(self.violation.case.job().team)

    @property
    def steps(self) -> int:
        """The number of steps of each worker."""
        return self.violation.case.steps

    @property
    def context_switches(self) -> int | None:
        """How often another rank moves next; None for a simulated case, which has no sequence of moves."""
        case = self.violation.case
        return None if case.times is not None else switches(performed(case).log)


def search(bug: PlantedBug, *, schedules: int = 1000, shrink_runs: int = 2000, seed: int = 1) -> Found | None:
    """Searches until a guarantee that the bug violates is reported, and makes the case smaller; None if none is.

    Args:
        bug: the bug.
        schedules: limit of the cases until it is found.
        shrink_runs: limit of the cases for making it smaller, see `shrunk`.
        seed: of the random cases.
    """
    effort = Effort()
    begun_s = time.perf_counter()
    for number, drawn in enumerate(RandomCases(bug.method, seed, effort.workers, effort.steps)):
        if number >= schedules:
            return None
        costly = number < COSTLY_FIRST or number % COSTLY_EVERY == 0
        for violation in violations(outcome_of(drawn), costly=costly):
            if violation.guarantee in bug.violates:
                found_s = time.perf_counter()
                small = shrunk(violation, shrink_runs)
                return Found(
                    violation=small,
                    schedules=number + 1,
                    seconds=found_s - begun_s,
                    shrink_s=time.perf_counter() - found_s,
                )
    return None


def false_alarms(bug: PlantedBug, schedules: int, *, seed: int = 2) -> list[Violation]:
    """Returns the violations of the method without the bug; the original must have none.

    Args:
        bug: the bug.
        schedules: number of cases.
        seed: of the random cases.
    """
    return _violations(bug.original, schedules, seed, simulated=True)


def without_clock(bug: PlantedBug, schedules: int, *, seed: int = 3) -> list[Violation]:
    """Returns the violations of the method with the bug in the any-order interpreter alone; arguments as above."""
    return _violations(bug.method, schedules, seed, simulated=False)


def _violations(method: Method, schedules: int, seed: int, *, simulated: bool) -> list[Violation]:
    found = list[Violation]()
    cases = RandomCases(method, seed, 3, 4)
    for number, drawn in zip(range(schedules), cases, strict=False):
        case: Case = drawn.case
        if simulated or case.times is None:
            found += violations(outcome_of(drawn), costly=number < COSTLY_FIRST)
    return found
