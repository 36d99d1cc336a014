"""Groups of hyper-parameters, and what each number must be.

Rules of this file: a wrong value is told as ``name: found …, expected …``, one in a group as ``group.name: …``; whoever
reads a scenario finds the place that it names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from math import inf
from typing import Any, ClassVar

Range = tuple[Callable[[Any], bool], str]
"""whether a value will do, and what would, in words"""

POSITIVE: Range = (lambda value: 0 < value < inf, "a number above 0")
NOT_NEGATIVE: Range = (lambda value: 0 <= value < inf, "a number of 0 or more")
SHARE: Range = (lambda value: 0 < value <= 1, "a number above 0, up to 1")
COUNT: Range = (lambda value: value >= 1, "a whole number of 1 or more")
FRACTION: Range = (lambda value: 0 <= value < 1, "a number from 0 to below 1")
STEPS: Range = (lambda value: value >= 1, "a number of steps, 1 or more")
STEPS_OR_NONE: Range = (lambda value: value >= 0, "a number of steps, 0 or more")
MOST_DELAY = 10_000
"""steps; a rank holds a vector for each gradient that is under way"""
DELAY: Range = (lambda value: 0 <= value <= MOST_DELAY, f"a number of steps from 0 to {MOST_DELAY}")
COUNT_OR_NONE: Range = (lambda value: value >= 0, "a whole number of 0 or more")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Hyper-parameters that belong together and are written as one, as a mapping, in scenarios."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}
    ranges: ClassVar[Mapping[str, Range]] = {}

    def problems(self) -> list[str]:
        """What is wrong with them, each as ``name: found …, expected …``; empty if nothing."""
        return misfits(self, self.ranges)


def misfits(owner: Any, ranges: Mapping[str, Range]) -> list[str]:
    """What of an owner's attributes is not as `ranges` wants it, and what is wrong inside its groups.

    An attribute that it does not have, or that is None, is right.

    >>> from paceline.algorithms.core.schedules import Polynomial
    >>> Polynomial(total_steps=100, power=-1.0).problems()
    ['power: found -1.0, expected a number above 0']
    """
    found = [
        f"{name}: found {value!r}, expected {what}"
        for name, (fits, what) in ranges.items()
        if (value := getattr(owner, name, None)) is not None and not fits(value)
    ]
    for field in fields(owner):
        group = getattr(owner, field.name)
        if isinstance(group, Options):
            found += [f"{field.name}.{text}" for text in group.problems()]
    return found
