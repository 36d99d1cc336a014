"""The section of a scenario for links that are slow or broken for some time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import (
    BeforeValidator,
    PlainSerializer,
    PlainValidator,
    SerializerFunctionWrapHandler,
    WithJsonSchema,
    model_serializer,
)
from pydantic_core import PydanticCustomError

from paceline.scenarios.sections.fault_sections import listed, parse_share
from paceline.scenarios.values import fields
from paceline.scenarios.values.mistakes import Fault, expected, wrong
from paceline.scenarios.values.section import Field, Given, Quantity, Section
from paceline.topologies.faults import link_faults
from paceline.topologies.graphs.graph import Graph


def parse_ends(value: object) -> tuple[str, str]:
    """Parses the names of two vertices."""
    names = value if isinstance(value, list | tuple) else ()
    if len(names) != 2 or not all(isinstance(name, str | int) and not isinstance(name, bool) for name in names):
        raise expected("the two ends of a link, as `paceline topology` draws them: [host0, switch]")
    return str(names[0]), str(names[1])


def parse_left(value: object) -> float:
    """Parses the remaining fraction of a bandwidth.

    >>> parse_left("50 %"), parse_left(0)
    (0.5, 0.0)
    """
    if value == 0 and not isinstance(value, bool):
        return 0.0
    words = "a share from 0, which is broken, to less than 1, such as 0.5 or '50 %'"
    try:
        share = parse_share(value)
    except PydanticCustomError:
        raise expected(words) from None
    if share == 1.0:
        raise expected(words)
    return share


Ends = Annotated[
    tuple[str, str],
    PlainValidator(parse_ends),
    PlainSerializer(list, return_type=list[str]),
    WithJsonSchema({"type": "array", "items": {"type": ["string", "integer"]}, "minItems": 2, "maxItems": 2}),
]
RateLeft = Annotated[
    float,
    PlainValidator(parse_left),
    WithJsonSchema({"type": ["number", "string"], "description": "such as 0.5 or '50 %'", "unit": "fraction"}),
]


class LinkFault(Section):
    """A link that is slow or broken for some time."""

    between: Ends = Field(description="the two ends of a link, as `paceline topology` draws them: [host0, switch]")
    at: Given[fields.Time, str | float] = Field(
        description="a time with its unit, on the run's own clock: when it begins"
    )
    lasts: Quantity[fields.Period | None] = Field(
        default=None, validation_alias="for", description="how long it lasts; default: until the end of the run"
    )
    rate: Quantity[RateLeft] = Field(
        default=0.0, description="the fraction of its bandwidth that is left; 0: it is broken"
    )

    @model_serializer(mode="wrap")
    def _as_written(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {"for" if key == "lasts" else key: value for key, value in handler(self).items()}

    def build(self) -> link_faults.LinkFault:
        """Returns the fault."""
        lasts_s = math.inf if self.lasts is None else self.lasts
        return link_faults.LinkFault(between=self.between, at_s=self.at, lasts_s=lasts_s, rate=self.rate)


LinkFaults = Annotated[tuple[LinkFault, ...], BeforeValidator(listed)]


def misjoined(parts: Sequence[LinkFault], graph: Graph) -> list[Fault]:
    """Returns the mistakes of links that a graph does not have."""
    return [
        (("network", "faults", index, "between"), wrong(text), part.between)
        for index, part in enumerate(parts)
        for text in link_faults.mistakes(graph, part.between)
    ]
