"""Algorithms in a scenario: a method's name, or a mapping with its name and hyper-parameters."""

from __future__ import annotations

import dataclasses
from functools import cache
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_type_hints

from pydantic import PlainSerializer, PlainValidator, TypeAdapter, ValidationError, ValidationInfo, WithJsonSchema
from pydantic_core import PydanticCustomError

from paceline.algorithms import METHODS, find
from paceline.algorithms.errors import InputError
from paceline.algorithms.method import Method
from paceline.scenarios.problems import Fault, complain, expected, near_miss, one_of, refuse, wrong


@cache
def hyperparameters(method: type[Method]) -> dict[str, Any]:
    """The names and types of a method's hyper-parameters."""
    hints = get_type_hints(method)
    return {field.name: hints[field.name] for field in dataclasses.fields(method)}


def described(kind: Any) -> str:
    """A hyper-parameter's type in words.

    >>> described(int | Literal["node"]), described(float | None)
    ("a whole number or 'node'", 'a number or null')
    """
    simple = {int: "a whole number", float: "a number", bool: "true or false", str: "text", NoneType: "null"}
    if kind in simple:
        return simple[kind]
    if getattr(kind, "__origin__", None) is Literal:
        return one_of([repr(value) for value in get_args(kind)])
    return one_of([described(part) for part in get_args(kind)])


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind, config={"allow_inf_nan": False})


def parse_method(value: object, info: ValidationInfo) -> Method:
    """An algorithm: its name, or a mapping with its name and hyper-parameters."""
    if isinstance(value, Method):
        return value
    given = {"name": value} if isinstance(value, str) else value
    if not isinstance(given, dict):
        raise expected("the name of a method, or a mapping with its name and hyper-parameters")
    if "name" not in given:
        refuse(("name",), wrong(f"missing; expected one of {', '.join(METHODS)}"), given)
    place = () if isinstance(value, str) else ("name",)
    try:
        method = find(str(given["name"]))
    except InputError as error:
        refuse(place, wrong(str(error)), given["name"])
    return _with(method, {key: part for key, part in given.items() if key != "name"}, info)


def _with(method: type[Method], given: dict[str, Any], info: ValidationInfo) -> Method:
    """The method with these hyper-parameters, over those given for all algorithms; all mistakes at once."""
    known = hyperparameters(method)
    shared = {name: value for name, value in info.data.get("hyperparameters", {}).items() if name in known}
    faults: list[Fault] = [
        ((name,), wrong(f"{method.name} has no such key{near_miss(name, known)}; it has {', '.join(known)}"), value)
        for name, value in given.items()
        if name not in known
    ]
    right: dict[str, Any] = {}
    for name, value in {**shared, **given}.items():
        if name in known:
            try:
                right[name] = _adapter(known[name]).validate_python(value, strict=True)
            except (ValidationError, OverflowError):  # a whole number too large for a float overflows
                words = described(known[name])
                error = expected(words) if name in given else PydanticCustomError("shared", "{words}", {"words": words})
                faults.append(((name,), error, value))
    complain(faults)
    made = method(**right)
    if "cluster" in info.data:
        complain([_blame(text, right) for text in made.problems(info.data["cluster"].placement)])
    return made


def _blame(text: str, values: dict[str, Any]) -> Fault:
    """A method's own complaint, ``name: text``, at the place that it names."""
    name, _, rest = text.partition(": ")
    return (name,), wrong(rest), values.get(name)


def write_method(method: Method) -> dict[str, Any]:
    """A method as it is written in a scenario, every hyper-parameter spelled out."""
    return {"name": method.name, **dataclasses.asdict(method)}


def _method_schema() -> dict[str, Any]:
    def one(method: type[Method]) -> dict[str, Any]:
        fields = TypeAdapter(method).json_schema()
        about = (method.__doc__ or "").splitlines()[0]
        return {
            "type": "object",
            "description": about,
            "properties": {"name": {"const": method.name}, **fields.get("properties", {})},
            "required": ["name"],
            "additionalProperties": False,
        }

    return {"oneOf": [{"enum": list(METHODS)}, *map(one, METHODS.values())]}


Algorithm = Annotated[
    Method,
    PlainValidator(parse_method),
    PlainSerializer(write_method, return_type=dict[str, Any]),
    WithJsonSchema(_method_schema()),
]

ALL_HYPERPARAMETERS = sorted({name for method in METHODS.values() for name in hyperparameters(method)})
"""the names of every method's hyper-parameters"""


def unused_hyperparameters(data: Any) -> list[str]:
    """Names under `hyperparameters` that change nothing: no algorithm has them, or each gives its own."""
    if not isinstance(data, dict):
        return []
    shared, entries = data.get("hyperparameters"), data.get("algorithms")
    if not isinstance(shared, dict) or not isinstance(entries, list):
        return []
    taking: set[str] = set()
    for entry in entries:
        given = entry if isinstance(entry, dict) else {"name": entry}
        method = METHODS.get(str(given.get("name")))
        taking |= set(hyperparameters(method)) - set(given) if method else set()
    return [str(name) for name in shared if name not in taking]
