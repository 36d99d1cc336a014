"""A claim: a published figure, the computation of ours, the inputs that it rests on, and the rule of the verdicts.

Rules of this file:

* The verdict follows from the published figure, the interval of ours, and what the claim asserts. Nobody writes it.
* The interval is over seeds and over the plausible range of every input that was not found in the paper.
* Inputs were written down, one file for each paper, before any prediction was looked at. One that was neither found nor
  derived has a plausible range.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.naming import near_miss
from paceline.records.metrics import interval

Verdict = Literal["holds", "misses", "undecidable"]
Assertion = Literal["within 25 %", "at least", "at most", "positive", "negative", "order", "equal"]
TOLERANCE = 0.25
"""largest difference from a published figure, relative to it, that still agrees; provenance: ours"""
FOLDER = Path(__file__).parent / "inputs"
CERTAIN = ("FOUND", "DERIVED", "MEMORY high")
"""kinds of provenance that need no range"""
KINDS = (*CERTAIN, "MEMORY medium", "MEMORY low", "INFERENCE", "ASSUMED")


# --- inputs -----------------------------------------------------------------------------------------------------------


class Input(BaseModel):
    """A value that a claim's scenario needs, with its unit and its provenance."""

    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True, str_min_length=1)

    name: str = ""
    value: str
    provenance: str
    """starts with one of `KINDS`"""
    low: str | None = None
    """the lower end of the plausible range, or one alternative; None if the value was found"""
    high: str | None = None

    @model_validator(mode="after")
    def _checked(self) -> Self:
        kind = next((kind for kind in KINDS if self.provenance.startswith(kind)), None)
        if kind is None:
            raise ValueError(
                f"provenance: found {self.provenance[:40]!r}, expected it to start with {', '.join(KINDS)}"
            )
        if (self.low is None) != (self.high is None):
            raise ValueError("low, high: found one of them, expected both or none")
        if kind not in CERTAIN and self.low is None:
            raise ValueError(f"low, high: missing; an input with provenance {kind} needs its plausible range")
        return self

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


def _number(text: str) -> float:
    return float(text.split(maxsplit=1)[0])


class InputFile(BaseModel):
    """The inputs file of a paper."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    paper: str
    """title, authors, venue"""
    inputs: dict[str, Input]


@cache
def inputs_of(paper: str) -> Mapping[str, Input]:
    """Reads all inputs of a paper, by name.

    Args:
        paper: The paper's short name.

    Raises:
        InputError: If the file is missing or wrong; with all mistakes.

    >>> inputs_of("softsync")["learners"].number
    30.0
    """
    path = FOLDER / f"{paper}.yaml"
    try:
        rows = InputFile.model_validate(yaml.safe_load(path.read_text(encoding="utf-8"))).inputs
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; expected the inputs of the claims of {paper}") from None
    except ValidationError as error:
        lines = [f"{path.name}: {'.'.join(map(str, row['loc']))}: {row['msg']}" for row in error.errors()]
        raise InputError("\n".join(lines)) from None
    return {name: row.model_copy(update={"name": name}) for name, row in rows.items()}


def input_named(paper: str, name: str) -> Input:
    """Returns one input.

    Args:
        paper: The paper's short name.
        name: The input's name in the paper's file.

    Raises:
        InputError: If there is none of this name.
    """
    known = inputs_of(paper)
    if name not in known:
        raise InputError(f"inputs/{paper}.yaml: no input {name!r}{near_miss(name, known)}")
    return known[name]


def number_named(paper: str, name: str) -> float:
    """Returns the number of one input, in the unit of its value; arguments and errors are those of `input_named`.

    >>> number_named("softsync", "learners")
    30.0
    """
    return input_named(paper, name).number


# --- our figure -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A chart of a claim: lines over one axis, and the published value as a horizontal line."""

    x: str
    """label of the horizontal axis, with unit"""
    y: str
    lines: dict[str, list[tuple[float, float]]]
    """points (x, y) of each line, by its label"""
    published: float | None = None
    log_x: bool = False
    log_y: bool = False


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

    def mapped(self, function: Callable[[float], float]) -> Predicted:
        """Returns the figure and its interval under an increasing function.

        >>> Predicted(value=0.0, low=0.0, high=0.0).mapped(math.exp).value
        1.0
        """
        return replace(self, value=function(self.value), low=function(self.low), high=function(self.high))


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
    """the paper's short name, a key of `reproduce.PAPERS`"""
    section: str
    """section, table or figure of the paper"""
    sentence: str
    published: float | None = None
    """None if the paper asserts an ordering without a figure"""
    unit: str = "×"
    """unit of the published figure and of ours; "×" for a factor, "" for a number"""
    hardware: str
    model: str
    batch: str
    scenario: str
    """the shipped scenario that ours starts from; "" if the claim builds its own"""
    command: str
    """a command whose answer contains our figure, or the runs that it is computed from"""
    inputs: tuple[str, ...]
    """names in the paper's inputs file; none if all that is needed is in the claim"""
    holds_if: Assertion
    predict: Callable[[Effort], Predicted] = field(repr=False, compare=False)
    measured: bool = False
    """whether ours comes from real execution; such claims run alone, in the main process"""
    shares: str = ""
    """claims with the same text here run in one process, one after another, so that they may cache common runs"""


def claims_like(paper: str, **common: Any) -> Callable[..., Claim]:
    """Returns a function that makes claims with common fields from a name, a sentence, a prediction, and other fields.

    Args:
        paper: The paper's short name, with which the names of its claims begin.
        common: Fields of all claims; NAME in the command stands for the claim's name.

    >>> made = claims_like("digits", command="paceline reproduce NAME", section="", hardware="", model="", batch="",
    ...                    scenario="", inputs=(), holds_if="order")
    >>> made("first", "one is one", lambda _: over_range([1.0]), unit="").command
    'paceline reproduce digits-first'
    """

    def claim(name: str, sentence: str, predict: Callable[[Effort], Predicted], **more: Any) -> Claim:
        fields, name = common | more, f"{paper}-{name}"
        fields["command"] = fields["command"].replace("NAME", name)
        return Claim(name=name, paper=paper, sentence=sentence, predict=predict, **fields)

    return claim


def verdict_of(published: float | None, predicted: Predicted, holds_if: Assertion, *, inputs_found: bool) -> Verdict:
    """Compares the interval of our figure with what the paper asserts.

    The assertion is a set A of values:

        within 25 %   A = [0.75 p, 1.25 p]  with the published figure p (ends swapped if p < 0)
        at least      A = [p, ∞)
        at most       A = (−∞, p]
        positive      A = (0, ∞)            ours is a difference that the paper says is positive
        negative      A = (−∞, 0)
        order         A = (1, ∞)            ours is the ratio of the figure that should be larger to the other
        equal         A = {p}

    The claim holds if the interval [low, high] of ours lies in A, misses if it lies outside A, and is undecidable
    otherwise. One addition for "within 25 %": if all inputs are found, the interval is only the noise of seeds, and the
    claim also holds if the published figure lies in it.

    Args:
        published: The published figure; not used for "positive", "negative" and "order".
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
    least, most = _asserted(published, holds_if)
    if holds_if == "within 25 %" and inputs_found and published is not None and low <= published <= high:
        return "holds"
    if least <= low and high <= most:
        return "holds"
    return "misses" if high < least or low > most else "undecidable"


def _asserted(published: float | None, holds_if: Assertion) -> tuple[float, float]:
    """Returns the least and the largest number that agree with the published figure."""
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


def over_seeds(values: Sequence[float]) -> Predicted:
    """Returns the mean of one figure per seed with Student's 95 % interval.

    Args:
        values: One figure for each seed; a single one has no interval, and its ends are equal.

    >>> over_seeds([1.0, 2.0, 3.0]).value, over_seeds([4.0]).high
    (2.0, 4.0)
    """
    if len(values) < 2:
        return over_range(values)
    of_mean = interval(list(values))
    return Predicted(value=of_mean["mean"], low=of_mean["low"], high=of_mean["high"])


def over_range(values: Sequence[float]) -> Predicted:
    """Returns the middle one of one figure per seed, with the range of all of them.

    For figures such as a maximum, whose distribution is far from normal.

    Args:
        values: One figure for each seed.

    >>> middle = over_range([1.0, 5.0, 2.0])
    >>> middle.value, middle.low, middle.high
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
    low, high = min(part.low for part in every), max(part.high for part in every)
    return ranging(central.value, (low, high), reason=reason, details=details, curve=curve)


def ranging(
    value: float,
    others: Iterable[float],
    *,
    reason: str = "",
    details: Sequence[str] = (),
    curve: Curve | None = None,
) -> Predicted:
    """Returns a figure without noise, with the range of the same figure under other inputs; texts as for `spanning`.

    Args:
        value: The figure with the most plausible inputs.
        others: The figure with one plausible input changed.
        reason: See `Predicted`.
        details: See `Predicted`.
        curve: See `Predicted`.

    >>> ranging(2.0, [1.0, 5.0]).low, ranging(2.0, [3.0]).low
    (1.0, 2.0)
    """
    every = (value, *others)
    return Predicted(value=value, low=min(every), high=max(every), reason=reason, details=tuple(details), curve=curve)
