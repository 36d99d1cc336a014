"""The figure of staleness: for each run its distribution and its course over time, in the method's own notion.

The left panel shows the fraction of updates at each value. The right panel shows a vertical histogram for each interval
of the run, darker where there are more updates of the interval, with their mean as a line.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.files import replacing
from paceline.records.metrics import Histogram
from paceline.reports.comparison.accuracy_figure import FAINT, INK
from paceline.reports.palette import PALETTE
from paceline.reports.staleness.notions import records_of
from paceline.reports.staleness.staleness_tables import Staleness

MOST_RUNS = 12
"""largest number of runs in one figure"""
MOST_BARS = 60
"""largest number of bars of a histogram"""


def save_figure(found: Sequence[Staleness], path: Path) -> None:
    """Writes the figure.

    Args:
        found: the staleness of each run.
        path: the file; its ending selects the format.

    Raises:
        InputError: the ending is not that of a picture, there are too many runs for one figure, or a run has no updates
            because it is a summary.
    """
    if path.suffix not in {".svg", ".png", ".pdf"}:
        raise InputError(f"--out: found {path.name!r}, expected a name that ends in .png, .svg or .pdf")
    if len(found) > MOST_RUNS:
        raise InputError(f"--out: found {len(found)} runs, expected at most {MOST_RUNS} in one figure")
    for one in found:
        if (records := records_of(one.run)) is not None and records["kind"] == "summary":
            name = one.run.path or one.run.algorithm
            raise InputError(f"--out: {name} has only a summary, without updates; expected records: sampled or full")
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as hidden:
        staleness_figure(found).savefig(hidden)


def staleness_figure(found: Sequence[Staleness]) -> Figure:
    """Draws a row of two panels for each run."""
    figure = Figure(figsize=(10.0, 0.6 + 2.6 * len(found)), dpi=140, layout="constrained")
    grid = figure.subplots(len(found), 2, squeeze=False, width_ratios=(1, 1.5))
    for number, (one, (left, right)) in enumerate(zip(found, grid, strict=True)):
        colour = PALETTE[number % len(PALETTE)]
        _distribution(left, one, colour)
        _course(right, one, colour)
    return figure


def _distribution(axes: Axes, found: Staleness, colour: str) -> None:
    own = found.notions[found.own].histogram
    edges = _steps(own)
    values, often = zip(*own, strict=True) if own else ((), ())
    counts, _ = np.histogram(values, bins=edges, weights=often)
    width = edges[1] - edges[0]
    middles = [edge + width / 2 for edge in edges[:-1]]
    axes.bar(middles, counts / max(1, counts.sum()), width=0.9 * width, color=colour)
    axes.set_xlim(edges[0] - 0.4 * width, edges[-1] + 0.4 * width)
    axes.set_title(f"{found.run.algorithm}, seed {found.run.seed}", loc="left", fontsize=11, color=INK)
    axes.set_xlabel(found.own, color=INK, fontsize=9)
    axes.set_ylabel("share of updates", color=INK, fontsize=9)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g} %"))
    _dress(axes)


def _course(axes: Axes, found: Staleness, colour: str) -> None:
    notion, wall_s = found.notions[found.own], found.run.summary["wall_s"] or 1.0
    windows, own = notion.over_time(wall_s), notion.series
    if windows is None or own is None:  # nothing was applied
        return
    edges_s = [windows[0]["from_s"], *(one["to_s"] for one in windows)]
    values = _steps(notion.histogram)
    counts, _, _ = np.histogram2d(own["time_s"], own["value"], bins=[edges_s, values])
    shares = counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
    axes.pcolormesh(edges_s, values, shares.T, cmap=LinearSegmentedColormap.from_list("own", ["white", colour]))
    filled = [one for one in windows if one["count"]]
    middles_s = [(one["from_s"] + one["to_s"]) / 2 for one in filled]
    axes.plot(middles_s, [one["mean"] for one in filled], color=INK, linewidth=1.6, label="mean")  # type: ignore[arg-type]
    axes.set_xlabel("time, s (simulated runs: virtual time)", color=INK, fontsize=9)
    axes.set_ylabel(found.own, color=INK, fontsize=9)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(fontsize=8, frameon=False, labelcolor=INK, loc="upper left")
    _dress(axes)


def _steps(own: Histogram) -> list[float]:
    """Returns the borders of the histograms' bars: one bar per value, or several values per bar if there are many."""
    low, high = (own[0][0], own[-1][0]) if own else (0, 0)
    width = -(-(high - low + 1) // MOST_BARS)
    return [low - 0.5 + width * number for number in range(-(-(high - low + 1) // width) + 1)]


def _dress(axes: Axes) -> None:
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.tick_params(colors=INK, labelsize=8.5)
