"""The figure of a comparison: accuracy against time, with one colour per algorithm, simulated dashed, measured solid.

The axis of accuracy is logarithmic in the error, since targets are close to 100 %, where a linear axis shows nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from paceline.algorithms.core.files import replacing
from paceline.records import Run
from paceline.records.metrics import smoothed
from paceline.reports.comparison.compare import Comparison
from paceline.reports.palette import PALETTE

TOP = 0.999
"""better accuracies are drawn at this value"""

HEADROOM = 0.1
"""distance between the best accuracy and the end of the axis, on the scale of `nines`"""

TICKS = (0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 0.97, 0.98, 0.99, 0.995)

INK, FAINT = "#333333", "#999999"

MEASURED: dict[str, Any] = {"linewidth": 4.0, "linestyle": "-", "solid_capstyle": "butt", "zorder": 2}
SIMULATED: dict[str, Any] = {"linewidth": 1.6, "linestyle": (0, (4, 2)), "zorder": 3}
"""a thin dashed line on a broad pale one, so that both are visible where they agree"""


def accuracy_figure(comparison: Comparison) -> Figure:
    """Draws the smoothed accuracy against each run's own clock, for all seeds."""
    figure = Figure(figsize=(9.0, 5.2), dpi=160, layout="constrained")
    axes = figure.add_subplot()
    colours = {line.name: PALETTE[number % len(PALETTE)] for number, line in enumerate(comparison.lines)}
    for line in comparison.lines:
        _curves(axes, line.measured_runs, color=pale(colours[line.name]), **MEASURED)
        _curves(axes, line.predicted_runs, color=colours[line.name], **SIMULATED)
    _dress(axes, comparison)
    _legends(axes, colours, comparison.measured_kind)
    return figure


def save_figure(comparison: Comparison, path: Path) -> None:
    """Writes the figure.

    Args:
        comparison: the comparison.
        path: the file; its ending selects the format.
    """
    with replacing(path) as hidden:
        accuracy_figure(comparison).savefig(hidden)


def nines(accuracy: Any) -> Any:
    """Returns the position of an accuracy on the axis, where dividing the error by 10 is always the same distance.

    y = −log10(1 − accuracy)

    >>> [round(float(nines(accuracy)), 3) for accuracy in (0.5, 0.9, 0.99)]
    [0.301, 1.0, 2.0]
    """
    return -np.log10(1.0 - np.minimum(accuracy, TOP))


def share(height: Any) -> Any:
    """Returns the accuracy at a position of the axis: the inverse of `nines`."""
    return 1.0 - 10.0 ** -np.asarray(height)


def pale(colour: str) -> tuple[float, float, float]:
    """Returns the colour at 40 % on white; opaque, so that curves of several seeds do not darken each other."""
    red, green, blue = (1 - 0.4 * (1 - part) for part in to_rgb(colour))
    return red, green, blue


def _curves(axes: Axes, runs: Sequence[Run], **style: Any) -> None:
    for run in runs:
        table = run.tables.evaluations
        if table["accuracy"].notna().any():
            axes.plot(table["time_s"], smoothed(table["accuracy"].tolist(), run.summary["smoothing"]), **style)


def _dress(axes: Axes, comparison: Comparison) -> None:
    window = comparison.lines[0].measured["smoothing"]
    axes.set_title(
        f"{comparison.scenario}: accuracy against time", loc="left", fontsize=13, fontweight="bold", color=INK, pad=12
    )
    axes.set_xlabel("time, s (simulated runs: virtual time)", color=INK)
    axes.set_ylabel(f"accuracy, mean of {window} evaluations", color=INK)
    axes.set_yscale("function", functions=(nines, share))
    best = max([comparison.target or 0.0, *(np.nanmax(line.get_ydata()) for line in axes.lines)])
    top = share(nines(best) + HEADROOM)
    ticks = [tick for tick in TICKS if tick <= top]
    axes.set_ylim(0.0, top)
    axes.set_yticks(ticks, [f"{100 * tick:g}%" for tick in ticks])
    axes.set_xlim(left=0.0)
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.tick_params(colors=INK, labelsize=9)
    target = comparison.target
    if target is not None:
        axes.axhline(target, color=INK, linewidth=1.0, linestyle=(0, (1, 2)), zorder=1)
        axes.annotate(
            f"target {100 * target:g} %",
            xy=(1.0, target),
            xycoords=("axes fraction", "data"),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
            color=INK,
            annotation_clip=False,
        )


def _legends(axes: Axes, colours: dict[str, str], measured: str) -> None:
    methods = [Line2D([], [], color=colour, linewidth=3.0, label=name) for name, colour in colours.items()]
    kinds = [
        Line2D([], [], color=pale(INK), label=measured, **MEASURED),
        Line2D([], [], color=INK, label="simulated", **SIMULATED),
    ]
    axes.legend(
        handles=[*methods, Line2D([], [], linestyle="none", label=""), *kinds],
        loc="lower right",
        frameon=True,
        framealpha=0.92,
        edgecolor="none",
        fontsize=9,
        labelcolor=INK,
        handlelength=2.6,
    )
