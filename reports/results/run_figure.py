"""The figure of runs: what was learned, throughput and shares of time."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paceline.algorithms.core.errors import InputError
from paceline.records import Run
from paceline.records.figures import ACTIVITIES
from paceline.records.metrics import smoothed
from paceline.reports.comparison.accuracy_figure import FAINT, INK
from paceline.reports.comparison.seeds import by_algorithm
from paceline.reports.palette import PALETTE
from paceline.reports.results.run_results import Axis

AXES: dict[str, tuple[str, str]] = {
    "time": ("time_s", "time (s of the run's own clock)"),
    "samples": ("samples", "samples"),
    "epochs": ("epoch", "epochs"),
}
"""the column and the label of each horizontal axis"""
NAMED_BARS = 4
"""largest number of bars whose names are not turned"""


def runs_figure(runs: Sequence[Run], x: Axis = "time") -> Figure:
    """Draws what was learned (if anything was), samples per second, and shares of time.

    Args:
        runs: the runs; one line per seed, and bars of the mean over the seeds.
        x: the horizontal axis of what was learned.

    Raises:
        InputError: there is no run or no such axis.
    """
    if not runs:
        raise InputError("runs: found none, expected at least one run to draw")
    if x not in AXES:
        raise InputError(f"x: found {x!r}, expected time, samples or epochs")
    named = by_algorithm(runs)
    quantity = _learned(runs)
    count = 2 + (quantity is not None)
    figure = Figure(figsize=(5.0 * count, 4.2), dpi=110, layout="constrained")
    panels = list(figure.subplots(1, count, squeeze=False)[0])
    colours = {name: PALETTE[at % len(PALETTE)] for at, name in enumerate(named)}
    if quantity is not None:
        _curves(panels[0], named, quantity, x, colours)
    _throughput(panels[-2], named, colours)
    _time_shares(panels[-1], named)
    kinds = " and ".join(dict.fromkeys(run.kind for run in runs))
    figure.suptitle(f"{runs[0].name}: {kinds} runs", x=0.01, ha="left", fontsize=13, fontweight="bold", color=INK)
    return figure


def _learned(runs: Sequence[Run]) -> Literal["accuracy", "loss"] | None:
    """Returns what was measured in evaluations: accuracy, if there is one."""
    if any(run.tables.evaluations["accuracy"].notna().any() for run in runs):
        return "accuracy"
    return "loss" if any(run.tables.evaluations["loss"].notna().any() for run in runs) else None


def _curves(axes: Axes, named: dict[str, list[Run]], quantity: str, x: str, colours: dict[str, str]) -> None:
    column, label = AXES[x]
    for name, runs in named.items():
        for at, run in enumerate(runs):
            rows = run.tables.evaluations.dropna(subset=[quantity])
            values: Any = smoothed(rows[quantity].tolist(), run.summary["smoothing"]) if len(rows) else []
            axes.plot(rows[column], values, color=colours[name], linewidth=1.6, label=name if at == 0 else None)
    if quantity == "loss":
        axes.set_yscale("log")
    axes.set_title(f"Smoothed {quantity}", loc="left", fontsize=10, color=INK)
    axes.set_xlabel(label)
    axes.set_ylabel(f"{quantity} (0 to 1)" if quantity == "accuracy" else quantity)
    axes.legend(frameon=False, fontsize=8)
    axes.grid(color=FAINT, alpha=0.25)


def _throughput(axes: Axes, named: dict[str, list[Run]], colours: dict[str, str]) -> None:
    means = [_mean([run.summary["samples_per_s"] for run in runs]) for runs in named.values()]
    axes.bar(range(len(named)), means, color=[colours[name] for name in named], width=0.65)
    axes.set_title("Throughput", loc="left", fontsize=10, color=INK)
    axes.set_ylabel("samples per second")
    _name_bars(axes, named)


def _time_shares(axes: Axes, named: dict[str, list[Run]]) -> None:
    below = [0.0] * len(named)
    for number, activity in enumerate(ACTIVITIES):
        shares = [_mean([run.summary["time_fraction"][activity] for run in runs]) for runs in named.values()]
        if any(shares):
            axes.bar(range(len(named)), shares, bottom=below, label=activity, color=PALETTE[number], width=0.65)
        below = [low + share for low, share in zip(below, shares, strict=True)]
    axes.set_title("Time of the workers", loc="left", fontsize=10, color=INK)
    axes.set_ylabel("share of time (0 to 1)")
    axes.set_ylim(0, 1)
    axes.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=3)
    _name_bars(axes, named)


def _name_bars(axes: Axes, named: dict[str, list[Run]]) -> None:
    turned: dict[str, Any] = {} if len(named) <= NAMED_BARS else {"rotation": 30, "ha": "right"}
    axes.set_xticks(range(len(named)), list(named), fontsize=8, **turned)
    axes.grid(axis="y", color=FAINT, alpha=0.25)
    axes.set_axisbelow(True)


def _mean(values: Sequence[float | None]) -> float:
    """Returns the mean; NaN, which is not drawn, if a value is missing."""
    present = [value for value in values if value is not None]
    return fmean(present) if present and len(present) == len(values) else float("nan")
