"""The helpers of the tests: what `make test` leaves out, and checks that share a test."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.algorithms import METHODS
from tests.folded import check_all
from tests.thorough import FAMILIES, sampled


def left_out(values: list[Any]) -> list[Any]:
    return [value.values for value in values if getattr(value, "marks", ())]


def test_every_family_of_methods_has_one_of_several_workers() -> None:
    families = {method.__module__ for method in METHODS.values()}
    assert {METHODS[name].__module__ for name in FAMILIES if not METHODS[name].alone} == families
    assert {name for name, method in METHODS.items() if method.alone} <= set(FAMILIES)


def test_a_sample_keeps_the_order_and_marks_the_rest() -> None:
    values = sampled([1, 2, 3], [1, 3])
    assert (values[0], values[2], left_out(values)) == (1, 3, [(2,)])
    assert left_out(sampled([(1, "a"), (2, "b")], lambda pair: pair[0] == 1)) == [(2, "b")]
    assert left_out(sampled([(1, "a"), (2, "b")], [(1, "a")], several=False)) == [((2, "b"),)]


def test_a_sample_of_nothing_is_a_mistake() -> None:
    with pytest.raises(ValueError, match=r"none of \[1, 2\] is kept"):
        sampled([1, 2], [3])


def test_all_checks_are_made_and_every_failure_is_named() -> None:
    made: list[int] = []

    def breaks(number: int) -> None:
        made.append(number)
        assert number == 2, f"it was {number}"

    with pytest.raises(ExceptionGroup, match="failed: one, three") as caught:
        check_all({"one": lambda: breaks(1), "two": lambda: breaks(2), "three": lambda: breaks(3)})
    assert made == [1, 2, 3]
    assert [str(error).splitlines()[0] for error in caught.value.exceptions] == ["it was 1", "it was 3"]
