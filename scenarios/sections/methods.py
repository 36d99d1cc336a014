"""Algorithms in a scenario: a method's name, or a mapping with its name and hyper-parameters.

The name is that of a built-in method, that of a method of an installed package, or ``module:Class`` for a custom one.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator, ValidationInfo
from pydantic_core import PydanticCustomError

from paceline.algorithms import METHODS, find, reference
from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.guarantees import missing_figures
from paceline.algorithms.core.method import Method
from paceline.algorithms.own import FORM, offers
from paceline.scenarios.values.hyperparameters import parsed, properties, types_of, unknown, unwritable
from paceline.scenarios.values.limits import MOST_ALGORITHMS
from paceline.scenarios.values.mistakes import Fault, complain, expected, refuse, shown, wrong


def find_method(name: str) -> type[Method]:
    """Like `find`; also raises `InputError` if a scenario cannot represent the hyper-parameters."""
    method = find(name)
    if said := [] if name in METHODS else unwritable(method):
        raise InputError(f"method {name!r}: {'; '.join(said)}")
    return method


def parse_method(value: object, info: ValidationInfo) -> Method:
    """Parses an algorithm: its name, or a mapping with its name and hyper-parameters."""
    if isinstance(value, Method):
        return value
    given = {"name": value} if isinstance(value, str) else value
    if not isinstance(given, dict):
        raise expected("the name of a method, or a mapping with its name and hyper-parameters")
    if "name" not in given:
        refuse(("name",), wrong(f"missing; expected one of {', '.join(METHODS)}, or your own as {FORM}"), given)
    place = () if isinstance(value, str) else ("name",)
    try:
        method = find_method(str(given["name"]))
    except InputError as error:
        refuse(place, wrong(str(error)), given["name"])
    return _with(method, {key: part for key, part in given.items() if key != "name"}, info)


def _with(method: type[Method], given: dict[str, Any], info: ValidationInfo) -> Method:
    """Returns the method with these hyper-parameters, which take precedence over those for all algorithms."""
    known = types_of(method)
    shared = {name: value for name, value in info.data.get("hyperparameters", {}).items() if name in known}
    faults = unknown(given, known, method.name, ())
    right: dict[str, Any] = {}
    for name, value in {**shared, **given}.items():
        if name in known:
            right[name], wrongs = parsed(known[name], value, (name,))
            faults += wrongs if name in given else map(_of_all, wrongs)
    complain(faults)
    made = _made(method, right)
    if "cluster" in info.data:
        nodes = info.data["cluster"].placement
        figures = missing_figures(made.guarantees, made.bounds(sum(map(len, nodes))))
        unbounded = [f"bounds: {one.slug}: {words}" for one, words in figures.items()]
        complain([_blame(text, right) for text in [*made.problems(nodes), *unbounded]])
    return made


def _made(method: type[Method], values: dict[str, Any]) -> Method:
    try:
        return method(**values)
    except (TypeError, ValueError) as error:  # raised by the method's own checks
        raise wrong(f"{method.name} cannot be made of these hyper-parameters: {error}") from error


def _of_all(fault: Fault) -> Fault:
    """Assigns a mistake in the hyper-parameters for all algorithms to the place where they are written."""
    place, error, value = fault
    words = f"found {shown(value)}, expected {error.message()}" if error.type == "expected" else error.message()
    return place, PydanticCustomError("shared", "{words}", {"words": words}), value


def _blame(text: str, values: dict[str, Any]) -> Fault:
    """Converts a method's own message, ``name: text``, to a mistake at that place."""
    name, _, rest = text.partition(": ")
    return tuple(name.split(".")), wrong(rest), values.get(name)


def write_method(method: Method) -> dict[str, Any]:
    """Returns a method as a mapping for a scenario, with all hyper-parameters."""
    return {"name": reference(type(method)), **dataclasses.asdict(method)}


def known_methods() -> Iterator[tuple[str, type[Method]]]:
    """Yields the named methods: the built-in ones, then the usable ones of installed packages."""
    yield from METHODS.items()
    for name in offers():
        if name not in METHODS:
            with contextlib.suppress(InputError):
                yield name, find_method(name)


class _MethodSchema:
    """Builds the JSON Schema on request, so that installed packages are not searched before."""

    def __get_pydantic_json_schema__(self, *_: Any) -> dict[str, Any]:
        known = dict(known_methods())
        of_ones_own = {"type": "string", "pattern": ":", "description": f"a custom method: {FORM}"}
        mapping = {"type": "object", "properties": {"name": of_ones_own}, "required": ["name"]}
        return {"oneOf": [{"enum": list(known)}, *map(_schema_of, known.values()), of_ones_own, mapping]}


def _schema_of(method: type[Method]) -> dict[str, Any]:
    return {
        "type": "object",
        "description": (method.__doc__ or "").partition("\n")[0],
        "properties": {"name": {"const": method.name}, **properties(method)},
        "required": ["name"],
        "additionalProperties": False,
    }


Algorithm = Annotated[
    Method,
    PlainValidator(parse_method),
    PlainSerializer(write_method, return_type=dict[str, Any]),
    _MethodSchema(),
]

ALL_HYPERPARAMETERS = sorted({name for method in METHODS.values() for name in types_of(method)})
"""the names of every method's hyper-parameters"""


def unused_hyperparameters(data: Any) -> list[str]:
    """Returns the keys under `hyperparameters` without effect: no algorithm has them, or all give their own."""
    if not isinstance(data, dict):
        return []
    shared, entries = data.get("hyperparameters"), data.get("algorithms")
    if not isinstance(shared, dict) or not isinstance(entries, list) or len(entries) > MOST_ALGORITHMS:
        return []
    taking: set[str] = set()
    for entry in entries:
        given = entry if isinstance(entry, dict) else {"name": entry}
        with contextlib.suppress(InputError):  # reported when the algorithms are parsed
            taking |= set(types_of(find_method(str(given.get("name"))))) - set(given)
    return [str(name) for name in shared if name not in taking]
