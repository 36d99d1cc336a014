"""Makes the case of a violation smaller, as long as the same guarantee is still violated.

Rules of this file:

* The order is that of a reader's effort: fewest ranks, then steps, then everything else that can be left out (stops,
  deaths, unequal times), then context switches.
* Choices are made simpler with delta debugging (Zeller and Hildebrandt, "Simplifying and isolating failure-inducing
  input", IEEE TSE 2002): ever smaller parts of the list are replaced by the default, which is the simplest order.
* On a smaller cluster the old choices mean another schedule. So some random schedules are tried there too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, pairwise
from typing import Any

import numpy as np

from paceline.checking.cases.case import Case, Times
from paceline.checking.cases.invariants import INVARIANTS, Violation, violations
from paceline.checking.cases.performing import in_recorded_order, performed
from paceline.checking.cases.random_cases import problems, random_times
from paceline.checking.driver import LoggedMove
from paceline.checking.moves import Chooser, Move, first, random_chooser, without_defaults

TRIES = 60
"""random schedules that are tried on each smaller cluster; provenance: ours"""


def shrunk(violation: Violation, runs: int) -> Violation:
    """Returns a violation of the same guarantee by a smaller case.

    Args:
        violation: the violation.
        runs: the limit of smaller cases that are tried, a tenth of it for an invariant that is costly to check; the
            smallest case so far is returned then.
    """
    invariant = INVARIANTS.get(violation.guarantee)
    return Shrinking(violation, runs // 10 if invariant is not None and invariant.costly else runs).run()


@dataclass
class Shrinking:
    """The smallest violation so far, and the number of cases that may still be tried."""

    best: Violation
    left: int

    def run(self) -> Violation:
        """Returns the smallest violation that is found."""
        for reduce in (self._ranks, self._steps, self._extras, self._choices):
            reduce()
        self._ranks()  # a simpler schedule may need fewer ranks and steps
        self._steps()
        self._choices()
        return self.best

    def _ranks(self) -> None:
        while any(self._anyhow(case) for case in _fewer_ranks(self.best.case)):
            pass

    def _steps(self) -> None:
        while any(self._anyhow(case) for case in _fewer_steps(self.best.case)):
            pass

    def _extras(self) -> None:
        while any(self._holds(case) for case in _simpler(self.best.case)):
            pass

    def _anyhow(self, case: Case) -> bool:
        """Tries a smaller case with the given choices, without choices, and in random schedules."""
        if self._holds(case) or (case.choices and self._holds(dataclasses.replace(case, choices=()))):
            return True
        random = np.random.default_rng(np.random.SeedSequence((case.seed, case.workers, case.steps, 23)))
        if case.times is not None:
            return any(self._holds(dataclasses.replace(case, times=random_times(random))) for _ in range(TRIES))
        ranks = len(case.job().team)
        return any(self._holds(case, random_chooser(random, ranks)) for _ in range(TRIES))

    def _choices(self) -> None:
        """Replaces parts of the choices by 0, from the whole list down to single choices."""
        if self.best.case.times is not None:
            return
        length = len(self.best.case.choices)
        while length >= 1:
            at = 0
            while at < len(self.best.case.choices):
                choices = self.best.case.choices
                part = choices[at : at + length]
                simpler = (*choices[:at], *(0 for _ in part), *choices[at + length :])
                simplified = dataclasses.replace(self.best.case, choices=without_defaults(simpler))
                if not any(part) or not self._holds(simplified):
                    at += length
            length //= 2
        self._fewer_switches()

    def _fewer_switches(self) -> None:
        """Joins two sequences of moves of one rank, where the schedule permits it."""
        smaller = True
        while smaller:
            log = performed(self.best.case).log
            now = switches(log)
            smaller = any(self._reordered(moves, now) for moves in _joined([entry.move for entry in log]))

    def _reordered(self, moves: Sequence[Move], most: int) -> bool:
        """Tries an order of moves; it has to need fewer switches between ranks than `most`."""
        if self.left <= 0:
            return False
        self.left -= 1
        outcome = in_recorded_order(self.best.case, Loosely(moves))
        return switches(outcome.log) < most and self._holds(outcome.case)

    def _holds(self, case: Case, choose: Chooser | None = None) -> bool:
        """Whether this case violates the guarantee, too; it is the best case then."""
        if self.left <= 0 or case == self.best.case or (case.deaths and len(case.deaths) > case.job().spare):
            return False
        self.left -= 1
        outcome = performed(case) if choose is None else in_recorded_order(case, choose)
        for violation in violations(outcome, only=self.best.guarantee):
            if violation.guarantee == self.best.guarantee:
                self.best = violation
                return True
        return False


def switches(log: Iterable[LoggedMove]) -> int:
    """Returns how often the next move is that of another rank."""
    ranks = [entry.move.rank for entry in log]
    return sum(rank != other for rank, other in pairwise(ranks))


def _joined(moves: Sequence[Move]) -> Iterator[list[Move]]:
    """Yields orders that join two sequences of one rank's moves, at the place of the earlier or of the later one."""
    parts = [list(part) for _, part in groupby(moves, key=lambda move: move.rank)]
    for i, part in enumerate(parts):
        j = next((j for j in range(i + 1, len(parts)) if parts[j][0].rank == part[0].rank), None)
        if j is not None:
            between = parts[i + 1 : j]
            for order in ([part, parts[j], *between], [*between, part, parts[j]]):
                yield list(chain.from_iterable([*parts[:i], *order, *parts[j + 1 :]]))


class Loosely:
    """Makes these moves, in this order where that is possible; a move that is not possible yet is made later."""

    def __init__(self, moves: Iterable[Move]) -> None:
        self._left = list(moves)

    def __call__(self, ready: Sequence[Move]) -> Move:
        for at, move in enumerate(self._left):
            if move in ready:
                return self._left.pop(at)
        return first(ready)


def _fewer_ranks(case: Case) -> Iterator[Case]:
    """Yields the case with fewer workers, the fewest first, each on nodes of their own or all on one."""
    nodes = {
        tuple(size for size in (*case.nodes[:at], workers - 1, *case.nodes[at + 1 :]) if size)
        for at, workers in enumerate(case.nodes)
    }
    for count in range(1, case.workers):
        nodes |= {(1,) * count, (count,)}
    for sizes in sorted(nodes - {()}, key=lambda node: (sum(node), -len(node), node)):
        if sum(sizes) < case.workers and not problems(case.method, sizes):
            deaths = tuple(death for death in case.deaths if death[0] < sum(sizes))
            yield dataclasses.replace(case, nodes=sizes, deaths=deaths)


def _fewer_steps(case: Case) -> Iterator[Case]:
    """Yields the case with fewer steps, the fewest first; a stop is before the last of them."""
    for steps in range(1, case.steps):
        fewer = dataclasses.replace(case, steps=steps)
        last = (fewer.job().limit or 1) - 1
        yield dataclasses.replace(fewer, stops=tuple(sorted({min(stop, last) for stop in case.stops})))


def _simpler(case: Case) -> Iterator[Case]:
    """Yields the case with one thing left out: a death, a stop, the times, a node, batches, the seed."""
    yield from (dataclasses.replace(case, deaths=_without(case.deaths, at)) for at in range(len(case.deaths)))
    for at, (rank, move) in enumerate(case.deaths):
        if move:
            earlier = (*case.deaths[:at], (rank, move // 2), *case.deaths[at + 1 :])
            yield dataclasses.replace(case, deaths=earlier)
    yield from (dataclasses.replace(case, stops=_without(case.stops, at)) for at in range(len(case.stops)))
    if case.times is not None:
        yield dataclasses.replace(case, times=None)
        yield from (dataclasses.replace(case, times=times) for times in _simpler_times(case.times))
    if len(case.nodes) < case.workers and not problems(case.method, (1,) * case.workers):
        yield dataclasses.replace(case, nodes=(1,) * case.workers)
    if case.batches:
        yield dataclasses.replace(case, batches=())
        yield from (
            dataclasses.replace(case, batches=simpler)
            for simpler in (tuple(min(size, most) for size in case.batch_of_each) for most in (2, 3, 5))
            if simpler != case.batches
        )
    if case.seed != 1:
        yield dataclasses.replace(case, seed=1)


def _simpler_times(times: Times) -> Iterator[Times]:
    """Yields simpler times: without latency, equal steps, round numbers."""
    if times.s_per_byte:
        yield dataclasses.replace(times, s_per_byte=0.0)
    if times.latency_s:
        yield dataclasses.replace(times, latency_s=0.0)
    for count in range(1, len(times.compute_s)):
        yield dataclasses.replace(times, compute_s=times.compute_s[:count])
    for at, second in enumerate(times.compute_s):
        if second != float(max(1, round(second))):
            simpler = (*times.compute_s[:at], float(max(1, round(second))), *times.compute_s[at + 1 :])
            yield dataclasses.replace(times, compute_s=simpler)


def _without(values: tuple[Any, ...], at: int) -> tuple[Any, ...]:
    return (*values[:at], *values[at + 1 :])
