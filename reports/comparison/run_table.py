"""Printed tables of comparisons and runs.

Rules of this file:

* The figures come from `prediction_errors`; only minima and maxima are computed here.
* Each table has one row per algorithm and fits in 80 columns; units are in the headers, errors are in per cent.
* "Without messages" and "without spread" are the errors of predictions that leave these out, "α–β model" that of
  `alpha_beta`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from paceline.records import Run
from paceline.records.figures import significant
from paceline.reports.comparison.compare import Comparison
from paceline.reports.comparison.periods import marked
from paceline.reports.comparison.predict import PARTIAL_MODELS, WRONG_MODELS
from paceline.reports.comparison.prediction_errors import figure_at, number
from paceline.reports.comparison.seeds import by_algorithm, figures
from paceline.reports.comparison.time_to_target import aim_of
from paceline.reports.comparison.words import (
    MISSING,
    between,
    kind_of,
    milli,
    per_cent,
    plain,
    seconds,
    shown,
    signed,
    worst,
)
from paceline.reports.plain_table import plain_table

SIMPLER = ("without\nmessages\n%", "without\nspread\n%", "α–β\nmodel\n%")
"""headers of the errors of the simpler models"""


def comparison_tables(comparison: Comparison) -> list[Table]:
    """Returns tables of step time, staleness and learning: predicted, measured, and the errors of simpler models.

    Times to a target have a table only if the scenario has a target, and accuracies if the problem has an accuracy.
    """
    tables = [step_table(comparison), staleness_table(comparison)]
    if (aim := comparison.aim) is not None:
        tables.append(_both_sides(comparison, f"Time to {aim.words}", "s", seconds, aim.path))
    if comparison.has_accuracy:
        tables.append(accuracy_table(comparison))
    return tables


def step_table(comparison: Comparison) -> Table:
    """Returns the table of mean times between a worker's successive gradients."""
    return _both_sides(comparison, f"Step time ({comparison.measured_kind})", "ms", milli, "step_s.mean")


def _both_sides(comparison: Comparison, title: str, symbol: str, unit: Callable[[float], str], path: str) -> Table:
    """Returns the table of a figure: simulated, measured, our error and the errors of the simpler models."""
    table = plain_table(title)
    for header in (f"simulated\n{symbol}", f"measured\n{symbol}", "error\n%", *SIMPLER):
        table.add_column(header, justify="right")
    for line in comparison.lines:
        table.add_row(
            line.name,
            shown(figure_at(line.simulated, path), unit),
            shown(figure_at(line.measured, path), unit),
            error_text(figure_at(line.error, path)),
            *(wrong_text(figure_at(line.wrong_models[model], path)) for model in WRONG_MODELS),
        )
    return table


def accuracy_table(comparison: Comparison) -> Table:
    """Returns the table of final accuracies; the error is a difference in percentage points."""
    table = plain_table("Accuracy at the end")
    for header in ("simulated\n%", "measured\n%", "difference\npoints"):
        table.add_column(header, justify="right")
    for line in comparison.lines:
        table.add_row(
            line.name,
            shown(line.simulated["final_accuracy"], per_cent),
            shown(line.measured["final_accuracy"], per_cent),
            error_text(line.error["final_accuracy"]),
        )
    return table


def staleness_table(comparison: Comparison) -> Table:
    """Returns the table of the ranks' mean staleness, with the total-variation distance of the distributions."""
    table = plain_table("Staleness (mean of ranks; distance: total variation, 0 … 1)")
    for header in ("simulated", "measured", "worst\nrank\n%", "distance", "without\nmessages", "without\nspread"):
        table.add_column(header, justify="right")
    for line in comparison.lines:
        farthest = worst([number(mean) for _, mean in line.error["staleness"]["by_rank"]])
        table.add_row(
            line.name,
            shown(line.simulated["staleness"]["mean_of_ranks"], plain),
            shown(line.measured["staleness"]["mean_of_ranks"], plain),
            error_text(farthest),
            shown(line.error["staleness_tv"], plain),
            *(
                Text(shown(number(line.wrong_models[model]["staleness_tv"]), plain), style="dim")
                for model in PARTIAL_MODELS
            ),
        )
    return table


def runs_table(runs: Sequence[Run]) -> Table:
    """Returns a table with a row per run, of learning or of time, for commands that only simulate or only train."""
    table = _headed(runs, "Runs", ["seed"])
    for run in runs:
        table.add_row(*_run_row(run))
    return table


def seeds_table(runs: Sequence[Run]) -> Table:
    """Returns a table with a row per algorithm: means over seeds and, below them, half of the 95 % intervals."""
    named = by_algorithm(runs)
    table = _headed(runs, _means(max(map(len, named.values()))), [])
    for mine in named.values():
        table.add_row(*_seeds_row(mine))
    return table


class Rows:
    """The table of runs, or of means over seeds, printed row by row for commands that take minutes.

    Columns are as wide as figures of the usual size and the longest name; a longer figure shifts only its own row.

    Args:
        names: names of the algorithms, for the width of the first column.
        seeds: number of runs of each algorithm, which follow each other.
        each: whether each run has a row; else each algorithm has one.
    """

    def __init__(self, names: Sequence[str], seeds: int, *, each: bool) -> None:
        self._seeds, self._each = seeds, each
        self._width = max(map(len, (*names, "algorithm"))) if each else NAME
        self._waiting: list[Run] = []
        self._begun = False

    def add(self, run: Run) -> Table | None:
        """Adds a run and returns what can be printed now: its row, with the header if it is the first one."""
        self._waiting.append(run)
        if not self._each and len(self._waiting) < self._seeds:
            return None
        title, first = ("Runs", ["seed"]) if self._each else (_means(self._seeds), [])
        table = _headed(self._waiting, title, first)
        widths = WIDE if any("prediction_interval" in run.summary for run in self._waiting) else WIDTHS
        for column, width in zip(table.columns, [self._width, *widths[-len(table.columns) + 1 :]], strict=True):
            column.min_width = width
        table.show_edge = False
        if self._begun:
            table.title, table.show_header = None, False
        table.add_row(*(_run_row(run) if self._each else _seeds_row(self._waiting)))
        self._waiting, self._begun = [], True
        return table


def _means(seeds: int) -> str:
    return f"Means over {seeds} seeds"


def _headed(runs: Sequence[Run], title: str, first: Sequence[str]) -> Table:
    """Returns the table without rows."""
    learned = (f"learning of {of}" for run in runs if (of := run.summary.get("stand_in")))
    table = plain_table(f"{title}: " + "; ".join(dict.fromkeys([*(kind_of(run.summary) for run in runs), *learned])))
    last = ("target\ns", "accu-\nracy %", "loss") if _learns(runs) else ("samples\n/s", "comm.\n%", "wait\n%")
    for header in (*first, "wall\ns", "up-\ndates", "step\nms", "stale-\nness", *last):
        table.add_column(header, justify="right", no_wrap=True)  # a number must not be cut
    return table


def _learns(runs: Sequence[Run]) -> bool:
    return any(run.summary["final_loss"] is not None or run.summary["diverged"] for run in runs)


def _run_row(run: Run) -> list[str]:
    outcome = _learned if _learns([run]) else _spent
    return [marked(run.algorithm, run.summary), str(run.seed), *_ran(run.summary), *outcome(run.summary)]


def _seeds_row(runs: Sequence[Run]) -> list[str]:
    """Returns the row of one algorithm."""
    found = figures([dict(run.summary) for run in runs])
    outcome = _learned if _learns(runs) else _spent
    cells = [*_ran(found["summary"]), *outcome(found["summary"])]
    aim = aim_of(found["summary"])
    if outcome is _learned and aim is not None and found["reached"][aim.kind] < len(runs):
        cells[TARGET] = f"{found['reached'][aim.kind]} of {len(runs)}"
    return [textwrap.fill(marked(runs[0].algorithm, found["summary"]), NAME), *cells]


WIDTHS = (4, 6, 5, 6, 6, 7, 6, 6)
"""widths of the columns after the name, in characters"""
WIDE = (4, 6, 5, 9, 6, 7, 5, 5)
"""the same where step times have an interval"""
WIDEST = 9
"""characters of an interval on one line, so that the table fits on 80 columns"""
NAME = 20
"""characters of a name per line, if figures have two lines"""
TARGET = 4
"""position of the time to the target in a row, after the names"""


def _ran(summary: Mapping[str, Any]) -> list[str]:
    return [
        _cell(summary["wall_s"], seconds),
        _cell(summary["updates"], lambda count: f"{count:.0f}"),
        _cell(summary["step_s"]["mean"], milli) + _below(summary, "step_s", 1e3),
        _cell(summary["staleness"]["mean"], plain),
    ]


def _learned(summary: Mapping[str, Any]) -> list[str]:
    aim = aim_of(summary)
    return [
        _cell(None if aim is None else summary[aim.path], seconds) + ("" if aim is None else _below(summary, aim.path)),
        _cell(summary["final_accuracy"], per_cent),
        "diverged" if summary["diverged"] else _cell(summary["final_loss"], lambda loss: significant(loss, 4)),
    ]


def _spent(summary: Mapping[str, Any]) -> list[str]:
    shares = (_cell(summary["time_fraction"][activity], per_cent) for activity in ("communication", "wait"))
    return [_cell(summary["samples_per_s"], lambda rate: f"{rate:,.0f}" if rate >= 10 else significant(rate)), *shares]


def _cell(figure: Any, unit: Callable[[float], str]) -> str:
    """Formats a figure with half of its interval below it, so that many columns fit."""
    return shown(figure, unit, between="\n")


def _below(summary: Mapping[str, Any], name: str, factor: float = 1.0) -> str:
    """Returns a further line of a cell: the interval of similar predictions, if the figure has one."""
    bounds = summary.get("prediction_interval", {}).get(name)
    if bounds is None:
        return ""
    ends = between(bounds, factor)
    return "\n" + (ends if len(ends) <= WIDEST else ends.replace("–", "–\n"))


def error_text(figure: Any) -> Text:
    """Formats our own error, coloured by size: within 5 %, within 15 %, beyond.

    With several seeds, half of the interval of the seeds' own errors is below it.
    """
    value = number(figure)
    if value is None:
        return Text(MISSING)
    style = "green" if abs(value) <= 0.05 else "yellow" if abs(value) <= 0.15 else "red"
    half = f"\n±{50 * (figure['high'] - figure['low']):.1f}" if isinstance(figure, Mapping) else ""
    return Text(signed(value) + half, style=style)


def wrong_text(figure: Any) -> Text:
    """Formats the error of a simpler model."""
    value = number(figure)
    return Text(MISSING if value is None else signed(value), style="dim")
