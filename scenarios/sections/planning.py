"""The section `plan` of a scenario: what ``paceline plan`` may change. It has no effect on a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, model_validator

from paceline.algorithms import METHODS
from paceline.algorithms.synonyms import meaning
from paceline.scenarios.sections.clusters import Nodes, some
from paceline.scenarios.values import fields
from paceline.scenarios.values.hyperparameters import types_of
from paceline.scenarios.values.key_hints import key_hint
from paceline.scenarios.values.mistakes import complain, expected, wrong
from paceline.scenarios.values.section import Default, Field, Given, Section, Values


def _counts(value: object) -> object:
    """Accepts a range as text, and lists of whole numbers of 1 or more."""
    if isinstance(value, str):
        return value
    if (
        isinstance(value, list | tuple)
        and value
        and all(isinstance(count, int) and not isinstance(count, bool) and count >= 1 for count in value)
    ):
        return tuple(value)
    raise expected("a range such as 1..64x2, or a list of whole numbers of 1 or more")


Counts = Annotated[
    str | tuple[int, ...] | None, BeforeValidator(lambda value: None if value is None else _counts(value))
]


class HyperparameterRange(Section):
    """The values that a hyper-parameter may take: an interval or a list."""

    low: float | None = Field(default=None, description="the smallest value")
    high: float | None = Field(default=None, description="the largest value")
    scale: Default[Annotated[Literal["log", "linear"], *fields.choices("log", "linear")]] = Field(
        default="log", description="log: factors are equally likely; linear: differences are"
    )
    values: Given[tuple[Any, ...], Sequence[Any] | None] = Field(
        default=(), description="these values, instead of an interval"
    )

    @model_validator(mode="after")
    def _complete(self) -> HyperparameterRange:
        if self.values:
            if self.low is not None or self.high is not None:
                complain([(("values",), wrong("found beside low or high; expected one of the two ways"), None)])
            return self
        missing = [key for key in ("low", "high") if getattr(self, key) is None]
        complain([((key,), wrong("missing; expected a number"), None) for key in missing])
        assert self.low is not None
        assert self.high is not None
        if not self.low < self.high:
            complain([(("high",), expected(f"a number above low, which is {self.low:g}"), self.high)])
        if self.scale == "log" and self.low <= 0:
            complain([(("low",), expected("a number above 0, since the scale is log"), self.low)])
        return self


def _range(value: object) -> object:
    """Converts a list of values to a range; pydantic validates everything else."""
    return HyperparameterRange.model_validate({"values": tuple(value)}) if isinstance(value, list | tuple) else value


def _of_methods(value: object) -> object:
    """Replaces aliases in keys METHOD.NAME by the names of their methods."""
    if not isinstance(value, dict):
        return value
    parts = {key: str(key).rpartition(".") for key in value}
    return {f"{meaning(owner).method}{dot}{name}": value[key] for key, (owner, dot, name) in parts.items()}


AnyRange = Annotated[HyperparameterRange | tuple[Any, ...], BeforeValidator(_range)]
"""a range; the list that it may be written as is part of the type only for the JSON Schema"""


class Planning(Section):
    """What `paceline plan` may change."""

    methods: Given[
        Annotated[tuple[str, ...] | None, BeforeValidator(lambda value: None if value is None else some(value))],
        Sequence[str] | None,
    ] = Field(
        default=None,
        description="names of the methods to consider; default: those of the scenario and one of each other family",
    )
    workers: Given[Counts, str | Sequence[int] | None] = Field(
        default=None,
        description="numbers of workers to consider: a list, or a range such as 1..64x2; default: 1, 2, 4, … up to "
        "those of the cluster",
    )
    nodes: Given[
        Annotated[tuple[Nodes, ...], BeforeValidator(lambda value: () if value is None else value)],
        Sequence[Nodes | Values] | None,
    ] = Field(
        default=(), description="kinds of nodes to consider instead of those of the cluster; `count` has no effect"
    )
    batch_per_worker: Given[Counts, str | Sequence[int] | None] = Field(
        default=None,
        description="batches to consider: a list, or a range such as 16..64x2; default: half, once and twice that of "
        "the workload",
    )
    hyperparameters: Given[
        Annotated[dict[str, AnyRange], BeforeValidator(_of_methods)],
        Mapping[str, HyperparameterRange | Values | Sequence[Any]] | None,
    ] = Field(
        default={},
        description="hyper-parameters to tune: NAME, or METHOD.NAME for one method, each with low, high and scale, or "
        "a list; default: learning_rate, and the period of methods that have one",
    )

    @property
    def ranges(self) -> dict[str, HyperparameterRange]:
        """The hyper-parameters to tune."""
        return {name: given for name, given in self.hyperparameters.items() if isinstance(given, HyperparameterRange)}

    @model_validator(mode="after")
    def _known(self) -> Planning:
        known = {name for method in METHODS.values() for name in types_of(method)}
        for key in self.hyperparameters:
            name = key.rpartition(".")[2]
            if name not in known:
                text = f"no method has this hyper-parameter{key_hint(name, sorted(known))}"
                complain([(("hyperparameters", key), wrong(text), None)])
        return self
