"""Charts of a sweep: a figure against the number of workers or another axis, with the places where lines cross."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from paceline.records.figures import significant
from paceline.reports.html.charts.style import DASHES, FAINT, INK, MARKS, axis, colour_of, faded, figure, log_axis
from paceline.reports.sweeps.crossings import Crossing
from paceline.reports.sweeps.sweep_figure import WIDE_RATIO, Panel
from paceline.reports.sweeps.sweep_table import Table, brief, label, short_names

UNIT_CHARACTERS = 32
"""characters of a line of the title of the vertical axis"""


def scaling_chart(table: Table, panel: Panel, crossings: Sequence[Crossing] = ()) -> go.Figure:
    """Draws a line for each algorithm and combination of other values: means over seeds, with bands of all seeds.

    Args:
        table: the table of the sweep.
        panel: the figure.
        crossings: places where the order of two algorithms changes in this figure.
    """
    x = "workers" if table.x == "workers" else short_names(table.paths)[table.x]
    made = figure(x, "<br>".join(textwrap.wrap(panel.unit, UNIT_CHARACTERS)), height=400)
    numbers = pd.api.types.is_numeric_dtype(table.frame[table.x]) and not pd.api.types.is_bool_dtype(
        table.frame[table.x]
    )
    names = list(dict.fromkeys(map(str, table.frame["algorithm"])))
    combinations: list[str] = []
    every: list[float] = []
    for _, rows in table.frame.groupby([*table.others, "algorithm"], sort=False, dropna=False):
        name, values = str(rows["algorithm"].iloc[0]), label(dict(rows.iloc[0]), table.others)
        combinations += [values] * (values not in combinations)
        points = _points(rows, table.x, panel, numbers=numbers)
        if len(points):
            every += [*points["min"], *points["max"]]
            _line(
                made,
                points,
                f"{name}, {values}" if values else name,
                colour_of(names, name),
                combinations.index(values),
            )
    if panel.ideal is not None and numbers:
        _ideal(made, table, panel)
    for crossing in crossings:
        _crossing(made, crossing, every)
    _axes(made, table, panel, every, numbers=numbers)
    return made


def _points(rows: pd.DataFrame, x: str, panel: Panel, *, numbers: bool) -> pd.DataFrame:
    """Returns min, mean and max over seeds at each value of the axis where all seeds have the figure."""
    groups = rows.groupby(x, sort=numbers, dropna=False)[panel.column]
    found = groups.agg(["min", "mean", "max"])[groups.count() == groups.size()].astype(float) * panel.factor
    found["seeds"] = groups.size()
    found.index = pd.Index([float(value) if numbers else brief(value) for value in found.index])
    return found


def _line(made: go.Figure, points: pd.DataFrame, name: str, colour: str, style: int) -> None:
    x = points.index.to_numpy()
    if (points["max"] > points["min"]).any():
        made.add_scatter(
            x=np.concatenate([x, x[::-1]]),
            y=np.concatenate([points["max"], points["min"][::-1]]),
            fill="toself",
            fillcolor=faded(colour),
            line={"width": 0, "color": faded(colour)},
            mode="lines",
            hoverinfo="skip",
            showlegend=False,
            legendgroup=name,
        )
    made.add_scatter(
        x=x,
        y=points["mean"].to_numpy(),
        name=name,
        legendgroup=name,
        mode="lines+markers",
        line={"color": colour, "width": 2, "dash": DASHES[style % len(DASHES)]},
        marker={"symbol": MARKS[style % len(MARKS)], "size": 7},
        hovertemplate=f"{name}<br>%{{y:.4g}} at %{{x}}<extra></extra>",
    )


def _ideal(made: go.Figure, table: Table, panel: Panel) -> None:
    x = sorted({float(value) for value in table.frame[table.x]})
    assert panel.ideal is not None, "only such panels have this line"
    made.add_scatter(
        x=x,
        y=[panel.ideal(value / x[0]) for value in x],
        name="ideal",
        mode="lines",
        line={"color": FAINT, "width": 1.2, "dash": "dot"},
        hoverinfo="skip",
    )


def _crossing(made: go.Figure, crossing: Crossing, every: Sequence[float]) -> None:
    """Draws a vertical line where the order changes."""
    values = ", ".join(f"{path.rpartition('.')[2]} {brief(value)}" for path, value in crossing.values.items())
    words = f"from {significant(crossing.at)} on, {crossing.after} is better than {crossing.before}" + (
        f" ({values})" if values else ""
    )
    made.add_scatter(
        x=[crossing.at, crossing.at],
        y=[min(every), max(every)],
        name=words,
        mode="lines+markers",
        line={"color": INK, "width": 1.2, "dash": "dash"},
        marker={"symbol": "line-ew-open", "size": 9, "color": INK},
        hovertemplate=f"{words}<extra></extra>",
    )


def _axes(made: go.Figure, table: Table, panel: Panel, every: Sequence[float], *, numbers: bool) -> None:
    title = "workers" if table.x == "workers" else short_names(table.paths)[table.x]
    if numbers:
        ticks = sorted({float(value) for value in table.frame[table.x]})
        wide = ticks[0] > 0 and ticks[-1] >= WIDE_RATIO * ticks[0]
        shown: dict[str, Any] = (
            {"tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks]} if len(ticks) <= 12 else {}
        )
        made.update_layout(xaxis=axis(title, type="log" if wide else "linear", **shown))
    else:
        made.update_layout(xaxis=axis(title, type="category"))
    if panel.scale == "share":
        made.update_yaxes(tickformat=",.2~%", rangemode="tozero")
    elif panel.scale == "log" and every and min(every) > 0 and max(every) >= WIDE_RATIO * min(every):
        made.update_yaxes(log_axis(every))
    else:
        made.update_yaxes(rangemode="tozero")
