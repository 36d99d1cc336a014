"""Splits states and messages into a shape and its integers, and builds them again.

The shape is everything except the integers: types, field names, texts, vectors without numbers, lengths. Two values of
one shape differ only in integers, so that a program treats them alike as far as it does not decide by these.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Sequence
from functools import cache
from typing import Any, cast

from paceline.algorithms.core.values import Group, Special
from paceline.simulator.servers.symbols import Condition, Symbol, Unforeseen

CONSTANTS = (str, bool, float, type(None), Special, Group)
"""types that are part of a shape"""
LARGEST = 100_000
"""the largest number of integers in a state or a message: a state with some numbers for each of very many workers would
be copied at each step; provenance: INFERENCE, a template of this size takes about a second to derive"""


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """A value without its integers."""

    kind: Any
    """a type; for a constant, the type `Shape`"""
    parts: tuple[Any, ...] = ()
    """shapes of the parts; for a constant, the constant; none for an integer"""
    count: int = 0
    """number of integers"""
    _hash: int = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.kind, self.parts)))

    def __hash__(self) -> int:
        return self._hash


INTEGER = Shape(int, (), 1)


def split(value: Any) -> tuple[Shape, list[Any]]:
    """Returns the shape of a value and its integers, which may be symbols.

    >>> from paceline.algorithms.core.values import Null, Weights
    >>> shape, integers = split(Weights(Null(3), version=7))
    >>> integers, built(shape, [8])
    ([7], Weights(vector=Null(count=3, item_bytes=4), version=8))

    Raises:
        Unforeseen: the value is of a type with unknown parts.
    """
    integers: list[Any] = []
    return _split(value, integers), integers


def _split(value: Any, integers: list[Any]) -> Shape:
    value = bool(value) if isinstance(value, Condition) else value  # the program branches by it, sooner or later
    kind = type(value)
    if kind is int or kind is Symbol:
        integers.append(value)
        if len(integers) > LARGEST:
            raise Unforeseen(f"a state or a message contains more than {LARGEST:,} integers")
        return INTEGER
    if isinstance(value, CONSTANTS):
        return Shape(Shape, (kind, value))
    if (names := _fields(cast(Hashable, kind))) is not None:
        parts = tuple([_split(getattr(value, name), integers) for name in names])
    elif kind is tuple or kind is list:
        parts = tuple([_split(part, integers) for part in value])
    else:
        raise Unforeseen(f"a state or a message contains a {kind.__name__}, whose parts are unknown")
    return Shape(kind, parts, sum([part.count for part in parts]))


@cache
def _fields(kind: Any) -> tuple[str, ...] | None:
    """Returns the names of the fields of a frozen dataclass; None for other types."""
    parameters = getattr(kind, "__dataclass_params__", None)
    if parameters is None or not parameters.frozen:
        return None
    return tuple(field.name for field in dataclasses.fields(kind))


def built(shape: Shape, integers: Sequence[Any]) -> Any:
    """Builds a value from its shape and its integers; the inverse of `split`."""
    return _builder(shape)(integers, 0)


@cache
def _builder(shape: Shape) -> Callable[[Sequence[Any], int], Any]:
    """Returns a function that builds a value from integers, beginning at a position."""
    if shape is INTEGER or shape == INTEGER:
        return lambda integers, at: integers[at]
    if shape.kind is Shape:
        constant = shape.parts[1]
        return lambda _integers, _at: constant
    makers, starts, at = [], [], 0
    for part in shape.parts:
        makers.append(_builder(part))
        starts.append(at)
        at += part.count
    pairs = list(zip(makers, starts, strict=True))
    kind, names = shape.kind, _fields(shape.kind)
    if names is None:
        return lambda integers, at: kind([make(integers, at + start) for make, start in pairs])
    set_field = object.__setattr__
    named = list(zip(names, makers, starts, strict=True))

    def build(integers: Sequence[Any], at: int) -> Any:
        made = object.__new__(kind)
        for name, make, start in named:
            set_field(made, name, make(integers, at + start))
        return made

    return build
