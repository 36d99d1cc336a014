"""Sweeps: simulates a scenario at every point of a grid, for every algorithm and seed.

* Each run is a separate task: a worker process receives its scenario and returns its summary, and nothing else stays in
  memory. The answer is in the order of the grid, whatever the number of processes and wherever they are.
* A failed run is reported with its values, and the other runs are kept.
* The result of a run is stored when it has ended, under the content of its scenario (`point_store`). A stored result is
  not computed again, so that a killed sweep continues. Failures are not stored: they may be due to the machine.
* Every result passes through JSON, stored or not, so that a continued sweep gives the same bytes.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

from paceline.algorithms.core.errors import InputError, RunFailed
from paceline.checking.own_methods import check_own_methods
from paceline.records.document import plain
from paceline.records.figures import COST, COST_TO_ACCURACY, COST_TO_LOSS, ENERGY, TIME_TO_ACCURACY, TIME_TO_LOSS
from paceline.records.store import slug, write_run
from paceline.reports.blocks import Answer, Claim
from paceline.reports.comparison.ranking import Aim, common_aim, figures
from paceline.reports.result import Result
from paceline.reports.run_cost import rates_of
from paceline.reports.run_results import Source
from paceline.reports.sweeps.parallel_tasks import Done, TaskFailure, cores, each, each_on_dask
from paceline.reports.sweeps.point_store import PointStore, key_of, model_version
from paceline.reports.words import duration
from paceline.scenarios import Scenario
from paceline.scenarios.resolution.grid import Point, Scaling, grid
from paceline.scenarios.sections.methods import Algorithms

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from paceline.reports.sweeps.sweep_table import SweepTable

Report = Callable[[str, float], None]
"""called with a text and the completed fraction, 0 … 1"""
Engine = Literal["processes", "dask"]
SIMULATOR = "paceline.simulator.runs.run"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepEntry:
    """One run of a sweep: its place in the grid, and its figures or its error."""

    vary: Mapping[str, Any]
    """the value of every varied path"""
    algorithm: str
    seed: int
    workers: int
    batch_per_worker: int | None = None
    number: int = 0
    """its position in the order of the grid"""
    summary: Mapping[str, Any] = field(default_factory=dict)
    warnings: Sequence[str] = ()
    """notes on where the run was outside the ranges that its models were fitted on"""
    cost: Mapping[str, float] | None = None
    """what the run costs; None if its cluster has no price"""
    error: str = ""
    trace: str = ""
    path: str | None = None
    """the folder of its record relative to that of the sweep, if records are kept"""

    def document(self) -> dict[str, Any]:
        """Returns the entry for the JSON document of a sweep."""
        head = {"vary": dict(self.vary), "algorithm": self.algorithm, "seed": self.seed}
        if self.error:
            return {**head, "error": self.error}
        return {**head, "summary": dict(self.summary), "warnings": list(self.warnings)}

    def __str__(self) -> str:
        values = ", ".join(f"{path}={value}" for path, value in self.vary.items())
        return f"{self.algorithm} with {values}, seed {self.seed}"


@dataclass(frozen=True, kw_only=True, repr=False)
class SweepResult(Result):
    """What `paceline.sweep` returns: all runs of a grid in its order, and at each point by algorithm and seed."""

    scenario: str
    paths: tuple[str, ...]
    target: Aim | None
    """the target that times are compared at; None if there is none, or several"""
    entries: tuple[SweepEntry, ...]
    failed: tuple[SweepEntry, ...] = ()
    axes: tuple[tuple[str, ...], ...] = ()
    """the paths of each axis: several if they change together; empty: each path is an axis"""
    scaling: str | None = None
    reused: int = 0
    """number of runs whose results were stored by an earlier sweep; not part of the answer"""

    def document(self) -> dict[str, Any]:
        """Returns the JSON document of the runs and of the figures over seeds."""
        document: dict[str, Any] = {"points": [entry.document() for entry in self.entries], "figures": self._figures()}
        if self.failed:
            document["failed"] = [entry.document() for entry in self.failed]
        return document

    def _figures(self) -> list[dict[str, Any]]:
        """Returns each algorithm's figures at each point, over the seeds."""
        seeds: dict[str, list[SweepEntry]] = {}
        for entry in self.entries:
            seeds.setdefault(json.dumps([dict(entry.vary), entry.algorithm]), []).append(entry)
        return [
            {
                "vary": dict(entries[0].vary),
                "algorithm": entries[0].algorithm,
                **figures([entry.summary for entry in entries]),
            }
            for entries in seeds.values()
        ]

    @cached_property
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


@dataclass(frozen=True, slots=True)
class _Piece:
    """The task of a worker process: a scenario of one algorithm and seed, and the folder for its record."""

    scenario: dict[str, Any]
    algorithm: str
    folder: Path | None = None
    model: str | None = None
    """the version of the model that the worker must have; None: not compared, on this machine"""

    @property
    def key(self) -> str:
        return key_of(self.scenario, self.algorithm)


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
    points = grid(scenario, vary, overrides, algorithms=algorithms, scaling=scaling)
    kept = None if store is None else PointStore(store)
    return run(points, jobs=jobs, records=records, store=kept, engine=engine, scheduler=scheduler, progress=progress)


def run(
    points: Sequence[Point],
    *,
    jobs: int | None = None,
    records: Path | None = None,
    store: PointStore | None = None,
    fresh: bool = False,
    engine: Engine = "processes",
    scheduler: str | None = None,
    progress: Report | None = None,
    ended: Callable[[SweepEntry], None] | None = None,
) -> SweepResult:
    """Simulates every point, algorithm and seed, in processes of this machine or on a Dask cluster.

    Args:
        points: the points of the grid.
        jobs: number of parallel processes; default: the number of cores.
        records: a folder for the record of every run; None: records are not kept.
        store: the results of earlier sweeps, to which those of this sweep are added; None: none.
        fresh: whether runs with a stored result are simulated again.
        engine: ``processes`` of this machine, or ``dask``.
        scheduler: with ``dask``: address of the scheduler; None: a cluster on this machine.
        progress: called with the number of completed runs as text, and their fraction.
        ended: called with each run when it has ended: first those with a stored result, then the others in the order
            of their ends.
    """
    check_own_methods(*(point.scenario for point in points))
    planned = _planned(points, records)
    entries = [entry for entry, _ in planned]
    model = model_version() if engine == "dask" else None
    pieces = [
        _Piece(
            alone.dump(),
            entry.algorithm,
            None if records is None else records.absolute() / Path(str(entry.path)).name,
            model,
        )
        for entry, alone in planned
    ]
    jobs = jobs or cores()

    def end(number: int, answer: Done[Outcome] | TaskFailure) -> None:
        entries[number] = _ended(*planned[number], answer)
        if ended is not None:
            ended(entries[number])

    todo = []
    for number, piece in enumerate(pieces):
        row = None if fresh else _stored(store, piece)
        if row is None:
            todo.append(number)
        else:
            end(number, Done(row))
    reused = len(pieces) - len(todo)
    todo.sort(key=lambda number: -entries[number].workers)  # the longest first: no long tail
    left = TimeLeft(jobs, Counter(_kind(entries[number]) for number in todo))
    with closing(_results([pieces[number] for number in todo], jobs, engine, scheduler)) as results:
        for done, (position, answer) in enumerate(results, start=1 + reused):
            number = todo[position]
            if isinstance(answer, Done):
                answer = Done(json.loads(json.dumps(answer.result, default=plain)))  # as it will be when it was stored
                if store is not None:
                    store.put(pieces[number].key, answer.result)
            left.ended(_kind(entries[number]), answer.result["took_s"] if isinstance(answer, Done) else None)
            end(number, answer)
            if progress is not None:
                progress(_progress(done, len(pieces), reused, left), done / len(pieces))
    return assemble(points, entries, reused)


def assemble(points: Sequence[Point], entries: Iterable[SweepEntry], reused: int = 0) -> SweepResult:
    """Returns the sweep of runs that have ended.

    Args:
        points: the points of the grid.
        entries: the runs, in the order of the grid; some may be missing.
        reused: number of runs whose results were stored before.
    """
    entries = tuple(entries)
    return SweepResult(
        scenario=points[0].scenario.name,
        paths=tuple(points[0].values),
        target=common_aim(entry.summary for entry in entries if not entry.error),
        entries=tuple(entry for entry in entries if not entry.error),
        failed=tuple(entry for entry in entries if entry.error),
        axes=points[0].axes,
        scaling=points[0].scaling,
        reused=reused,
    )


def keys_of(points: Sequence[Point]) -> list[str]:
    """Returns the keys of all runs of a grid, in its order (`point_store`)."""
    return [key_of(alone.dump(), entry.algorithm) for entry, alone in _planned(points, None)]


def _planned(points: Sequence[Point], records: Path | None) -> list[tuple[SweepEntry, Scenario]]:
    """Returns all runs in the order of the grid, each with a scenario of this run only."""
    planned: list[tuple[SweepEntry, Scenario]] = []
    for number, point in enumerate(points, start=1):
        scenario = point.scenario
        workers, batches = scenario.cluster.workers, set(scenario.cluster.batches(scenario.workload))
        batch = batches.pop() if len(batches) == 1 else None
        algorithms = Algorithms.of(scenario.algorithms)
        for index, (name, method) in enumerate(zip(algorithms.labels, algorithms, strict=True)):
            for seed in range(scenario.seed, scenario.seed + scenario.seeds):
                entry = SweepEntry(
                    vary=point.values,
                    algorithm=name,
                    seed=seed,
                    workers=1 if method.alone else workers,
                    batch_per_worker=batch,
                    number=len(planned),
                    path=None if records is None else f"{records.name}/{number:04d}-{slug(name)}-{seed}",
                )
                alone = {"algorithms": algorithms.only(index), "seed": seed, "seeds": 1}
                planned.append((entry, scenario.model_copy(update=alone)))
    return planned


def _stored(store: PointStore | None, piece: _Piece) -> dict[str, Any] | None:
    """Returns the stored result of a run; None if there is none, or its record is to be kept and is not there."""
    if store is None or (piece.folder is not None and not piece.folder.is_dir()):
        return None
    row = store.get(piece.key)
    return row if row is not None and {"summary", "warnings", "took_s"} <= row.keys() else None


def _results(
    pieces: Sequence[_Piece], jobs: int, engine: Engine, scheduler: str | None
) -> Generator[tuple[int, Done[Outcome] | TaskFailure], None, None]:
    if engine == "dask":
        return each_on_dask(_simulated, pieces, jobs=jobs, scheduler=scheduler)
    return each(_simulated, pieces, jobs=jobs, preload=[__name__, SIMULATOR])


def _ended(entry: SweepEntry, scenario: Scenario, answer: Done[Outcome] | TaskFailure) -> SweepEntry:
    if isinstance(answer, TaskFailure):
        return dataclasses.replace(entry, error=answer.message, trace=answer.trace, path=None)
    summary, warnings = answer.result["summary"], answer.result["warnings"]
    return dataclasses.replace(entry, summary=summary, warnings=warnings, cost=cost_of(scenario, summary))


def _kind(entry: SweepEntry) -> tuple[str, int]:
    return entry.algorithm, entry.workers


def _progress(done: int, count: int, reused: int, left: TimeLeft) -> str:
    earlier = f", {reused} of them in earlier sweeps" if reused else ""
    seconds = left.seconds()
    rest = f", about {duration(seconds)} left" if seconds and done < count else ""
    return f"{done} of {count} runs{earlier}{rest}"


Outcome = dict[str, Any]
"""a run's ``summary``, its ``warnings``, and the seconds that it took: ``took_s``, and of the processor ``cpu_s``"""


def _simulated(piece: _Piece) -> Outcome:
    """Simulates one run in a worker process, which also stores the record, since it has the tables."""
    from paceline.simulator.runs.run import simulate

    if piece.model is not None and piece.model != model_version():
        raise RunFailed(
            "a worker of the cluster has another version of Paceline, Python or the numerical libraries; install the "
            "same on all hosts"
        )
    began_s, cpu_s = time.perf_counter(), time.process_time()
    (made,) = simulate(piece.scenario)
    if piece.folder is not None:
        if piece.folder.is_dir():  # of a sweep that was killed before it stored the result
            shutil.rmtree(piece.folder)
        write_run(piece.folder, dataclasses.replace(made, algorithm=piece.algorithm))
    return {
        "summary": dict(made.summary),
        "warnings": list(made.machine.get("warnings", ())),
        "took_s": time.perf_counter() - began_s,
        "cpu_s": time.process_time() - cpu_s,
    }


def cost_of(scenario: Scenario, summary: Mapping[str, Any]) -> dict[str, float] | None:
    """Returns what a run costs, as far as the prices and the power of its nodes are known.

    Args:
        scenario: the scenario of this run only.
        summary: its summary.

    Returns:
        ``cost_usd`` and ``energy_kwh`` of the whole run, and ``cost_to_accuracy_usd`` and ``cost_to_loss_usd`` if it
        has reached these targets; None if none of them is known.

    >>> from paceline.scenarios import load
    >>> priced = load("quickstart", ["cluster.price_per_hour=1.8 USD/h"], algorithms=["sync-sgd"])
    >>> cost_of(priced, {"wall_s": 3600.0, "time_to_accuracy_s": 1800.0})
    {'cost_usd': 3.6, 'cost_to_accuracy_usd': 1.8}
    """
    (method,) = scenario.algorithms
    rates = rates_of(scenario, alone=method.alone)
    whole = rates.cost(summary["wall_s"])
    costs = {COST.key: whole.usd, ENERGY.key: whole.kwh}
    for reached, cost in ((TIME_TO_ACCURACY, COST_TO_ACCURACY), (TIME_TO_LOSS, COST_TO_LOSS)):
        if (reached_s := reached.of(summary)) is not None:
            costs[cost.key] = rates.cost(reached_s).usd
    return {name: value for name, value in costs.items() if value is not None} or None


Kind = tuple[str, int]
"""an algorithm and a number of workers"""


@dataclass(slots=True)
class TimeLeft:
    """Estimates the remaining seconds of runs in parallel.

    A run is expected to take as long as the runs of the same algorithm and size; without these, as the nearest size of
    the algorithm in proportion to the workers. The costs of methods differ by orders of magnitude, so a run says
    nothing about another algorithm: before each has been timed, there is no estimate.

    Args:
        jobs: number of parallel runs.

    >>> left = TimeLeft(2, Counter({("agd", 4): 2, ("agd", 8): 2}))
    >>> left.ended(("agd", 4), 1.0)
    >>> left.seconds()  # 1 s for the other run of 4 workers, 2 s for each of 8, by two
    2.5
    >>> other = TimeLeft(1, Counter({("agd", 4): 2, ("easgd", 4): 1}))
    >>> other.ended(("agd", 4), 1.0)
    >>> other.seconds() is None  # easgd may take longer or shorter
    True
    """

    jobs: int
    waiting: Counter[Kind]
    """number of runs of each kind that have not ended"""
    _seconds: dict[Kind, list[float]] = field(default_factory=dict)

    def ended(self, kind: Kind, seconds: float | None) -> None:
        """Records the end of a run.

        Args:
            kind: its algorithm and number of workers.
            seconds: how long it took; None if it failed.
        """
        self.waiting[kind] -= 1
        if seconds is not None:
            self._seconds.setdefault(kind, []).append(seconds)

    def seconds(self) -> float | None:
        """Returns the expected remaining seconds; None before a run of every waiting algorithm has succeeded."""
        waiting = {kind: count for kind, count in self.waiting.items() if count > 0}
        if not {name for name, _ in waiting} <= {name for name, _ in self._seconds}:
            return None
        total = sum(self._expected(kind) * count for kind, count in waiting.items())
        return total / self.jobs

    def _expected(self, kind: Kind) -> float:
        if kind in self._seconds:
            return fmean(self._seconds[kind])
        algorithm, workers = kind
        sizes = [size for name, size in self._seconds if name == algorithm]
        nearest = min(sizes, key=lambda size: max(size, workers) / min(size, workers))
        return fmean(self._seconds[algorithm, nearest]) * workers / nearest
