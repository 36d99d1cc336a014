"""The verdict on a claim: its figure for every plausible input and several seeds, and the share of them that agrees.

Rules of this file:

* Every value that an input's file lists (the value, and the ends of its range) is equally plausible, and inputs are
  independent. The share of a claim is the probability that our figure is one that the paper's assertion allows. So an
  input that changes nothing decides nothing, however many there are.
* One input is changed at a time, and the effects of several add up (for positive figures: multiply), unless a claim
  says that all combinations are to be computed.
* Chance of seeds is part of the share: means have Student's t distribution, with a variance pooled over all inputs.
* Nobody writes a verdict: a claim holds if the share is at least `HOLDS`. It misses if so large a share lies on one
  side of what the paper asserts: a figure that is only uncertain, on both sides of a published one, is undecidable.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import fmean
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from paceline.papers.claim import Assertion, Claim, Curve, Effort, Given, Input

Verdict = Literal["holds", "misses", "undecidable"]
TOLERANCE = 0.25
"""largest difference from a published figure, relative to it, that still agrees; provenance: ours"""
HOLDS = 0.9
"""share of the plausible inputs and of chance that must agree; provenance: ours"""
DECIDES = 0.1
"""difference of the share between values of an input from which the input decides; provenance: ours"""
SEEDS_OF_CHANGES = 3
"""number of seeds with a changed input; each is compared with the same seed without the change"""
QUICK_SEEDS = 3
MOST_COMBINATIONS = 20_000
QUANTILES = (np.arange(200) + 0.5) / 200
"""at which the distribution of a mean is represented"""
EVERY_VALUE = (-math.inf, math.inf)
BY_INPUT = "By changed input: "
"""the words after which a reason has our figure with each changed input"""


@dataclass(frozen=True, slots=True)
class Case:
    """Our figure with some inputs changed, for each of the seeds 1, 2, …"""

    changed: tuple[tuple[str, str], ...]
    """pairs of an input's name and its value; none: the most plausible values"""
    figures: tuple[float, ...]

    @property
    def words(self) -> str:
        """The changes, and the mean figure."""
        return " and ".join(f"{name} {value}" for name, value in self.changed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """Our figure of a claim, how it depends on inputs and seeds, and the share that agrees."""

    value: float
    """the mean over seeds with the most plausible inputs"""
    low: float
    """the lower end of the interval that holds 95 % of plausible inputs and chance"""
    high: float
    seeds_low: float
    """the lower end of the 95 % interval over seeds with the most plausible inputs"""
    seeds_high: float
    share: float
    """the share of plausible inputs and chance with which the paper's assertion is true, 0 … 1"""
    below: float
    """the share with which our figure is smaller than any with which the assertion is true, 0 … 1"""
    shares: Mapping[str, Mapping[str, float]]
    """the same share by input and by its value"""
    cases: tuple[Case, ...]
    """the most plausible inputs first"""
    explained: tuple[str, ...] = ()
    """measured sentences about the figure"""
    curve: Curve | None = None

    @property
    def verdict(self) -> Verdict:
        """What follows from the shares."""
        return verdict_of(self.share, self.below)

    @property
    def decides(self) -> str:
        """The input on whose value the share depends most; "" if on none by `DECIDES`."""
        spans = {name: max(by_value.values()) - min(by_value.values()) for name, by_value in self.shares.items()}
        name = max(spans, key=spans.__getitem__, default="")
        return name if name and spans[name] >= DECIDES else ""

    @property
    def reason(self) -> str:
        """Which share of the plausible inputs agrees, which input decides, and our figure with each."""
        if len(self.cases) == 1 and not self.shares:
            return f"Agrees with probability {self.share:.0%} over seeds." if 0.0 < self.share < 1.0 else ""
        sentences = [f"{self.share:.0%} of the plausible inputs agree."]
        if self.decides:
            by_value = self.shares[self.decides]
            listed = ", ".join(f"{share:.0%} with {value}" for value, share in by_value.items())
            sentences.append(f"{self.decides} decides: {listed}.")
        changed = [f"{fmean(case.figures):.3g} with {case.words}" for case in self.cases[1:]]
        sentences.append(f"{BY_INPUT}{'; '.join(changed)}.")
        return " ".join(sentences)


def verdict_of(share: float, below: float) -> Verdict:
    """Returns what follows from the shares of the plausible inputs that agree, and whose figure is too small.

    Args:
        share: The share that agrees, 0 … 1.
        below: The share whose figure is too small, 0 … 1; that of the others is too large.

    >>> verdict_of(0.95, 0.0), verdict_of(0.05, 0.0), verdict_of(0.05, 0.5)
    ('holds', 'misses', 'undecidable')
    """
    if share >= HOLDS:
        return "holds"
    return "misses" if max(below, 1 - share - below) >= HOLDS - 1e-12 else "undecidable"


def asserted(published: float | None, holds_if: Assertion) -> tuple[float, float]:
    """Returns the least and the largest figure with which a paper's assertion is true.

        within 25 %   [0.75 p, 1.25 p]  with the published figure p (ends swapped if p < 0)
        at least      [p, ∞)
        at most       (−∞, p]
        positive      (0, ∞)            ours is a difference that the paper says is positive
        negative      (−∞, 0)
        order         (1, ∞)            ours is the ratio of the figure that should be larger to the other
        equal         {p}

    Args:
        published: The published figure; not used for "positive", "negative" and "order".
        holds_if: What the paper asserts.

    Raises:
        ValueError: If the assertion needs a published figure and there is none.

    >>> asserted(56.0, "within 25 %")
    (42.0, 70.0)
    """
    match holds_if:
        case "positive":
            return math.nextafter(0.0, math.inf), math.inf
        case "negative":
            return -math.inf, -math.nextafter(0.0, math.inf)
        case "order":
            return math.nextafter(1.0, math.inf), math.inf
    if published is None:
        raise ValueError(f"{holds_if!r} needs a published figure; found none")
    match holds_if:
        case "at least":
            return published, math.inf
        case "at most":
            return -math.inf, published
        case "equal":
            return published, published
        case "within 25 %":
            least, most = sorted(((1 - TOLERANCE) * published, (1 + TOLERANCE) * published))
            return least, most


# --- computation of the cases -----------------------------------------------------------------------------------------


def predicted(claim: Claim, inputs: Mapping[str, Input], effort: Effort) -> Predicted:
    """Computes a claim's figure for all plausible inputs and several seeds.

    Args:
        claim: The claim.
        inputs: The inputs of its paper.
        effort: Decides on lengths and seeds.

    Raises:
        ValueError: If a figure is not finite, or outside the claim's bounds.
    """
    central = claim.given(inputs, quick=effort.quick)
    count = 1 if claim.seeds == 1 else effort.seeds or (QUICK_SEEDS if effort.quick else claim.seeds)
    fewer = min(count, 1 if effort.quick else SEEDS_OF_CHANGES)
    cases = [_case(claim, central, (), count)]
    cases += [_case(claim, central, changes, fewer) for changes in _changes(claim, inputs)]
    judged = judge(claim, cases, {name: inputs[name].plausible for name in claim.inputs})
    return replace(
        judged,
        explained=tuple(claim.explain(central)) if claim.explain is not None else (),
        curve=claim.curve(central) if claim.curve is not None else None,
    )


def _changes(claim: Claim, inputs: Mapping[str, Input]) -> Iterator[tuple[tuple[str, str], ...]]:
    """Yields the changes from the most plausible inputs that are computed."""
    plausible = {name: inputs[name].plausible for name in claim.inputs if not inputs[name].certain}
    if not claim.all_combinations:
        for name, (_, *others) in plausible.items():
            for value in others:
                yield ((name, value),)
        return
    for values in product(*plausible.values()):
        changed = [(name, value) for name, value in zip(plausible, values, strict=True) if value != inputs[name].value]
        if changed:
            yield tuple(changed)


def _case(claim: Claim, central: Given, changes: tuple[tuple[str, str], ...], seeds: int) -> Case:
    given = central
    for name, value in changes:
        given = given.with_value(name, value)
    figures = tuple(float(claim.figure(replace(given, seed=seed))) for seed in range(1, seeds + 1))
    least, most = claim.bounds
    wrong = [figure for figure in figures if not (math.isfinite(figure) and least <= figure <= most)]
    if wrong:
        where = f" with {' and '.join(f'{name} {value}' for name, value in changes)}" if changes else ""
        raise ValueError(f"{claim.name}{where}: found {wrong[0]}, expected a finite figure from {least:g} to {most:g}")
    return Case(changes, figures)


# --- the judgement ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scale:
    """The scale on which figures are averaged and effects add up: logarithms, or the figures themselves."""

    there: Callable[[float], float]
    back: Callable[[float], float]


PLAIN, LOGARITHMIC = Scale(float, float), Scale(lambda x: math.log(x) if x > 0 else -math.inf, math.exp)


def scale_of(claim: Claim, cases: Sequence[Case]) -> Scale:
    """Returns the scale of a claim's figures: logarithms if they are positive by nature, and all are.

    Args:
        claim: The claim.
        cases: Its computed figures.
    """
    positive = claim.bounds == (0.0, math.inf) and min(figure for case in cases for figure in case.figures) > 0
    return LOGARITHMIC if positive else PLAIN


def effect_of(figures: Sequence[float], central: Sequence[float]) -> list[float]:
    """Returns the differences that a change makes, on the claim's scale, between equal seeds.

    Args:
        figures: With the change; of the first seeds, if there are fewer.
        central: Without the change.
    """
    return [figure - same for figure, same in zip(figures, central, strict=False)]


@dataclass(frozen=True, slots=True)
class _Estimates:
    """The mean figure of each combination of inputs, on the claim's scale, with its standard error."""

    means: NDArray[np.float64]
    errors: NDArray[np.float64]
    free: float
    """degrees of freedom of the errors"""

    def share_between(self, least: float, most: float) -> NDArray[np.float64]:
        """Returns for each combination the probability that the figure lies in an interval, ends included."""
        from scipy.stats import t  # slow to import, so only when needed

        certain = (least <= self.means) & (self.means <= most)
        if not np.any(self.errors):
            return certain.astype(float)
        safe = np.where(self.errors > 0, self.errors, 1.0)
        chance = t.cdf((most - self.means) / safe, self.free) - t.cdf((least - self.means) / safe, self.free)
        return np.where(self.errors > 0, chance, certain)

    def interval(self) -> tuple[float, float]:
        """Returns the interval that holds 95 % of all combinations and of chance."""
        if not np.any(self.errors):
            points = self.means
        else:
            from scipy.stats import t

            points = (self.means[:, None] + self.errors[:, None] * t.ppf(QUANTILES, self.free)[None, :]).ravel()
        low, high = np.quantile(points, (0.025, 0.975), method="nearest" if not np.any(self.errors) else "hazen")
        return float(low), float(high)


def judge(claim: Claim, cases: Sequence[Case], plausible: Mapping[str, Sequence[str]]) -> Predicted:
    """Returns the figure, its intervals, and the shares that agree with the paper, from computed cases.

    Args:
        claim: The claim.
        cases: The cases, the one with the most plausible inputs first.
        plausible: The plausible values of each input, the most plausible first.

    >>> claim = Claim(name="x-y", paper="x", section="", sentence="", published=10.0, hardware="", model="", batch="",
    ...               scenario="", command="", inputs=("batch",), holds_if="within 25 %", figure=lambda given: 10.0)
    >>> both = judge(claim, [Case((), (10.0,)), Case((("batch", "16"),), (20.0,))], {"batch": ("64", "16")})
    >>> both.share, both.verdict, both.decides, both.shares["batch"]
    (0.5, 'undecidable', 'batch', {'64': 1.0, '16': 0.0})
    """
    scale = scale_of(claim, cases)
    moved = [tuple(scale.there(figure) for figure in case.figures) for case in cases]
    varied = {name: tuple(values) for name, values in plausible.items() if len(values) > 1}
    combinations = _combinations(list(varied.values()))
    combine = _every_combination if claim.all_combinations else _added
    estimates = combine(cases, moved, list(varied), combinations)
    least, most = map(scale.there, asserted(claim.published, claim.holds_if))
    agreeing = estimates.share_between(least, most)
    smaller = estimates.share_between(-math.inf, math.nextafter(least, -math.inf))
    centre = _Estimates(np.array([fmean(moved[0])]), np.array([_error_of(moved[0])]), max(1, len(moved[0]) - 1))

    # a single figure is itself, without the rounding of its logarithm
    value = cases[0].figures[0] if len(moved[0]) == 1 else scale.back(fmean(moved[0]))

    def bounded(interval: tuple[float, float]) -> tuple[float, float]:
        """Returns an interval in the unit of the figure, within its bounds and around its value."""
        smallest, largest = claim.bounds
        ends = [min(max(scale.back(end), smallest), largest) for end in interval]
        low, high = (value if math.isclose(end, value, rel_tol=1e-12) else end for end in ends)
        return min(low, value), max(high, value)

    (low, high), (seeds_low, seeds_high) = bounded(estimates.interval()), bounded(centre.interval())
    shares = {
        name: {
            text: float(np.mean(agreeing[[row[place] == text for row in combinations]])) for text in varied[name]
        }
        for place, name in enumerate(varied)
    }  # fmt: skip
    return Predicted(
        value=value,
        low=low,
        high=high,
        seeds_low=seeds_low,
        seeds_high=seeds_high,
        share=float(np.mean(agreeing)),
        below=float(np.mean(smaller)),
        shares=shares,
        cases=tuple(cases),
    )


def _combinations(values: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """Returns all combinations of values, or a fixed random choice of them if there are too many."""
    if math.prod(map(len, values)) <= MOST_COMBINATIONS:
        return list(product(*values))
    chance = np.random.default_rng(0)
    columns = [[texts[index] for index in chance.integers(len(texts), size=MOST_COMBINATIONS)] for texts in values]
    return list(zip(*columns, strict=True))


def _error_of(figures: Sequence[float]) -> float:
    """Returns the standard error of a mean; 0 for a single figure."""
    return float(np.std(figures, ddof=1)) / math.sqrt(len(figures)) if len(figures) > 1 else 0.0


def _pooled(groups: Sequence[Sequence[float]]) -> tuple[float, int]:
    """Returns the standard deviation within groups of figures, and its degrees of freedom."""
    free = sum(len(group) - 1 for group in groups)
    squares = sum(float(np.var(group)) * len(group) for group in groups)
    return (math.sqrt(squares / free), free) if free else (0.0, 0)


def _added(
    cases: Sequence[Case],
    moved: Sequence[Sequence[float]],
    names: Sequence[str],
    combinations: Sequence[tuple[str, ...]],
) -> _Estimates:
    """Returns estimates to which each changed input adds its effect, the mean difference between equal seeds."""
    central = moved[0]
    differences = {
        case.changed[0]: effect_of(figures, central) for case, figures in zip(cases[1:], moved[1:], strict=True)
    }
    spread, free = _pooled(list(differences.values()))
    if not free and len(central) > 1:  # one seed for each change: its noise is that of two independent runs
        spread, free = math.sqrt(2.0) * float(np.std(central, ddof=1)), len(central) - 1
    effects = {change: fmean(of_seeds) for change, of_seeds in differences.items()}
    squares = {change: spread**2 / len(of_seeds) for change, of_seeds in differences.items()}
    rows = [[change for change in zip(names, row, strict=True) if change in effects] for row in combinations]
    return _Estimates(
        means=np.array([fmean(central) + sum(effects[change] for change in row) for row in rows]),
        errors=np.array([math.sqrt(_error_of(central) ** 2 + sum(squares[change] for change in row)) for row in rows]),
        free=max(1, free, len(central) - 1),
    )


def _every_combination(
    cases: Sequence[Case],
    moved: Sequence[Sequence[float]],
    names: Sequence[str],
    combinations: Sequence[tuple[str, ...]],
) -> _Estimates:
    """Returns the estimate of each computed combination."""
    found = {frozenset(case.changed): figures for case, figures in zip(cases, moved, strict=True)}
    spread, free = _pooled(moved)
    changes = {change for case in cases for change in case.changed}
    rows = [
        found[frozenset(change for change in zip(names, row, strict=True) if change in changes)]
        for row in combinations
    ]  # fmt: skip
    return _Estimates(
        means=np.array([fmean(figures) for figures in rows]),
        errors=np.array([spread / math.sqrt(len(figures)) for figures in rows]),
        free=max(1, free),
    )
