"""The actions of ``paceline sweep``: simulates a grid of scenarios; prints a table, figures and a conclusion."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.algorithms.core.errors import InputError, RunFailed
from paceline.cli.actions import Ask, say_warnings
from paceline.cli.output import Output
from paceline.records.document import to_json

if TYPE_CHECKING:
    from paceline.reports.sweeps.sweep import Sweep
    from paceline.reports.sweeps.sweep_rows import Rows
    from paceline.reports.sweeps.sweep_table import Table
    from paceline.scenarios.resolution.grid import Point

RECORDS = "runs"
"""the folder of the runs' records in the sweep's folder"""
MOST_NAMED = 20
"""largest number of failed runs that are listed; sweep.json has all of them"""


def run(ask: Ask, vary: Sequence[str], output: Output, *, jobs: int | None, keep_runs: bool) -> None:
    """Simulates every point and stores the results in a new folder.

    Args:
        ask: the request.
        vary: the axes of the grid, each ``path=values``.
        output: where the answer is printed.
        jobs: number of parallel processes; None: the number of cores.
        keep_runs: whether the record of each run is stored.

    Raises:
        RunFailed: some runs failed; the others are stored.
    """
    from paceline.scenarios.resolution.grid import grid
    from paceline.scenarios.values.limits import MOST_JOBS

    if jobs is not None and jobs > MOST_JOBS:
        raise InputError(f"--jobs: found {jobs}, expected at most {MOST_JOBS}")
    points = grid(ask.scenario, vary, ask.all_changes(), algorithms=ask.names())
    ask.make_out()
    from paceline.records import store
    from paceline.reports.sweeps.sweep_rows import rows_in

    with store.numbered_folder(ask.out, f"{store.slug(points[0].scenario.name)}-sweep") as folder:
        records = folder.building / RECORDS if keep_runs else None
        with rows_in(folder.building) as rows:
            try:
                swept = _simulate(points, jobs, records, rows, output)
                table, said = _keep(swept, folder.building)
            except (KeyboardInterrupt, OSError) as error:
                folder.keep = rows.succeeded > 0
                _say_rows(error, rows, points, output)
                raise
    _answer(swept, table, output)
    say_warnings((text for entry in swept.entries for text in entry.warnings), output)
    output.note(f"{said} stored in {folder.path}/")
    if swept.failed:
        raise RunFailed(_failures(swept, output))


def _simulate(points: Sequence[Point], jobs: int | None, records: Path | None, rows: Rows, output: Output) -> Sweep:
    """Simulates all runs, and writes the row of each when it ends; raises `RunFailed` if none succeeded."""
    from paceline.reports.sweeps.sweep import run as simulate

    with output.progress() as stage:
        swept = simulate(points, jobs=jobs, records=records, progress=stage("sweeping"), ended=rows.add)
    if not swept.entries:
        raise RunFailed(_failures(swept, output))
    return swept


def _say_rows(error: KeyboardInterrupt | OSError, rows: Rows, points: Sequence[Point], output: Output) -> None:
    """Adds the path of the rows to the error that ended a sweep."""
    count = sum(len(point.scenario.algorithms) * point.scenario.seeds for point in points)
    kept = f"; they are in {rows.path}" if rows.succeeded else ""
    said = f"{rows.ended} of {count} runs had ended{kept}"
    if isinstance(error, KeyboardInterrupt):
        error.add_note(said)
    else:
        output.note(said)


def _keep(swept: Sweep, folder: Path) -> tuple[Table, str]:
    """Writes the table, the figures and the answer; returns the table, and words for what was written."""
    from paceline.reports.sweeps.sweep_figure import save_figures
    from paceline.reports.sweeps.sweep_table import tabulate

    table = tabulate(swept)
    table.save(folder)
    (folder / "sweep.json").write_text(to_json(swept.answer()) + "\n", encoding="utf-8")
    drawn, wanted = save_figures(table, folder)
    if len(drawn) < wanted:
        return table, f"Table, answer and the first {len(drawn)} of {wanted} figures"
    return table, "Table, answer and " + ("figure" if len(drawn) == 1 else "figures")


def _answer(swept: Sweep, table: Table, output: Output) -> None:
    if output.as_json:
        output.answer(swept.answer(), [])
        return
    from paceline.reports.sweeps.sweep_words import sweep_table, sweep_words

    output.answer({}, [sweep_table(table), sweep_words(table)])


def _failures(swept: Sweep, output: Output) -> str:
    failed, count = swept.failed, len(swept.failed) + len(swept.entries)
    lines = [f"{entry}: {entry.trace.rstrip() if output.verbose and entry.trace else entry.error}" for entry in failed]
    more = [f"… and {len(lines) - MOST_NAMED} more"] if len(lines) > MOST_NAMED else []
    kept = "; the others are kept" if swept.entries else ""
    return "\n  ".join([f"{len(failed)} of {count} runs failed{kept}", *lines[:MOST_NAMED], *more])
