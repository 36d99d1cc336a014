"""Draws the charts of answers as pictures, by matplotlib."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.files import replacing
from paceline.reports.blocks import Chart, Plot
from paceline.reports.palette import BAND, FAINT, INK, LINES
from paceline.reports.plots import DrawnChart, Geometry, Side, geometry

MARKERS = ("o", "s", "D", "^", "v", "P", "X", "*")
DASHES: dict[str, Any] = {"solid": "-", "broad": "-", "dashed": (0, (4, 2)), "dotted": (0, (1, 2))}
COLUMNS = 3
"""charts beside each other; provenance: ours"""
WIDTH, HEIGHT = 5.4, 4.4
"""inches of a chart beside others"""
ALONE = (9.0, 5.2)
"""inches of a single chart"""
ROW_HEIGHT = 0.3
"""inches of a horizontal bar; provenance: ours"""
LEGEND_WIDTH = 72
"""characters of a line of a legend; longer names continue on the next line; provenance: ours"""
LEGEND_LINE = 0.16
"""inches of a line of a legend; provenance: ours"""
FREE_LINES = 3
"""lines of a legend for which a chart has room; provenance: ours"""
NAMED_BARS = 4
"""largest number of bars whose names are not turned; provenance: ours"""


def figure_of(
    charts: Sequence[Chart], choice: Mapping[str, str] | None = None, title: str = "", columns: int = COLUMNS
) -> Figure:
    """Draws charts beside each other.

    Args:
        charts: the charts.
        choice: the plot of each chart with several of them, by what is chosen: ``{"Horizontal axis": "samples"}``;
            otherwise the first one is drawn.
        title: the title of the picture.
        columns: the largest number of charts beside each other.

    Returns:
        The figure; ``figure.savefig(path)`` writes it.

    Raises:
        InputError: there is no chart, or a chart has no such plot.
    """
    if not charts:
        raise InputError("found no chart, expected at least one to draw")
    plots = [_chosen(chart, choice or {}) for chart in charts]
    columns = min(columns, len(plots))
    rows = -(-len(plots) // columns)
    width, height = ALONE if len(plots) == 1 else (WIDTH, HEIGHT)
    bars = max(
        (len({row for series in plot.series for row in series.y}) for plot in plots if plot.horizontal), default=0
    )
    height = max(height, 1.4 + ROW_HEIGHT * bars)
    height += LEGEND_LINE * max(0, max(map(_legend_lines, plots)) - FREE_LINES)
    figure = Figure(figsize=(width * columns, height * rows), dpi=160, layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for panel in panels[len(plots) :]:
        panel.set_visible(False)
    for panel, chart, plot in zip(panels, charts, plots, strict=False):
        _draw(panel, plot)
        panel.set_title(chart.title, loc="left", fontsize=13 if len(plots) == 1 else 10, color=INK, wrap=True)
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold", color=INK)
    return figure


def save(charts: Sequence[Chart], path: Path, title: str = "", columns: int = COLUMNS) -> None:
    """Writes charts as a picture.

    Args:
        charts: the charts; of those with several plots the first one is drawn.
        path: the file; its ending selects the format.
        title: the title of the picture.
        columns: the largest number of charts beside each other.
    """
    with replacing(path) as hidden:
        figure_of(charts, title=title, columns=columns).savefig(hidden)


def _chosen(chart: Chart, choice: Mapping[str, str]) -> Plot:
    name = choice.get(chart.choice, next(iter(chart.plots))) if len(chart.plots) > 1 else next(iter(chart.plots))
    if name not in chart.plots:
        raise InputError(f"{chart.choice}: found {name!r}, expected {', '.join(chart.plots)}")
    return chart.plots[name]


def _draw(axes: Axes, plot: Plot) -> None:
    places = geometry(plot)
    filled: dict[tuple[float, int], float] = {}
    for number, series in enumerate(places.series):
        if series.series.mark == "bar":
            _bars(axes, series, places, plot, filled)
        else:
            _line(axes, series, zorder=2 + number / (1 + len(places.series)))
    _dress(axes, places, plot)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.tick_params(colors=INK, labelsize=8)
    axes.set_axisbelow(True)
    axes.grid(axis="x" if plot.horizontal else "y", color=LINES, linewidth=0.8)
    if len(_legend(plot)) > 1:
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=_legend_columns(plot),
                    frameon=False, fontsize=8, labelcolor=INK, handlelength=2.6)  # fmt: skip


def _legend(plot: Plot) -> list[str]:
    return list(
        {series.name: _wrapped(series.name) for series in plot.series if series.legend and series.name}.values()
    )


def _wrapped(name: str) -> str:
    return textwrap.fill(name, LEGEND_WIDTH)


def _legend_columns(plot: Plot) -> int:
    names = _legend(plot)
    longest = max(map(len, names), default=0)
    return max(1, min(len(names) if len(names) <= 3 else 2, LEGEND_WIDTH // max(1, longest)))


def _legend_lines(plot: Plot) -> int:
    names = _legend(plot)
    return -(-sum(name.count("\n") + 1 for name in names) // _legend_columns(plot)) if len(names) > 1 else 0


def _line(axes: Axes, chart: DrawnChart, zorder: float) -> None:
    series = chart.series
    broad, points = series.style == "broad", series.mark == "points"
    label = _wrapped(series.name) if chart.legend else None
    style: dict[str, Any] = {"color": chart.colour, "zorder": zorder}
    if points:
        style |= {"linestyle": "none", "marker": MARKERS[chart.symbol % len(MARKERS)], "markersize": 10 if broad else 5}
        style |= {"markerfacecolor": "none", "markeredgewidth": 1.6} if broad else {}
        if chart.low is not None and chart.high is not None:
            axes.errorbar(chart.x, chart.y, _errors(chart.y, chart.low, chart.high), label=label, capsize=3, **style)
        else:
            axes.plot(chart.x, chart.y, label=label, **style)
    else:
        style["color"] = pale(chart.colour) if broad else chart.colour
        style |= {"linewidth": 4.0 if broad else 1.0 if series.style == "dotted" else 1.6}
        style |= {"marker": MARKERS[chart.symbol % len(MARKERS)], "markersize": 4} if chart.marked else {}
        drawstyle = "steps-post" if series.mark == "step" else "default"
        axes.plot(chart.x, chart.y, label=label, linestyle=DASHES[series.style], drawstyle=drawstyle, **style)
        if chart.low is not None and chart.high is not None:
            axes.fill_between(chart.x, chart.low, chart.high, color=chart.colour, alpha=BAND, linewidth=0)
    for x, y, text in zip(chart.x, chart.y, series.labels or (), strict=False):
        axes.annotate(text, (x, y), xytext=(0, 4), textcoords="offset points", ha="center", fontsize=7, color=INK)


def _bars(axes: Axes, chart: DrawnChart, places: Geometry, plot: Plot, filled: dict[tuple[float, int], float]) -> None:
    """Draws the bars of a series; `filled` is where stacked bars end: by position, and above or below 0."""
    at, values = (chart.y, chart.x) if plot.horizontal else (chart.x, chart.y)
    middles = [place + shift for place, shift in zip(at, chart.shifts, strict=True)]
    starts = []
    for place, value in zip(at, values, strict=True):
        key = (place, 1 if value >= 0 else -1)
        starts.append(filled.get(key, 0.0) if plot.stacked else 0.0)
        filled[key] = starts[-1] + (value if np.isfinite(value) else 0.0)
    style: dict[str, Any] = {"color": chart.colour, "label": _wrapped(chart.series.name) if chart.legend else None}
    if chart.series.style == "broad":
        style |= {"hatch": "///", "edgecolor": "white", "linewidth": 0}
    if chart.low is not None and chart.high is not None:
        style |= {"xerr" if plot.horizontal else "yerr": _errors(values, chart.low, chart.high), "capsize": 3}
    if plot.horizontal:
        drawn = axes.barh(middles, values, places.bar, left=starts, **style)
    else:
        drawn = axes.bar(middles, values, places.bar, bottom=starts, **style)
    if chart.series.labels is not None:
        axes.bar_label(drawn, list(chart.series.labels), padding=3, fontsize=7, color=INK)


def _dress(axes: Axes, places: Geometry, plot: Plot) -> None:
    """Sets titles, scales, limits and ticks of both axes."""
    bars = not plot.horizontal and any(series.series.mark == "bar" for series in places.series)
    for name, side in (("x", places.x), ("y", places.y)):
        if side.log:
            axes.set(**{f"{name}scale": "log"})
        axes.set(**{f"{name}label": side.label})
        if side.ticks is not None:
            _ticks(axes, name, side)
        if side.limits is not None:
            axes.set(**{f"{name}lim": side.limits})
        elif side.axis.zero and not side.log and not (name == "x" and bars):
            low, high = axes.get_xlim() if name == "x" else axes.get_ylim()
            values = _values(places, name)
            axes.set(**{f"{name}lim": (0.0 if min(values, default=0.0) >= 0 else low, max(0.0, high))})
    if plot.horizontal:
        axes.invert_yaxis()


def _ticks(axes: Axes, name: str, side: Side) -> None:
    assert side.ticks is not None, "only for axes with ticks"
    positions, texts = side.ticks
    many = name == "x" and side.names is not None and len(side.names) > NAMED_BARS
    turned: dict[str, Any] = {"rotation": 30, "ha": "right"} if many else {}
    axis = axes.xaxis if name == "x" else axes.yaxis
    axis.set_ticks(list(positions), list(texts), **turned)
    axis.set_ticks([], minor=True)


def _values(places: Geometry, name: str) -> list[float]:
    values = chain.from_iterable(getattr(series, name) for series in places.series)
    return [value for value in values if np.isfinite(value)]


def _errors(values: Sequence[float], low: Sequence[float], high: Sequence[float]) -> Any:
    """Returns the lengths of error bars, downwards and upwards."""
    middle = np.asarray(values)
    return np.nan_to_num(np.maximum(0.0, [middle - np.asarray(low), np.asarray(high) - middle]))


def pale(colour: str) -> tuple[float, float, float]:
    """Returns the colour at 40 % on white; opaque, so that curves of several seeds do not darken each other."""
    red, green, blue = (1 - 0.4 * (1 - part) for part in to_rgb(colour))
    return red, green, blue
