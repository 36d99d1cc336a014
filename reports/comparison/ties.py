"""Ties: which figures share the first place.

Two figures share it if they look the same when shown, or if both have intervals over seeds that overlap. The first are
equal; of the second the seeds only do not say which is better, and sentences say that instead. Without this rule the
order of the algorithms in the scenario would decide which one is called best.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from paceline.reports.comparison.prediction_errors import number
from paceline.reports.comparison.words import listed, shown

Key = TypeVar("Key")
EQUALLY = "equally (to the precision shown)"


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


def tie(figures: Iterable[Any], unit: Callable[[float], str]) -> str:
    """Describes how the figures that `leaders` puts first share the place, for after a comma.

    Args:
        figures: the best one, and those that share its place.
        unit: formats a figure.

    >>> tie([1.001, 1.002], lambda value: f"{value:.1f}")
    'equally (to the precision shown)'
    >>> few = {"mean": 1.35, "low": -0.92, "high": 3.62}
    >>> tie([{"mean": 0.61, "low": 0.5, "high": 0.72}, few], lambda value: f"{value:.2f}")
    'not distinguished by the seeds (95 % intervals overlap: 0.61 ±0.11 and 1.35 ±2.27)'
    """
    found = list(figures)
    if len({unit(number(one) or 0.0) for one in found}) == 1 or not all(isinstance(one, Mapping) for one in found):
        return EQUALLY
    return f"not distinguished by the seeds (95 % intervals overlap: {listed([shown(one, unit) for one in found])})"
