"""User-defined methods: given by their class, or provided by an installed package.

A package provides methods by entry points of the group `GROUP`: name = module:Class. A broken entry point is an error
only when its method is requested.
"""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import Any

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.guarantees import CustomGuarantee, Guarantee
from paceline.algorithms.core.method import Method, StalenessKind
from paceline.algorithms.core.naming import imported

GROUP = "paceline.methods"
FORM = "module:Class or path/to/file.py:Class"


def _is_name(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", value) is not None


def _are_guarantees(value: object) -> bool:
    return isinstance(value, frozenset) and all(isinstance(entry, Guarantee | CustomGuarantee) for entry in value)


CONSTANTS: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "name": (_is_name, "a name of letters, digits, '.', '-' and '_'"),
    "staleness_kind": (
        lambda value: isinstance(value, StalenessKind),
        f"a StalenessKind: {', '.join(kind.name for kind in StalenessKind)}",
    ),
    "source": (lambda value: isinstance(value, str) and value != "", "text: where the rule is from"),
    "guarantees": (_are_guarantees, "a frozenset of Guarantee, empty if it promises nothing"),
}
"""the required class attributes of a method"""


def mistakes(candidate: Any) -> list[str]:
    """Returns all errors of a class as a method, each with what would be right.

    >>> mistakes(dict)
    ['found the class dict, expected one derived from paceline.algorithms.core.method.Method']
    """
    if not (isinstance(candidate, type) and issubclass(candidate, Method)):
        thing = f"the class {candidate.__name__}" if isinstance(candidate, type) else f"the value {candidate!r:.60}"
        return [f"found {thing}, expected one derived from paceline.algorithms.core.method.Method"]
    said = []
    if "__dataclass_params__" not in vars(candidate):
        said.append("is no frozen dataclass; expected @dataclass(frozen=True, kw_only=True) above the class")
    own = {field.name: field for field in dataclasses.fields(candidate)}
    for name, (fits, words) in CONSTANTS.items():
        if name in own:
            said.append(f"{name}: found a hyper-parameter; expected {name} = … without a type")
        elif not hasattr(candidate, name):
            said.append(f"{name}: missing, expected {words}")
        elif not fits(value := getattr(candidate, name)):
            said.append(f"{name}: found {value!r}, expected {words}")
    for name, field in own.items():
        if field.default is field.default_factory is dataclasses.MISSING:
            said.append(f"{name}: found no default, expected one, so that the method can be named alone")
    if "label" in own:
        said.append("label: found a hyper-parameter; expected another name, since it names an entry of a scenario")
    if "worker" in candidate.__abstractmethods__:
        said.append("worker: missing, expected the program of a worker")
    if candidate.has_server and candidate.server is Method.server:
        said.append("server: missing, expected the program of the server, as has_server is true")
    return said


def checked(candidate: Any, builtin: Mapping[str, type[Method]]) -> type[Method]:
    """Checks that a class is a valid method and returns it.

    Args:
        candidate: the class.
        builtin: the built-in methods by name.

    Raises:
        InputError: the class has errors; the message lists all.
    """
    said = mistakes(candidate)
    if not said and builtin.get(candidate.name, candidate) is not candidate:
        said = [f"name: found {candidate.name!r}, which is a built-in method's; expected a name of its own"]
    if said:
        raise InputError("; ".join(said))
    method: type[Method] = candidate
    return method


def own(reference: str, builtin: Mapping[str, type[Method]]) -> type[Method]:
    """Imports and checks a method.

    Args:
        reference: ``module:Class`` or ``path/to/file.py:Class``.
        builtin: the built-in methods by name.

    Raises:
        InputError: the class cannot be imported or is not a valid method.
    """
    try:
        candidate = imported(reference)
    except InputError as error:
        raise InputError(f"method {reference!r}: {error}; expected {FORM}") from error
    try:
        return checked(candidate, builtin)
    except InputError as error:
        raise InputError(f"method {reference!r}: {error}") from error


def offers() -> dict[str, list[metadata.EntryPoint]]:
    """Returns the entry points of installed packages by name; several packages may use the same name."""
    offered: dict[str, list[metadata.EntryPoint]] = defaultdict(list)
    for entry in metadata.entry_points(group=GROUP):
        if all(entry.value != other.value for other in offered[entry.name]):
            offered[entry.name].append(entry)
    return dict(sorted(offered.items()))


def package_of(entry: metadata.EntryPoint) -> str:
    """Returns the package and version of an entry point, for messages."""
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else "an unknown package"


def offered(entries: list[metadata.EntryPoint], builtin: Mapping[str, type[Method]]) -> type[Method]:
    """Returns the method of the entry points with one name.

    Args:
        entries: the entry points.
        builtin: the built-in methods by name.

    Raises:
        InputError: there are several, the name is that of a built-in method, or the class is not a valid method.
    """
    name, packages = entries[0].name, ", ".join(f"{package_of(entry)} ({entry.value})" for entry in entries)
    said = f"method {name!r}, which is offered by {packages}"
    if name in builtin:
        raise InputError(f"{said}: the name is a built-in method's; expected another, or its class as {FORM}")
    if len(entries) > 1:
        raise InputError(f"{said}: found several, expected one; name its class as {FORM}")
    try:
        method = checked(imported(entries[0].value), builtin)
    except InputError as error:
        raise InputError(f"{said}: {error}") from error
    if method.name != name:
        raise InputError(f"{said}: name: found {method.name!r}, expected {name!r} as in the entry point")
    return method
