"""Charts of accuracy and loss against time, samples and updates; several seeds as a mean with a band."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from paceline.records import Run
from paceline.reports.html.charts.style import FAINT, MARKS, PALE, colour_of, faded, figure, log_axis
from paceline.reports.staleness.notions import update_weight
from paceline.reports.timeline_data import MOST_POINTS, evenly

Axis = Literal["time", "samples", "updates"]
Measure = Literal["accuracy", "loss"]
AXES: dict[Axis, str] = {
    "time": "time since the start, s",
    "samples": "training samples processed by all workers",
    "updates": "updates of the weights",
}
MEASURES: dict[Measure, str] = {"accuracy": "accuracy on test samples, %", "loss": "loss on test samples"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A figure against an axis: the mean over seeds, and the lowest and highest seed.

    Args:
        algorithm: the algorithm.
        kind: simulated or measured.
        seeds: number of seeds.
        x: positions on the axis.
        mean: mean over seeds.
        low: the lowest seed.
        high: the highest seed.
    """

    algorithm: str
    kind: str
    seeds: int
    x: NDArray[Any]
    mean: NDArray[Any]
    low: NDArray[Any]
    high: NDArray[Any]


def curves(runs: Sequence[Run], measure: Measure, axis: Axis) -> list[Curve]:
    """Returns a curve for each algorithm and kind; those without this figure are left out.

    The curves of several seeds are interpolated at common positions, up to the end of the shortest.

    Args:
        runs: the runs.
        measure: the figure.
        axis: the axis.
    """
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        if run.tables.evaluations[measure].notna().any():
            groups.setdefault((run.algorithm, run.kind), []).append(run)
    return [_curve(name, kind, mine, measure, axis) for (name, kind), mine in groups.items()]


def _curve(name: str, kind: str, runs: Sequence[Run], measure: Measure, axis: Axis) -> Curve:
    found = [_points(run, measure, axis) for run in runs]
    if len(found) == 1:
        x, y = found[0]
        kept = evenly(len(x), MOST_POINTS)
        return Curve(algorithm=name, kind=kind, seeds=1, x=x[kept], mean=y[kept], low=y[kept], high=y[kept])
    first, last = max(x[0] for x, _ in found), min(x[-1] for x, _ in found)
    x = np.linspace(first, last, min(MOST_POINTS, 2 * max(len(x) for x, _ in found)))
    values = np.stack([np.interp(x, *one) for one in found])
    mean, low, high = values.mean(axis=0), values.min(axis=0), values.max(axis=0)
    return Curve(algorithm=name, kind=kind, seeds=len(runs), x=x, mean=mean, low=low, high=high)


def _points(run: Run, measure: Measure, axis: Axis) -> tuple[NDArray[Any], NDArray[Any]]:
    """Returns positions and values of the evaluations of a run that have the figure."""
    table = run.tables.evaluations
    table = table[np.isfinite(table[measure])]
    values = table[measure].to_numpy() * (100.0 if measure == "accuracy" else 1.0)
    if axis == "samples":
        return table["samples"].to_numpy(dtype=float), values
    times = table["time_s"].to_numpy()
    if axis == "time":
        return times, values
    updates = np.sort(run.tables.updates["time_s"].to_numpy())
    return np.searchsorted(updates, times, side="right") * update_weight(run), values


def learning_chart(runs: Sequence[Run], measure: Measure, axis: Axis, target: float | None = None) -> go.Figure:
    """Draws curves with their bands; simulated curves are dashed if there are measured ones.

    Args:
        runs: the runs.
        measure: the figure.
        axis: the axis.
        target: the target, in the unit of the tables; None: no line is drawn.
    """
    made = figure(AXES[axis], MEASURES[measure], height=420)
    names = list(dict.fromkeys(run.algorithm for run in runs))
    both = len({run.kind for run in runs}) > 1
    found = sorted(curves(runs, measure, axis), key=lambda curve: curve.kind)  # simulated curves on top
    for curve in found:
        broad = both and curve.kind == "measured"
        colour = colour_of(names, curve.algorithm)
        label = f"{curve.algorithm}, {curve.kind}" if both else curve.algorithm
        if curve.seeds > 1:
            _band(made, curve, colour, label)
        made.add_scatter(
            x=curve.x,
            y=curve.mean,
            name=label,
            legendgroup=label,
            mode="lines+markers" if len(curve.x) <= 12 else "lines",
            marker={"symbol": MARKS[names.index(curve.algorithm) % len(MARKS)]},
            line={
                "color": faded(colour, PALE) if broad else colour,
                "width": 6 if broad else 2,
                "dash": _dash(curve, both),
            },
            hovertemplate=f"{label}<br>%{{y:.4g}} at %{{x:.4g}}<extra></extra>",
        )
    if target is not None:
        value = 100 * target if measure == "accuracy" else target
        made.add_scatter(
            x=[0.0, max((float(curve.x[-1]) for curve in found), default=1.0)],
            y=[value, value],
            name=f"target {value:g}{' %' if measure == 'accuracy' else ''}",
            mode="lines",
            line={"color": FAINT, "dash": "dot", "width": 1.5},
            hoverinfo="skip",
        )
    made.update_xaxes(rangemode="tozero")
    if measure == "loss" and found and all((curve.low > 0).all() for curve in found):
        made.update_yaxes(log_axis([*(curve.low.min() for curve in found), *(curve.high.max() for curve in found)]))
    return made


def _dash(curve: Curve, both: bool) -> str:
    return "dash" if both and curve.kind == "simulated" else "solid"


def _band(made: go.Figure, curve: Curve, colour: str, label: str) -> None:
    made.add_scatter(
        x=np.concatenate([curve.x, curve.x[::-1]]),
        y=np.concatenate([curve.high, curve.low[::-1]]),
        fill="toself",
        fillcolor=faded(colour),
        line={"width": 0, "color": faded(colour)},
        mode="lines",
        hoverinfo="skip",
        showlegend=False,
        legendgroup=label,
    )
