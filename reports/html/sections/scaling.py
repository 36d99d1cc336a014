"""The sections of a sweep: conclusions, curves with crossing points, and the table of points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from paceline.records.figures import significant
from paceline.reports.comparison.words import listed
from paceline.reports.html.charts.scaling import scaling_chart
from paceline.reports.html.grids import grid_of
from paceline.reports.html.report_parts import Chart, Grid, Section
from paceline.reports.html.sections.summary import terms
from paceline.reports.sweeps.crossings import Crossing, crossings
from paceline.reports.sweeps.sweep_figure import PANELS, WITHOUT_SIZES, Panel, title_of
from paceline.reports.sweeps.sweep_table import Table, label, short_names
from paceline.reports.sweeps.sweep_words import sweep_table, sweep_words

MEANING = {
    "speed_up": "A line along the ideal means that twice as many workers process twice as many samples.",
    "efficiency": "The speed-up per worker: below 50 %, half of the workers are wasted.",
    "samples_per_s": "Training samples per second of all workers together, whatever they learn from them.",
    "step_s_mean": "The time from the start of a worker's gradient to that of its next one.",
    "staleness_mean": "How many changes of the weights a gradient misses on average; more may slow learning down.",
    "time_fraction_communication": "The part of the workers' time that messages take and computing does not hide.",
    "time_fraction_wait": "The part of the workers' time in which they wait for others.",
    "time_to_accuracy_s": "Both speed and learning count here: the method with the lowest line is the best choice.",
    "speed_up_to_accuracy": "How much sooner the target is reached than on the smallest cluster.",
    "time_to_loss_s": "Both speed and learning count here: the method with the lowest line is the best choice.",
    "speed_up_to_loss": "How much sooner the target is reached than on the smallest cluster.",
    "cost_usd": "The price of the cluster for the whole run.",
    "cost_to_accuracy_usd": "The price of the cluster until the target is reached.",
    "cost_to_loss_usd": "The price of the cluster until the target is reached.",
}
"""what the figure of a panel says, by its column"""


def sweep_summary_section(table: Table) -> Section:
    """Returns the first section of a sweep.

    Args:
        table: the table of the sweep.
    """
    names = list(dict.fromkeys(map(str, table.frame["algorithm"])))
    axes = listed([short_names(table.paths)[path] for path in table.paths])
    seeds = table.frame["seed"].nunique()
    scaling = {"strong": ", with the same total batch", "weak": ", with the same batch per worker"}
    return Section(
        id="summary",
        title="Summary",
        words=[
            (
                f"This report shows {len(table.whole)} simulated runs of {listed(names)} for the scenario "
                f"{table.scenario}: a sweep over {axes}{scaling.get(table.scaling or '', '')}, with {seeds} "
                f"seed{'s' * (seeds > 1)} each."
            ),
            *sweep_words(table).splitlines(),
        ],
        parts=[grid_of(sweep_table(table), words="± is half of the 95 % interval over seeds."), terms()],
    )


def scaling_section(table: Table) -> Section:
    """Returns the curves and crossing points.

    Args:
        table: the table of the sweep.
    """
    found = crossings(table)
    panels = [
        panel
        for panel in PANELS
        if panel.column in table.frame
        and table.frame[panel.column].notna().any()
        and not (table.sizes and panel.column in WITHOUT_SIZES)
    ]
    charts = [_chart(table, panel, [one for one in found if one.figure == panel.column]) for panel in panels]
    return Section(
        id="scaling",
        title="Scaling" if table.sizes else "Figures",
        words=["Lines are means over seeds; bands reach from the lowest to the highest seed."],
        parts=[*charts, *([_grid(table, found)] if found else [])],
    )


def _chart(table: Table, panel: Panel, found: Sequence[Crossing]) -> Chart:
    shown = sorted(found, key=lambda one: not one.leads)[:4]
    mean = table.frame.groupby("algorithm", sort=False)[panel.column].mean().dropna()
    values = listed([f"{name} {significant(value * panel.factor, 4)}" for name, value in mean.items()])
    crossed = listed([f"{one.after} passes {one.before} at {significant(one.at)}" for one in shown])
    words = MEANING.get(panel.column, "")
    if shown:
        words += " Vertical dashed lines are where the order of two methods changes."
    return Chart(
        title=f"{title_of(panel, table)} by {_axis_name(table)}",
        words=words,
        alt=f"Line chart. Means over all points, in {panel.unit}: {values}. {crossed}".strip(),
        variants={"": scaling_chart(table, panel, shown)},
        height=400,
    )


def _axis_name(table: Table) -> str:
    return "number of workers" if table.x == "workers" else short_names(table.paths)[table.x]


def _grid(table: Table, found: Sequence[Crossing]) -> Grid:
    names = {"samples_per_s": "samples/s", "time_to_accuracy_s": "time to accuracy", "time_to_loss_s": "time to loss"}
    rows = []
    for one in found:
        ends = one.answer()["interval"]
        span = (
            "too few seeds"
            if ends is None
            else " to ".join("beyond" if end is None else significant(end) for end in ends.values())
        )
        rows.append(
            [names[one.figure], one.before, one.after, significant(one.at), span, label(one.values, table.others)]
        )
    columns = ["figure", "better below", "better above", _axis_name(table), "95 % interval", "other values"]
    return Grid(title="Where the order of two methods changes", columns=columns, rows=rows, numeric=frozenset({3}))


def points_section(table: Table) -> Section:
    """Returns the table of all runs, and the failures.

    Args:
        table: the table of the sweep.
    """
    columns = [*table.paths, "algorithm", "seed", "workers", "samples_per_s", "step_s_mean", "staleness_mean", "wall_s"]
    columns += [
        name
        for name in ("time_to_accuracy_s", "time_to_loss_s", "final_accuracy", "final_loss")
        if table.frame[name].notna().any()
    ]
    rows = [
        ["–" if pd.isna(value) else _cell(name, value) for name, value in zip(columns, row, strict=True)]
        for row in table.frame[columns].head(MOST_ROWS).astype(object).itertuples(index=False)
    ]
    short = short_names(table.paths)
    left = len(table.frame) - len(rows)
    words = f"{left:,} more rows are in sweep.csv." if left else ""
    parts = [
        Grid(
            title="All runs",
            columns=[short.get(name, HEADERS.get(name, name)) for name in columns],
            rows=rows,
            words=words,
            numeric=frozenset(range(len(table.paths) + 1, len(columns))),
        )
    ]
    if len(table.failed):
        failed = [
            [*map(str, (row[name] for name in [*table.paths, "algorithm", "seed", "error"]))]
            for _, row in table.failed.iterrows()
        ]
        parts.append(
            Grid(
                title="Failed runs",
                columns=[*(short[path] for path in table.paths), "algorithm", "seed", "error"],
                rows=failed,
            )
        )
    return Section(id="points", title="Points", parts=parts)


HEADERS = {
    "samples_per_s": "samples/s",
    "step_s_mean": "step, ms",
    "staleness_mean": "staleness",
    "wall_s": "time, s",
    "time_to_accuracy_s": "time to accuracy, s",
    "time_to_loss_s": "time to loss, s",
    "final_accuracy": "accuracy, %",
    "final_loss": "loss",
}
"""headers of columns"""
MOST_ROWS = 500
"""rows of the table of all runs; provenance: ours"""


def _cell(name: str, value: Any) -> str:
    """Formats a value in the unit of its header.

    >>> _cell("samples_per_s", 13070.4), _cell("step_s_mean", 0.0448), _cell("final_accuracy", 0.9), _cell("seed", 2)
    ('13,070', '44.8', '90.0', '2')
    """
    if not isinstance(value, float):
        return str(value)
    if name == "final_accuracy":
        return f"{100 * value:.1f}"
    scaled = 1e3 * value if name == "step_s_mean" else value
    return significant(scaled, 4)
