"""Fast constructors and replacement of frozen dataclasses: the same as those of `dataclasses`."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from dataclasses import dataclass, field
from typing import Any

import pytest

from paceline.algorithms.core.fast_values import fast_constructor, replace
from paceline.algorithms.core.method import Replica
from paceline.algorithms.core.operations import AllReduce, Charge
from paceline.algorithms.core.values import Contribution, GradientResult, Group, Null, Rank, Samples, Weights

PAIR = Group((Rank(0), Rank(1)))
VALUES: list[tuple[Any, dict[str, Any]]] = [
    (Samples(1, 4, index=7, count=32), {"index": 8}),
    (Weights(Null(3), 5), {"vector": None, "version": 6}),
    (Replica(3, Weights(None, 2), residual="kept"), {"residual": None}),
    (GradientResult(Null(3), 1, 0.5, 8, Rank(2), 4, 0.1), {"vector": Null(4)}),
    (Contribution(Rank(1), 2, 3, 4), {}),
    (AllReduce(value=Null(3), group=PAIR, key="g"), {"donate": True}),
    (Charge("update", 8), {"where": "host"}),
]


@pytest.mark.parametrize(("value", "changes"), VALUES, ids=lambda one: type(one).__name__)
def test_a_replaced_value_is_that_of_dataclasses(value: Any, changes: dict[str, Any]) -> None:
    assert replace(value, **changes) == dataclasses.replace(value, **changes)
    assert type(replace(value, **changes)) is type(value)


@pytest.mark.parametrize("value", [value for value, _ in VALUES], ids=lambda one: type(one).__name__)
def test_a_value_stays_frozen_and_can_be_copied_and_stored(value: Any) -> None:
    name = dataclasses.fields(value)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, name, None)
    assert copy.deepcopy(value) == value == pickle.loads(pickle.dumps(value))


def test_a_constructor_has_the_parameters_and_defaults_of_the_dataclass() -> None:
    @dataclass(frozen=True, slots=True)
    class Plain:
        first: int
        second: Any = None
        third: int = field(default=3, kw_only=True)

    @fast_constructor
    @dataclass(frozen=True, slots=True)
    class Fast:
        first: int
        second: Any = None
        third: int = field(default=3, kw_only=True)

    assert inspect.signature(Fast) == inspect.signature(Plain)
    assert dataclasses.astuple(Fast(1, third=4)) == dataclasses.astuple(Plain(1, third=4))
    with pytest.raises(TypeError, match="unexpected keyword argument 'fourth'"):
        Fast(1, fourth=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'first'"):
        Fast()  # type: ignore[call-arg]


def test_fields_with_factories_are_refused() -> None:
    with pytest.raises(TypeError, match=r"Several: only plain fields"):

        @fast_constructor
        @dataclass(frozen=True, slots=True)
        class Several:
            items: list[int] = field(default_factory=list)


def test_a_value_with_computed_fields_is_replaced_as_dataclasses_do() -> None:
    assert replace(PAIR, ranks=(Rank(3),)) == Group((Rank(3),))
    with pytest.raises((TypeError, ValueError), match=r"unknown|unexpected"):
        replace(Weights(None, 1), unknown=3)
