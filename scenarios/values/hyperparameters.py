"""Hyper-parameters: descriptions, validation and JSON Schema from the types of a method's fields.

Types are strict: ``1`` is a number and ``true`` is not. No number is larger than `LARGEST`, so that weights of every
precision can represent it: a learning rate that makes a run diverge is allowed, one that exceeds float32 is not. A
field may itself be a frozen dataclass, written as a mapping; a mistake in it is reported at its own place.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from paceline.algorithms.core.method import Method
from paceline.algorithms.core.naming import near_miss
from paceline.scenarios.values.key_hints import key_hint
from paceline.scenarios.values.limits import LARGEST
from paceline.scenarios.values.mistakes import Fault, Place, expected, one_of, wrong

SIMPLE = {int: "a whole number", float: "a number", bool: "true or false", str: "text", NoneType: "null"}


@cache
def types_of(kind: type[Any]) -> dict[str, Any]:
    """Returns the names and types of the fields of a dataclass, such as a method's hyper-parameters."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def described(kind: Any) -> str:
    """Describes a type.

    >>> described(int | Literal["node"]), described(tuple[float, ...] | None)
    ("a whole number or 'node'", 'a list (each a number) or null')
    """
    return one_of(_alternatives(kind)) or str(kind)


def _alternatives(kind: Any) -> list[str]:
    if kind in SIMPLE:
        return [SIMPLE[kind]]
    if dataclasses.is_dataclass(kind):
        return [f"a mapping ({', '.join(types_of(kind))})"]  # type: ignore[arg-type]  # a class, never an instance
    if get_origin(kind) is Literal:
        return [repr(value) for value in get_args(kind)]
    if _is_list(kind):
        return [f"a list (each {described(get_args(kind)[0])})"]
    tag, groups = _tagged(kind)
    rest = [words for part in _parts(kind) if part not in groups.values() for words in _alternatives(part)]
    return [*([f"a mapping with {tag} {one_of(list(map(repr, groups)))}"] if groups else []), *rest]


@cache
def _tagged(kind: Any) -> tuple[str, dict[str, Any]]:
    """Returns the field that distinguishes the dataclasses of a union, and each dataclass by its value of the field."""
    groups = [part for part in _parts(kind) if dataclasses.is_dataclass(part)]
    if len(groups) < 2:
        return "", {}
    for name in types_of(groups[0]):  # type: ignore[arg-type]  # a class, never an instance
        kinds = [types_of(group).get(name) for group in groups]  # type: ignore[arg-type]
        values = [value for kind in kinds if get_origin(kind) is Literal for value in get_args(kind)]
        if len(set(values)) == len(kinds) and all(get_origin(kind) is Literal for kind in kinds):
            return name, dict(zip(values, groups, strict=True))
    raise TypeError(f"{kind}: found nothing that tells the mappings apart, expected a Literal of one value in each")


def _parts(kind: Any) -> tuple[Any, ...]:
    """Returns the types of a union."""
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else ()


def _is_list(kind: Any) -> bool:
    return get_origin(kind) is tuple and len(get_args(kind)) == 2 and get_args(kind)[1] is ...


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind, config={"allow_inf_nan": False})


def parsed(kind: Any, value: object, place: Place) -> tuple[Any, list[Fault]]:
    """Converts a value to the type of a field.

    Args:
        kind: the type of the field.
        value: as found in the scenario.
        place: where the value is, for mistakes.

    Returns:
        The converted value, and all mistakes.

    >>> parsed(float | None, 1, ())
    (1.0, [])
    >>> parsed(float | None, "1", ("learning_rate",))[1][0][1].message()
    'a number or null'
    """
    if dataclasses.is_dataclass(kind):
        return _mapping(kind, value, place)
    if _is_list(kind) and isinstance(value, list | tuple):
        made, faults = _each({index: get_args(kind)[0] for index in range(len(value))}, dict(enumerate(value)), place)
        return tuple(made.values()), faults
    tag, groups = _tagged(kind)
    if groups and isinstance(value, dict):
        group = next((group for name, group in groups.items() if name == value.get(tag)), None)
        return _lost(tag, groups, value, place) if group is None else _mapping(group, value, place)
    parts = _parts(kind)
    if any(dataclasses.is_dataclass(part) or _is_list(part) for part in parts):
        tries = [(part, *parsed(part, value, place)) for part in parts]
        right = [made for _, made, faults in tries if not faults]
        if right:
            return right[0], []
        deeper = [faults for part, _, faults in tries if _holds_parts(part, value)]
        return None, deeper[0] if deeper else [(place, expected(described(kind)), value)]
    if isinstance(value, int | float) and abs(value) > LARGEST:  # also numbers that exceed every float
        return None, [(place, expected(f"{described(kind)}, from {-LARGEST:.0e} to {LARGEST:.0e}"), value)]
    try:
        return _adapter(kind).validate_python(value, strict=True), []
    except ValidationError:
        return None, [(place, expected(described(kind)), value)]


def _lost(tag: str, groups: Mapping[str, Any], value: dict[str, Any], place: Place) -> tuple[None, list[Fault]]:
    """Returns the mistake of a mapping that does not select one of the groups."""
    words = one_of(list(map(repr, groups)))
    if tag not in value:
        return None, [((*place, tag), wrong(f"missing; expected {words}"), value)]
    return None, [((*place, tag), expected(words + near_miss(value[tag], groups)), value[tag])]


def _holds_parts(kind: Any, value: object) -> bool:
    """Whether the mistakes of a value are in its parts."""
    return isinstance(value, dict) if dataclasses.is_dataclass(kind) else _is_list(kind) and isinstance(value, list)


def _each(kinds: Mapping[Any, Any], values: Mapping[Any, object], place: Place) -> tuple[dict[Any, Any], list[Fault]]:
    made: dict[Any, Any] = {}
    faults: list[Fault] = []
    for key, value in values.items():
        made[key], wrongs = parsed(kinds[key], value, (*place, key))
        faults += wrongs
    return made, faults


def _mapping(kind: Any, value: object, place: Place) -> tuple[Any, list[Fault]]:
    """Converts a mapping of fields to a dataclass."""
    if isinstance(value, kind):
        return value, []
    if not isinstance(value, dict):
        return None, [(place, expected(described(kind)), value)]
    known = types_of(kind)
    made, faults = _each(known, {key: part for key, part in value.items() if key in known}, place)
    faults += unknown(value, known, "it", place)
    for field in dataclasses.fields(kind):
        if field.name not in value and field.default is field.default_factory is dataclasses.MISSING:
            faults.append(((*place, field.name), wrong(f"missing; expected {described(known[field.name])}"), value))
    return (None if faults else kind(**made)), faults


def unknown(given: Mapping[Any, object], known: Mapping[str, Any], owner: str, place: Place) -> list[Fault]:
    """Returns a mistake for each unknown key.

    Args:
        given: the mapping from the scenario.
        known: the allowed keys.
        owner: what has these keys, for the message.
        place: where the mapping is.
    """
    there = f"it has {', '.join(known)}"
    return [
        ((*place, str(key)), wrong(f"{owner} has no such key{key_hint(key, known)}; {there}"), value)
        for key, value in given.items()
        if key not in known
    ]


def unwritable(method: type[Method]) -> list[str]:
    """Returns the mistakes in the types of a method's hyper-parameters that a scenario cannot represent."""
    try:
        kinds = types_of(method)
    except Exception as error:  # annotations are the user's own code
        return [f"its types cannot be read ({type(error).__name__}: {error}); expected types known in its module"]
    said = []
    for field in dataclasses.fields(method):
        kind = kinds[field.name]
        try:
            default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
            if parsed(kind, default, ())[1]:
                said.append(f"{field.name}: its default is {default!r}, expected {described(kind)}")
        except (PydanticUserError, TypeError):
            words = "numbers, text, true or false, lists of them, or a frozen dataclass of them"
            said.append(f"{field.name}: found the type {kind}, expected {words}")
    return said


@cache  # a schema names each method twice, and pydantic takes 15 ms for a method
def properties(method: type[Method]) -> dict[str, Any]:
    """Returns the JSON Schema of each hyper-parameter."""
    whole = TypeAdapter(method).json_schema()
    made: dict[str, Any] = _inlined(whole.get("properties", {}), whole.get("$defs", {}))
    return made


def _inlined(part: Any, definitions: Mapping[str, Any]) -> Any:
    """Replaces references in a schema by their definitions, and forbids other keys in mappings."""
    if isinstance(part, list):
        return [_inlined(entry, definitions) for entry in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        rest = {key: value for key, value in part.items() if key != "$ref"}
        return _inlined({**definitions[part["$ref"].rpartition("/")[2]], **rest}, definitions)
    made = {key: _inlined(value, definitions) for key, value in part.items()}
    return {**made, "additionalProperties": False} if made.get("type") == "object" and "properties" in made else made
