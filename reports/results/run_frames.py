"""Data frames of runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from paceline.algorithms.core.errors import InputError
from paceline.records import Run
from paceline.records.figures import IN_SUMMARY
from paceline.records.prediction_interval import FIGURES as INTERVALS
from paceline.reports.results.run_results import SUMMARY, table_names
from paceline.scenarios.values.mistakes import one_of


def summary_frame(runs: Sequence[Run]) -> pd.DataFrame:
    """Returns a row for each run with the figures of its summary, as the table of a sweep has them.

    Args:
        runs: the runs.
    """
    columns: dict[str, pd.Series] = {
        "scenario": pd.Series([run.name for run in runs], dtype="string"),
        "algorithm": pd.Series([run.algorithm for run in runs], dtype="string"),
        "seed": pd.Series([run.seed for run in runs], dtype="Int64"),
        "kind": pd.Series([run.kind for run in runs], dtype="string"),
    }
    for figure in IN_SUMMARY:
        columns[figure.column] = pd.Series([figure.of(run.summary) for run in runs], dtype=figure.type)
    intervals: list[Any] = [run.summary.get("prediction_interval") or {} for run in runs]
    for name in INTERVALS if any(intervals) else ():
        for end in ("low", "high"):
            ends = [(interval.get(name) or {}).get(end) for interval in intervals]
            columns[f"{name}_{end}"] = pd.Series(ends, dtype="Float64")
    return pd.DataFrame(columns)


def table_frame(runs: Sequence[Run], table: str) -> pd.DataFrame:
    """Returns the rows of one table of all runs, with the algorithm and the seed of each.

    Args:
        runs: the runs.
        table: the name of the table.

    Raises:
        InputError: there is no such table.
    """
    names = table_names()
    if table not in names:
        raise InputError(f"table: found {table!r}, expected {one_of([SUMMARY, *names])}")
    parts = [_with_run(getattr(run.tables, table), run) for run in runs]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def _with_run(frame: pd.DataFrame, run: Run) -> pd.DataFrame:
    made = frame.copy()
    made.insert(0, "algorithm", run.algorithm)
    made.insert(1, "seed", run.seed)
    return made
