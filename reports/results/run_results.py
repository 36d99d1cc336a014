"""Results of `simulate` and `train`: a list of runs with a table, a figure and a report."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, Self, SupportsIndex, overload

from paceline.algorithms.core.errors import InputError
from paceline.records import Run
from paceline.reports.results.result import Result
from paceline.scenarios.values.mistakes import one_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from rich.console import RenderableType

    from paceline.reports.blocks import Block

SUMMARY = "summary"
Axis = Literal["time", "samples", "epochs"]


class Runs(Result, list[Run]):
    """Runs in a list, by algorithm and seed.

    >>> import paceline
    >>> runs = paceline.simulate(paceline.load("quickstart", ["stop.epochs=1"], algorithms=["sync-sgd", "agd"]))
    >>> len(runs), runs.algorithms, runs["agd"][0].summary["staleness"]["max"]
    (2, ['sync-sgd', 'agd'], 1)
    >>> runs.frame()[["algorithm", "updates", "staleness_mean"]].values.tolist()
    [['sync-sgd', 12, 0.0], ['agd', 11, 1.0]]
    """

    @property
    def algorithms(self) -> list[str]:
        """The names of the algorithms, in the order of the runs."""
        return list(dict.fromkeys(run.algorithm for run in self))

    def of(self, algorithm: str) -> Self:
        """Returns the runs of one algorithm.

        Args:
            algorithm: its name.

        Raises:
            InputError: there is no run of it.
        """
        found = type(self)(run for run in self if run.algorithm == algorithm)
        if not found:
            raise InputError(f"algorithm: found {algorithm!r}, expected {one_of(self.algorithms)}")
        return found

    @overload
    def __getitem__(self, index: SupportsIndex) -> Run: ...

    @overload
    def __getitem__(self, index: slice | str) -> Self: ...

    def __getitem__(self, index: SupportsIndex | slice | str) -> Run | Self:
        if isinstance(index, str):
            return self.of(index)
        found = super().__getitem__(index)
        return type(self)(found) if isinstance(found, list) else found

    def frame(self, table: str = SUMMARY) -> pd.DataFrame:
        """Returns one row per run, or the rows of one table of all runs.

        Args:
            table: ``summary``, or a table of records: ``spans``, ``updates``, ``evaluations`` and others of the guide.

        Returns:
            The rows, with the algorithm and the seed of each. Times are in seconds of the run's own clock.

        Raises:
            InputError: there is no such table.
        """
        from paceline.reports.results.run_frames import summary_frame, table_frame

        return summary_frame(self) if table == SUMMARY else table_frame(self, table)

    def plot(self, x: Axis = "time") -> Figure:
        """Draws what was learned, the throughput and the shares of time of each algorithm.

        Args:
            x: the horizontal axis of what was learned: time in seconds, samples or epochs.
        """
        from paceline.reports.results.run_figure import runs_figure

        return runs_figure(self, x)

    def _shown(self) -> Iterator[Block | RenderableType]:
        """Yields the table of the command, or a sentence if there is no run."""
        from paceline.reports.comparison.run_table import runs_table, seeds_table

        if not self:
            yield f"{type(self).__name__}: no runs"
            return
        yield runs_table(self) if len(self) == len(self.algorithms) else seeds_table(self)

    def _report(self, html: Any) -> Any:
        return html.report_of_runs(list(self))

    @property
    def _report_name(self) -> str:
        return f"{self[0].name}-{self[0].kind}.html" if self else "runs.html"


class SimulatedRuns(Runs):
    """What `paceline.simulate` returns: one simulated run per algorithm and seed."""


class MeasuredRuns(Runs):
    """What `paceline.train` returns: one measured run per algorithm and seed."""


def table_names() -> list[str]:
    """Returns the names of the tables of a run."""
    from paceline.records.tables import Tables

    return [field.name for field in dataclasses.fields(Tables)]
