"""The answer of a sweep: the table of means over seeds, conclusions, a chart of each figure, and all runs.

* Charts are drawn against the number of workers if it varies, with the ideal beside speed-up and efficiency, and
  otherwise against the first varied path. Lines are means over seeds; the band around them is from the minimum to the
  maximum.
* Error bars are the intervals of predictions on devices of the catalogue, means over seeds. Ratios of two predictions
  (speed-up, efficiency) have none, because the errors of one device cancel in them.
* Points that ended before their method's longest period had passed once have a ring around them.
* Up to `STYLES` combinations of other values share a plot; of more, the reader chooses one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from paceline.records.figures import (
    BYTES_PER_STEP,
    COMMUNICATION,
    COST,
    COST_TO_ACCURACY,
    COST_TO_LOSS,
    EFFICIENCY,
    ENERGY,
    FINAL_ACCURACY,
    FINAL_LOSS,
    PERIODS,
    PLAIN,
    SPEED_UP,
    SPEED_UP_TO_ACCURACY,
    SPEED_UP_TO_LOSS,
    STALENESS,
    STEP_TIME,
    THROUGHPUT,
    TIME_TO_ACCURACY,
    TIME_TO_LOSS,
    WAITING,
    WALL_TIME,
    Figure,
    significant,
)
from paceline.records.step_errors import sentence
from paceline.reports.blocks import Answer, Axis, Chart, Claim, Column, Plot, ReportSection, Series, Table, TableCell
from paceline.reports.comparison.ranking import MARK
from paceline.reports.sweeps.crossings import LineCrossing, crossings
from paceline.reports.sweeps.sweep import SweepResult
from paceline.reports.sweeps.sweep_table import BOUNDS, SweepTable, brief, label, short_names, value_of
from paceline.reports.sweeps.sweep_words import sweep_words
from paceline.reports.words import listed

SHOWN = (
    THROUGHPUT, SPEED_UP, EFFICIENCY, STEP_TIME, COMMUNICATION, WAITING, BYTES_PER_STEP, STALENESS, TIME_TO_ACCURACY,
    TIME_TO_LOSS,
)  # fmt: skip
"""the figures of the table"""
DRAWN = (
    SPEED_UP, EFFICIENCY, THROUGHPUT, STEP_TIME, STALENESS, COMMUNICATION, WAITING, TIME_TO_ACCURACY,
    SPEED_UP_TO_ACCURACY, TIME_TO_LOSS, SPEED_UP_TO_LOSS, COST, COST_TO_ACCURACY, COST_TO_LOSS, ENERGY,
)  # fmt: skip
"""the figures that have a chart"""
OF_EACH_RUN = (THROUGHPUT, STEP_TIME, STALENESS, WALL_TIME, TIME_TO_ACCURACY, TIME_TO_LOSS, FINAL_ACCURACY, FINAL_LOSS)
"""the figures of the table of all runs"""
SPEED_UPS = (SPEED_UP, SPEED_UP_TO_ACCURACY, SPEED_UP_TO_LOSS)
"""the figures whose ideal value is the number of workers over the fewest workers; that of the efficiency is 1"""
STYLES = ("solid", "dashed", "dotted")
WIDE_RATIO = 4
"""ratio of largest to smallest number above which an axis is logarithmic"""
MOST_TICKS = 12
MOST_MARKED = 4
"""crossings that are marked in a chart; the table has all of them"""
MOST_PICTURES = 12
"""largest number of pictures of one sweep; the report and the table have all values"""
MOST_ROWS = 500
"""rows of the table of all runs; provenance: ours"""
VALUE_DIGITS = 12
"""significant digits of a varied number, which is shown as it was given"""


def sweep_answer(table: SweepTable, sweep: SweepResult | None = None) -> Answer:
    """Returns the answer of a sweep.

    Args:
        table: its table.
        sweep: its runs, for the JSON document; None: there is no document.
    """
    names = list(dict.fromkeys(map(str, table.frame["algorithm"])))
    return Answer(
        title=f"{table.scenario}: sweep over {listed(list(table.paths))}",
        subtitle=_runs_in_words(table, names),
        blocks=[means_table(table), *map(Claim, sweep_words(table)), *_published_errors(sweep)],
        data=lambda: {} if sweep is None else sweep_document(sweep, table),
        sections=lambda: [_figures_section(table), _runs_section(table)],
    )


def _published_errors(sweep: SweepResult | None) -> list[Claim]:
    """Returns the errors of the published steps that are similar to those of the runs, each once."""
    entries = () if sweep is None else sweep.entries
    texts = [sentence(error) for entry in entries for error in entry.summary.get("published_errors", ())]
    return [Claim(text) for text in dict.fromkeys(texts)]


def sweep_document(sweep: SweepResult, table: SweepTable) -> dict[str, Any]:
    """Returns the JSON document of ``paceline sweep``: the runs, and where the order of algorithms changes.

    Args:
        sweep: the runs.
        table: their table.
    """
    crossed = [crossing.document() for crossing in crossings(table)]
    return {**sweep.document(), **({"crossings": crossed} if crossed else {})}


def _runs_in_words(table: SweepTable, names: Sequence[str]) -> str:
    count, seeds = len(table.whole), int(table.frame["seed"].nunique())
    axes = listed([short_names(table.paths)[path] for path in table.paths])
    scaling = {"strong": ", with the same total batch", "weak": ", with the same batch per worker"}
    return (
        f"{count} simulated run{'s' * (count > 1)} of {listed(names)} over {axes}"
        f"{scaling.get(table.scaling or '', '')}, with {seeds} seed{'s' * (seeds > 1)} each"
    )


# --- tables ----------------------------------------------------------------------------------------------------------


def means_table(table: SweepTable) -> Table:
    """Returns the means over seeds: a row per algorithm and point, in the order of the lines of charts.

    Args:
        table: the table of the sweep.
    """
    means = table.means()
    figures = [figure for figure in SHOWN if figure.column in means and means[figure.column].notna().any()]
    sent = means.groupby("algorithm")[BYTES_PER_STEP.column].mean() if BYTES_PER_STEP in figures else None
    if table.sizes:  # for a narrow terminal; the files have these figures
        figures = [figure for figure in figures if figure not in (STEP_TIME, BYTES_PER_STEP)]
    elif sent is not None and sent.round(-1).nunique() < 2:
        figures = [figure for figure in figures if figure is not BYTES_PER_STEP]
    one_size = means["workers"].nunique() == 1
    no_size = one_size or any(means[path].tolist() == means["workers"].tolist() for path in table.sizes)
    # of step time and throughput only one has a range, because both say the same
    ranged = {figure for figure in BOUNDS if figure is not THROUGHPUT or STEP_TIME not in figures}
    columns = [Column("algorithm", code="algorithm"), *_path_columns(table)]
    columns += [] if no_size else [Column("workers", PLAIN, VALUE_DIGITS)]
    rows: list[list[Any]] = []
    for _, line in means.groupby([*table.others, "algorithm"], sort=False, dropna=False):
        for row in line.to_dict("records"):
            rows.append([str(row["algorithm"]) + (MARK if row["unfinished"] else ""), *_path_values(row, table)])
            rows[-1] += [] if no_size else [int(row["workers"])]
            rows[-1] += [_cell(row, figure, ranged=figure in ranged) for figure in figures]
    for row in _failed_points(table):
        empty = [None] * (len(figures) + (not no_size))
        rows.append([f"{row['algorithm']}: failed", *_path_values(row, table), *empty])
    several = table.frame["seed"].nunique() > 1
    count = int(means["workers"].iloc[0])
    on = f" on {count} worker{'s' * (count > 1)}" if one_size else ""
    words = ["± is half of the 95 % interval over seeds."] if several else []
    if table.share is not None:
        words.append(f"A range below a figure: {_similar(table.share)}.")
    return Table(
        f"Sweep of {table.scenario}{on}" + (": means over seeds" if several else ""),
        [*columns, *map(Column.of, figures)],
        rows,
        keys=1 + len(table.paths),
        words=" ".join(words),
    )


def _path_columns(table: SweepTable) -> list[Column]:
    """Returns the columns of the varied paths; numbers are shown as they were given."""
    titles = {path: name.replace("_", " ") for path, name in short_names(table.paths).items()}
    return [
        Column(name, PLAIN, VALUE_DIGITS, code=path) if _numeric(table, path) else Column(name, code=path)
        for path, name in titles.items()
    ]


def _path_values(row: Mapping[Any, Any], table: SweepTable) -> list[Any]:
    return [row[path] if _numeric(table, path) else brief(row[path]) for path in table.paths]


def _numeric(table: SweepTable, path: str) -> bool:
    column = table.frame[path]
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)


def _cell(row: Mapping[Any, Any], figure: Figure, *, ranged: bool) -> Any:
    """Returns a mean, with the interval of similar predictions if it is shown."""
    value = value_of(row, figure)
    if not ranged or value is None:
        return value
    low, high = (row.get(end) for end in BOUNDS[figure])
    return value if pd.isna(low) or pd.isna(high) else TableCell(value, low=float(low), high=float(high))


def _similar(share: float) -> str:
    return f"{100 * share:.0f} % of similar predictions"


def _failed_points(table: SweepTable) -> list[dict[Any, Any]]:
    """Returns the points and algorithms of which all seeds failed."""
    groups = table.whole.groupby([*table.paths, "algorithm"], sort=False, dropna=False)["error"]
    failed = groups.agg(lambda errors: bool(errors.notna().all())).reset_index()
    return [row for row in failed.to_dict("records") if row["error"]]


def _runs_section(table: SweepTable) -> ReportSection:
    """Returns the table of all runs, and the failures."""
    figures = [figure for figure in OF_EACH_RUN if table.frame[figure.column].notna().any()]
    names = ["algorithm", "seed", "workers"]
    frame = table.frame.head(MOST_ROWS).astype(object)
    rows = [
        [
            *_path_values(row, table),
            *(row[name] for name in names),
            *(None if pd.isna(row[figure.column]) else row[figure.column] for figure in figures),
        ]
        for row in frame.to_dict("records")
    ]
    left = len(table.frame) - len(rows)
    numbers = [Column(name, PLAIN, VALUE_DIGITS) for name in names[1:]]
    columns = [*_path_columns(table), Column("algorithm"), *numbers, *map(Column.of, figures)]
    words = f"{left:,} more rows are in sweep.csv." if left else ""
    blocks = [Table("All runs", columns, rows, keys=len(table.paths) + 1, words=words)]
    if len(table.failed):
        columns = [*_path_columns(table), Column("algorithm"), Column("seed", PLAIN, VALUE_DIGITS), Column("error")]
        failed = [
            [*_path_values(row, table), row["algorithm"], row["seed"], row["error"]]
            for row in table.failed.to_dict("records")
        ]
        blocks.append(Table("Failed runs", columns, failed, keys=len(table.paths) + 1))
    return ReportSection("points", "Points", blocks)


def _crossings_table(table: SweepTable, crossed: Sequence[LineCrossing]) -> Table:
    columns = [
        Column("figure"), Column("better below"), Column("better above"), Column(_axis_title(table), PLAIN),
        Column("95 % interval"), Column("other values"),
    ]  # fmt: skip
    rows = []
    for crossing in crossed:
        ends = crossing.document()["interval"]
        span = "too few seeds" if ends is None else " to ".join(_end(end) for end in ends.values())
        values = label(crossing.values, table.others)
        rows.append([crossing.figure.label, crossing.before, crossing.after, crossing.at, span, values])
    return Table("Where the order of two methods changes", columns, rows)


def _end(end: float | None) -> str:
    return "beyond" if end is None else significant(end)


# --- charts ----------------------------------------------------------------------------------------------------------


def _figures_section(table: SweepTable) -> ReportSection:
    """Returns the charts of all figures, and the table of crossings."""
    crossed = crossings(table)
    words = Claim("Lines are means over seeds; bands reach from the lowest to the highest seed.")
    tables = [_crossings_table(table, crossed)] if crossed else []
    title = "Scaling" if table.sizes else "Figures"
    return ReportSection("scaling", title, [words, *charts(table), *tables])


def parts(table: SweepTable) -> list[tuple[str, pd.DataFrame]]:
    """Returns the rows that share a plot, with the values of other paths that are constant in them.

    Args:
        table: the table of the sweep.
    """
    frame, others = table.frame, table.others
    if table.combinations(frame) <= len(STYLES):
        return [("", frame)]
    fixed = others[:-1] if frame[others[-1]].nunique(dropna=False) <= len(STYLES) else others
    groups = frame.groupby(list(fixed), sort=False, dropna=False)
    return [(label(dict(rows.iloc[0]), fixed), rows) for _, rows in groups]


def charts(table: SweepTable, rows: pd.DataFrame | None = None) -> list[Chart]:
    """Returns a chart of each figure that is known.

    Args:
        table: the table of the sweep.
        rows: the rows to draw, in one plot for each figure; None: all rows, in as many plots as `parts`.
    """
    line_crossings = crossings(table)
    shown = parts(table) if rows is None else [("", rows)]
    figures = [figure for figure in DRAWN if figure.column in table.frame and table.frame[figure.column].notna().any()]
    if table.sizes:  # speed-up says more
        figures = [figure for figure in figures if figure is not STEP_TIME]
    made = []
    for figure in figures:
        marked = sorted(
            (crossing for crossing in line_crossings if crossing.figure is figure),
            key=lambda crossing: not crossing.leads,
        )
        plots = {name: plot for name, part in shown if (plot := _plot(table, figure, part, marked)) is not None}
        if not plots:
            continue
        means = table.frame.groupby("algorithm", sort=False)[figure.column].mean().dropna()
        values = listed([f"{name} {figure.with_symbol(float(value))}" for name, value in means.items()])
        crossed = [
            f"{crossing.after} passes {crossing.before} at {significant(crossing.at)}"
            for crossing in marked[:MOST_MARKED]
        ]
        words = figure.meaning
        if marked and _numeric(table, table.x):
            words += " Vertical dashed lines are where the order of two methods changes."
        made.append(
            Chart(
                title=f"{_title(table, figure)} by {_axis_title(table)}",
                words=words,
                alt=f"Line chart. Means over all points: {values}. {listed(crossed)}".strip(),
                plots=plots,
                choice="Other values" if len(plots) > 1 else "",
            )
        )
    return made


def save_pictures(table: SweepTable, folder: Path) -> tuple[list[Path], int]:
    """Writes ``sweep.png``, or for many other values ``sweep-1.png`` and so on, each with some of these values.

    Args:
        table: the table of the sweep.
        folder: the folder for the pictures.

    Returns:
        The written files, and how many there would be without a limit.
    """
    from paceline.reports.png import save

    wanted, paths = parts(table), []
    for number, (name, rows) in enumerate(wanted[:MOST_PICTURES], start=1):
        path = folder / ("sweep.png" if len(wanted) == 1 else f"sweep-{number}.png")
        save(charts(table, rows), path, title=f"{table.scenario} with {name}" if name else table.scenario)
        paths.append(path)
    return paths, len(wanted)


def _title(table: SweepTable, figure: Figure) -> str:
    """Returns the name of a figure, with the target in words if it is at the target."""
    aim = table.target
    name = figure.label if aim is None else figure.label.replace(f"the target {aim.kind}", aim.words)
    return name[0].upper() + name[1:]


def _axis_title(table: SweepTable) -> str:
    return "number of workers" if table.x == "workers" else short_names(table.paths)[table.x]


def _plot(table: SweepTable, figure: Figure, rows: pd.DataFrame, marked: Sequence[LineCrossing]) -> Plot | None:
    """Returns the lines of algorithms and other values, the ideal and the crossings; None if no line has a point."""
    numeric = _numeric(table, table.x)
    names = list(dict.fromkeys(map(str, table.frame["algorithm"])))
    varied = [path for path in table.others if rows[path].nunique(dropna=False) > 1]
    combinations: list[str] = []
    series: list[Series] = []
    for _, line in rows.groupby([*varied, "algorithm"], sort=False, dropna=False):
        values = label(dict(line.iloc[0]), varied)
        combinations += [values] * (values not in combinations)
        style = STYLES[combinations.index(values) % len(STYLES)]
        series += _line(table, figure, line, values, style)
    every = [
        value for line in series for value in (*line.y, *(line.low or ()), *(line.high or ())) if value is not None
    ]
    if not every:
        return None
    if figure in (*SPEED_UPS, EFFICIENCY) and numeric:
        x = sorted({float(value) for value in rows[table.x]})
        ideal = [value / x[0] if figure in SPEED_UPS else 1.0 for value in x]
        series.append(Series("ideal", x, ideal, colour="faint", style="dotted"))
    fixed = {path: rows.iloc[0][path] for path in table.others if path not in varied}
    marked = [crossing for crossing in marked if all(crossing.values[path] == fixed[path] for path in fixed)]
    for crossing in marked[:MOST_MARKED] if numeric else ():
        values = label(crossing.values, table.others)
        better = f"from {significant(crossing.at)} on, {crossing.after} is better than {crossing.before}"
        name, ends = better + (f" ({values})" if values else ""), [min(every), max(every)]
        series.append(Series(name, [crossing.at] * 2, ends, colour="faint", style="dashed"))
    return Plot(_x_axis(table), Axis.of(figure, _scale(figure, every)), series, colours=names)


def _line(table: SweepTable, figure: Figure, rows: pd.DataFrame, values: str, style: Any) -> Iterator[Series]:
    """Yields the line of an algorithm at one combination of other values, its error bars and its hollow points."""
    name = str(rows["algorithm"].iloc[0])
    numeric = _numeric(table, table.x)
    groups = rows.groupby(table.x, sort=numeric, dropna=False)
    known = groups[figure.column].agg(["min", "mean", "max"]).astype(float)
    known = known[groups[figure.column].count() == groups.size()]
    if known.empty:
        return
    x = [float(value) if numeric else brief(value) for value in known.index]
    spread = bool((known["max"] > known["min"]).any())
    yield Series(
        f"{name}, {values}" if values else name,
        x,
        known["mean"].tolist(),
        colour=name,
        low=known["min"].tolist() if spread else None,
        high=known["max"].tolist() if spread else None,
        style=style,
        symbol=values or name,
    )
    early = groups[PERIODS.column].min().reindex(known.index) < 1
    if early.any():
        y = [value if is_early else None for value, is_early in zip(known["mean"], early, strict=True)]
        yield Series("ended before a whole period", x, y, mark="points", colour=name, style="broad")
    if figure in BOUNDS and table.share is not None:
        low, high = (groups[end].mean().reindex(known.index).astype(float) for end in BOUNDS[figure])
        if low.notna().any():
            low_ends, high_ends = ([None if pd.isna(value) else value for value in end] for end in (low, high))
            bar = f"bar: {_similar(table.share)}"
            y = [None if end is None else value for value, end in zip(known["mean"], low_ends, strict=True)]
            yield Series(bar, x, y, mark="points", colour=name, low=low_ends, high=high_ends)


def _x_axis(table: SweepTable) -> Axis:
    title = "workers" if table.x == "workers" else short_names(table.paths)[table.x]
    if not _numeric(table, table.x):
        return Axis(title, scale="category", zero=False)
    ticks = sorted({float(value) for value in table.frame[table.x]})
    wide = ticks[0] > 0 and ticks[-1] >= WIDE_RATIO * ticks[0]
    return Axis(title, scale="log" if wide else "linear", zero=False, ticks=ticks if len(ticks) <= MOST_TICKS else None)


def _scale(figure: Figure, values: Sequence[float]) -> Any:
    wide = values and min(values) > 0 and max(values) >= WIDE_RATIO * min(values)
    return "log" if wide and figure.unit.symbol != "%" and figure is not STALENESS else "linear"
