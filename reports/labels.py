"""Places the names of vertices in a picture: beside the mark, where no line crosses them.

Rules of this file: vertices of one kind in one row have their names on the same side. The side is the first of `SIDES`
that the fewest lines, marks and names cross. All lengths are points, from the lower left of a panel.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.topologies.graphs.graph import Connection, Place

Side = tuple[int, int]
SIDES: tuple[Side, ...] = ((0, -1), (0, 1), (1, 0), (-1, 0), (1, -1), (1, 1), (-1, -1), (-1, 1))
"""right or left, and above or below: below first"""
LETTER, HEIGHT, GAP = 4.0, 8.0, 2.5
"""width of a character of a name, height of a line, and distance between a mark and its name"""
SAMPLES = 40
"""number of points of a line that are tested for being inside a name"""
Points = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Named:
    """A mark with a name beside it."""

    row: tuple[Any, ...]
    """the row; marks of one row have their names on one side"""
    at: Place
    size: float
    text: str

    def box(self, side: Side) -> tuple[float, float, float, float]:
        """Returns left, right, low and high of the name."""
        (x, y), (across, up) = self.at, side
        away, wide = self.size / 2 + GAP, LETTER * len(self.text)
        middle_x = x + across * (away + wide / 2 if not up else self.size / 4 + wide / 2)
        middle_y = y + up * (away + HEIGHT / 2)
        return middle_x - wide / 2, middle_x + wide / 2, middle_y - HEIGHT / 2, middle_y + HEIGHT / 2


def sides(named: Sequence[Named], marks: Iterable[tuple[Place, float]], lines: Points) -> dict[tuple[Any, ...], Side]:
    """Returns the side of each row on which its names are crossed least.

    Args:
        named: the marks that have names.
        marks: the place and the size of every mark.
        lines: points of all lines, shape (n, 2).

    >>> marks = [Named("row", (0.0, 0.0), 10.0, "gpu"), Named("row", (90.0, 0.0), 10.0, "gpu")]
    >>> sides(marks, [], np.array([[0.0, -11.0]]))
    {'row': (0, 1)}
    """
    rows: dict[tuple[Any, ...], list[Named]] = {}
    for label in named:
        rows.setdefault(label.row, []).append(label)
    taken = [(x - size / 2, x + size / 2, y - size / 2, y + size / 2) for (x, y), size in marks]
    chosen = {}
    for row, members in rows.items():
        costs = [sum(_crossed(member.box(side), taken, lines) for member in members) for side in SIDES]
        chosen[row] = SIDES[int(np.argmin(costs))]
        taken += [member.box(chosen[row]) for member in members]
    return chosen


def _crossed(box: tuple[float, float, float, float], taken: Sequence[tuple[float, ...]], lines: Points) -> float:
    """Returns how much is in a box: points of lines, and marks and names, which count more."""
    left, right, low, high = box
    x, y = lines[:, 0], lines[:, 1]
    inside = np.count_nonzero((x > left - 1) & (x < right + 1) & (y > low) & (y < high))
    others = np.array(taken).reshape(-1, 4)
    apart = (others[:, 1] <= left) | (others[:, 0] >= right) | (others[:, 3] <= low) | (others[:, 2] >= high)
    return float(inside + 1000 * np.count_nonzero(~apart))


def points_of(connections: Iterable[Connection], places: Mapping[str, Place], unit: float) -> Points:
    """Returns points along every connection as drawn: a quadratic curve whose middle is displaced by the bend."""
    part = np.linspace(0.0, 1.0, SAMPLES)[:, None]
    crossed = [np.empty((0, 2))]
    for connection in connections:
        first, last = (np.array(places[end]) for end in connection.ends)
        along = last - first
        control = (first + last) / 2 + (connection.bend or 0.0) * np.array([along[1], -along[0]])
        curve = (1 - part) ** 2 * first + 2 * part * (1 - part) * control + part**2 * last
        if connection.bend is None:  # only its two ends, pointing away from each other
            away = 0.55 * part * along / np.hypot(*along)
            curve = np.concatenate([first - away, last + away])
        crossed.append(curve * unit)
    return np.concatenate(crossed)
