"""Figures of a sweep: a panel per figure of a run, a colour and mark per algorithm, a line style for other values.

Rules of this file:

* Figures are drawn against the number of workers if it varies, with the ideal beside speed-up and efficiency, and
  otherwise against the first varied path. Lines are means over seeds; the band around them is from the minimum to the
  maximum.
* Bars are the intervals of predictions on devices of the catalogue, means over seeds. Ratios of two predictions
  (speed-up, efficiency) have none, because the errors of one device cancel in them.
* Points that ended before their method's longest period had passed once are hollow.
* Up to `STYLES` combinations of other values share a figure; more have figures of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator
from matplotlib.transforms import ScaledTranslation

from paceline.algorithms.core.files import replacing
from paceline.reports.comparison.accuracy_figure import FAINT, INK, pale
from paceline.reports.palette import PALETTE
from paceline.reports.sweeps.sweep_table import Table, brief, label, short_names

STYLES = ((0, ()), (0, (5, 2)), (0, (1, 1.2)), (0, (6, 2, 1, 2)))
MARKS = "osD^vPX*"
MOST_FIGURES = 12
"""largest number of figures of one sweep; the table has all values"""
MOST_TICKS = 12
WIDE_RATIO = 4
"""ratio of largest to smallest number above which an axis is logarithmic"""
BAR_POINTS = 4.5
"""points between the bars of two lines at one value"""
MANY = 8
"""staleness above which the axis is logarithmic for large values"""


PLAIN = FuncFormatter(lambda value, _: f"{value:,g}")
PER_CENT = FuncFormatter(lambda value, _: f"{100 * value:g} %")


@dataclass(frozen=True, slots=True)
class Panel:
    """The title of a panel, its column of the table, and how it is drawn."""

    title: str
    column: str
    unit: str
    scale: str = "linear"
    ideal: Callable[[float], float] | None = None
    """the ideal value, as a function of workers over the fewest workers"""
    interval: str | None = None
    """the figure's name in the columns of intervals; None if it has none"""
    factor: float = 1.0
    """factor from the column's unit to the shown unit"""


PANELS = (
    Panel("Speed-up", "speed_up", "over the smallest cluster", "log", lambda ratio: ratio),
    Panel("Efficiency", "efficiency", "speed-up per worker", "share", lambda _: 1.0),
    Panel("Throughput", "samples_per_s", "samples/s", "log", interval="samples_per_s"),
    Panel("Step time", "step_s_mean", "ms between a worker's gradients", "log", interval="step_s", factor=1e3),
    Panel("Staleness", "staleness_mean", "mean, as each method counts it", "steps"),
    Panel("Communication", "time_fraction_communication", "share of the workers' time", "share"),
    Panel("Waiting", "time_fraction_wait", "share of the workers' time", "share"),
    Panel("Time to accuracy", "time_to_accuracy_s", "seconds", "log", interval="time_to_accuracy_s"),
    Panel("Speed-up to accuracy", "speed_up_to_accuracy", "over the smallest cluster", "log", lambda ratio: ratio),
    Panel("Time to loss", "time_to_loss_s", "seconds", "log", interval="time_to_loss_s"),
    Panel("Speed-up to loss", "speed_up_to_loss", "over the smallest cluster", "log", lambda ratio: ratio),
    Panel("Cost", "cost_usd", "USD for the whole run", "log"),
    Panel("Cost to accuracy", "cost_to_accuracy_usd", "USD", "log"),
    Panel("Cost to loss", "cost_to_loss_usd", "USD", "log"),
    Panel("Energy", "energy_kwh", "kWh of the devices for the whole run", "log"),
)
WITHOUT_SIZES = {"step_s_mean"}
"""columns that are drawn only if there is no speed-up"""


def title_of(panel: Panel, table: Table) -> str:
    """Returns the title of a panel, with the target if its figure is at the target.

    Args:
        panel: the panel.
        table: the table of the sweep.
    """
    if table.target is None or f"to_{table.target.kind}" not in panel.column:
        return panel.title
    return panel.title.replace(table.target.kind, table.target.words)


def save_figures(table: Table, folder: Path) -> tuple[list[Path], int]:
    """Writes ``sweep.png``, or ``sweep-1.png`` and so on.

    Args:
        table: the table of the sweep.
        folder: the folder for the figures.

    Returns:
        The written files, and how many there would be without a limit.
    """
    parts = list(_parts(table))
    paths = []
    for number, (rows, fixed) in enumerate(parts[:MOST_FIGURES], start=1):
        path = folder / ("sweep.png" if len(parts) == 1 else f"sweep-{number}.png")
        with replacing(path) as hidden:
            sweep_figure(table, rows, fixed).savefig(hidden)
        paths.append(path)
    return paths, len(parts)


def _parts(table: Table) -> Iterator[tuple[pd.DataFrame, tuple[str, ...]]]:
    """Yields the rows of each figure, and the paths whose values are constant in it."""
    frame, others = table.frame, table.others
    if table.combinations(frame) <= len(STYLES):
        yield frame, ()
        return
    fixed = others[:-1] if frame[others[-1]].nunique(dropna=False) <= len(STYLES) else others
    for _, rows in frame.groupby(list(fixed), sort=False, dropna=False):
        yield rows, fixed


def sweep_figure(table: Table, rows: pd.DataFrame, fixed: Sequence[str] = ()) -> Figure:
    """Draws the panels of some rows of the table.

    Args:
        table: the table of the sweep.
        rows: the rows to draw.
        fixed: paths that have a single value in these rows.
    """
    panels = [
        panel
        for panel in PANELS
        if panel.column in rows
        and rows[panel.column].notna().any()
        and not (table.sizes and panel.column in WITHOUT_SIZES)
    ]
    height = -(-len(panels) // 2)
    figure = Figure(figsize=(10.0, 3.5 * height + 1.1), dpi=140, layout="constrained")
    grid = list(figure.subplots(height, 2, squeeze=False).flat)
    styles = [path for path in table.others if path not in fixed]
    lines = _lines(table, rows, styles)
    places = _places(rows[table.x])
    for axes, panel in zip(grid, panels, strict=False):
        for number, line in enumerate(lines):
            _draw(axes, panel, line, table.x, places)
            _draw_bars(axes, panel, line, table.x, places, BAR_POINTS * (number - (len(lines) - 1) / 2))
        _dress(axes, panel, table, places)
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    where = f" with {label(dict(rows.iloc[0]), fixed)}" if fixed else ""
    figure.suptitle(f"{table.scenario}{where}", x=0.01, ha="left", fontsize=13, fontweight="bold", color=INK)
    barred = any(prediction_bars(panel, rows, table.x, places) is not None for panel in panels)
    _legend(
        figure,
        lines,
        any(panel.ideal for panel in panels),
        early=bool((rows["periods"] < 1).any()),
        share=table.share if barred else None,
    )
    return figure


@dataclass(frozen=True, slots=True)
class _Line:
    """One algorithm at one combination of other values."""

    algorithm: str
    values: str
    rows: pd.DataFrame
    style: Mapping[str, Any]


def _lines(table: Table, rows: pd.DataFrame, styles: Sequence[str]) -> list[_Line]:
    names = list(dict.fromkeys(table.frame["algorithm"]))
    combinations: list[str] = []
    lines = []
    for _, part in rows.groupby([*styles, "algorithm"], sort=False, dropna=False):
        values, name = label(dict(part.iloc[0]), styles), str(part["algorithm"].iloc[0])
        if values not in combinations:
            combinations.append(values)
        number = names.index(name)
        style = {
            "color": _colour(number),
            "marker": MARKS[(number + number // len(PALETTE)) % len(MARKS)],
            "linestyle": STYLES[combinations.index(values)],
        }
        lines.append(_Line(name, values, part, style))
    return lines


def _colour(number: int) -> Any:
    """Returns the colour of an algorithm by its position: the palette, and behind it paler colours of the palette."""
    colour = PALETTE[number % len(PALETTE)]
    return colour if number % (2 * len(PALETTE)) < len(PALETTE) else pale(colour)


def _places(column: pd.Series[Any]) -> Mapping[Any, float]:
    """Returns the position of each value on the axis: a number at its value, other values in their order."""
    values = list(dict.fromkeys(column))
    if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
        return {value: float(value) for value in sorted(values)}
    return {value: float(number) for number, value in enumerate(values)}


def _draw(axes: Axes, panel: Panel, line: _Line, x: str, places: Mapping[Any, float]) -> None:
    groups = line.rows.groupby(x, sort=False, dropna=False)[panel.column]
    spread = groups.agg(["min", "max"]).astype(float)
    spread["early"] = line.rows.groupby(x, sort=False, dropna=False)["periods"].min() < 1
    spread["mean"] = groups.mean().where(groups.count() == groups.size()).astype(float)
    spread[["min", "max", "mean"]] *= panel.factor
    spread.index = pd.Index([places[value] for value in spread.index])
    spread = spread.sort_index().dropna()
    if len(spread):
        axes.plot(spread.index, spread["mean"], **line.style, linewidth=1.7, markersize=5, clip_on=False, zorder=3)
        early = spread[spread["early"].astype(bool)]
        if len(early):  # an empty line breaks the layout
            hollow = {**line.style, "linestyle": "none", "markerfacecolor": "white"}
            axes.plot(early.index, early["mean"], **hollow, markersize=5, clip_on=False, zorder=4)
        if (spread["max"] > spread["min"]).any():
            axes.fill_between(
                spread.index, spread["min"], spread["max"], color=line.style["color"], alpha=0.15, linewidth=0
            )


def _draw_bars(axes: Axes, panel: Panel, line: _Line, x: str, places: Mapping[Any, float], aside_points: float) -> None:
    """Draws the intervals of the predictions of a line, a little aside, so that those of several lines are apart."""
    if (bars := prediction_bars(panel, line.rows, x, places)) is None:
        return
    figure = axes.get_figure(root=True)
    assert figure is not None, "panels are drawn in a figure"
    aside = ScaledTranslation(aside_points / 72, 0.0, figure.dpi_scale_trans)
    axes.errorbar(
        bars.index, bars["mean"], yerr=[bars["mean"] - bars["low"], bars["high"] - bars["mean"]], fmt="none",
        ecolor=line.style["color"], elinewidth=1.0, capsize=2.0, alpha=0.7, zorder=2, transform=axes.transData + aside,
    )  # fmt: skip


def prediction_bars(panel: Panel, rows: pd.DataFrame, x: str, places: Mapping[Any, float]) -> pd.DataFrame | None:
    """Returns the intervals of the predictions of a line, in the panel's unit: ``low``, ``mean``, ``high`` by place.

    Args:
        panel: the panel.
        rows: the rows of the line.
        x: the column of the horizontal axis.
        places: the position of each value on the axis.

    Returns:
        None if there are none. Points of which a seed lacks the figure are left out.
    """
    if panel.interval is None:
        return None
    columns = {"low": f"{panel.interval}_low", "mean": panel.column, "high": f"{panel.interval}_high"}
    groups = rows.groupby(x, sort=False, dropna=False)[list(columns.values())]
    whole = groups.count().eq(groups.size(), axis=0)
    means = groups.mean().where(whole).astype(float).mul(panel.factor)
    means.columns = pd.Index(columns)
    means.index = pd.Index([places[value] for value in means.index])
    found = means.sort_index().dropna()
    return found if len(found) else None


def _dress(axes: Axes, panel: Panel, table: Table, places: Mapping[Any, float]) -> None:
    axes.set_title(title_of(panel, table), loc="left", fontsize=11, color=INK)
    axes.set_ylabel(panel.unit, color=INK, fontsize=9)
    names = short_names(table.paths)
    axes.set_xlabel(table.x if table.x == "workers" else names[table.x], color=INK, fontsize=9)
    _x_axis(axes, places)
    if panel.ideal is not None:
        ends = [value for value in places.values() if value >= min(places.values())]
        axes.plot(ends, [panel.ideal(end / ends[0]) for end in ends], color=FAINT, linewidth=1.2, zorder=1)
    _y_axis(axes, panel)
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.tick_params(colors=INK, labelsize=8.5)


def _x_axis(axes: Axes, places: Mapping[Any, float]) -> None:
    texts = {at: f"{value:,g}" if value == at else brief(value) for value, at in places.items()}
    ticks = sorted(texts)
    if ticks[0] > 0 and ticks[-1] >= WIDE_RATIO * ticks[0] and all(value == at for value, at in places.items()):
        axes.set_xscale("log", base=2)
    if len(ticks) > MOST_TICKS:
        ticks = ticks[:: -(-len(ticks) // MOST_TICKS)]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda at, _: texts.get(at, "")))
    if max(map(len, texts.values())) * len(ticks) > 70:
        axes.tick_params(axis="x", rotation=20)


def _y_axis(axes: Axes, panel: Panel) -> None:
    drawn = axes.dataLim  # bands count as well as lines
    low, high = (drawn.y0, drawn.y1) if axes.lines else (0.0, 1.0)
    if panel.scale == "log" and low > 0 and high >= WIDE_RATIO * low:
        if panel.ideal:
            axes.set_yscale("log", base=2)
        else:
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(PLAIN)
        axes.yaxis.set_minor_locator(NullLocator())
        return
    if panel.scale == "steps" and high > MANY:
        axes.set_yscale("symlog", base=2, linthresh=1)
    else:
        axes.yaxis.set_major_locator(MaxNLocator(steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(PLAIN)
    if panel.scale == "share":
        axes.yaxis.set_major_formatter(PER_CENT)
        high = max(high, 1.0 if panel.ideal else 0.05)
    axes.set_ylim(0.0, 1.08 * high if high else 1.0)


def bar_label(share: float) -> str:
    """Returns the entry of the legend for intervals of predictions.

    >>> bar_label(0.8)
    'bar: 80 % of similar predictions'
    """
    return f"bar: {100 * share:.0f} % of similar predictions"


def _legend(figure: Figure, lines: Sequence[_Line], ideal: bool, *, early: bool, share: float | None) -> None:
    algorithms = {line.algorithm: {**line.style, "linestyle": STYLES[0]} for line in lines}
    combinations = {line.values: {"color": INK, "linestyle": line.style["linestyle"]} for line in lines if line.values}
    handles = [
        Line2D([], [], linewidth=1.7, markersize=5, label=name, **style)
        for name, style in [*algorithms.items(), *(combinations if len(combinations) > 1 else {}).items()]
    ]
    if ideal:
        handles.append(Line2D([], [], color=FAINT, linewidth=1.2, label="ideal"))
    if early:
        hollow = {"color": INK, "marker": "o", "markerfacecolor": "white", "markersize": 5, "linestyle": "none"}
        handles.append(Line2D([], [], **hollow, label="ended before a whole period"))  # type: ignore[arg-type]
    if share is not None:
        bar = {"color": INK, "marker": "|", "markersize": 11, "linestyle": "none"}
        handles.append(Line2D([], [], **bar, label=bar_label(share)))  # type: ignore[arg-type]
    figure.legend(
        handles=handles, loc="outside lower left", ncols=4, frameon=False, fontsize=9, labelcolor=INK, handlelength=3.2
    )
