"""Describes charts as plotly.js reads them: data and layout as JSON values, in the colours of light pages."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from paceline.reports.blocks import Chart, Plot
from paceline.reports.palette import FAINT, INK, LINES, PALE, faded
from paceline.reports.plots import DrawnChart, Geometry, Side, geometry

SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "x", "star")
DASHES = {"solid": "solid", "broad": "solid", "dashed": "dash", "dotted": "dot"}
HEIGHT = 380
"""pixels of a chart; provenance: ours"""
HEAD, ROW, BAR = 110, 14, 18
"""pixels of a chart of horizontal bars: for its axis and legend, for each row, and for each bar; provenance: ours"""
MARGIN, CHARACTER = 40, 7
"""pixels right of a chart, and of a character of a text at the end of a bar; provenance: ours"""
DIGITS = 6
"""significant digits of a position, about a thousandth of a pixel"""


def height_of(chart: Chart) -> int:
    """Returns the height of a chart, pixels.

    Args:
        chart: the chart; its own height counts, if it has one.
    """
    return chart.height or max(map(_height, chart.plots.values()), default=HEIGHT)


def _height(plot: Plot) -> int:
    if not plot.horizontal:
        return HEIGHT
    rows = {row for series in plot.series for row in series.y}
    bars = 1 if plot.stacked else max(1, len({series.name for series in plot.series if series.mark == "bar"}))
    return HEAD + (ROW + BAR * bars) * len(rows)


def plotly_of(plot: Plot) -> dict[str, Any]:
    """Returns the traces and the layout of a plot.

    Args:
        plot: the plot.

    >>> from paceline.reports.blocks import Axis, Series
    >>> made = plotly_of(Plot(Axis("time", None), Axis("loss", None), [Series("easgd", [0.0, 1.0], [2.0, 0.5])]))
    >>> made["data"][0]["y"], made["layout"]["yaxis"]["title"]["text"], made["layout"]["yaxis"]["rangemode"]
    ([2, 0.5], 'loss', 'tozero')
    """
    places = geometry(plot)
    traces: list[dict[str, Any]] = []
    for series in places.series:
        if series.low is not None and series.high is not None and series.series.mark in ("line", "step"):
            traces.append(_band(series))
        traces.append(_bar(series, places, plot) if series.series.mark == "bar" else _line(series, places))
    layout = {
        "template": "none",
        "font": {"color": INK, "size": 13, "family": "system-ui, sans-serif"},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 10, "r": _right_margin(plot), "t": 16, "b": 10},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "font": {"size": 12}},
        "showlegend": len({series.series.name for series in places.series if series.series.legend}) > 1,
        "hovermode": "closest",
        "hoverlabel": {"align": "left"},
        "barmode": "stack" if plot.stacked else "overlay",  # bars beside each other have their own shifts
        "xaxis": _axis(places.x),
        "yaxis": _axis(places.y, downwards=plot.horizontal),
    }
    return {"data": traces, "layout": layout}


def _right_margin(plot: Plot) -> int:
    """Returns the pixels right of a plot, where the texts of its longest horizontal bars end."""
    bars = [series for series in plot.series if plot.horizontal and series.mark == "bar"]
    longest = max((len(text) for bar in bars for text in bar.labels or ()), default=0)
    return max(MARGIN, CHARACTER * longest + 10)


def _axis(side: Side, *, downwards: bool = False) -> dict[str, Any]:
    made: dict[str, Any] = {
        "title": {"text": side.label.replace("\n", "<br>"), "standoff": 8},
        "automargin": True,
        "gridcolor": LINES,
        "linecolor": FAINT,
        "zerolinecolor": LINES,
        "tickcolor": FAINT,
        "ticks": "outside",
        "exponentformat": "none",  # 0.0005 and 20,000, not 500µ and 20k
        "separatethousands": True,
    }
    if side.log:
        made["type"] = "log"
    elif side.axis.zero:
        made["rangemode"] = "tozero"
    if side.names is not None:
        made |= {"showgrid": False, "zeroline": False}
    if side.ticks is not None:
        positions, texts = side.ticks
        made |= {"tickvals": _numbers(positions), "ticktext": [text.replace("\n", "<br>") for text in texts]}
    if side.limits is not None:
        made["range"] = list(side.limits[::-1] if downwards else side.limits)
    elif downwards:
        made["autorange"] = "reversed"
    return made


def _line(chart: DrawnChart, places: Geometry) -> dict[str, Any]:
    series = chart.series
    broad, points = series.style == "broad", series.mark == "points"
    colour = faded(chart.colour, PALE) if broad and not points else chart.colour
    mode = "markers" if points else "lines+markers" if chart.marked else "lines"
    if series.labels is not None:
        mode += "+text"
    symbol = SYMBOLS[chart.symbol % len(SYMBOLS)]
    marker: dict[str, Any] = {"color": colour, "symbol": symbol, "size": 8 if points else 6}
    if broad and points:  # around the point of the simulation
        marker |= {"symbol": f"{symbol}-open", "size": 14, "line": {"width": 2}}
    made = {
        "type": "scatter",
        "mode": mode,
        "marker": marker,
        "line": {"color": colour, "width": 6 if broad else 1.5 if series.style == "dotted" else 2,
                 "dash": DASHES[series.style], "shape": "hv" if series.mark == "step" else "linear"},
        **_common(chart, places),
    }  # fmt: skip
    if series.labels is not None:
        made |= {"text": list(series.labels), "textposition": "top center", "cliponaxis": False}
    if points and chart.low is not None and chart.high is not None:
        made["error_y"] = _errors(chart.y, chart.low, chart.high, chart.colour)
    return made


def _bar(chart: DrawnChart, places: Geometry, plot: Plot) -> dict[str, Any]:
    marker: dict[str, Any] = {"color": chart.colour, "line": {"width": 0}}
    if chart.series.style == "broad":
        marker["pattern"] = {"shape": "/"}
    made = {
        "type": "bar",
        "orientation": "h" if plot.horizontal else "v",
        "marker": marker,
        "width": places.bar,
        **_common(chart, places),
    }
    if not plot.stacked:
        made["offset"] = _numbers(shift - places.bar / 2 for shift in chart.shifts)
    if chart.series.labels is not None:
        made |= {"text": list(chart.series.labels), "textposition": "outside", "cliponaxis": False}
    if chart.low is not None and chart.high is not None:
        along = chart.x if plot.horizontal else chart.y
        made["error_x" if plot.horizontal else "error_y"] = _errors(along, chart.low, chart.high, INK)
    return made


def _common(chart: DrawnChart, places: Geometry) -> dict[str, Any]:
    """Returns what bars and lines have alike: values, the entry in the legend, and what a reader sees when pointing."""
    series = chart.series
    shown: list[str] = []
    columns: list[list[str]] = []
    for name, values, side in (("x", series.x, places.x), ("y", series.y, places.y)):
        symbol = "" if side.axis.unit is None or not side.axis.unit.symbol else f" {side.axis.unit.symbol}"
        if side.transformed:
            shown.append(f"%{{customdata[{len(columns)}]}}{symbol}")
            columns.append([value if isinstance(value, str) else _text(value, side) for value in values])
        else:
            shown.append(f"%{{{name}:,.4~r}}{symbol}")
    x, y = shown
    lines = [series.name] if series.name else []
    lines.append(f"{y}: {x}" if places.y.names else f"{x}: {y}" if places.x.names else f"{y} at {x}")
    if series.texts is not None:
        lines.append(f"%{{customdata[{len(columns)}]}}")
        columns.append(list(series.texts))
    made: dict[str, Any] = {
        "x": _numbers(chart.x),
        "y": _numbers(chart.y),
        "name": series.name,
        "legendgroup": series.name,
        "showlegend": chart.legend,
        "hovertemplate": "<br>".join(lines) + "<extra></extra>",
    }
    if columns:
        made["customdata"] = [list(row) for row in zip(*columns, strict=True)]
    return made


def _text(value: Any, side: Side) -> str:
    return str(value) if side.axis.unit is None else side.axis.unit.text(value, 4)


def _band(chart: DrawnChart) -> dict[str, Any]:
    assert chart.low is not None and chart.high is not None, "a band has two ends"
    rows = [row for row in zip(chart.x, chart.low, chart.high, strict=True) if all(map(math.isfinite, row))]
    return {
        "type": "scatter",
        "mode": "lines",
        "x": _numbers([x for x, _, _ in rows] + [x for x, _, _ in rows[::-1]]),
        "y": _numbers([high for _, _, high in rows] + [low for _, low, _ in rows[::-1]]),
        "fill": "toself",
        "fillcolor": faded(chart.colour),
        "line": {"width": 0, "color": faded(chart.colour)},
        "hoverinfo": "skip",
        "showlegend": False,
        "legendgroup": chart.series.name,
    }


def _errors(values: Sequence[float], low: Sequence[float], high: Sequence[float], colour: str) -> Mapping[str, Any]:
    return {
        "type": "data",
        "symmetric": False,
        "array": _numbers(end - value for value, end in zip(values, high, strict=True)),
        "arrayminus": _numbers(value - end for value, end in zip(values, low, strict=True)),
        "color": colour,
        "thickness": 1.5,
        "width": 4,
    }


def _numbers(values: Iterable[float]) -> list[float | int | None]:
    """Returns numbers with few digits, so that the file is small; None in place of NaN and infinity.

    >>> _numbers([0.1 + 0.2, 3.0, float("nan"), 1234567.8])
    [0.3, 3, None, 1234570]
    """
    made: list[float | int | None] = []
    for value in values:
        if not math.isfinite(value):
            made.append(None)
            continue
        short = float(f"{value:.{DIGITS}g}")
        made.append(int(short) if short.is_integer() and abs(short) < 1e15 else short)
    return made
