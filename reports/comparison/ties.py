"""Ties: which figures share the first place, and which the seeds do not distinguish from it.

* Two figures are equal if they look the same when shown, with half of their intervals if they have them. Without this
  rule the order of the algorithms in the scenario would decide which of two equal ones is called best.
* Two figures that look different, of which the intervals over seeds overlap, are not equal: the seeds do not
  distinguish them. A figure with a wide interval may be far from the best, so it is always shown with its interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from paceline.records.figures import Figure, number
from paceline.reports.comparison.words import listed

Key = TypeVar("Key")

SHOWN_ALIKE = "equally (to the precision shown)"
"""why several names are in the first place"""


class Leaders(NamedTuple, Generic[Key]):
    """The names in the first place, and those that the seeds do not distinguish from it."""

    first: list[Key]
    """the name with the best figure, and those whose figures are equal"""
    close: list[Key]
    """names whose figures differ, but whose intervals overlap that of the best"""

    @property
    def all(self) -> list[Key]:
        return [*self.first, *self.close]


def leaders(figures: Mapping[Key, Any], unit: Callable[[float], str], *, least: bool = False) -> Leaders[Key]:
    """Returns the names that share the first place, that with the best figure first.

    Args:
        figures: a number or ``{mean, low, high}`` for each name, none of them missing.
        unit: formats the figure.
        least: whether the smallest figure is the best.

    >>> leaders({"agd": 0.998, "ssp": 1.0, "easgd": 0.4}, lambda value: f"{value:.2f}")
    Leaders(first=['ssp', 'agd'], close=[])
    >>> wide = {"mean": 1.35, "low": -0.92, "high": 3.62}
    >>> leaders({"agd": {"mean": 0.61, "low": 0.6, "high": 0.62}, "ssp": wide}, str, least=True)
    Leaders(first=['agd'], close=['ssp'])
    """
    means: dict[Key, float] = {name: number(value) or 0.0 for name, value in figures.items()}
    best = (min if least else max)(means, key=lambda name: means[name])
    others = [name for name in figures if name != best]
    same = [name for name in others if equal(figures[best], figures[name], unit)]
    close = [name for name in others if name not in same and overlap(figures[best], figures[name])]
    return Leaders([best, *same], close)


def equal(one: Any, other: Any, unit: Callable[[float], str]) -> bool:
    """Whether two figures look the same when shown, with half of their intervals.

    >>> wide = {"mean": 1.0, "low": -1.0, "high": 3.0}
    >>> equal({"mean": 1.0, "low": 0.8, "high": 1.2}, wide, str), equal(1.0, 1.0, str)
    (False, True)
    """
    ends = ([_half(one), _half(other)], [number(one) or 0.0, number(other) or 0.0])
    return all(unit(a) == unit(b) or math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12) for a, b in ends)


def _half(figure: Any) -> float:
    return (figure["high"] - figure["low"]) / 2 if isinstance(figure, Mapping) else 0.0


def overlap(one: Any, other: Any) -> bool:
    """Whether two figures have intervals, and these overlap.

    >>> overlap({"mean": 1.0, "low": 0.8, "high": 1.2}, {"mean": 1.3, "low": 1.1, "high": 1.5}), overlap(1.0, 1.0)
    (True, False)
    """
    both = isinstance(one, Mapping) and isinstance(other, Mapping)
    return both and bool(one["low"] <= other["high"] and other["low"] <= one["high"])


def undecided(
    close: Iterable[tuple[str, Any]],
    figure: Figure,
    *,
    seeds: int | None = None,
    them: str = "it",
    most: int = 4,
) -> str:
    """Describes which figures the seeds do not distinguish from the best one, with their intervals; "" if none.

    Args:
        close: names and values.
        figure: the figure.
        seeds: the number of seeds, if it is known.
        them: a pronoun for what is best.
        most: number of figures that are listed; of more, the number is said.

    >>> from paceline.records.figures import TIME_TO_LOSS
    >>> undecided([("ssp", {"mean": 1.35, "low": -0.92, "high": 3.62})], TIME_TO_LOSS, seeds=3)
    '; 3 seeds do not distinguish it from ssp (1.35 ±2.3 s; 95 % intervals overlap)'
    """
    close = list(close)
    if not close:
        return ""
    said = [f"{name} ({figure.with_symbol(value)}" for name, value in close[:most]]
    words = [*(f"{one})" for one in said[:-1]), f"{said[-1]}; 95 % intervals overlap)"]
    if len(close) > most:
        words.append(f"{len(close) - most} more")
    return f"; {seeds or 'the'} seeds do not distinguish {them} from {listed(words)}"
