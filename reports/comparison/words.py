"""Formats figures: units, signs, intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paceline.records.figures import number, significant
from paceline.topologies.catalogue.machine_profile import is_poor

MISSING = "–"


def kind_of(summary: Mapping[str, Any]) -> str:
    """Describes the kind of a run: simulated or measured, paced, on an emulated network, from a poor calibration.

    >>> kind_of({"kind": "measured", "paced": True, "emulated_network": False})
    'measured, paced'
    """
    words = [summary["kind"]]
    if summary["paced"]:
        words.append("paced")
    if summary["emulated_network"]:
        words.append("emulated network")
    if is_poor(summary.get("calibration") or ""):
        words.append("from a poor calibration")
    return ", ".join(words)


def shown(figure: Any, unit: Callable[[float], str], between: str = " ") -> str:
    """Formats a figure, with half of its interval if it has one.

    Args:
        figure: a number, an interval ``{mean, low, high}``, or None.
        unit: formats a number.
        between: text between the mean and half of the interval.

    >>> shown({"mean": 0.02, "low": 0.019, "high": 0.021}, milli), shown(None, milli)
    ('20.0 ±1.0', '–')
    """
    value = number(figure)
    if value is None:
        return MISSING
    half = f"{between}±{unit((figure['high'] - figure['low']) / 2)}" if isinstance(figure, Mapping) else ""
    return unit(value) + half


def between(bounds: Mapping[str, float], factor: float = 1.0) -> str:
    """Formats the ends of an interval with three digits.

    Args:
        bounds: the ends, ``{low, high}``.
        factor: the factor from their unit to the shown unit.

    >>> between({"low": 0.0469, "high": 0.064}, 1000), between({"low": 2099.4, "high": 2233.1})
    ('46.9–64', '2,099–2,233')
    """
    return "–".join(significant(factor * bounds[end]) for end in ("low", "high"))


def listed(names: Sequence[str]) -> str:
    """Joins names with commas and "and".

    >>> listed(["agd"]), listed(["agd", "easgd", "ssp"])
    ('agd', 'agd, easgd and ssp')
    """
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


def milli(value_s: float) -> str:
    """Formats seconds in milliseconds, with a decimal only below ten seconds.

    >>> milli(0.0612), milli(425.0977)
    ('61.2', '425,098')
    """
    return f"{1000 * value_s:.1f}" if abs(value_s) < 10 else f"{1000 * value_s:,.0f}"


def seconds(value_s: float) -> str:
    """Formats seconds, with decimals only below a thousand.

    >>> seconds(12.345), seconds(16255.31)
    ('12.35', '16,255')
    """
    return f"{value_s:.2f}" if abs(value_s) < 1000 else f"{value_s:,.0f}"


def size(nbytes: float) -> str:
    """Formats bytes with a unit.

    >>> size(102_228_128), size(19_240), size(12), size(999_900_000_000)
    ('102 MB', '19.2 kB', '12 B', '1 TB')
    """
    for unit, factor in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= 0.9995 * factor:
            return f"{significant(nbytes / factor)} {unit}"
    return f"{nbytes:g} B"


def per_cent(share: float) -> str:
    """Formats a fraction in per cent."""
    return f"{100 * share:.1f}"


def plain(value: float) -> str:
    """Formats a number without unit."""
    return f"{value:.2f}"


def signed(error: float) -> str:
    """Formats an error in per cent with its sign; an error that rounds to 0 has none.

    >>> signed(0.0123), signed(-0.05), signed(-0.0001)
    ('+1.2', '-5.0', '0.0')
    """
    rounded = round(100 * error, 1)
    return f"{rounded:+.1f}" if rounded else "0.0"


def worst(values: Sequence[float | None]) -> float | None:
    """Returns the value farthest from 0; None if one is missing."""
    present = [value for value in values if value is not None]
    return max(present, key=abs) if present and len(present) == len(values) else None


def duration(seconds: float) -> str:
    """Formats an estimated duration with few digits.

    >>> [duration(value) for value in (0.4, 42.0, 89.0, 200.0, 7100.0)]
    ['1 s', '40 s', '90 s', '3 min', '2.0 h']
    """
    if seconds < 10:
        return f"{max(1, round(seconds))} s"
    if seconds < 95:
        return f"{round(seconds, -1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5700 else f"{seconds / 3600:.1f} h"
