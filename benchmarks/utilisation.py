"""Compares simulated compute utilisation with the published table of Streaming DiLoCo (arXiv 2501.18512, Table 4).

    python benchmarks/utilisation.py                        # all models; five minutes
    python benchmarks/utilisation.py --model 1B --json

Two workers are joined by one link. Compute utilisation is the share of time in which they compute gradients. The
published table lists the smallest bandwidth, of a grid whose values are 21 % apart, at which a utilisation is reached.
Columns:

    target       the utilisation
    published    the bandwidth of the table
    ours         the bandwidth at which our simulation reaches the target, and its distance from the table in steps of
                 the grid: 0 if the table would show the same value
    utilisation  ours at the published bandwidth, and its difference from the published one, which is known to lie
                 between the target and what the next smaller bandwidth would give: 0 if ours is in this range

The paper publishes the layers, the seconds of a step, the period and the size of fragments. It does not publish how
many bits its simulator counts for a parameter, the cost of an all-reduce, or the share of the forward pass. We assume
16 bits, a ring of two workers, and a third. The rows of DiLoCo up to 80 % determine one number, the bytes relative to
these assumptions (--scale; default: fitted to these rows). All other rows are predictions. The simulator of the paper
starts the exchange of a layer when its backward pass ends, and only the next forward pass of this layer waits for it.
Our programs exchange a fragment after the whole inner step. Up to 80 % this does not matter for DiLoCo.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypedDict

from rich.console import Console
from rich.table import Table

from paceline.records.document import to_json
from utilisation_runs.published import GRID, TARGETS, Row, published
from utilisation_runs.runs import Setting, needed, utilisation

FITTED = "diloco"
"""the method to whose rows the scale is fitted"""
FITTED_BELOW = 0.85
"""utilisations up to which they are used"""


class Answer(TypedDict):
    """A value of the table beside ours; the columns are explained above."""

    model: str
    method: str
    target: float
    published_gbit_per_s: float
    ours_gbit_per_s: float
    grid_steps: int
    utilisation: float
    difference: float


@dataclass(frozen=True, slots=True)
class Cell:
    """One value of the table, and ours.

    Args:
        row: the model and the method.
        target: the utilisation.
        place: the published bandwidth, as a position in the grid.
        unscaled: our bandwidth if a parameter has two bytes.
        scale: bytes relative to this.
    """

    row: Row
    target: float
    place: int
    unscaled: float
    scale: float = 1.0

    @property
    def ours(self) -> float:
        """Our bandwidth in Gbit/s."""
        return self.unscaled * self.scale

    @property
    def steps(self) -> int:
        """How many steps of the grid ours is above the published bandwidth."""
        return next((n for n, value in enumerate(GRID) if value >= self.ours), len(GRID)) - self.place

    def at_published(self) -> tuple[float, float]:
        """Returns our utilisation at the published bandwidth, and its relative difference from the published range."""
        here, below = (
            utilisation(Setting(self.row, GRID[place], self.scale)) for place in (self.place, self.place - 1)
        )
        if here < self.target:
            return here, here / self.target - 1
        return here, max(0.0, below / self.target - 1)

    def answer(self) -> Answer:
        """Simulates the published bandwidth, and returns all figures."""
        found, difference = self.at_published()
        return Answer(
            model=self.row.model,
            method=self.row.method,
            target=self.target,
            published_gbit_per_s=GRID[self.place],
            ours_gbit_per_s=self.ours,
            grid_steps=self.steps,
            utilisation=found,
            difference=difference,
        )


def scale_of(cells: Sequence[Cell]) -> float:
    """Returns the scale that puts most cells into their step of the grid: the middle of the range with the same number.

    Args:
        cells: cells of the method to which it is fitted, with a scale of 1.
    """
    ranges = [(GRID[cell.place - 1] / cell.unscaled, GRID[cell.place] / cell.unscaled) for cell in cells]
    edges = sorted({math.log(edge) for pair in ranges for edge in pair})
    middles = [math.exp((low + high) / 2) for low, high in pairwise(edges)]
    return max(middles, key=lambda scale: sum(low < scale <= high for low, high in ranges))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", choices=["1B", "10B", "100B"], help="may be repeated; default: all")
    parser.add_argument("--scale", type=float, help="bytes relative to 16 bits a parameter; default: fitted")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    given = parser.parse_args(arguments)
    rows = [row for row in published() if not given.model or row.model in given.model]
    plain = [
        Cell(row, *pair, needed(row, pair[0])) for row in rows for pair in zip(TARGETS, row.bandwidths, strict=True)
    ]
    scale = given.scale or scale_of(
        [cell for cell in plain if cell.row.method == FITTED and cell.target < FITTED_BELOW]
    )
    answers = [replace(cell, scale=scale).answer() for cell in plain]
    if given.json:
        print(to_json({"scale": scale, "fitted_to": None if given.scale else FITTED, "cells": answers}))
    else:
        show(scale, answers)
    return 0


def show(scale: float, answers: Sequence[Answer]) -> None:
    """Prints the table and what it says in words."""
    table = Table(
        "model", "method", "target %", "published Gbit/s", "ours Gbit/s", "steps", "utilisation %", "difference %"
    )
    for one in answers:
        table.add_row(
            one["model"],
            one["method"],
            f"{100 * one['target']:.0f}",
            f"{one['published_gbit_per_s']:.3g}",
            f"{one['ours_gbit_per_s']:.3g}",
            f"{one['grid_steps']:+d}",
            f"{100 * one['utilisation']:.1f}",
            f"{100 * one['difference']:+.1f}",
        )
    console = Console()
    console.print(table)
    for method in dict.fromkeys(one["method"] for one in answers):
        mine = [one for one in answers if one["method"] == method]
        same = sum(one["grid_steps"] == 0 for one in mine)
        worst = max(abs(one["difference"]) for one in mine)
        console.print(
            f"{method}: {same} of {len(mine)} bandwidths are equal; utilisation differs by at most {100 * worst:.1f} %."
        )
    console.print(f"A parameter counts as {16 * scale:.1f} bits.")


if __name__ == "__main__":
    sys.exit(main())
