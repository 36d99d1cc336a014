"""Where everything of a plot is drawn: positions, ticks, colours and places of bars, for every renderer of charts.

* All positions are numbers. A category is its number; on the axis of nines, a share is minus the logarithm of what is
  missing to 1. Ticks say which value is at a position.
* Bars of several series at one position stand beside each other, centred on it, whatever series have no bar there.
"""

from __future__ import annotations

import itertools
import math
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.records.figures import significant
from paceline.reports.blocks import Axis, Plot, Series
from paceline.reports.palette import FIXED, PALETTE

GROUP = 0.8
"""width of the bars of one position, as a share of the distance between positions; provenance: ours"""
NAME_WIDTH = 26
"""characters of a name at an axis, after which it continues on the next line; provenance: ours"""
LABEL_WIDTH = 34
"""characters of the name of an axis, after which it continues on the next line; provenance: ours"""
NINES = (0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 0.97, 0.98, 0.99, 0.995, 0.998, 0.999)
"""ticks of an axis of nines"""
TOP = 0.9995
"""larger shares are drawn at this value"""
HEADROOM = 0.1
"""distance between the largest share and the end of an axis of nines, on its scale; provenance: ours"""
FEW_POINTS = 12
"""points of a line up to which each has a symbol; provenance: ours"""
MOST_INTEGERS = 24
"""largest distance on an axis of integers at which each has a tick; provenance: ours"""


@dataclass(frozen=True, slots=True)
class Side:
    """An axis with its places.

    Args:
        axis: its description.
        names: the texts at 0, 1, …; None for an axis of numbers.
        ticks: positions and texts of the ticks; None: the renderer chooses.
        limits: first and last position; None: the renderer chooses.
    """

    axis: Axis
    names: Sequence[str] | None
    ticks: tuple[Sequence[float], Sequence[str]] | None
    limits: tuple[float, float] | None

    @property
    def log(self) -> bool:
        """Whether the axis is logarithmic."""
        return self.axis.scale == "log"

    @property
    def label(self) -> str:
        """The name of the axis with its unit; a long one has several lines."""
        return textwrap.fill(self.axis.label, LABEL_WIDTH, break_long_words=False)

    @property
    def transformed(self) -> bool:
        """Whether positions are not the values that a reader wants to know."""
        return self.names is not None or self.axis.scale == "nines"


@dataclass(frozen=True, slots=True)
class DrawnChart:
    """A series with its places.

    Args:
        series: its description.
        x: positions; NaN where there is none.
        y: positions.
        low: lower ends of its band or error bars; None if it has none.
        high: upper ends.
        shifts: of bars: the distance of their middle from their position.
        colour: its colour on a light page.
        symbol: the number of its symbol.
        legend: whether it makes the entry of its name in the legend.
    """

    series: Series
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None
    high: Sequence[float] | None
    shifts: Sequence[float]
    colour: str
    symbol: int
    legend: bool

    @property
    def marked(self) -> bool:
        """Whether each point of a line has a symbol."""
        return len(self.x) <= FEW_POINTS and self.series.style in ("solid", "dashed")


@dataclass(frozen=True, slots=True)
class Geometry:
    """A plot with all its places.

    Args:
        x: the horizontal axis.
        y: the vertical axis; for horizontal bars its first name is at the top.
        series: the series, the first behind the others.
        bar: the width of a bar.
    """

    x: Side
    y: Side
    series: Sequence[DrawnChart]
    bar: float


def geometry(plot: Plot) -> Geometry:
    """Returns the places of everything in a plot.

    Args:
        plot: the plot.

    >>> from paceline.records.figures import COUNT, PERCENT
    >>> bars = [Series("ssp", [0, 1], [0.25, 0.75], "bar"), Series("sync-sgd", [0], [1.0], "bar")]
    >>> made = geometry(Plot(Axis("staleness", COUNT), Axis("share of updates", PERCENT), bars))
    >>> made.series[0].y, made.series[0].shifts, made.series[1].shifts, made.bar, made.x.ticks
    ([25.0, 75.0], [-0.2, 0.0], [0.2], 0.4, ([0, 1], ['0', '1']))
    """
    names = [
        _names(axis, [getattr(series, side) for series in plot.series]) for axis, side in ((plot.x, "x"), (plot.y, "y"))
    ]
    xs = [_positions(series.x, plot.x, names[0]) for series in plot.series]
    ys = [_positions(series.y, plot.y, names[1]) for series in plot.series]
    value_axis = plot.x if plot.horizontal else plot.y
    ends = [
        [None if end is None else _positions(end, value_axis, None) for end in (series.low, series.high)]
        for series in plot.series
    ]
    shifts, bar = _bars(plot, ys if plot.horizontal else xs, xs if plot.horizontal else ys)
    symbols = list(dict.fromkeys(series.symbol or series.colour_key for series in plot.series))
    named: set[str] = set()
    drawn = []
    for number, series in enumerate(plot.series):
        legend = series.legend and bool(series.name) and series.name not in named
        named |= {series.name} if legend else set()
        low, high = ends[number]
        drawn.append(
            DrawnChart(
                series, xs[number], ys[number], low, high, shifts[number], colour_of(plot, series),
                symbols.index(series.symbol or series.colour_key), legend,
            )
        )  # fmt: skip
    lows, highs = ([end for pair in ends if (end := pair[at]) is not None] for at in (0, 1))
    x_all, y_all = ([*xs, *lows, *highs], ys) if plot.horizontal else (xs, [*ys, *lows, *highs])
    x, y = (
        _side(axis, name, _finite(values), plot.stacked and axis is value_axis)
        for axis, name, values in ((plot.x, names[0], x_all), (plot.y, names[1], y_all))
    )
    return Geometry(x, y, drawn, bar)


def colour_of(plot: Plot, series: Series) -> str:
    """Returns the colour of a series on a light page.

    Args:
        plot: the plot.
        series: one of its series.
    """
    key = series.colour_key
    others = [colour_key for colour_key in plot.colour_keys if colour_key not in FIXED]
    return FIXED[key] if key in FIXED else PALETTE[others.index(key) % len(PALETTE)]


def nines(share: float) -> float:
    """Returns the position of a share on an axis where dividing what is missing to 1 by 10 is always the same distance.

    y = −log10(1 − share)

    >>> [round(nines(share), 3) for share in (0.5, 0.9, 0.99)]
    [0.301, 1.0, 2.0]
    """
    return -math.log10(1.0 - min(share, TOP))


def _finite(several: Iterable[Sequence[float]]) -> list[float]:
    return [value for values in several for value in values if math.isfinite(value)]


def _names(axis: Axis, several: Sequence[Sequence[Any]]) -> list[str] | None:
    """Returns the texts of an axis in the order of its ticks or series; None for an axis of numbers."""
    if axis.scale != "category" and not any(isinstance(value, str) for values in several for value in values):
        return None
    return list(dict.fromkeys(map(str, (*(axis.ticks or ()), *(value for values in several for value in values)))))


def _positions(values: Sequence[Any], axis: Axis, names: Sequence[str] | None) -> list[float]:
    if names is not None:
        at = {name: float(number) for number, name in enumerate(names)}
        return [at[str(value)] for value in values]
    factor = 1.0 if axis.unit is None else axis.unit.factor
    numbers = [math.nan if value is None else float(value) for value in values]
    return [nines(value) for value in numbers] if axis.scale == "nines" else [factor * value for value in numbers]


def _bars(
    plot: Plot, places: Sequence[Sequence[float]], values: Sequence[Sequence[float]]
) -> tuple[list[list[float]], float]:
    """Returns the shifts of the bars of every series, and the width of a bar."""
    bars = [series.mark == "bar" for series in plot.series]
    there = [
        [place for place, value in zip(places[at], values[at], strict=True) if bar and math.isfinite(value)]
        for at, bar in enumerate(bars)
    ]
    distinct = sorted({place for line in there for place in line})
    distance = min((after - before for before, after in itertools.pairwise(distinct)), default=1.0)
    whole = GROUP * distance
    if plot.stacked:
        return [[0.0] * len(line) for line in places], whole
    count = Counter(place for line in there for place in line)
    width = whole / max(count.values(), default=1)
    before: Counter[float] = Counter()
    shifts = []
    for at, bar in enumerate(bars):
        own = [width * (before[place] - (count[place] - 1) / 2) if bar else 0.0 for place in places[at]]
        before.update(there[at])
        shifts.append(own)
    return shifts, width


def _side(axis: Axis, names: Sequence[str] | None, positions: Sequence[float], whole: bool) -> Side:
    """Returns an axis with its ticks and limits; `whole`: bars are stacked along it."""
    if names is not None:
        texts = [textwrap.fill(name, NAME_WIDTH, break_long_words=False) for name in names]
        return Side(axis, names, (list(map(float, range(len(names)))), texts), (-0.5, len(names) - 0.5))
    factor = 1.0 if axis.unit is None else axis.unit.factor
    if axis.scale == "nines":
        top = max(positions, default=1.0) + HEADROOM
        shown = [tick for tick in (axis.ticks or NINES) if nines(tick) <= top]
        return Side(axis, None, ([nines(tick) for tick in shown], [f"{factor * tick:g}" for tick in shown]), (0.0, top))
    limits = (0.0, factor) if whole and axis.unit is not None and axis.unit.symbol == "%" else None
    if axis.ticks is not None:
        marks = [factor * tick for tick in axis.ticks]
        return Side(axis, None, (marks, [significant(mark, 4) for mark in marks]), limits)
    if axis.scale == "log" and positions and min(positions) > 0:
        marks = _log_ticks(min(positions), max(positions))
        return Side(axis, None, (marks, [significant(mark) for mark in marks]), limits)
    counted = axis.unit is None or axis.unit.counts or axis.unit.factor == 1.0
    if positions and counted and all(value == round(value) for value in positions):
        first, last = round(min(positions)), round(max(positions))
        if last - first <= MOST_INTEGERS:
            integers = list(range(first, last + 1))
            return Side(axis, None, (integers, list(map(str, integers))), limits)
    return Side(axis, None, None, limits)


def _log_ticks(low: float, high: float) -> list[float]:
    """Returns ticks at 1, 2 and 5 of every decade, of many decades at 1.

    >>> [f"{tick:g}" for tick in _log_ticks(0.3, 4.0)]
    ['0.2', '0.5', '1', '2', '5']
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    digits = (1, 2, 5) if last - first <= 4 else (1,)
    ticks = [digit * 10.0**power for power in range(first, last + 1) for digit in digits]
    return [tick for tick in ticks if low / 2 <= tick <= high * 2]
