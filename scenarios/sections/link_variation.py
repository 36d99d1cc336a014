"""The section of a scenario for links whose bandwidth varies over time."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, PlainValidator, ValidationError, WithJsonSchema

from paceline.scenarios.values import fields
from paceline.scenarios.values.mistakes import complain, expected, problems_of, wrong
from paceline.scenarios.values.section import Default, Field, Quantity, Section
from paceline.topologies.graphs import variation as variations
from paceline.topologies.graphs.variation import CORRELATION, EVERY_S, FLOOR, MOST_CV


def _number(words: str, above: float, below: float, *, ends: bool) -> PlainValidator:
    """Returns the validator of a number between two others; `ends`: the first is excluded and the last included."""

    def check(value: object) -> float:
        right = isinstance(value, int | float) and not isinstance(value, bool)
        if not right or not (above < value <= below if ends else above <= value < below):  # type: ignore[operator]
            raise expected(words)
        return float(value)  # type: ignore[arg-type]

    return PlainValidator(check)


Cv = Annotated[
    float,
    _number(f"a number above 0 and at most {MOST_CV:g}: standard deviation over mean", 0.0, MOST_CV, ends=True),
    WithJsonSchema({"type": "number", "exclusiveMinimum": 0, "maximum": MOST_CV}),
]
BelowOne = Annotated[
    float,
    _number("a number from 0 to less than 1", 0.0, 1.0, ends=False),
    WithJsonSchema({"type": "number", "minimum": 0, "exclusiveMaximum": 1}),
]


class Variation(Section):
    """How the bandwidth of a link varies over time.

    >>> Variation(cv=0.3, every="10 s").document()
    {'cv': 0.3, 'every': '10 s'}
    """

    cv: Cv = Field(description="coefficient of variation of the bandwidth over time: standard deviation over mean")
    every: Quantity[fields.Period] = Field(
        default=EVERY_S, description="how long a bandwidth lasts until the next one is drawn"
    )
    correlation: Default[BelowOne] = Field(default=CORRELATION, description="correlation of two successive bandwidths")
    floor: Default[BelowOne] = Field(default=FLOOR, description="smallest bandwidth, as a fraction of the mean")
    provenance: Default[str] = Field(default="given in the scenario", description="source of these values")

    def build(self) -> variations.Variation:
        """Returns the variation."""
        return variations.Variation(
            cv=self.cv,
            every_s=self.every,
            correlation=self.correlation,
            floor=self.floor,
            provenance=self.provenance,
        )


def part_of(variation: variations.Variation | None) -> Variation | None:
    """Returns a variation of the catalogue as a section."""
    if variation is None:
        return None
    return Variation.model_construct(
        cv=variation.cv,
        every=variation.every_s,
        correlation=variation.correlation,
        floor=variation.floor,
        provenance=variation.provenance,
    )


def _parsed(value: object, words: str) -> object:
    """Parses a section here rather than as a choice of a union, whose messages would name the choices."""
    if not isinstance(value, dict):
        if isinstance(value, Variation):
            return value
        raise expected(f"{words}, or a mapping such as {{cv: 0.3, every: 10 s, correlation: 0.8}}")
    try:
        return Variation.model_validate(value)
    except ValidationError as error:
        complain([(one.place, wrong(one.text), value) for one in problems_of(error, Variation)])
        raise


def _of_link(value: object) -> object:
    return None if value in (None, "none") else _parsed(value, "none")


def _of_network(value: object) -> object:
    if value in (None, "links", "none"):
        return value or "links"
    return _parsed(value, "links or none")


LinkVariation = Annotated[
    Variation | None, BeforeValidator(_of_link, json_schema_input_type=Variation | Literal["none"] | None)
]
"""of one link; none: its bandwidth is constant"""
NetworkVariation = Annotated[Variation | Literal["links", "none"], BeforeValidator(_of_network)]
"""of all links of the network; links: each link has its own"""
