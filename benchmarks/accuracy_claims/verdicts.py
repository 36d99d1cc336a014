"""Turns runs into verdicts: the best learning rate of each method, differences paired by seed, and their reasons.

Rules of this file:

* Learning rates are chosen on separate seeds, by the figure that is then tested on the others.
* A verdict follows from the interval alone. If the interval does not decide, neither does the verdict.
* Reasons are measured: the samples per second of each method, its loss after equal samples, its staleness, and the
  results where both have the same learning rate.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from accuracy_claims.runs import CHANCE, Outcome, Piece
from accuracy_claims.settings import Contender
from accuracy_claims.table import Claim, Direction
from common.intervals import Difference, difference

Verdict = Literal["holds", "does not hold", "not told apart"]
MARGIN = 0.1
"""how much worse a loss or a time may be, relative to theirs, and still count as no worse; provenance: ours"""
MARGIN_POINTS = 1.0
"""the same for accuracies; provenance: ours"""


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs so far."""

    found: Mapping[Piece, Outcome]
    tuning: Sequence[int]
    """seeds on which learning rates are chosen"""
    testing: Sequence[int]

    def of(self, contender: Contender, rate: float, seeds: Sequence[int]) -> list[Outcome]:
        """Returns one outcome for each seed."""
        return [self.found[Piece(contender, rate, seed)] for seed in seeds]

    def tuned(self, contender: Contender, figure: str, rate: float) -> float:
        """Returns the mean of a figure on the tuning seeds."""
        return float(np.mean([value(figure, contender, one) for one in self.of(contender, rate, self.tuning)]))

    def best(self, contender: Contender, figure: str) -> float:
        """Returns the rate with the best mean on the tuning seeds; among equals that with the smaller loss, then the
        smallest.

        So there is a choice even if the target is never reached.
        """
        sign = -1 if figure == "accuracy" else 1

        def merit(rate: float) -> tuple[float, float]:
            return sign * self.tuned(contender, figure, rate), self.tuned(contender, "loss", rate)

        return min(contender.grid, key=merit)


def value(figure: str, contender: Contender, found: Outcome) -> float:
    """Returns a figure of one run. A target that was not reached counts as reached at the end, which is too early."""
    if figure == "time":
        return contender.setting.end * contender.setting.unit if found.reached is None else found.reached
    return found.accuracy if figure == "accuracy" else found.loss


def to_tune(claim: Claim, seeds: Sequence[int]) -> Iterator[Piece]:
    """Returns the runs from which learning rates are chosen."""
    if claim.figure == "largest rate":
        return
    for one in (claim.ours, claim.theirs) if claim.rate_of is None else (claim.rate_of,):
        yield from (Piece(one, rate, seed) for rate in one.grid for seed in seeds)


def to_test(claim: Claim, runs: Runs) -> Iterator[Piece]:
    """Returns the runs with which the claim is tested."""
    for seed in runs.testing:
        if claim.figure == "largest rate":
            yield from (Piece(one, rate, seed) for one in (claim.ours, claim.theirs) for rate in one.grid)
            continue
        for pair in pairs(claim, runs):
            for one, rate in zip((claim.ours, claim.theirs), pair, strict=True):
                yield Piece(one, rate, seed)
                if claim.reference is not None:
                    yield Piece(claim.reference, rate, seed)


def pairs(claim: Claim, runs: Runs) -> list[tuple[float, float]]:
    """Yields our rate and theirs: first the best of each, then those of a comparison at a common rate."""
    figure = "loss" if claim.figure == "distance" else claim.figure
    ours, theirs = (runs.best(claim.rate_of or one, figure) for one in (claim.ours, claim.theirs))
    common = [(rate, rate) for rate in (ours, theirs)] if claim.alike and ours != theirs else []
    return [(ours, theirs), *common]


@dataclass(frozen=True, slots=True)
class Side:
    """One method in a comparison."""

    rate: float | None
    """learning rate of the grid; None where all are tried"""
    at_edge: bool
    """whether it is at an end of the grid"""
    mean: float
    reached: int
    """test runs that reached the target"""
    samples_per_s: float
    staleness: float
    staleness_of_ranks: float


@dataclass(frozen=True, slots=True)
class Tested:
    """The result of a claim."""

    claim: Claim
    ours: Side
    theirs: Side
    difference: Difference
    verdict: Verdict
    equal_samples: Difference | None
    """difference of the losses after equal samples, each at its best rate"""
    common: Mapping[float, tuple[Difference, Verdict]]
    """differences where both have our best rate, or theirs"""
    favours: tuple[int, int] | None
    """the number of rates of the grid at which ours is better on the tuning seeds, and of those at which one of them
    learns
    """
    seeds: int


def verdict(found: Difference, direction: Direction, better: Literal["lower", "higher"], margin: float) -> Verdict:
    """Returns what the interval says about the direction.

    >>> verdict(Difference(-2.0, -3.0, -1.0, None), "lower", "lower", 0.0)
    'holds'
    >>> verdict(Difference(2.0, 1.0, 3.0, None), "lower", "lower", 0.0)
    'does not hold'
    >>> verdict(Difference(0.5, -1.0, 2.0, None), "lower", "lower", 0.0)
    'not told apart'
    >>> verdict(Difference(0.5, -1.0, 2.0, None), "no worse", "lower", 2.5)
    'holds'
    """
    sign = 1.0 if (better if direction == "no worse" else direction) == "lower" else -1.0
    low, high = sorted((sign * found.low, sign * found.high))
    limit = margin if direction == "no worse" else 0.0
    if high < limit:
        return "holds"
    return "does not hold" if low > limit else "not told apart"


def tested(claim: Claim, runs: Runs) -> Tested:
    """Tests a claim."""
    if claim.figure == "largest rate":
        return _largest_rates(claim, runs)
    best, *common = pairs(claim, runs)
    figures = _figures(claim, best, runs)
    found = difference(*figures)
    return Tested(
        claim,
        ours=_side(claim.ours, best[0], figures[0], runs),
        theirs=_side(claim.theirs, best[1], figures[1], runs),
        difference=found,
        verdict=_judged(claim, found, figures[1]),
        equal_samples=_after_equal_samples(claim, best, runs),
        common={pair[0]: _compared(claim, pair, runs) for pair in common},
        favours=_favours(claim, runs) if claim.alike and claim.rate_of is None and claim.reference is None else None,
        seeds=len(runs.testing),
    )


def _figures(claim: Claim, pair: tuple[float, float], runs: Runs) -> tuple[list[float], list[float]]:
    """Returns the figures of ours and theirs, one for each test seed."""
    ours, theirs = (
        _of_side(claim, one, rate, runs) for one, rate in zip((claim.ours, claim.theirs), pair, strict=True)
    )
    return ours, theirs


def _of_side(claim: Claim, contender: Contender, rate: float, runs: Runs) -> list[float]:
    outcomes = runs.of(contender, rate, runs.testing)
    if claim.reference is None:
        return [value(claim.figure, contender, one) for one in outcomes]
    steady = runs.of(claim.reference, rate, runs.testing)
    return [distance(one, other) for one, other in zip(outcomes, steady, strict=True)]


def distance(one: Outcome, other: Outcome) -> float:
    """Returns the mean distance of two loss curves over the samples that both have processed."""
    samples = np.linspace(0.0, min(one.samples[-1], other.samples[-1]), 101).tolist()
    return float(np.mean([abs(one.loss_at(seen) - other.loss_at(seen)) for seen in samples]))


def _compared(claim: Claim, pair: tuple[float, float], runs: Runs) -> tuple[Difference, Verdict]:
    ours, theirs = _figures(claim, pair, runs)
    found = difference(ours, theirs)
    return found, _judged(claim, found, theirs)


def _judged(claim: Claim, found: Difference, theirs: Sequence[float]) -> Verdict:
    margin = MARGIN_POINTS if claim.figure == "accuracy" else MARGIN * float(np.mean(theirs))
    return verdict(found, claim.direction, claim.better, margin)


def _side(contender: Contender, rate: float, figures: Sequence[float], runs: Runs) -> Side:
    outcomes = runs.of(contender, rate, runs.testing)

    def mean(of: Callable[[Outcome], float]) -> float:
        return float(np.mean([of(one) for one in outcomes]))

    return Side(
        rate=rate,
        at_edge=rate in (contender.grid[0], contender.grid[-1]),
        mean=float(np.mean(figures)),
        reached=sum(one.reached is not None for one in outcomes),
        samples_per_s=mean(lambda one: one.samples_per_s),
        staleness=mean(lambda one: one.staleness),
        staleness_of_ranks=mean(lambda one: one.staleness_of_ranks),
    )


def _after_equal_samples(claim: Claim, pair: tuple[float, float], runs: Runs) -> Difference:
    """Returns the losses at the last sample of the slower of the two."""
    ours, theirs = (
        runs.of(one, rate, runs.testing) for one, rate in zip((claim.ours, claim.theirs), pair, strict=True)
    )
    least = [min(one.samples[-1], other.samples[-1]) for one, other in zip(ours, theirs, strict=True)]
    return difference(
        [one.loss_at(seen) for one, seen in zip(ours, least, strict=True)],
        [one.loss_at(seen) for one, seen in zip(theirs, least, strict=True)],
    )


def _favours(claim: Claim, runs: Runs) -> tuple[int, int]:
    sign = 1 if claim.better == "lower" else -1
    learn, better = 0, 0
    for rate in claim.ours.grid:
        if rate not in claim.theirs.grid:
            continue
        sides = (claim.ours, claim.theirs)
        if min(runs.tuned(one, "loss", rate) for one in sides) < CHANCE / 2:
            ours, theirs = (sign * runs.tuned(one, claim.figure, rate) for one in sides)
            learn, better = learn + 1, better + (ours < theirs)
    return better, learn


def _largest_rates(claim: Claim, runs: Runs) -> Tested:
    """Tests a claim on the largest learning rate, which needs no tuning."""
    sides, figures = [], []
    for one in (claim.ours, claim.theirs):
        stands = [largest(one, {rate: runs.of(one, rate, [seed])[0] for rate in one.grid}) for seed in runs.testing]
        side = _side(one, one.grid[0], stands, runs)
        figures.append(stands)
        sides.append(dataclasses.replace(side, rate=None, at_edge=max(stands) == one.grid[-1] * one.scale))
    found = difference(*figures)
    return Tested(
        claim,
        ours=sides[0],
        theirs=sides[1],
        difference=found,
        verdict=_judged(claim, found, figures[1]),
        equal_samples=None,
        common={},
        favours=None,
        seeds=len(runs.testing),
    )


def largest(contender: Contender, found: Mapping[float, Outcome]) -> float:
    """Returns the largest learning rate up to which nothing diverges; 0 if everything does.

    Args:
        contender: Its learning rates are tried.
        found: The result of each rate of its grid, for one seed.
    """
    stands = 0.0
    for rate in contender.grid:
        if found[rate].diverged:
            break
        stands = rate * contender.scale
    return stands
