"""`sweep` and its result."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.algorithms.core.errors import InputError
from paceline.reports.blocks import Answer, Claim
from paceline.reports.result import Result
from paceline.reports.run_results import Report, Source
from paceline.reports.sweeps.sweep import Sweep

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from paceline.reports.sweeps.sweep import Engine
    from paceline.reports.sweeps.sweep_table import SweepTable
    from paceline.scenarios.resolution.grid import Scaling


@dataclass(frozen=True, kw_only=True, repr=False)
class SweepResult(Result, Sweep):
    """What `paceline.sweep` returns: the figures of all runs of a grid."""

    @staticmethod
    def of(sweep: Sweep) -> SweepResult:
        """Returns a sweep as a result."""
        return SweepResult(**{field.name: getattr(sweep, field.name) for field in dataclasses.fields(sweep)})

    @property
    def table(self) -> SweepTable:
        """The table of the sweep, with the roles of its paths.

        Raises:
            InputError: all runs failed.
        """
        from paceline.reports.sweeps.sweep_table import tabulate

        if not self.entries:
            raise InputError(f"sweep: all {len(self.failed)} runs failed; {self._failures()}")
        return tabulate(self)

    def answer(self) -> Answer:
        """Returns the table, the conclusions, the charts and all runs."""
        from paceline.reports.sweeps.sweep_answer import sweep_answer

        if not self.entries:
            failed = f"{self.scenario}: all {len(self.failed)} runs failed; {self._failures()}"
            return Answer(self.scenario, [Claim(failed)])
        return sweep_answer(self.table, self)

    @property
    def words(self) -> str:
        """What the sweep shows, in sentences."""
        return self.answer().words

    def frame(self) -> pd.DataFrame:
        """Returns a row for each run, those that failed included, as in ``sweep.csv``."""
        return self.table.whole.copy()

    def plot(self) -> Figure:
        """Draws throughput, scaling and times to the target against what varies."""
        from paceline.reports.png import figure_of
        from paceline.reports.sweeps.sweep_answer import charts

        return figure_of(charts(self.table, self.table.frame), title=self.scenario)

    def _failures(self) -> str:
        return "; ".join(dict.fromkeys(entry.error for entry in self.failed))

    def _reported(self) -> Answer:
        from paceline.reports.provenance import with_provenance

        return with_provenance(self.answer(), None)

    @property
    def _report_name(self) -> str:
        return f"{self.scenario}-sweep.html"


def sweep(
    scenario: Source,
    vary: Sequence[str] | Mapping[str, Any],
    *,
    overrides: Sequence[str] = (),
    algorithms: Sequence[str] | None = None,
    scaling: Scaling | None = None,
    jobs: int | None = None,
    records: Path | None = None,
    store: Path | None = None,
    engine: Engine = "processes",
    scheduler: str | None = None,
    progress: Report | None = None,
) -> SweepResult:
    """Simulates every point of a grid with every algorithm and seed, in processes of this machine or on a Dask cluster.

    A script that calls this needs ``if __name__ == "__main__":``, like every script that starts processes. A method of
    your own has to be in a file, so that the processes find it.

    Args:
        scenario: a scenario, or an argument of `paceline.load`.
        vary: the axes of the grid: values by path, such as ``{"cluster.nodes[0].count": [1, 2, 4]}`` or ``"1..4x2"``;
            or texts ``path=values``, as on the command line.
        overrides: changes ``path=value`` for all points.
        algorithms: the algorithms to run, of the scenario or others.
        scaling: ``strong``: the total batch stays when the number of workers changes; ``weak`` or None: that of each.
        jobs: number of parallel processes; default: the number of cores.
        records: a folder for the record of every run; None: records are not kept.
        store: a folder for the results of runs, from which a later sweep takes those that it needs; None: none.
        engine: ``processes`` of this machine, or ``dask``.
        scheduler: with ``dask``: address of the scheduler; None: a cluster on this machine.
        progress: called with the number of completed runs as text, and their fraction.

    Returns:
        The sweep, with the runs that failed.

    Raises:
        ScenarioError: a point is wrong; with all mistakes of all points, before anything runs.
    """
    from paceline.reports.sweeps.point_store import PointStore
    from paceline.reports.sweeps.sweep import run
    from paceline.scenarios.resolution.grid import grid

    points = grid(scenario, vary, overrides, algorithms=algorithms, scaling=scaling)
    kept = None if store is None else PointStore(store)
    swept = run(points, jobs=jobs, records=records, store=kept, engine=engine, scheduler=scheduler, progress=progress)
    return SweepResult.of(swept)
