"""Groups of hyper-parameters, and the permitted range of each number.

A wrong value is reported as ``name: found …, expected …``, one in a group as ``group.name: …``, which is its path in a
scenario.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from math import inf
from typing import Any, ClassVar

Range = tuple[Callable[[Any], bool], str]
"""a check, and a description of permitted values"""

POSITIVE: Range = (lambda value: 0 < value < inf, "a number above 0")
NOT_NEGATIVE: Range = (lambda value: 0 <= value < inf, "a number of 0 or more")
SHARE: Range = (lambda value: 0 < value <= 1, "a number above 0, up to 1")
COUNT: Range = (lambda value: value >= 1, "a whole number of 1 or more")
FRACTION: Range = (lambda value: 0 <= value < 1, "a number from 0 to below 1")
STEPS: Range = (lambda value: value >= 1, "a number of steps, 1 or more")
STEPS_OR_NONE: Range = (lambda value: value >= 0, "a number of steps, 0 or more")
MOST_DELAY = 10_000
"""in steps; a rank holds a vector for each gradient in flight"""
DELAY: Range = (lambda value: 0 <= value <= MOST_DELAY, f"a number of steps from 0 to {MOST_DELAY}")
COUNT_OR_NONE: Range = (lambda value: value >= 0, "a whole number of 0 or more")


@dataclass(frozen=True, kw_only=True)
class Options:
    """A group of hyper-parameters, written as one mapping in scenarios."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}
    ranges: ClassVar[Mapping[str, Range]] = {}

    def problems(self) -> list[str]:
        """Returns all wrong values, each as ``name: found …, expected …``."""
        return misfits(self, self.ranges)


def misfits(owner: Any, ranges: Mapping[str, Range]) -> list[str]:
    """Returns all attributes of `owner` outside their `ranges`, and all wrong values in its groups.

    An attribute that is missing or None is right.

    Args:
        owner: a method or a group of hyper-parameters.
        ranges: the permitted values, by name.

    >>> from paceline.algorithms.core.schedules import Polynomial
    >>> Polynomial(total_steps=100, power=-1.0).problems()
    ['power: found -1.0, expected a number above 0']
    """
    problems = [
        f"{name}: found {value!r}, expected {what}"
        for name, (fits, what) in ranges.items()
        if (value := getattr(owner, name, None)) is not None and not fits(value)
    ]
    for field in fields(owner):
        group = getattr(owner, field.name)
        if isinstance(group, Options):
            problems += [f"{field.name}.{text}" for text in group.problems()]
    return problems
