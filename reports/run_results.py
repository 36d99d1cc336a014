"""`simulate` and `train`, and their results: a list of runs with tables, a figure and a report."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, SupportsIndex, overload

import pandas as pd

from paceline.algorithms.core.errors import InputError
from paceline.backend.transports.launchers import RefusedElsewhere
from paceline.checking.own_methods import BrokenPromises, check_own_methods
from paceline.records import Run
from paceline.records.figures import IN_SUMMARY
from paceline.records.keeping import Choice
from paceline.records.prediction_interval import FIGURES as INTERVALS
from paceline.reports.blocks import Answer, Claim
from paceline.reports.result import Result
from paceline.scenarios import Scenario, load
from paceline.scenarios.values.mistakes import one_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from paceline.backend.multihost.world import World
    from paceline.backend.status.rank_logs import Echo
    from paceline.backend.training import Watcher
    from paceline.simulator.runs.engine import Engine
    from paceline.topologies.catalogue.machine_profile import MeasuredCosts

Source = Scenario | Mapping[str, Any] | str | Path
"""a scenario, or an argument of `paceline.load`"""
Report = Callable[[str, float], None]
"""called with what is running and the completed share of all runs, 0 … 1"""
SUMMARY = "summary"
Axis = Literal["time", "samples", "epochs", "updates"]


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
        selected = type(self)(run for run in self if run.algorithm == algorithm)
        if not selected:
            raise InputError(f"algorithm: found {algorithm!r}, expected {one_of(self.algorithms)}")
        return selected

    @overload
    def __getitem__(self, index: SupportsIndex) -> Run: ...

    @overload
    def __getitem__(self, index: slice | str) -> Self: ...

    def __getitem__(self, index: SupportsIndex | slice | str) -> Run | Self:
        if isinstance(index, str):
            return self.of(index)
        item = super().__getitem__(index)
        return type(self)(item) if isinstance(item, list) else item

    def frame(self, table: str = SUMMARY) -> pd.DataFrame:
        """Returns one row per run, or the rows of one table of all runs.

        Args:
            table: ``summary``, or a table of records: ``spans``, ``updates``, ``evaluations`` and others of the guide.

        Returns:
            The rows, with the algorithm and the seed of each. Times are in seconds of the run's own clock.

        Raises:
            InputError: there is no such table.
        """
        return summary_frame(self) if table == SUMMARY else table_frame(self, table)

    def plot(self, x: Axis = "time") -> Figure:
        """Draws what was learned, the throughput and the shares of time of each algorithm.

        Args:
            x: the horizontal axis of what was learned: time in seconds, samples, epochs or updates.
        """
        from paceline.reports.png import figure_of
        from paceline.reports.run_charts import AXES, learning_chart, shares_chart, throughput_chart

        if not self:
            raise InputError("runs: found none, expected at least one run to draw")
        if x not in AXES:
            raise InputError(f"x: found {x!r}, expected {one_of(list(AXES))}")
        learned = learning_chart(self, "accuracy") or learning_chart(self, "loss")
        charts = [*([] if learned is None else [learned]), throughput_chart(self), shares_chart(self)]
        return figure_of(charts, {"Horizontal axis": x}, self.answer().title)

    def answer(self) -> Answer:
        """Returns the answer of the command: the table of runs, and which of them reaches the target soonest."""
        from paceline.reports.run_answer import answer_of_runs

        name = type(self).__name__
        return answer_of_runs(self) if self else Answer(name, [Claim(f"{name}: no runs")])

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


def simulate(
    scenario: Source,
    *,
    machine: MeasuredCosts | None = None,
    jitter: bool = True,
    message_cost: bool = True,
    progress: Report | None = None,
    records: Choice | None = None,
    keep: Callable[[Run], Run] = lambda run: run,
    engine: Engine = "auto",
) -> SimulatedRuns:
    """Simulates every algorithm and seed of a scenario.

    Args:
        scenario: a scenario, or an argument of `paceline.load`.
        machine: the measured costs to use instead of the scenario's cluster and of its `cluster.machine`: a real run on
            this machine, on the network that it emulates, or on several hosts like it, is predicted.
        jitter: whether step times vary as the scenario defines or as they were measured; if not, each step takes the
            mean. Stragglers and slowdowns remain.
        message_cost: whether messages and collectives take time.
        progress: called with the algorithm and the completed share of all runs.
        records: which spans and updates are kept, instead of the scenario's `records`.
        keep: called with each run when it ends, to store it; returns the stored run.
        engine: the interpreter: `events`, `cohort`, or the fastest that can do the run; see docs/runs.md.

    Returns:
        The runs, one for each algorithm and seed.

    Raises:
        ScenarioError: the scenario has errors; all are reported.

    >>> import paceline
    >>> runs = paceline.simulate(paceline.load("quickstart", ["stop.epochs=1"], algorithms=["agd"]))
    >>> runs.frame()[["algorithm", "updates", "staleness_max"]].values.tolist()
    [['agd', 11, 1]]
    """
    from paceline.simulator.runs.run import simulate as run

    loaded, broken = load_checked(scenario)
    runs = run(
        loaded,
        machine=machine,
        jitter=jitter,
        message_cost=message_cost,
        progress=progress,
        records=records,
        keep=broken.marking(keep),
        engine=engine,
    )
    return SimulatedRuns(runs)


def train(
    scenario: Source,
    *,
    progress: Report | None = None,
    watch: Watcher | None = None,
    echo: Echo | None = None,
    keep: Callable[[Run], Run] = lambda run: run,
    out: Path = Path("runs"),
    resume: Path | str | None = None,
    world: World | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> MeasuredRuns:
    """Runs every algorithm and seed of a scenario with one process per rank.

    With ``train.pace: device`` each rank computes its true gradient and then waits until its device's modelled time is
    over; the runs are labelled as paced. With ``train.network: emulated`` messages between the scenario's hosts cross
    an emulated network of its links, and the runs are labelled as emulated.

    Args:
        scenario: a scenario, or an argument of `paceline.load`.
        progress: called with what is running and the completed share of all runs.
        watch: called some ten times per second with the progress of all ranks of a run.
        echo: called with each line that a rank writes to its log.
        keep: called with each run when it ends, to store it before the next begins; returns the stored run.
        out: the folder of checkpoints until the run is stored, if the scenario has checkpoints.
        resume: resumes the run in this folder from its latest checkpoint, or the run of this checkpoint; no other run
            of the scenario is made.
        world: the processes that are the ranks, if a launcher has started them; None: ranks are forked.
        note: called with lines about the placement of ranks, if a launcher has started them.

    Returns:
        One measured run per algorithm and seed, ordered by algorithm; they are made seed by seed. A run is evaluated
        after its end on its snapshots, so that evaluation costs no measured time. If a launcher has started the
        processes, one of them has the runs; the others have none.

    Raises:
        InputError: the scenario has crashes, probes or drift, which only a simulation supports; or it asks for more
            cores than there are, for network interfaces that this machine does not have, or for an emulated network
            that is not possible here; or there is no checkpoint to resume from, or it belongs to another run.
        RefusedElsewhere: the same, and another of the processes reports it.
        RunsFailed: a rank failed, or died other than by the scenario's deaths, or all waited for each other; the error
            has the earlier runs and what was recorded until then.
    """
    from paceline.backend.training import train as run

    loaded, broken = load_checked(scenario, world)
    runs = run(
        loaded,
        progress=progress,
        watch=watch,
        echo=echo,
        keep=broken.marking(keep),
        out=out,
        resume=resume,
        world=world,
        note=note,
    )
    return MeasuredRuns(runs)


def load_checked(scenario: Source, world: World | None = None) -> tuple[Scenario, BrokenPromises]:
    """Loads a scenario and refuses methods of the user's own that a checkpoint would break.

    `compare` and `sweep` do so themselves.

    Args:
        scenario: a scenario, or an argument of `paceline.load`.
        world: the processes that a launcher has started, if one has.

    Returns:
        The scenario, and the promises that its methods break.

    Raises:
        InputError: the scenario or a method is wrong.
        RefusedElsewhere: a method is wrong, and another of the processes, which all find the same, reports it.
    """
    scenario = scenario if isinstance(scenario, Scenario) else load(scenario)
    try:
        return scenario, check_own_methods(scenario)
    except InputError as error:
        if world is None or world.leads:
            raise
        raise RefusedElsewhere(str(error)) from error


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
