"""Tables of runs and of comparisons.

Without learning, the table of runs shows throughput and shares of time instead of the target and the accuracy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rich.console import RenderableType

from paceline.records import Run
from paceline.records.figures import (
    COMMUNICATION,
    COUNT,
    FINAL_ACCURACY,
    FINAL_LOSS,
    PERCENT,
    PLAIN,
    POINTS,
    STALENESS,
    STALENESS_OF_RANKS,
    STEP_TIME,
    THROUGHPUT,
    UPDATE_COUNT,
    WAITING,
    WALL_TIME,
    Figure,
    number,
)
from paceline.records.prediction_interval import bounds_of
from paceline.reports.blocks import Column, Row, Table, TableCell, Tone
from paceline.reports.comparison.comparison import ComparedLine, ComparisonResult
from paceline.reports.comparison.predict import PARTIAL_MODELS, WRONG_MODELS
from paceline.reports.comparison.ranking import aim_of, by_algorithm, figures, marked
from paceline.reports.text import RowByRow
from paceline.reports.words import kind_of, worst

SIMPLER = {"no_message_cost": "without messages", "no_spread": "without spread", "alpha_beta": "α–β model"}
"""headers of the errors of the simpler models, by their keys in the errors of a comparison"""
NUMBER, RANGE = "0.0000", "00.0–00.0"
"""figures and ranges of the usual width, for the columns of a table that is printed row by row"""
GOOD, FAIR = 0.05, 0.15
"""relative errors up to which a prediction counts as good and as fair; provenance: ours"""


def comparison_tables(comparison: ComparisonResult) -> list[Table]:
    """Returns tables of step time, staleness and learning: predicted, measured, and the errors of simpler models.

    Times to a target have a table only if the scenario has a target, and accuracies if the problem has an accuracy.
    """
    tables = [step_table(comparison), *speed_tables(comparison), staleness_table(comparison)]
    if (aim := comparison.aim) is not None:
        tables.append(_both_sides(comparison, f"Time to {aim.words}", aim.figure))
    if comparison.has_accuracy:
        tables.append(accuracy_table(comparison))
    return tables


def step_table(comparison: ComparisonResult) -> Table:
    """Returns the table of mean times between a worker's successive gradients."""
    return _both_sides(comparison, f"Step time ({comparison.measured_kind})", STEP_TIME)


def speed_tables(comparison: ComparisonResult) -> list[Table]:
    """Returns the table of the part of the errors that the machine's change of speed causes, if it is known."""
    known = [line for line in comparison.lines if line.machine_change is not None and line.corrected is not None]
    rows = [
        (
            line.name,
            TableCell(line.machine_change),
            error_cell(STEP_TIME.of(line.error)),
            error_cell(STEP_TIME.of(line.corrected or {})),
            TableCell(line.within),
        )
        for line in known
    ]
    columns = [
        Column("algorithm"), Column("machine slower", signed=True), Column("error", signed=True),
        Column("error at that speed", signed=True), Column("in interval", PERCENT),
    ]  # fmt: skip
    words = "The machine's speed in the runs, by its speed reference, over that of their calibration."
    return [Table("Step time at the speed of the run", columns, rows, words=words)] if rows else []


def _both_sides(comparison: ComparisonResult, title: str, figure: Figure) -> Table:
    """Returns the table of a figure: simulated, measured, our error and the errors of the simpler models."""
    columns = [
        *_sides(figure), Column("error", signed=True), *(Column(header, signed=True) for header in SIMPLER.values()),
    ]  # fmt: skip
    rows = [
        (
            line.name,
            figure.of(line.simulated),
            figure.of(line.measured),
            *error_cells(line, figure, WRONG_MODELS),
        )
        for line in comparison.lines
    ]
    return Table(title, [Column("algorithm"), *columns], rows)


def _sides(figure: Figure) -> list[Column]:
    """Returns the columns of the simulated and of the measured figure."""
    return [
        Column(side, figure.unit, figure.digits, code=f"{figure.column}_{side}") for side in ("simulated", "measured")
    ]


def accuracy_table(comparison: ComparisonResult) -> Table:
    """Returns the table of final accuracies; the error is a difference in percentage points."""
    rows = [
        (line.name, *map(FINAL_ACCURACY.of, (line.simulated, line.measured)), error_cell(FINAL_ACCURACY.of(line.error)))
        for line in comparison.lines
    ]
    columns = [Column("algorithm"), *_sides(FINAL_ACCURACY), Column("difference", POINTS, signed=True)]
    return Table("Accuracy at the end", columns, rows)


def staleness_table(comparison: ComparisonResult) -> Table:
    """Returns the table of the ranks' mean staleness, with the total-variation distance of the distributions."""
    distances = ("distance", *list(SIMPLER.values())[: len(PARTIAL_MODELS)])
    columns = [
        Column("algorithm"), *_sides(STALENESS_OF_RANKS), Column("worst rank", signed=True),
        *(Column(header, PLAIN) for header in distances),
    ]  # fmt: skip
    rows = []
    for line in comparison.lines:
        farthest = worst([number(mean) for _, mean in line.error["staleness"]["by_rank"]])
        partial = (
            TableCell(number(line.wrong_models[model]["staleness_tv"]), tone="faint") for model in PARTIAL_MODELS
        )
        sides = map(STALENESS_OF_RANKS.of, (line.simulated, line.measured))
        rows.append((line.name, *sides, error_cell(farthest), line.error["staleness_tv"], *partial))
    return Table("Staleness, mean of ranks (distance: total variation, 0 … 1)", columns, rows)


def runs_table(runs: Sequence[Run]) -> Table:
    """Returns a table with a row per run, of learning or of time, for commands that only simulate or only train."""
    return replace(_headed(runs, "Runs", each=True), rows=[_run_row(run) for run in runs])


def seeds_table(runs: Sequence[Run]) -> Table:
    """Returns a table with a row per algorithm: means over seeds and, below them, half of the 95 % intervals."""
    named = by_algorithm(runs)
    headed = _headed(runs, _means(max(map(len, named.values()))), each=False)
    return replace(headed, rows=[_seeds_row(runs_of_one) for runs_of_one in named.values()])


class RunRows:
    """The table of runs, or of means over seeds, printed row by row for commands that take minutes.

    Args:
        names: names of the algorithms, for the width of the first column.
        seeds: number of runs of each algorithm, which follow each other.
        each: whether each run has a row; else each algorithm has one.
        width: characters of a line.
    """

    def __init__(self, names: Sequence[str], seeds: int, *, each: bool, width: int = 80) -> None:
        self._names, self._seeds, self._each, self._width = names, seeds, each, width
        self._waiting: list[Run] = []
        self._printed: RowByRow | None = None

    def add(self, run: Run) -> RenderableType | None:
        """Adds a run and returns what can be printed now: its row, with the header if it is the first one."""
        self._waiting.append(run)
        if not self._each and len(self._waiting) < self._seeds:
            return None
        if self._printed is None:
            headed = _headed(self._waiting, "Runs" if self._each else _means(self._seeds), each=self._each)
            longest = [max(self._names, key=len), "10"][: headed.keys]
            shown = figures_of_runs(run.summary, learns=_learns(self._waiting))
            usual = (TableCell(None, words=RANGE if bounds_of(run.summary, figure) else NUMBER) for figure in shown)
            self._printed = RowByRow(headed, [*longest, *usual], self._width)
        row = _run_row(run) if self._each else _seeds_row(self._waiting)
        self._waiting = []
        return self._printed.add(row)

    @property
    def later(self) -> list[Table]:
        """The columns that did not fit beside the others."""
        return [] if self._printed is None else self._printed.later


def _means(seeds: int) -> str:
    return f"Means over {seeds} seeds"


def _headed(runs: Sequence[Run], title: str, *, each: bool) -> Table:
    """Returns the table without rows, with a column for the seed if `each` run has a row."""
    learned = (f"learning of {of}" for run in runs if (of := run.summary.get("stand_in")))
    kinds = dict.fromkeys([*(kind_of(run.summary) for run in runs), *learned])
    keys = [Column("algorithm"), Column("seed", COUNT)][: 1 + each]
    shown = figures_of_runs(runs[0].summary, learns=_learns(runs))
    return Table(f"{title}: {'; '.join(kinds)}", [*keys, *map(Column.of, shown)], [], keys=len(keys))


def figures_of_runs(summary: Mapping[str, Any], *, learns: bool) -> list[Figure]:
    """Returns the figures that a table of runs shows.

    Args:
        summary: the summary of a run, which decides the target.
        learns: whether a run has an accuracy or a loss.
    """
    both = [WALL_TIME, UPDATE_COUNT, STEP_TIME, STALENESS]
    if not learns:
        return [*both, THROUGHPUT, COMMUNICATION, WAITING]
    aim = aim_of(summary)
    return [*both, *([] if aim is None else [aim.figure]), FINAL_ACCURACY, FINAL_LOSS]


def _learns(runs: Sequence[Run]) -> bool:
    return any(run.summary["final_loss"] is not None or run.summary["diverged"] for run in runs)


def _run_row(run: Run) -> Row:
    return [marked(run.algorithm, run.summary), run.seed, *_cells(run.summary, learns=_learns([run]))]


def _seeds_row(runs: Sequence[Run]) -> Row:
    """Returns the row of one algorithm."""
    combined = figures([dict(run.summary) for run in runs])
    summary, aim = combined["summary"], aim_of(combined["summary"])
    row = _cells(summary, learns=_learns(runs))
    if aim is not None and combined["reached"][aim.kind] < len(runs) and _learns(runs):
        row[figures_of_runs(summary, learns=True).index(aim.figure)] = TableCell(
            None, words=f"{combined['reached'][aim.kind]} of {len(runs)}"
        )
    return [marked(runs[0].algorithm, summary), *row]


def _cells(summary: Mapping[str, Any], *, learns: bool) -> list[Any]:
    """Returns a cell for each figure of a table of runs."""
    return [figure_cell(figure, summary) for figure in figures_of_runs(summary, learns=learns)]


def figure_cell(figure: Figure, summary: Mapping[str, Any]) -> TableCell:
    """Returns the cell of a figure, with the range of similar predictions if the figure has one.

    Args:
        figure: the figure.
        summary: the summary of a run, or of several seeds together.
    """
    if figure is FINAL_LOSS and summary["diverged"]:
        return TableCell(None, words="diverged", tone="bad")
    bounds = bounds_of(summary, figure)
    return (
        TableCell(figure.of(summary))
        if bounds is None
        else TableCell(figure.of(summary), low=bounds["low"], high=bounds["high"])
    )


def error_cells(line: ComparedLine, figure: Figure, models: Iterable[str]) -> Iterator[TableCell]:
    """Yields the cells of our error of a figure, and of those of simpler models.

    Args:
        line: an algorithm.
        figure: the figure.
        models: the keys of the models.
    """
    yield error_cell(figure.of(line.error))
    for model in models:
        yield TableCell(number(figure.of(line.wrong_models.get(model) or {})), tone="faint")


def error_cell(error: Any) -> TableCell:
    """Returns the cell of our own error, whose tone says its size: within 5 %, within 15 %, beyond.

    With several seeds, half of the interval of the seeds' own errors is below it.

    >>> error_cell(0.04).tone, error_cell(-0.1).tone, error_cell(0.2).tone, error_cell(None).tone
    ('good', 'fair', 'bad', 'plain')
    """
    value = number(error)
    if value is None:
        return TableCell(None)
    tone: Tone = "good" if abs(value) <= GOOD else "fair" if abs(value) <= FAIR else "bad"
    return TableCell(error, tone=tone)
