"""Words of several answers: kinds of runs, lists of names, estimated durations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paceline.topologies.catalogue.machine_profile import is_poor


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


def listed(names: Sequence[str]) -> str:
    """Joins names with commas and "and".

    >>> listed(["agd"]), listed(["agd", "easgd", "ssp"])
    ('agd', 'agd, easgd and ssp')
    """
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


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
