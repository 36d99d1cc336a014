"""Claims of papers, the figures that Paceline computes for them, and the rule of the verdicts.

Rules of this file:

* The verdict follows from the published figure, the interval of ours, and what the claim asserts. Nobody writes it.
* The interval is over seeds and over the plausible range of every input that was not found in the paper.
* A verdict other than "holds" has a reason, which is measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from paceline.records.metrics import interval

Verdict = Literal["holds", "misses", "undecidable"]
Assertion = Literal["within 25 %", "at least", "at most", "positive", "order", "equal"]
TOLERANCE = 0.25
"""largest difference from a published figure, relative to it, that still agrees; provenance: ours"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """A value that a claim's scenario needs, with its unit and its provenance."""

    name: str
    value: str
    provenance: str
    """starts with FOUND, DERIVED, MEMORY high, MEMORY medium, MEMORY low, INFERENCE or ASSUMED"""
    low: str | None = None
    """the lower end of the plausible range, or one alternative; None if the value was found"""
    high: str | None = None

    @property
    def found(self) -> bool:
        """Whether the value is the paper's, a source's, or follows from such values."""
        return self.low is None and self.high is None

    @property
    def number(self) -> float:
        """The value without its unit.

        >>> Input(name="link", value="20 GB/s", provenance="FOUND in a data sheet").number
        20.0
        """
        return _number(self.value)

    @property
    def numbers(self) -> tuple[float, ...]:
        """The value and the ends of its range, without unit and without repetition, in this order."""
        return tuple(dict.fromkeys(_number(text) for text in (self.value, self.low, self.high) if text is not None))

    def answer(self) -> dict[str, str | None]:
        """Returns the input for a JSON answer."""
        return {
            "name": self.name,
            "value": self.value,
            "provenance": self.provenance,
            "low": self.low,
            "high": self.high,
        }


def _number(text: str) -> float:
    return float(text.split(maxsplit=1)[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A figure of a claim: lines over one axis, and the published value as a horizontal line."""

    x: str
    """label of the horizontal axis, with unit"""
    y: str
    lines: Mapping[str, Sequence[tuple[float, float]]]
    """points (x, y) of each line, by its label"""
    published: float | None = None
    log_x: bool = False
    log_y: bool = False

    def answer(self) -> dict[str, object]:
        """Returns the curve for a JSON answer."""
        return {
            "x": self.x,
            "y": self.y,
            "lines": {name: [list(point) for point in points] for name, points in self.lines.items()},
            "published": self.published,
            "log_x": self.log_x,
            "log_y": self.log_y,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """Our figure of a claim, with its interval."""

    value: float
    low: float
    """lower end, over seeds and over the plausible inputs"""
    high: float
    reason: str = ""
    """why it misses or is undecidable: a measured cause, or the input that decides"""
    details: tuple[str, ...] = ()
    """further measured sentences, for the page"""
    curve: Curve | None = None

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, (self.low, self.value, self.high))) or not self.low <= self.value <= self.high:
            raise ValueError(
                f"found low {self.low}, value {self.value}, high {self.high}; expected finite, in this order"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much may be computed for a claim."""

    quick: bool = False
    """fewer seeds, shorter horizons and smaller grids; the same code path"""
    seeds: int = 5
    workers: int = 1
    """number of processes that a claim may start; 1 within a claim that runs beside others"""

    def choose(self, full: int, quick: int) -> int:
        """Returns a count for this effort.

        >>> Effort().choose(2000, 200), Effort(quick=True).choose(2000, 200)
        (2000, 200)
        """
        return quick if self.quick else full


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One published figure or ordering, and the computation of ours."""

    name: str
    paper: str
    """the paper's short name, a key of `registry.PAPERS`"""
    section: str
    """section, table or figure of the paper"""
    sentence: str
    published: float | None
    """None if the paper asserts an ordering without a figure"""
    unit: str
    """unit of the published figure and of ours; "×" for a factor, "" for a number"""
    hardware: str
    model: str
    batch: str
    scenario: str
    """the shipped scenario that ours starts from"""
    command: str
    """a command whose answer contains our figure, or the runs that it is computed from"""
    inputs: tuple[str, ...]
    """names in the paper's inputs file"""
    holds_if: Assertion
    predict: Callable[[Effort], Predicted] = field(repr=False, compare=False)
    measured: bool = False
    """whether ours comes from real execution; such claims run alone, in the main process"""
    shares: str = ""
    """claims with the same text here run in one process, one after another, so that they may cache common runs"""


def verdict_of(published: float | None, predicted: Predicted, holds_if: Assertion, *, inputs_found: bool) -> Verdict:
    """Compares the interval of our figure with what the paper asserts.

    The assertion is a set A of values:

        within 25 %   A = [0.75 p, 1.25 p]  with the published figure p (ends swapped if p < 0)
        at least      A = [p, ∞)
        at most       A = (−∞, p]
        positive      A = (0, ∞)            ours is a difference that the paper says is positive
        order         A = (1, ∞)            ours is the ratio of the figure that should be larger to the other
        equal         A = {p}

    The claim holds if the interval [low, high] of ours lies in A, misses if it lies outside A, and is undecidable
    otherwise. One addition for "within 25 %": if all inputs are found, the interval is only the noise of seeds, and the
    claim also holds if the published figure lies in it.

    Args:
        published: The published figure; not used for "positive" and "order".
        predicted: Our figure with its interval.
        holds_if: What the paper asserts.
        inputs_found: Whether all inputs of the claim were found.

    Raises:
        ValueError: If the assertion needs a published figure and there is none.

    >>> verdict_of(56.0, Predicted(value=50.0, low=45.0, high=55.0), "within 25 %", inputs_found=False)
    'holds'
    >>> verdict_of(56.0, Predicted(value=50.0, low=30.0, high=70.0), "within 25 %", inputs_found=False)
    'undecidable'
    >>> verdict_of(56.0, Predicted(value=50.0, low=30.0, high=70.0), "within 25 %", inputs_found=True)
    'holds'
    >>> verdict_of(None, Predicted(value=-1.0, low=-2.0, high=-0.5), "positive", inputs_found=True)
    'misses'
    """
    low, high = predicted.low, predicted.high
    if holds_if == "positive" or holds_if == "order":
        limit = 0.0 if holds_if == "positive" else 1.0
        return "holds" if low > limit else "misses" if high <= limit else "undecidable"
    if published is None:
        raise ValueError(f"{holds_if!r} needs a published figure; found none")
    if holds_if == "within 25 %" and inputs_found and low <= published <= high:
        return "holds"
    least, most = _asserted(published, holds_if)
    if least <= low and high <= most:
        return "holds"
    return "misses" if high < least or low > most else "undecidable"


def _asserted(published: float, holds_if: Assertion) -> tuple[float, float]:
    """Returns the ends of the set of values that agree with the published figure."""
    if holds_if == "within 25 %":
        least, most = sorted(((1 - TOLERANCE) * published, (1 + TOLERANCE) * published))
        return least, most
    if holds_if == "at least":
        return published, math.inf
    return (-math.inf, published) if holds_if == "at most" else (published, published)


def over_seeds(values: Sequence[float]) -> Predicted:
    """Returns the mean of one figure per seed with Student's 95 % interval.

    Args:
        values: One figure for each seed; a single one has no interval, and its ends are equal.

    >>> over_seeds([1.0, 2.0, 3.0]).value, over_seeds([4.0]).high
    (2.0, 4.0)
    """
    if len(values) < 2:
        (only,) = values
        return Predicted(value=only, low=only, high=only)
    found = interval(list(values))
    return Predicted(value=found["mean"], low=found["low"], high=found["high"])


def over_range(values: Sequence[float]) -> Predicted:
    """Returns the middle one of one figure per seed, with the range of all of them.

    For figures such as a maximum, whose distribution is far from normal.

    Args:
        values: One figure for each seed.

    >>> found = over_range([1.0, 5.0, 2.0])
    >>> found.value, found.low, found.high
    (2.0, 1.0, 5.0)
    """
    ordered = sorted(values)
    return Predicted(value=ordered[len(ordered) // 2], low=ordered[0], high=ordered[-1])


def spanning(
    central: Predicted,
    *others: Predicted,
    reason: str = "",
    details: Sequence[str] = (),
    curve: Curve | None = None,
) -> Predicted:
    """Returns the central prediction with an interval that contains the intervals of all others, and its texts.

    Args:
        central: The prediction with the most plausible inputs, whose value is kept.
        others: Predictions with one plausible input changed.
        reason: See `Predicted`.
        details: See `Predicted`.
        curve: See `Predicted`.

    >>> wide = spanning(over_seeds([2.0]), over_seeds([1.0]), over_seeds([5.0]))
    >>> wide.value, wide.low, wide.high
    (2.0, 1.0, 5.0)
    """
    every = (central, *others)
    return Predicted(
        value=central.value,
        low=min(one.low for one in every),
        high=max(one.high for one in every),
        reason=reason,
        details=tuple(details),
        curve=curve,
    )
