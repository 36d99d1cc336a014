"""Draws random cases of a method: clusters, numbers of steps, orders of moves, speeds, latencies, stops, deaths.

Rules of this file:

* Small cases are the most frequent: most bugs need two or three workers and few steps, and a small case takes a
  millisecond. Some are larger.
* A period of a hundred steps would never end in such a case. So a part of the cases has the given hyper-parameters, and
  a part has 1 or 2 instead of each larger integer, where the method accepts that.
* The first cases are simple ones, in an order of turns.
* All random numbers are from one generator, so the seed determines the cases.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.guarantees import Guarantee
from paceline.algorithms.core.method import Method
from paceline.checking.cases.case import Case, Times, placed
from paceline.checking.defaults import SEED, STEPS, WORKERS
from paceline.checking.moves import Chooser, RoundRobin, random_chooser

CONSERVING = frozenset({Guarantee.CONSERVES_SUM, Guarantee.CONSERVES_MEAN})
SHORT = (1, 2)
"""the values that replace larger integers"""
SIMULATED, STOPPED, WITH_DEATHS, WITHOUT_GRADIENTS, LARGE, UNEVEN = 0.25, 0.2, 0.15, 0.15, 0.1, 0.2
"""the shares of these kinds of cases; provenance: ours"""

PLAIN = 3
"""number of clusters of the first cases"""
MOVES = 12
"""the latest move of a death, for each step of each rank; provenance: ours, most methods take 5 to 20"""


@dataclass(frozen=True)
class DrawnCase:
    """A case, and what selects its moves instead of its choices if the any-order interpreter runs it."""

    case: Case
    choose: Chooser | None


@dataclass(frozen=True)
class RandomCases:
    """Random cases of a method.

    Args:
        method: the method with its hyper-parameters.
        seed: of the cases.
        workers: the largest number of workers.
        steps: the largest number of steps of a worker.
        same_as: the method that cases with the given hyper-parameters name as theirs.

    >>> from paceline.algorithms import find
    >>> cases = RandomCases(find("gossip")(), seed=1, workers=4, steps=3)
    >>> sorted(cases.placements)  # gossip needs a power of two
    [(1, 1), (1, 1, 1, 1), (1, 1, 2), (1, 2, 1), (1, 3), (2,), (2, 1, 1), (2, 2), (3, 1), (4,)]
    """

    method: Method
    seed: int = SEED
    workers: int = WORKERS
    steps: int = STEPS
    same_as: Method | None = None

    @cached_property
    def variants(self) -> tuple[Method, ...]:
        """The method as given, then with short periods, where it accepts them."""
        return (self.method, *_shortened(self.method, self.placements))

    @cached_property
    def placements(self) -> tuple[tuple[int, ...], ...]:
        """The numbers of workers on each node that the method accepts.

        Raises:
            InputError: it accepts none.
        """
        every = (sizes for workers in range(1, self.workers + 1) for sizes in _compositions(workers))
        allowed = tuple(sizes for sizes in every if not problems(self.method, sizes))
        if self.method.alone:
            return ((1,),)
        if not allowed:
            said = problems(self.method, (self.workers,))
            raise InputError(
                f"{self.method.name}: accepts no cluster of up to {self.workers} workers ({'; '.join(said)}); "
                "try --workers"
            )
        return allowed

    def __iter__(self) -> Iterator[DrawnCase]:
        yield from self._plain()
        random, of_batches = (np.random.default_rng(np.random.SeedSequence((self.seed, key))) for key in (22, 24))
        while True:
            yield self._draw(random, of_batches)

    def _plain(self) -> Iterator[DrawnCase]:
        """Yields simple cases, which show a mistake that does not depend on the schedule."""
        for count in sorted({sum(sizes) for sizes in self.placements})[:PLAIN]:
            sizes = next(sizes for sizes in self.placements if sum(sizes) == count)
            case = Case(method=self.method, nodes=sizes, steps=min(2, self.steps), same_as=self.same_as)
            yield DrawnCase(case, RoundRobin())

    def _draw(self, random: np.random.Generator, of_batches: np.random.Generator) -> DrawnCase:
        method = self.variants[int(random.integers(len(self.variants)))]
        sizes = self._placement(random)
        if problems(method, sizes):
            method = self.method
        large = random.random() < LARGE
        steps = int(random.integers(1, 1 + (2 * self.steps if large else min(self.steps, 4))))
        same_as = self.same_as if method is self.method else None
        case = Case(method=method, nodes=sizes, steps=steps, seed=int(random.integers(8)), same_as=same_as)
        if not method.divides_batch and case.workers > 1 and of_batches.random() < UNEVEN:
            case = dataclasses.replace(case, batches=tuple(map(int, of_batches.integers(1, 9, size=case.workers))))
        if method.guarantees & CONSERVING and random.random() < WITHOUT_GRADIENTS:
            case = dataclasses.replace(case, gradients=False)
        kind = random.random()
        if kind < SIMULATED:
            return DrawnCase(dataclasses.replace(case, times=random_times(random)), None)
        if kind < SIMULATED + STOPPED:
            case = dataclasses.replace(case, stops=_stops(random, case))
        elif kind < SIMULATED + STOPPED + WITH_DEATHS:
            case = dataclasses.replace(case, deaths=_deaths(random, case))
        return DrawnCase(case, random_chooser(random, len(case.job().team)))

    def _placement(self, random: np.random.Generator) -> tuple[int, ...]:
        """Draws a number of workers, of which 2 and 3 are the most frequent, and then their nodes."""
        counts = sorted({sum(sizes) for sizes in self.placements})
        weights = np.array([{1: 1.0, 2: 4.0, 3: 3.0}.get(count, 6.0 / count) for count in counts])
        count = counts[int(random.choice(len(counts), p=weights / weights.sum()))]
        fitting = [sizes for sizes in self.placements if sum(sizes) == count]
        return fitting[int(random.integers(len(fitting)))]


def problems(method: Method, sizes: tuple[int, ...]) -> list[str]:
    """Returns the errors of a method on so many workers on each node; one if it cannot be asked."""
    try:
        return method.problems(placed(sizes))
    except Exception as error:  # of any kind: the method is the user's
        return [f"problems() failed: {type(error).__name__}: {error}"]


def random_times(random: np.random.Generator) -> Times:
    """Draws the times of a simulated case: equal or unequal steps, with and without latency."""
    count = int(random.choice([1, 2, 4, 9]))
    compute_s = np.round(np.exp(random.normal(0.0, float(random.choice([0.1, 1.0])), count)), 3)
    latency_s = float(random.choice([0.0, 0.01, 0.3, 3.0]))
    return Times(
        compute_s=tuple(np.maximum(compute_s, 0.001).tolist()),
        latency_s=latency_s,
        s_per_byte=float(random.choice([0.0, 0.001])),
    )


def _stops(random: np.random.Generator, case: Case) -> tuple[int, ...]:
    """Draws one to three steps of the owner of the weights at which the run is stopped."""
    limit = case.job().limit or 1
    return tuple(sorted({int(stop) for stop in random.integers(limit, size=int(random.integers(1, 4)))}))


def _deaths(random: np.random.Generator, case: Case) -> tuple[tuple[int, int], ...]:
    """Draws deaths of workers before random moves, at most as many as the method promises to survive."""
    job = case.job()
    if job.spare < 1:
        return ()
    ranks = random.permutation(job.workers)[: int(random.integers(1, job.spare + 1))]
    latest = MOVES * len(job.team) * case.steps
    return tuple(sorted((int(rank), int(random.integers(latest))) for rank in ranks))


def _compositions(workers: int) -> Iterator[tuple[int, ...]]:
    """Yields all ways to place workers on nodes.

    >>> list(_compositions(3))
    [(1, 1, 1), (1, 2), (2, 1), (3,)]
    """
    for cuts in product((True, False), repeat=workers - 1):
        sizes = [1]
        for cut in cuts:
            if cut:
                sizes.append(1)
            else:
                sizes[-1] += 1
        yield tuple(sizes)


def _shortened(method: Method, placements: tuple[tuple[int, ...], ...]) -> Iterator[Method]:
    """Yields the method with each of `SHORT` in the place of all larger integers, where it accepts this."""
    for short in SHORT:
        changes: dict[str, Any] = {
            field.name: short
            for field in dataclasses.fields(method)
            if type(value := getattr(method, field.name)) is int and value > short and field.name != "seed"
        }
        try:
            changed = dataclasses.replace(method, **changes) if changes else method
        except Exception:  # its constructor refuses them
            continue
        if changes and not problems(changed, placements[-1]):
            yield changed
