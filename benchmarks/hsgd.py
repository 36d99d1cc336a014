"""Adds the features of HSGD one at a time, from a native strategy to the scenario hsgd-tianhe2: step time, images/s.

    python benchmarks/hsgd.py
    python benchmarks/hsgd.py --figure hsgd-waterfall.png
    python benchmarks/hsgd.py --variants --json

Every row simulates that scenario without the features of the following rows. Wang, Lu, Chen and Li (IEICE Trans.
E103-D, 2020) report that HSGD raises the computing efficiency by about 20 times over "the native distributed strategy".
The details of that strategy, its nodes, model and batch were not found. So the 20 is printed beside the result, and
`--variants` shows how much the result depends on the assumptions.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from hsgd_features.rows import ASSUMED, FEATURES, PAPER, SCENARIO, Row, factors, left_out, variants, waterfall
from paceline.records.figures import ACTIVITIES
from paceline.reports.palette import FAINT, INK, PALETTE


def steps(rows: Sequence[Row]) -> Table:
    """Renders the features, added one at a time."""
    shown = Table(title=f"HSGD feature by feature, simulated: {SCENARIO}", title_justify="left")
    for column in ("", "images a step", "step, s", "images/s", "times", "over native"):
        shown.add_column(column, justify="right" if column else "left", no_wrap=not column)
    for row, (times, over) in zip(rows, factors(rows), strict=True):
        figures = (str(row.batch), f"{row.step_s:.3f}", f"{row.images_per_s:.0f}", f"{times:.2f}", f"{over:.1f}")
        shown.add_row(_label(rows, row), *figures)
    return shown


def shares(rows: Sequence[Row]) -> Table:
    """Renders the fractions of the workers' time."""
    shown = Table(title="share of a worker's time", title_justify="left")
    for column in ("", *ACTIVITIES):
        shown.add_column(column, justify="right" if column else "left", no_wrap=not column)
    for row in rows:
        shown.add_row(_label(rows, row), *(f"{row.time_fraction[name]:.1%}" for name in ACTIVITIES))
    return shown


def _label(rows: Sequence[Row], row: Row) -> str:
    return row.name if row is rows[0] else f"+ {row.name}"


def compared(whole: Row, lacking: Sequence[Row]) -> Table:
    """Renders HSGD relative to HSGD without one feature."""
    shown = Table(title="HSGD without one of them", title_justify="left")
    for column in ("without", "images/s", "HSGD is times as fast"):
        shown.add_column(column, justify="right" if column != "without" else "left")
    for row in lacking:
        shown.add_row(row.name, f"{row.images_per_s:.0f}", f"{whole.images_per_s / row.images_per_s:.2f}")
    return shown


def hanging(found: Mapping[str, Sequence[Row]]) -> Table:
    """Renders the factors for every set of assumptions."""
    shown = Table(title="times over the row before, if other things are assumed", title_justify="left")
    shown.add_column("assumed", min_width=24)
    for column in (*(feature.name for feature in FEATURES), "over native"):
        shown.add_column(column, justify="right")
    for name, rows in found.items():
        each = factors(rows)
        shown.add_row(name, *(f"{times:.2f}" for times, _ in each[1:]), f"{each[-1][1]:.1f}")
    return shown


def figure(rows: Sequence[Row]) -> Figure:
    """Draws the time for a thousand images above, and the fractions of the workers' time below."""
    drawn = Figure(figsize=(9.0, 6.4), dpi=110, layout="constrained")
    above, below = drawn.subplots(2, 1, sharex=True, height_ratios=[3, 2])
    at = np.arange(len(rows))
    heights = [row.s_per_1000 for row in rows]
    floor = min(heights) / 2
    above.set_yscale("log")
    above.bar(at, np.subtract(heights, floor), bottom=floor, color=FAINT, width=0.6)
    for place, (before, after) in enumerate(pairwise(heights), start=1):
        above.bar(place, abs(before - after), bottom=min(before, after), width=0.6, color=PALETTE[after > before])
    for place, (row, (times, over)) in enumerate(zip(rows, factors(rows), strict=True)):
        words = f"{row.s_per_1000:.3g} s" + (f"\n× {times:.2f}\nin all × {over:.1f}" if place else "")
        top = max(heights[max(place - 1, 0) : place + 1])
        above.annotate(words, (place, top), (0, 4), textcoords="offset points", ha="center", fontsize=9, color=INK)
    above.axhline(heights[0] / PAPER, color=INK, linewidth=1.0, linestyle=(0, (1, 2)))
    words = f"the paper:\nin all\nabout × {PAPER:.0f}"
    above.text(1.01, heights[0] / PAPER, words, transform=above.get_yaxis_transform(), va="center", fontsize=9)
    above.set_ylim(floor, 3 * max(heights))
    above.set_ylabel("seconds per 1,000 images", color=INK)
    above.set_title(
        f"HSGD feature by feature, simulated on {SCENARIO}", loc="left", fontsize=13, fontweight="bold", color=INK
    )
    _shares(below, rows)
    for axes in (above, below):
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(colors=INK, labelsize=9)
    return drawn


def _shares(axes: Axes, rows: Sequence[Row]) -> None:
    """Draws stacked fractions of the workers' time."""
    at, bottom = np.arange(len(rows)), np.zeros(len(rows))
    for number, name in enumerate(ACTIVITIES):
        part = np.array([row.time_fraction[name] for row in rows])
        axes.bar(at, part, bottom=bottom, width=0.6, color=PALETTE[number], label=name)
        bottom += part
    axes.set_ylabel("share of a worker's time", color=INK)
    axes.set_xticks(at, [_label(rows, row) for row in rows])
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=9, labelcolor=INK)


def record(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Returns the rows with their factors."""
    return [
        asdict(row) | {"images_per_s": row.images_per_s, "times": times, "over_native": over}
        for row, (times, over) in zip(rows, factors(rows), strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="The simulated gain of each feature of HSGD.")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument("--figure", type=Path, help="where to draw the waterfall")
    parser.add_argument("--variants", action="store_true", help="with other things assumed, too: a minute or two")
    parser.add_argument("--images", type=int, default=200_000, help="minimum of each run")
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", help="change of every row")
    given = parser.parse_args()
    rows = waterfall(given.set, images=given.images)
    lacking = left_out(given.set, images=given.images)
    others = {name: waterfall(images=given.images, **one) for name, one in variants().items() if given.variants}
    if given.figure is not None:
        figure(rows).savefig(given.figure)
    if given.json:
        answer: dict[str, Any] = {"paper": PAPER, "assumed": ASSUMED, "rows": record(rows)}
        answer["left_out"] = [asdict(row) | {"images_per_s": row.images_per_s} for row in lacking]
        print(json.dumps(answer | {"variants": {name: record(one) for name, one in others.items()}}, indent=2))
        return
    console = Console()
    console.print(steps(rows), shares(rows), compared(rows[-1], lacking))
    if others:
        console.print(hanging(others))
    console.print(f"The paper: about {PAPER:g} times over its native strategy, which was not found. Assumed here:")
    for line in ASSUMED:
        console.print(f"- {line}", soft_wrap=True)


if __name__ == "__main__":
    main()
