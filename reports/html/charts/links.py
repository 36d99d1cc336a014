"""Charts of links: how much of their capacity was used, and the bytes that they carried."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from paceline.records import Run
from paceline.reports.comparison.words import size
from paceline.reports.html.charts.style import LEGEND, colour_of, figure
from paceline.reports.link_words import figures_of, name_of, used_words

MOST_BARS = 16
"""links of a chart; provenance: ours"""


def busiest_chart(run: Run) -> go.Figure:
    """Draws a bar for each of the busiest links: the share of its capacity that was used.

    Args:
        run: a run whose links were counted.
    """
    rows = run.tables.links.head(MOST_BARS).to_dict("records")[::-1]
    made = figure("used capacity, %", "", bargap=0.35, height=height_of(run), showlegend=False)
    made.add_bar(
        x=[100 * row["utilisation"] for row in rows],
        y=[name_of(row) for row in rows],
        orientation="h",
        marker={"color": colour_of(["used"], "used"), "line": {"width": 0}},
        text=[size(row["bytes"]) for row in rows],
        textposition="outside",
        cliponaxis=False,
        customdata=[[row["kind"], size(row["bytes"]), used_words(row["utilisation"])] for row in rows],
        hovertemplate="%{y}, %{customdata[0]}<br>%{customdata[1]}, %{customdata[2]} of its capacity<extra></extra>",
    )
    most = max((row["utilisation"] for row in rows), default=0.0)
    made.update_xaxes(range=[0, 100 if most > 0.6 else max(125 * most, 1e-6)])
    made.update_yaxes(type="category")
    made.update_layout(margin={"r": 90})
    return made


def height_of(run: Run) -> int:
    """Returns the height of the chart of a run, pixels."""
    return 110 + 26 * min(MOST_BARS, len(run.tables.links))


def kinds_chart(runs: Sequence[Run]) -> go.Figure:
    """Draws the bytes on all links of each kind: a group of bars for each kind, a bar for each run.

    Args:
        runs: runs whose links were counted, one of each algorithm.
    """
    made = figure("", "bytes on all links of the kind, GB", barmode="group", legend=LEGEND, height=360)
    names = [run.algorithm for run in runs]
    for run in runs:
        kinds = figures_of(run)["kinds"]
        made.add_bar(
            x=[one["kind"] for one in kinds],
            y=[one["bytes"] / 1e9 for one in kinds],
            name=run.algorithm,
            marker={"color": colour_of(names, run.algorithm), "line": {"width": 0}},
            customdata=[[size(one["bytes"]), used_words(one["utilisation"])] for one in kinds],
            hovertemplate=f"{run.algorithm}, %{{x}}<br>%{{customdata[0]}}, %{{customdata[1]}} of the capacity"
            "<extra></extra>",
        )
    made.update_xaxes(type="category")
    made.update_yaxes(rangemode="tozero")
    return made
