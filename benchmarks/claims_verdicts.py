"""From runs to verdicts: the best rate of each method, differences paired by seed, and what lies behind them.

Rules of this file:

* Rates are chosen on seeds of their own, by the figure that is then tested on the others.
* A verdict says what the interval says, and nothing where it says nothing.
* Reasons are measured: what each method takes in per second, what it has learned after equal samples, how stale its
  gradients are, and what comes out at a common rate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from claims_runs import CHANCE, Outcome, Piece
from claims_settings import Contender
from claims_table import Claim, Direction
from paired import Difference, difference

Verdict = Literal["holds", "does not hold", "not told apart"]
MARGIN = 0.1
"""of theirs, by which a loss or a time may be worse and still count as no worse; provenance: ours"""
MARGIN_POINTS = 1.0
"""the same for accuracies; provenance: ours"""


@dataclass(frozen=True, slots=True)
class Runs:
    """Everything that has been run."""

    found: Mapping[Piece, Outcome]
    tuning: Sequence[int]
    """seeds that rates are chosen on"""
    testing: Sequence[int]

    def of(self, contender: Contender, rate: float, seeds: Sequence[int]) -> list[Outcome]:
        """One outcome for each seed."""
        return [self.found[Piece(contender, rate, seed)] for seed in seeds]

    def best(self, contender: Contender, figure: str) -> float:
        """The rate with the best mean on the tuning seeds, the smallest of equals."""
        means = {
            rate: float(np.mean([value(figure, contender, one) for one in self.of(contender, rate, self.tuning)]))
            for rate in contender.grid
        }
        return (max if figure == "accuracy" else min)(means, key=means.__getitem__)

    def largest(self, contender: Contender, seed: int) -> float:
        """The largest rate below which nothing diverges; 0 if the smallest does."""
        stands = 0.0
        for rate in contender.grid:
            if self.of(contender, rate, [seed])[0].diverged:
                break
            stands = rate * contender.scale
        return stands


def value(figure: str, contender: Contender, found: Outcome) -> float:
    """A figure of one run; a target that was not reached counts as reached at the end, which is too early."""
    if figure == "time":
        return contender.setting.end * contender.setting.unit if found.reached is None else found.reached
    return found.accuracy if figure == "accuracy" else found.loss


@dataclass(frozen=True, slots=True)
class Side:
    """One method in a comparison."""

    rate: float | None
    """of the grid; None where all are tried"""
    at_edge: bool
    """whether the grid ends there"""
    mean: float
    reached: int
    """of its test runs"""
    samples_per_s: float
    staleness: float
    staleness_of_ranks: float


@dataclass(frozen=True, slots=True)
class Tested:
    """What came of a claim."""

    claim: Claim
    ours: Side
    theirs: Side
    difference: Difference
    verdict: Verdict
    equal_samples: Difference | None
    """of the losses after equal samples, each at its own rate"""
    common: Mapping[float, Verdict]
    """what is to be said at each common rate at which either learns"""


def verdict(found: Difference, direction: Direction, better: Literal["lower", "higher"], margin: float) -> Verdict:
    """What the interval says of the direction.

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
        return _step_sizes(claim, runs)
    rates = _rates(claim, runs)
    figures = [_figures(claim, one, rate, runs) for one, rate in zip((claim.ours, claim.theirs), rates, strict=True)]
    found = difference(*figures)
    sides = [
        _side(one, rate, figure, runs)
        for one, rate, figure in zip((claim.ours, claim.theirs), rates, figures, strict=True)
    ]
    return Tested(
        claim,
        *sides,
        found,
        _judged(claim, found, sides[1].mean),
        _after_equal_samples(claim, rates, runs),
        _common(claim, runs) if claim.alike and claim.rate_of is None else {},
    )


def _rates(claim: Claim, runs: Runs) -> list[float]:
    figure = "loss" if claim.figure == "distance" else claim.figure
    return [runs.best(claim.rate_of or one, figure) for one in (claim.ours, claim.theirs)]


def _figures(claim: Claim, contender: Contender, rate: float, runs: Runs) -> list[float]:
    """One for each test seed."""
    outcomes = runs.of(contender, rate, runs.testing)
    if claim.figure != "distance":
        return [value(claim.figure, contender, one) for one in outcomes]
    assert claim.reference is not None
    steady = runs.of(claim.reference, rate, runs.testing)
    return [_distance(one, other) for one, other in zip(outcomes, steady, strict=True)]


def _distance(one: Outcome, other: Outcome) -> float:
    """Mean distance of two curves over the samples that both have seen."""
    samples = np.linspace(0.0, min(one.samples[-1], other.samples[-1]), 101)
    return float(np.mean([abs(one.loss_at(seen) - other.loss_at(seen)) for seen in samples.tolist()]))


def _judged(claim: Claim, found: Difference, theirs: float) -> Verdict:
    margin = MARGIN_POINTS if claim.figure == "accuracy" else MARGIN * theirs
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


def _after_equal_samples(claim: Claim, rates: Sequence[float], runs: Runs) -> Difference:
    ours, theirs = (
        runs.of(one, rate, runs.testing) for one, rate in zip((claim.ours, claim.theirs), rates, strict=True)
    )
    least = [min(one.samples[-1], other.samples[-1]) for one, other in zip(ours, theirs, strict=True)]
    return difference(
        [one.loss_at(seen) for one, seen in zip(ours, least, strict=True)],
        [one.loss_at(seen) for one, seen in zip(theirs, least, strict=True)],
    )


def _common(claim: Claim, runs: Runs) -> dict[float, Verdict]:
    """At each rate that both have and at which one of them learns."""
    found: dict[float, Verdict] = {}
    for rate in claim.ours.grid:
        outcomes = [runs.of(one, rate, runs.testing) for one in (claim.ours, claim.theirs)]
        if min(np.mean([one.loss for one in side]) for side in outcomes) < CHANCE / 2:
            figures = [_figures(claim, one, rate, runs) for one in (claim.ours, claim.theirs)]
            found[rate] = _judged(claim, difference(*figures), float(np.mean(figures[1])))
    return found


def _step_sizes(claim: Claim, runs: Runs) -> Tested:
    """Of a claim on the largest rate, which needs no tuning."""
    sides, figures = [], []
    for one in (claim.ours, claim.theirs):
        stands = [runs.largest(one, seed) for seed in runs.testing]
        side = _side(one, one.grid[0], stands, runs)
        figures.append(stands)
        sides.append(replace(side, rate=None, at_edge=max(stands) == one.grid[-1] * one.scale))
    found = difference(*figures)
    return Tested(claim, *sides, found, _judged(claim, found, sides[1].mean), None, {})
