"""Colours, axes and the common layout of charts.

Figures have the colours of the light mode. In dark mode the page replaces each by its partner in `DARK`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import plotly.graph_objects as go

from paceline.reports.palette import ACTIVITIES, FAINT, INK, LINES, PALE, PALETTE, WORDS, dark_colours, faded

__all__ = [
    "ACTIVITIES",
    "FAINT",
    "INK",
    "PALE",
    "WORDS",
    "axis",
    "colour_of",
    "dark_colours",
    "faded",
    "figure",
    "log_axis",
]

DASHES = ("solid", "dash", "dot", "dashdot")
MARKS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "x", "star")
LEGEND = {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "font": {"size": 12}}


def colour_of(names: Sequence[str], name: str) -> str:
    """Returns the colour of an algorithm among all algorithms of a report.

    >>> colour_of(["agd", "ssp"], "ssp")
    '#D55E00'
    """
    return PALETTE[list(names).index(name) % len(PALETTE)]


def log_axis(values: Iterable[float]) -> dict[str, Any]:
    """Returns the settings of a logarithmic axis with ticks at 1, 2 and 5, of many decades at 1.

    Args:
        values: all values on the axis, above 0.

    >>> log_axis([0.3, 4.0])["ticktext"]
    ['0.2', '0.5', '1', '2', '5']
    """
    values = list(values)
    first, last = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    digits = (1, 2, 5) if last - first <= 4 else (1,)
    ticks = [digit * 10.0**power for power in range(first, last + 1) for digit in digits]
    shown = [tick for tick in ticks if min(values) / 2 <= tick <= max(values) * 2]
    return {"type": "log", "tickvals": shown, "ticktext": [f"{tick:g}" for tick in shown]}


def figure(x: str, y: str, **more: Any) -> go.Figure:
    """Returns an empty figure in the common style.

    Args:
        x: the title of the horizontal axis, with its unit.
        y: the title of the vertical axis, with its unit.
        more: further entries of the layout.
    """
    return go.Figure(
        layout={
            "template": "none",
            "font": {"color": INK, "size": 13, "family": "system-ui, sans-serif"},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "margin": {"l": 10, "r": 40, "t": 16, "b": 10},
            "legend": LEGEND,
            "hovermode": "closest",
            "hoverlabel": {"align": "left"},
            "xaxis": axis(x),
            "yaxis": axis(y),
            **more,
        }
    )


def axis(title: str, **more: Any) -> dict[str, Any]:
    """Returns the settings of an axis.

    Args:
        title: with its unit.
        more: further settings.
    """
    return {
        "title": {"text": title, "standoff": 8},
        "automargin": True,
        "gridcolor": LINES,
        "linecolor": FAINT,
        "zerolinecolor": LINES,
        "tickcolor": FAINT,
        "ticks": "outside",
        **more,
    }
