"""A published measurement beside our prediction, and the errors of many.

* The error of a row is |predicted − measured| / measured, in the unit that was published: a rate, or a time.
* Every row belongs to one of two halves, by a hash of its name. The product is changed with the open half in sight, and
  nobody looks at single rows of the other one. Both are reported.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from paceline.records.figures import PERCENT

Half = Literal["open", "held back"]
Unit = Literal["samples/s", "s", "epochs", "samples", "%", "×"]
LINEAR, ALPHA_BETA, CONSTANT = "linear scaling", "α–β model", "constant epochs"
SIMPLER = {
    LINEAR: ("linear", "Linear scaling lets no device wait for another."),
    ALPHA_BETA: ("alpha_beta", "The α–β model adds a ring all-reduce over the slowest link to a gradient."),
    CONSTANT: ("constant", "Constant epochs do not depend on the batch."),
}
"""the simpler predictions, with their names in documents and their meanings"""


def percent(fraction: float) -> str:
    """Returns an error in words.

    >>> percent(0.0512)
    '5.12 %'
    """
    return PERCENT.with_symbol(fraction)


def half_of(name: str) -> Half:
    """Returns the half of a row: the lowest bit of the first byte of the SHA-256 of its name, 1 for the held back.

    >>> half_of("pollux aws bert 1124 x 12"), half_of("mlperf 1.0 dgxa100_n8")
    ('open', 'held back')
    """
    return "held back" if hashlib.sha256(name.encode()).digest()[0] & 1 else "open"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A measurement and its predictions.

    Args:
        set: The set of measurements.
        name: The name of the row, unique in its set.
        system: The machine and the model; errors are listed by it.
        family: The kind of rows whose errors are summed up, such as a chip or a model.
        unit: The unit of all figures.
        measured: The published figure.
        predicted: That of the product.
        simpler: The figures of simpler predictions, by their names.
        interval: The interval of the prediction that `simulate` shows, if it has one: 80 % of similar measurements.
        assumed: What the row does not say and the prediction assumes.
        source: Where the figure was published.
        scenario: The scenario whose simulation gave the prediction; None if it has another origin.
        chip, network: Their names in the catalogue, by which predictions find similar rows; "" if they have none.
    """

    set: str
    name: str
    system: str
    family: str
    unit: Unit
    measured: float
    predicted: float
    simpler: Mapping[str, float] = field(default_factory=dict)
    interval: tuple[float, float] | None = None
    assumed: tuple[str, ...] = ()
    source: str = ""
    scenario: Mapping[str, Any] | None = None
    chip: str = ""
    network: str = ""

    @property
    def half(self) -> Half:
        """The half of the row."""
        return half_of(f"{self.set} {self.name}")

    @property
    def error(self) -> float:
        """|predicted − measured| / measured."""
        return abs(self.predicted - self.measured) / self.measured

    def error_of(self, simpler: str) -> float | None:
        """Returns the error of a simpler prediction; None if the row has none."""
        figure = self.simpler.get(simpler)
        return None if figure is None else abs(figure - self.measured) / self.measured

    def document(self) -> dict[str, Any]:
        """Returns the outcome as plain values, from which `of` makes it again."""
        return asdict(self)

    @staticmethod
    def of(document: Mapping[str, Any]) -> Outcome:
        """Returns the outcome of a document."""
        interval = document["interval"]
        own = {"assumed": tuple(document["assumed"]), "interval": interval and (interval[0], interval[1])}
        return Outcome(**{**document, **own})


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A row that is not predicted, with the reason."""

    set: str
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Errors:
    """The errors of some rows, as fractions: median, 90th percentile and mean."""

    rows: int
    median: float
    p90: float
    mean: float

    @staticmethod
    def of(errors: Iterable[float | None]) -> Errors | None:
        """Returns the errors of rows; those that are None do not count. None if there are none.

        >>> Errors.of([0.1, 0.3, None, 0.2])
        Errors(rows=3, median=0.2, p90=0.28, mean=0.2)
        """
        known = [error for error in errors if error is not None and math.isfinite(error)]
        if not known:
            return None
        median, p90 = (round(float(figure), 12) for figure in np.quantile(known, [0.5, 0.9]))
        return Errors(len(known), median, p90, round(math.fsum(known) / len(known), 12))


def groups_of(outcomes: Sequence[Outcome], by: str) -> dict[str, list[Outcome]]:
    """Returns outcomes by one of their fields, in the order of its first row."""
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(getattr(outcome, by), []).append(outcome)
    return groups
