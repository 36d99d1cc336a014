"""Charts of what ranks do: time by activity, throughput, and data sent, against time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from paceline.records import Run
from paceline.records.figures import ACTIVITIES
from paceline.records.summary import rank_seconds
from paceline.reports.html.charts.style import ACTIVITIES as COLOURS
from paceline.reports.html.charts.style import DASHES, LEGEND, MARKS, WORDS, colour_of, figure
from paceline.reports.staleness.notions import update_weight
from paceline.reports.timeline_data import MOST_RANKS, evenly

WINDOWS = 40
"""windows of a run in curves of rates; provenance: ours"""


def shares_chart(shares: Mapping[str, Mapping[str, float]], y: str = "") -> go.Figure:
    """Draws a stacked bar for each row: the fractions of its time by activity.

    Args:
        shares: the fractions of each row, by activity.
        y: the title of the rows.
    """
    made = figure(
        "share of the time, %",
        y,
        barmode="stack",
        bargap=0.35,
        height=130 + 34 * len(shares),
        legend={**LEGEND, "traceorder": "normal"},
    )
    rows = list(shares)[::-1]
    for activity in ACTIVITIES:
        values = np.array([100 * shares[row].get(activity, 0.0) for row in rows])
        if not values.any():
            continue
        made.add_bar(
            x=values,
            y=rows,
            orientation="h",
            name=WORDS[activity],
            marker={"color": COLOURS[activity], "line": {"width": 0}},
            hovertemplate=f"%{{y}}<br>{WORDS[activity]}: %{{x:.1f}} %<extra></extra>",
        )
    made.update_xaxes(range=[0, 100])
    made.update_yaxes(type="category")
    return made


def shares_of_runs(runs: Sequence[Run]) -> dict[str, dict[str, float]]:
    """Returns the fractions of the workers' time by algorithm and kind: means over seeds, one algorithm together."""
    both = len({run.kind for run in runs}) > 1
    names = list(dict.fromkeys(run.algorithm for run in runs))
    groups: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: names.index(run.algorithm)):
        groups.setdefault(f"{run.algorithm}, {run.kind}" if both else run.algorithm, []).append(run)
    return {
        name: {activity: fmean(run.summary["time_fraction"][activity] for run in mine) for activity in ACTIVITIES}
        for name, mine in groups.items()
    }


def shares_of_ranks(run: Run) -> dict[str, dict[str, float]]:
    """Returns the fractions of the time of each rank whose spans were kept; of many, evenly spaced ones."""
    spans, wall_s = run.tables.spans, run.summary["wall_s"]
    ranks = np.unique(spans["rank"].to_numpy())
    ranks = ranks[evenly(len(ranks), MOST_RANKS // 2)]
    if wall_s <= 0:
        return {}
    found = rank_seconds(spans, wall_s=wall_s, ranks=ranks.tolist())
    made = {}
    for rank, seconds in zip(ranks.tolist(), found, strict=True):
        made[f"rank {rank}"] = {activity: one / wall_s for activity, one in seconds.items()}
    return made


def rate_chart(runs: Sequence[Run], column: str, unit: str, factor: float = 1.0) -> go.Figure:
    """Draws the rate of a quantity in windows of each run: one run for each algorithm and kind.

    Args:
        runs: the runs.
        column: samples, of updates; or bytes, of sends and collectives.
        unit: of the rate.
        factor: from the quantity to the unit.
    """
    made = figure("time since the start, s", unit, height=380)
    names = list(dict.fromkeys(run.algorithm for run in runs))
    both = len({run.kind for run in runs}) > 1
    for run in runs:
        x, y = rates(run, column)
        label = f"{run.algorithm}, {run.kind}" if both else run.algorithm
        made.add_scatter(
            x=x,
            y=y * factor,
            name=label,
            mode="lines" if len(x) > 3 else "lines+markers",
            marker={"symbol": MARKS[names.index(run.algorithm) % len(MARKS)]},
            line={
                "color": colour_of(names, run.algorithm),
                "width": 2,
                "dash": DASHES[both and run.kind == "simulated"],
            },
            hovertemplate=f"{label}<br>%{{y:.4g}} {unit} at %{{x:.4g}} s<extra></extra>",
        )
    made.update_xaxes(rangemode="tozero")
    made.update_yaxes(rangemode="tozero")
    return made


def rates(run: Run, column: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Returns the middles of windows in s, and the quantity per second in each.

    A window has at least four steps of a worker, and each amount is spread over the time since the event before it.
    Otherwise the number of events in a window, such as 1 or 2, would look like a change of the rate.

    Args:
        run: the run.
        column: samples, of updates; or bytes, of sends and collectives.
    """
    table = run.tables.updates if column == "samples" else run.tables.spans
    times = table["time_s" if column == "samples" else "end_s"].to_numpy()
    wall_s, weight = run.summary["wall_s"], update_weight(run) if column == "samples" else 1.0
    end_s = wall_s or 1.0
    steps = int(run.summary["periods"] * run.summary["longest_period"])  # of a worker
    edges = np.linspace(0.0, end_s, int(np.clip(steps // 4, 1, WINDOWS)) + 1)
    order = np.argsort(times, kind="stable")
    moments = np.concatenate([[0.0], np.clip(times[order], 0.0, end_s), [end_s]])
    amounts = np.concatenate([[0.0], table[column].to_numpy()[order], [0.0]])
    made = np.diff(np.interp(edges, moments, np.cumsum(amounts)))
    return (edges[:-1] + edges[1:]) / 2, made * weight / (edges[1] - edges[0])
