"""A claim of a paper: the published figure, how ours is computed from inputs, and what must be true for it to hold.

Rules of this file:

* Our figure is a function of a `Given`: a value for each input of the claim, and a seed. The function knows nothing of
  ranges, seeds to average over, or verdicts: `papers.verdicts` computes the figure for every plausible value of every
  input, and judges.
* Inputs were written down, one file for each paper, before any prediction was looked at. An input that was neither
  found nor derived has a plausible range.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.naming import near_miss

Assertion = Literal["within 25 %", "at least", "at most", "positive", "negative", "order", "equal"]
Kind = Literal["headline", "supporting", "identity"]
FOLDER = Path(__file__).parent / "inputs"
CERTAIN = ("FOUND", "DERIVED", "MEMORY high")
"""kinds of provenance that need no range"""
KINDS = (*CERTAIN, "MEMORY medium", "MEMORY low", "INFERENCE", "ASSUMED")
TUNING_SEED = 101
"""the first of the seeds on which hyper-parameters are tuned; figures are of the seeds 1, 2, …"""


# --- inputs -----------------------------------------------------------------------------------------------------------


class Input(BaseModel):
    """A value that a claim's figure needs, with its unit and its provenance."""

    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True, str_min_length=1)

    name: str = ""
    value: str
    provenance: str
    """starts with one of `KINDS`"""
    low: str | None = None
    """the lower end of the plausible range, or one alternative; None if the value is certain"""
    high: str | None = None
    others: tuple[str, ...] = ()
    """further plausible values, if there are more than three: readings of a sentence, such as what a baseline was"""

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
        if self.low is not None and self.low == self.high:
            raise ValueError(f"low, high: found {self.low!r} twice, expected two ends of a range")
        if self.others and self.low is None:
            raise ValueError("others: found without low and high; expected these first")
        return self

    @property
    def certain(self) -> bool:
        """Whether the value is the paper's, a source's, or follows from such values."""
        return self.low is None

    @property
    def plausible(self) -> tuple[str, ...]:
        """The value, the ends of its range and others, in this order, without those that begin with the same word.

        >>> Input(name="batch", value="64 images", provenance="ASSUMED", low="16", high="64").plausible
        ('64 images', '16')
        >>> Input(value="server", provenance="ASSUMED", low="ring", high="tree", others=("process a node",)).plausible
        ('server', 'ring', 'tree', 'process a node')
        """
        texts = [text for text in (*reversed(self.others), self.high, self.low, self.value) if text is not None]
        last = {first_word(text): text for text in texts}
        return tuple(dict.fromkeys(last[first_word(text)] for text in reversed(texts)))


def first_word(text: str) -> str:
    """Returns the number or name with which the value of an input begins; what follows is a unit, or an explanation.

    Args:
        text: The value.

    >>> first_word("1,281,167 images"), first_word("digits-mlp, a stand-in")
    ('1281167', 'digits-mlp')
    """
    word = text.split(maxsplit=1)[0].rstrip(",;:")
    return word.replace(",", "")


class InputFile(BaseModel):
    """The inputs file of a paper."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    paper: str
    """title, authors, venue"""
    inputs: dict[str, Input]


@cache
def inputs_of(paper: str, folder: Path = FOLDER) -> Mapping[str, Input]:
    """Reads all inputs of a paper, by name.

    Args:
        paper: The paper's short name.
        folder: The folder with its inputs file.

    Raises:
        InputError: If the file is missing or wrong; with all mistakes.

    >>> inputs_of("softsync")["learners"].value
    '30'
    """
    path = folder / f"{paper}.yaml"
    try:
        rows = InputFile.model_validate(yaml.safe_load(path.read_text(encoding="utf-8"))).inputs
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; expected the inputs of the claims of {paper}") from None
    except yaml.YAMLError as error:
        raise InputError(f"{path}: {error}; expected YAML as in {FOLDER / path.name}") from None
    except ValidationError as error:
        lines = [f"{path.name}: {'.'.join(map(str, row['loc']))}: {row['msg']}" for row in error.errors()]
        raise InputError("\n".join(lines)) from None
    return {name: row.model_copy(update={"name": name}) for name, row in rows.items()}


@dataclass(frozen=True, slots=True)
class Given:
    """A value for each input of a claim, and the seed, for which its figure is computed."""

    values: tuple[tuple[str, str], ...]
    """pairs of an input's name and its value, as text"""
    seed: int = 1
    """of initial weights, samples and step times"""
    quick: bool = False
    """whether runs are short; see `choose`"""

    def __getitem__(self, name: str) -> str:
        """Returns the value of an input.

        Args:
            name: Its name in the paper's inputs file.

        Raises:
            InputError: If the claim does not list this input.
        """
        values = dict(self.values)
        if name not in values:
            raise InputError(f"no input {name!r} among those that the claim lists{near_miss(name, values)}")
        return values[name]

    def word(self, name: str) -> str:
        """Returns the first word of an input's value, such as the name of a model or device.

        >>> Given((("stand-in", "digits-mlp, as in other claims"),)).word("stand-in")
        'digits-mlp'
        """
        return first_word(self[name])

    def number(self, name: str) -> float:
        """Returns the number at the beginning of an input's value, in the unit that follows it there.

        Args:
            name: The input's name.

        >>> Given((("link", "20 GB/s"),)).number("link")
        20.0
        """
        try:
            return float(self.word(name))
        except ValueError:
            raise InputError(f"input {name!r}: found {self[name]!r}, expected a number first") from None

    def choose(self, full: int, quick: int) -> int:
        """Returns the length of a run, a number of evaluations, or the like, for `--quick` or without it.

        >>> Given(()).choose(2000, 200), Given((), quick=True).choose(2000, 200)
        (2000, 200)
        """
        return quick if self.quick else full

    def with_value(self, name: str, value: str) -> Given:
        """Returns the same with another value of one input.

        Args:
            name: The input's name.
            value: Its value.

        >>> Given((("batch", "64"), ("sigma", "0"))).with_value("batch", "16")["batch"]
        '16'
        """
        return replace(self, values=tuple((key, value if key == name else old) for key, old in self.values))

    def only(self, *names: str) -> Given:
        """Returns only some inputs, without the seed: the key under which what they determine is cached.

        Args:
            names: Names of inputs.

        >>> Given((("batch", "64"), ("sigma", "0")), seed=7).only("batch")
        Given(values=(('batch', '64'),), seed=0, quick=False)
        """
        return replace(self, values=tuple((name, self[name]) for name in names), seed=0)


# --- claims -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A figure of the paper, redrawn: lines over one axis, ours and the published ones."""

    x: str
    """label of the horizontal axis, with unit"""
    y: str
    lines: dict[str, list[tuple[float, float]]]
    """points (x, y) of each line, by its label"""
    published: float | None = None
    """a published value, as a horizontal line"""
    published_lines: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """points of the published lines, by label"""
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much may be computed for a claim."""

    quick: bool = False
    """short runs, and fewer seeds; the same code path"""
    seeds: int | None = None
    """number of seeds of figures with chance in them; None: the claim's own number, or 3 with `quick`"""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A published figure or ordering, and the computation of ours."""

    name: str
    paper: str
    """the paper's short name, a key of `reproduce.PAPERS`"""
    section: str
    """section, table or figure of the paper"""
    sentence: str
    kind: Kind = "headline"
    """"headline": an assertion of the paper that could have come out otherwise; "supporting": a reading of ours, or
    part of another claim; "identity": follows from the method's definition, so it tests the implementation"""
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
    figure: Callable[[Given], float] = field(repr=False, compare=False)
    seeds: int = 10
    """number of seeds; 1 if there is no chance in the figure"""
    bounds: tuple[float, float] = (0.0, math.inf)
    """the values that the figure can take; (0, ∞): its logarithm is averaged"""
    all_combinations: bool = False
    """whether every combination of plausible inputs is computed, instead of one changed input at a time"""
    explain: Callable[[Given], Iterable[str]] | None = field(default=None, repr=False, compare=False)
    """returns measured sentences about the figure, computed with the most plausible inputs"""
    curve: Callable[[Given], Curve] | None = field(default=None, repr=False, compare=False)
    measured: bool = False
    """whether ours comes from real execution; such claims run alone, in the main process"""
    shares: str = ""
    """claims with the same text here run in one process, one after another, so that they may cache common runs"""
    together: str = ""
    """claims with the same text here are figures of one table, which `--infer` fits together; "": not fitted"""

    def given(self, inputs: Mapping[str, Input], *, seed: int = 1, quick: bool = False) -> Given:
        """Returns the most plausible value of each input.

        Args:
            inputs: The inputs of the paper.
            seed: Of initial weights, samples and step times.
            quick: Whether runs are short.

        Raises:
            InputError: If an input of the claim is missing.
        """
        missing = [name for name in self.inputs if name not in inputs]
        if missing:
            lines = [f"inputs of {self.paper}: no input {name!r}{near_miss(name, inputs)}" for name in missing]
            raise InputError("\n".join(lines))
        return Given(tuple((name, inputs[name].value) for name in self.inputs), seed, quick)


def claims_like(paper: str, **common: Any) -> Callable[..., Claim]:
    """Returns a function that makes claims with common fields from a name, a sentence, a figure, and other fields.

    Args:
        paper: The paper's short name, with which the names of its claims begin.
        common: Fields of all claims; NAME in the command stands for the claim's name.

    >>> made = claims_like("digits", command="paceline reproduce NAME", section="", hardware="", model="", batch="",
    ...                    scenario="", inputs=(), holds_if="order")
    >>> made("first", "two is more than one", lambda given: 2.0, unit="").command
    'paceline reproduce digits-first'
    """

    def claim(name: str, sentence: str, figure: Callable[[Given], float], **more: Any) -> Claim:
        fields, name = common | more, f"{paper}-{name}"
        fields["command"] = fields["command"].replace("NAME", name)
        return Claim(name=name, paper=paper, sentence=sentence, figure=figure, **fields)

    return claim
