"""The published table of compute utilisation, and the grid of bandwidths on which it was computed."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

TABLE = Path(__file__).resolve().parents[1] / "data" / "streaming_diloco_utilisation.csv"
GRID = tuple(float(value) for value in np.logspace(-1, 3, 50))
"""bandwidths in Gbit/s; provenance: INFERENCE, all values of the table are among them"""
TARGETS = (0.5, 0.8, 0.9, 0.95, 0.99)
"""the utilisations of the table's columns"""


@dataclass(frozen=True, slots=True)
class Row:
    """A method on a model: the smallest bandwidth of the grid at which each utilisation is reached.

    Args:
        model: the paper's name of the model, such as 1B.
        parameters: its number of parameters, taken from the name.
        layers: number of layers of equal size.
        step_s: seconds of a gradient, without communication.
        method: the paper's method, see `runs.METHODS`.
        bandwidths: positions in `GRID`, one for each of `TARGETS`.
    """

    model: str
    parameters: float
    layers: int
    step_s: float
    method: str
    bandwidths: tuple[int, ...]


def position(printed: float) -> int:
    """Returns the place in the grid of a bandwidth as the table prints it.

    The table was rounded to two decimal places and then to one, which explains 0.9 for 0.954 and 3.0 for 2.947.

    Raises:
        ValueError: no value of the grid is printed like this.

    >>> GRID[position(3.0)], GRID[position(0.4)]
    (2.94705170255181, 0.372759372031494)
    """
    for place, value in enumerate(GRID):
        if round(round(value, 2), 1) == printed:
            return place
    raise ValueError(f"found {printed} Gbit/s, expected a value of the grid of bandwidths")


def published() -> list[Row]:
    """Reads the table."""
    lines = [line for line in TABLE.read_text().splitlines() if not line.startswith("#")]
    return [
        Row(
            row["model"],
            float(row["model"].removesuffix("B")) * 1e9,
            int(row["layers"]),
            float(row["step_s"]),
            row["method"],
            tuple(position(float(row[f"u{target * 100:.0f}"])) for target in TARGETS),
        )
        for row in csv.DictReader(lines)
    ]
