"""Sweeps: simulates a scenario at every point of a grid, for every algorithm and seed.

Rules of this file:

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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from paceline.algorithms.core.errors import RunFailed
from paceline.checking.own_methods import check_own_methods
from paceline.records.document import plain
from paceline.records.store import slug, write_run
from paceline.reports.comparison.time_to_target import common_aim
from paceline.reports.comparison.words import duration
from paceline.reports.sweeps.costs import cost_of
from paceline.reports.sweeps.entries import Entry, Sweep
from paceline.reports.sweeps.point_store import PointStore, key_of, model_version
from paceline.reports.sweeps.sweep_dask import each_on_dask
from paceline.reports.sweeps.sweep_processes import Done, Failure, cores, each
from paceline.reports.sweeps.time_left import TimeLeft
from paceline.scenarios import Scenario
from paceline.scenarios.resolution.grid import Point
from paceline.scenarios.sections.methods import Algorithms

__all__ = ["Entry", "Sweep", "keys_of", "run"]

Report = Callable[[str, float], None]
"""called with a text and the completed fraction, 0 … 1"""
Engine = Literal["processes", "dask"]
SIMULATOR = "paceline.simulator.runs.run"


@dataclass(frozen=True, slots=True)
class _Piece:
    """The task of a worker process: a scenario of one algorithm and seed, and the folder for its record."""

    scenario: dict[str, Any]
    algorithm: str
    folder: Path | None
    model: str | None = None
    """the version of the model that the worker must have; None: not compared, on this machine"""

    @property
    def key(self) -> str:
        return key_of(self.scenario, self.algorithm)


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
    ended: Callable[[Entry], None] | None = None,
) -> Sweep:
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
    entries, pieces, scenarios = _plan(points, records, engine)
    jobs = jobs or cores()
    todo, reused = [], 0
    for number, piece in enumerate(pieces):
        row = None if fresh else _stored(store, piece)
        if row is None:
            todo.append(number)
            continue
        reused += 1
        entries[number] = _ended(entries[number], Done(row), scenarios[number])
        if ended is not None:
            ended(entries[number])
    todo.sort(key=lambda number: -entries[number].workers)  # the longest first: no long tail
    left = TimeLeft.of(jobs, (_kind(entries[number]) for number in todo))
    results = _results([pieces[number] for number in todo], jobs, engine, scheduler)
    for done, (position, came) in enumerate(results, start=1 + reused):
        number = todo[position]
        came = _plain(came)
        if store is not None and isinstance(came, Done):
            store.put(pieces[number].key, came.result)
        entry = entries[number] = _ended(entries[number], came, scenarios[number])
        left.ended(_kind(entry), None if isinstance(came, Failure) else came.result["took_s"])
        if ended is not None:
            ended(entry)
        if progress is not None:
            progress(_progress(done, len(pieces), reused, left), done / len(pieces))
    return assemble(points, entries, reused)


def assemble(points: Sequence[Point], entries: Iterable[Entry], reused: int = 0) -> Sweep:
    """Returns the sweep of runs that have ended.

    Args:
        points: the points of the grid.
        entries: the runs, in the order of the grid; some may be missing.
        reused: number of runs whose results were stored before.
    """
    entries = tuple(entries)
    return Sweep(
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
    return [piece.key for piece in _plan(points, None, "processes")[1]]


def _plan(
    points: Sequence[Point], records: Path | None, engine: Engine
) -> tuple[list[Entry], list[_Piece], list[Scenario]]:
    """Returns the entry, the task and the scenario of each run, in the order of the grid."""
    entries: list[Entry] = []
    pieces, scenarios = [], []
    model = model_version() if engine == "dask" else None
    for number, point in enumerate(points):
        for entry, alone in _runs(point.values, point.scenario):
            name = f"{number + 1:04d}-{slug(entry.algorithm)}-{entry.seed}"
            path = None if records is None else f"{records.name}/{name}"
            entries.append(dataclasses.replace(entry, number=len(entries), path=path))
            folder = None if records is None else records.absolute() / name
            pieces.append(_Piece(alone.dump(), entry.algorithm, folder, model))
            scenarios.append(alone)
    return entries, pieces, scenarios


def _runs(values: Mapping[str, Any], scenario: Scenario) -> list[tuple[Entry, Scenario]]:
    """Returns the runs of a point, each with a scenario of this run only."""
    workers, batches = scenario.cluster.workers, set(scenario.cluster.batches(scenario.workload))
    batch = batches.pop() if len(batches) == 1 else None
    algorithms = Algorithms.of(scenario.algorithms)
    return [
        (
            Entry(
                vary=values, algorithm=name, seed=seed, workers=1 if method.alone else workers, batch_per_worker=batch
            ),
            scenario.model_copy(update={"algorithms": algorithms.only(index), "seed": seed, "seeds": 1}),
        )
        for index, (name, method) in enumerate(zip(algorithms.labels, algorithms, strict=True))
        for seed in range(scenario.seed, scenario.seed + scenario.seeds)
    ]


def _stored(store: PointStore | None, piece: _Piece) -> dict[str, Any] | None:
    """Returns the stored result of a run; None if there is none, or its record is to be kept and is not there."""
    if store is None or (piece.folder is not None and not piece.folder.is_dir()):
        return None
    row = store.get(piece.key)
    return row if row is not None and {"summary", "warnings", "took_s"} <= row.keys() else None


def _results(
    pieces: Sequence[_Piece], jobs: int, engine: Engine, scheduler: str | None
) -> Iterator[tuple[int, Done[Outcome] | Failure]]:
    if engine == "dask":
        return each_on_dask(_simulated, pieces, jobs=jobs, scheduler=scheduler)
    return each(_simulated, pieces, jobs=jobs, preload=[__name__, SIMULATOR])


def _plain(came: Done[Outcome] | Failure) -> Done[Outcome] | Failure:
    """Returns a result as it will be after it was stored as JSON."""
    if isinstance(came, Failure):
        return came
    return Done(json.loads(json.dumps(came.result, default=plain)))


def _ended(entry: Entry, came: Done[Outcome] | Failure, scenario: Scenario) -> Entry:
    if isinstance(came, Failure):
        return dataclasses.replace(entry, error=came.message, trace=came.trace, path=None)
    summary = came.result["summary"]
    cost = cost_of(scenario, summary)
    return dataclasses.replace(entry, summary=summary, warnings=came.result["warnings"], cost=cost)


def _kind(entry: Entry) -> tuple[str, int]:
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
