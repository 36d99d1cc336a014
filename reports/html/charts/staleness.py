"""Charts of staleness: its distribution, its mean by rank, and its course."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from paceline.reports.html.charts.style import DASHES, MARKS, axis, colour_of, figure
from paceline.reports.staleness.notions import Notion
from paceline.reports.timeline_data import MOST_RANKS, evenly

MOST_VALUES = 200
"""values of a distribution; larger ones are left out of the chart"""


def _algorithm(label: str) -> str:
    return label.partition(", ")[0]


def _colours(kinds: Mapping[str, Notion]) -> dict[str, str]:
    names = list(dict.fromkeys(map(_algorithm, kinds)))
    return {label: colour_of(names, _algorithm(label)) for label in kinds}


def distribution_chart(kinds: Mapping[str, Notion]) -> go.Figure:
    """Draws how often each value occurs, in percent.

    Args:
        kinds: one kind of staleness of several runs, by a label that begins with the algorithm.
    """
    made = figure("staleness", "share of updates, %", barmode="group", height=360)
    for label, notion in kinds.items():
        rows = notion.histogram[:MOST_VALUES]
        total = sum(count for _, count in notion.histogram)
        made.add_bar(
            x=[value for value, _ in rows],
            y=[100 * count / total for _, count in rows],
            name=label,
            marker={"color": _colours(kinds)[label], "pattern": {"shape": "/" if "measured" in label else ""}},
            hovertemplate=f"{label}<br>staleness %{{x}}: %{{y:.1f}} %<extra></extra>",
        )
    return made


def rank_chart(kinds: Mapping[str, Notion]) -> go.Figure:
    """Draws the mean of each rank.

    Args:
        kinds: one kind of staleness of several runs, by a label that begins with the algorithm.
    """
    made = figure("rank", "mean staleness", height=340)
    for label, notion in kinds.items():
        rows = [notion.by_rank[at] for at in evenly(len(notion.by_rank), MOST_RANKS)]
        made.add_scatter(
            x=[one["rank"] for one in rows],
            y=[one["mean"] for one in rows],
            customdata=[one["max"] for one in rows],
            name=label,
            mode="markers",
            marker={"color": _colours(kinds)[label], **_mark(label, list(kinds))},
            hovertemplate=f"{label}, rank %{{x}}<br>mean %{{y:.3g}}, largest %{{customdata}}<extra></extra>",
        )
    made.update_yaxes(rangemode="tozero")
    if sum(len(notion.by_rank) for notion in kinds.values()) and _largest_rank(kinds) < 20:
        made.update_layout(xaxis=axis("rank", dtick=1))
    return made


def _mark(label: str, labels: Sequence[str]) -> dict[str, Any]:
    """Returns the mark of an algorithm; that of a measured run is larger and open, around the one of the simulation."""
    names = list(dict.fromkeys(map(_algorithm, labels)))
    symbol = MARKS[names.index(_algorithm(label)) % len(MARKS)]
    measured = label.endswith("measured") and any(one.endswith("simulated") for one in labels)
    return {"symbol": f"{symbol}-open", "size": 14, "line": {"width": 2}} if measured else {"symbol": symbol, "size": 8}


def _largest_rank(kinds: Mapping[str, Notion]) -> int:
    return max(one["rank"] for notion in kinds.values() for one in notion.by_rank)


def course_chart(kinds: Mapping[str, tuple[Notion, float]]) -> go.Figure:
    """Draws the mean in windows of the run, and the 95th percentile as a thin line.

    Args:
        kinds: one kind of staleness of several runs with their length in s, by a label that begins with the algorithm.
    """
    made = figure("time since the start, s", "staleness", height=360)
    colours = _colours({label: notion for label, (notion, _) in kinds.items()})
    for label, (notion, wall_s) in kinds.items():
        windows = [one for one in notion.over_time(wall_s) or () if one["mean"] is not None]
        x = [(one["from_s"] + one["to_s"]) / 2 for one in windows]
        for name, width in (("mean", 2.0), ("p95", 1.0)):
            dash = DASHES[2] if name == "p95" else DASHES["simulated" in label and "measured" in "".join(kinds)]
            shown = f"{label}: {'mean' if name == 'mean' else '95th percentile'}"
            made.add_scatter(
                x=x,
                y=[one[name] for one in windows],  # type: ignore[literal-required]
                name=shown,
                mode="lines",
                line={"color": colours[label], "width": width, "dash": dash},
                hovertemplate=f"{shown}<br>%{{y:.3g}} at %{{x:.3g}} s<extra></extra>",
                showlegend=name == "mean",
            )
    made.update_yaxes(rangemode="tozero")
    made.update_xaxes(rangemode="tozero")
    return made
