"""Ties: which figures share the first place.

Two figures are equal if they look the same when shown, or if both have intervals over seeds that overlap. Without this
rule the order of the algorithms in the scenario would decide which of two equal ones is called best.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from paceline.reports.comparison.prediction_errors import number

Key = TypeVar("Key")


def leaders(figures: Mapping[Key, Any], unit: Callable[[float], str], *, least: bool = False) -> list[Key]:
    """Returns the name with the largest figure, and then all names with equal figures.

    Args:
        figures: a number or ``{mean, low, high}`` for each name, none of them missing.
        unit: formats the figure.
        least: whether the smallest figure is the best.

    >>> leaders({"agd": 0.998, "ssp": 1.0, "easgd": 0.4}, lambda value: f"{value:.2f}")
    ['ssp', 'agd']
    """
    means: dict[Key, float] = {name: number(value) or 0.0 for name, value in figures.items()}
    first = (min if least else max)(means, key=lambda name: means[name])
    return [first, *(name for name in figures if name != first and equal(figures[first], figures[name], unit))]


def equal(one: Any, other: Any, unit: Callable[[float], str]) -> bool:
    """Whether two figures look the same when shown, or their intervals overlap.

    >>> equal({"mean": 1.0, "low": 0.8, "high": 1.2}, {"mean": 1.3, "low": 1.1, "high": 1.5}, str)
    True
    """
    mean, another = number(one) or 0.0, number(other) or 0.0
    if unit(mean) == unit(another) or math.isclose(mean, another, rel_tol=1e-9):
        return True
    both = isinstance(one, Mapping) and isinstance(other, Mapping)
    return both and one["low"] <= other["high"] and other["low"] <= one["high"]


def why(one: Any) -> str:
    """Describes the rule by which figures of this kind are equal."""
    return "95 % intervals over seeds overlap" if isinstance(one, Mapping) else "to the precision shown"
