"""Measured times of the steps of several workers, from a table: CSV, plain or compressed, or Parquet.

A row is one step of one worker. Columns are found by their names, of which the first that is there counts:

* the worker: ``worker`` or ``rank``
* the seconds of its step: ``seconds``, ``step_time``, ``duration``, or a name that contains ``duration`` or ``time``,
  in any unit, since only ratios count; but a correlation time is then in this unit, too
* optional: the step's number: ``step`` or ``iteration``; without it, rows of a worker are in order
* optional: when the step began: ``begin``, ``start`` or ``time``, in the unit of the step's time
* optional: the worker's node: ``node`` or ``host``
* optional: ``job`` or ``trace`` separates series that were measured independently
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from paceline.algorithms.core.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

Times = NDArray[np.float64]

WORKER, STEP, BEGIN = ("worker", "rank"), ("step", "iteration"), ("begin", "begin_s", "start", "start_s", "time")
NODE, JOB, SECONDS = (
    ("node", "host"),
    ("job", "trace"),
    ("seconds", "step_time", "step_time_s", "duration", "duration_s"),
)
FEWEST_STEPS = 16
"""the fewest steps of a worker from which anything is read: INFERENCE"""
EXPECTED = "a table (CSV or Parquet) with the columns worker, step and seconds, and optionally begin, node and job"


@dataclass(frozen=True, eq=False)
class StepSeries:
    """The times of the same steps of several workers.

    Args:
        name: the name of the job, or of the file.
        seconds: the time of each step, shape (workers, steps).
        begins_s: when each step began, of the same shape; with `assumed`, as if all workers began each step together.
        nodes: the number of each worker's node; empty if it is not known.
        assumed: whether `begins_s` was not measured.
    """

    name: str
    seconds: Times
    begins_s: Times
    nodes: tuple[int, ...] = ()
    assumed: bool = True

    @staticmethod
    def together(name: str, seconds: Any, nodes: Sequence[int] = ()) -> StepSeries:
        """Returns a series whose workers began each step together, when the slowest had ended the one before.

        >>> StepSeries.together("run", [[1.0, 2.0, 1.0], [3.0, 1.0, 1.0]]).begins_s[0].tolist()
        [0.0, 3.0, 5.0]
        """
        times = np.asarray(seconds, dtype=np.float64)
        begins_s = np.concatenate([[0.0], np.cumsum(times.max(axis=0))[:-1]])
        return StepSeries(name, times, np.broadcast_to(begins_s, times.shape), tuple(nodes))

    def part(self, first: int, last: int) -> StepSeries:
        """Returns the steps from `first` to before `last`."""
        kept = slice(first, last)
        return StepSeries(self.name, self.seconds[:, kept], self.begins_s[:, kept], self.nodes, self.assumed)

    def slowdown(self, every: int) -> float:
        """Returns the time of a run that waits for all workers after every `every` steps, over that without waiting.

        That is the mean of the slowest worker's time in each group of steps, over the mean time of all workers.

        Args:
            every: the number of steps between two waits.

        >>> StepSeries.together("run", [[1.0, 2.0], [3.0, 2.0]]).slowdown(1)
        1.25
        """
        workers, steps = self.seconds.shape
        groups = self.seconds[:, : steps // every * every].reshape(workers, -1, every).sum(axis=2)
        return float(groups.max(axis=0).sum() / groups.mean(axis=0).sum())


def read(path: Path) -> list[StepSeries]:
    """Returns the series in a table.

    Args:
        path: the file.

    Raises:
        InputError: the file is not such a table; with all mistakes.
    """
    table = _table(path)
    worker, seconds = _column(table, WORKER), _seconds(table)
    missing = [words for words, name in (("worker (or rank)", worker), ("seconds", seconds)) if name is None]
    if missing or worker is None or seconds is None:
        raise InputError(
            f"{path}: found the columns {', '.join(map(str, table.columns))}, without {' and '.join(missing)}; "
            f"expected {EXPECTED}"
        )
    numbers = _numbers(table[seconds])
    if (wrong := ~(np.isfinite(numbers) & (numbers > 0))).any():
        row = int(np.flatnonzero(wrong)[0])
        raise InputError(
            f"{path}: row {row + 2}, column {seconds}: found {table[seconds].iloc[row]!r}, expected a time above 0; "
            f"{int(wrong.sum())} of {len(table)} rows are wrong"
        )
    table = table.assign(**{seconds: numbers})
    job = _column(table, JOB)
    parts = [(path.name, table)] if job is None else [(str(name), part) for name, part in table.groupby(job)]
    return [_series(path, name, part, worker, seconds) for name, part in parts]


def _table(path: Path) -> pd.DataFrame:
    import pandas as pd

    if not path.is_file():
        raise InputError(f"{path}: found no such file, expected {EXPECTED}")
    try:
        if path.suffix == ".parquet":
            return pd.read_parquet(path)
        return pd.read_csv(path)
    except (OSError, ValueError, ImportError) as error:  # pandas' errors of parsing are ValueErrors
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path}: cannot be read ({text}); expected {EXPECTED}") from error


def _numbers(column: Any) -> Times:
    import pandas as pd

    numbers: Times = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64)
    return numbers


def _column(table: pd.DataFrame, names: Sequence[str]) -> str | None:
    return next((name for name in names if name in table.columns), None)


def _seconds(table: pd.DataFrame) -> str | None:
    """Returns the column with the times of the steps."""
    known = {*WORKER, *STEP, *BEGIN, *NODE, *JOB}
    alike = [name for name in map(str, table.columns) if name not in known and ("duration" in name or "time" in name)]
    return _column(table, (*SECONDS, *alike))


def _series(path: Path, name: str, table: pd.DataFrame, worker: str, seconds: str) -> StepSeries:
    step, begin, node = (_column(table, names) for names in (STEP, BEGIN, NODE))
    if step is None:
        table, step = table.assign(step=table.groupby(worker).cumcount()), "step"
    grid = table.pivot_table(index=worker, columns=step, values=seconds, aggfunc="mean").dropna(axis=1)
    if len(grid) < 1 or len(grid.columns) < FEWEST_STEPS:
        raise InputError(
            f"{path}: {name}: found {len(grid.columns)} steps that all {table[worker].nunique()} workers have, "
            f"expected {FEWEST_STEPS} or more"
        )
    nodes: tuple[int, ...] = ()
    if node is not None:
        names = table.groupby(worker)[node].first().loc[grid.index].astype(str)
        nodes = tuple(names.astype("category").cat.codes.tolist())
    if begin is None:
        return StepSeries.together(name, grid.to_numpy(), nodes)
    begins = table.pivot_table(index=worker, columns=step, values=begin, aggfunc="min")[grid.columns].to_numpy()
    return StepSeries(name, grid.to_numpy(), begins - begins.min(), nodes, assumed=False)
