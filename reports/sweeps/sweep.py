"""Sweeps: simulates a scenario at every point of a grid, for every algorithm and seed.

Rules of this file:

* Each run is a separate task: a worker process receives its scenario and returns its summary, and nothing else stays in
  memory. The answer is in the order of the grid, whatever the number of processes.
* A failed run is reported with its values, and the other runs are kept.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.checking.own_methods import check_own_methods
from paceline.records.store import slug, write_run
from paceline.reports.comparison.seeds import figures
from paceline.reports.sweeps.sweep_processes import Done, Failure, cores, each
from paceline.scenarios import Scenario
from paceline.scenarios.resolution.grid import Point, grid
from paceline.scenarios.resolution.plan import names_of

Report = Callable[[str, float], None]
"""called with a text and the completed fraction, 0 … 1"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One run of a sweep: its place in the grid, and its figures or its error."""

    vary: Mapping[str, Any]
    """the value of every varied path"""
    algorithm: str
    seed: int
    workers: int
    summary: Mapping[str, Any] = field(default_factory=dict)
    warnings: Sequence[str] = ()
    """notes on where the run was outside the ranges that its models were fitted on"""
    error: str = ""
    trace: str = ""
    path: str | None = None
    """the folder of its record relative to that of the sweep, if records are kept"""

    def answer(self) -> dict[str, Any]:
        """Returns the entry for a JSON answer."""
        head = {"vary": dict(self.vary), "algorithm": self.algorithm, "seed": self.seed}
        if self.error:
            return {**head, "error": self.error}
        return {**head, "summary": dict(self.summary), "warnings": list(self.warnings)}

    def __str__(self) -> str:
        values = ", ".join(f"{path}={value}" for path, value in self.vary.items())
        return f"{self.algorithm} with {values}, seed {self.seed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """All runs of a sweep, in the order of the grid, and at each point by algorithm and seed."""

    scenario: str
    paths: tuple[str, ...]
    target: float | None
    """the target accuracy; None if there is none, or several"""
    entries: tuple[Entry, ...]
    failed: tuple[Entry, ...] = ()

    def answer(self) -> dict[str, Any]:
        """Returns the JSON answer of ``paceline sweep``."""
        document: dict[str, Any] = {"points": [entry.answer() for entry in self.entries], "figures": self._figures()}
        if self.failed:
            document["failed"] = [entry.answer() for entry in self.failed]
        return document

    def _figures(self) -> list[dict[str, Any]]:
        """Returns each algorithm's figures at each point, over the seeds."""
        found: dict[str, list[Entry]] = {}
        for entry in self.entries:
            found.setdefault(json.dumps([dict(entry.vary), entry.algorithm]), []).append(entry)
        return [
            {"vary": dict(mine[0].vary), "algorithm": mine[0].algorithm, **figures([one.summary for one in mine])}
            for mine in found.values()
        ]


@dataclass(frozen=True, slots=True)
class _Piece:
    """The task of a worker process: a scenario of one algorithm and seed, and the folder for its record."""

    scenario: dict[str, Any]
    algorithm: str
    folder: Path | None


def sweep(
    scenario: str | Path | Mapping[str, Any] | Scenario,
    vary: Sequence[str],
    *,
    overrides: Sequence[str] = (),
    algorithms: Sequence[str] | None = None,
    jobs: int | None = None,
    records: Path | None = None,
    progress: Report | None = None,
) -> Sweep:
    """Simulates every point, algorithm and seed, in processes of this machine.

    A script that calls this needs ``if __name__ == "__main__":``, like every script that starts processes.

    Args:
        scenario: a scenario, in any form that `paceline.scenarios.load` accepts.
        vary: the axes of the grid, each ``path=values``; see `paceline.scenarios.resolution.grid`.
        overrides: changes ``path=value`` for all points.
        algorithms: the algorithms to run, of the scenario or others.
        jobs: number of parallel processes; default: the number of cores.
        records: a folder for the record of every run; None: records are not kept.
        progress: called with the number of completed runs as text, and their fraction.

    Raises:
        ScenarioError: a point is wrong; with all mistakes of all points, before anything runs.
    """
    points = grid(scenario, vary, overrides, algorithms=algorithms)
    return run(points, jobs=jobs, records=records, progress=progress)


def run(
    points: Sequence[Point],
    *,
    jobs: int | None = None,
    records: Path | None = None,
    progress: Report | None = None,
    ended: Callable[[Entry], None] | None = None,
) -> Sweep:
    """Simulates the points of an existing grid; see `sweep`.

    Args:
        points: the points of the grid.
        jobs: as for `sweep`.
        records: as for `sweep`.
        progress: as for `sweep`.
        ended: called with each run when it has ended, in the order of the ends.
    """
    check_own_methods(*(point.scenario for point in points))
    entries, pieces = [], []
    for number, point in enumerate(points):
        for entry, alone in _runs(point.values, point.scenario):
            name = f"{number + 1:04d}-{slug(entry.algorithm)}-{entry.seed}"
            entries.append(entry if records is None else dataclasses.replace(entry, path=f"{records.name}/{name}"))
            pieces.append(_Piece(alone.dump(), entry.algorithm, None if records is None else records / name))
    order = sorted(range(len(pieces)), key=lambda number: -entries[number].workers)  # the longest first: no long tail
    results = each(_simulated, [pieces[number] for number in order], jobs=jobs or cores(), preload=[__name__, ENGINE])
    for done, (position, came) in enumerate(results, start=1):
        entry = entries[order[position]] = _ended(entries[order[position]], came)
        if ended is not None:
            ended(entry)
        if progress is not None:
            progress(f"{done} of {len(pieces)} runs", done / len(pieces))
    targets = {point.scenario.target_accuracy for point in points}
    return Sweep(
        scenario=points[0].scenario.name,
        paths=tuple(points[0].values),
        target=targets.pop() if len(targets) == 1 else None,
        entries=tuple(entry for entry in entries if not entry.error),
        failed=tuple(entry for entry in entries if entry.error),
    )


ENGINE = "paceline.simulator.runs.run"


def _runs(values: Mapping[str, Any], scenario: Scenario) -> list[tuple[Entry, Scenario]]:
    """Returns the runs of a point, each with a scenario of this run only."""
    workers = scenario.cluster.workers
    return [
        (
            Entry(vary=values, algorithm=name, seed=seed, workers=1 if method.alone else workers),
            scenario.model_copy(update={"algorithms": (method,), "seed": seed, "seeds": 1}),
        )
        for name, method in zip(names_of(scenario.algorithms), scenario.algorithms, strict=True)
        for seed in range(scenario.seed, scenario.seed + scenario.seeds)
    ]


def _ended(entry: Entry, came: Done[Outcome] | Failure) -> Entry:
    if isinstance(came, Failure):
        return dataclasses.replace(entry, error=came.message, trace=came.trace, path=None)
    summary, warnings = came.result
    return dataclasses.replace(entry, summary=summary, warnings=warnings)


Outcome = tuple[dict[str, Any], list[str]]
"""a run's summary and its warnings"""


def _simulated(piece: _Piece) -> Outcome:
    """Simulates one run in a worker process, which also stores the record, since it has the tables."""
    from paceline.simulator.runs.run import simulate

    (made,) = simulate(piece.scenario)
    if piece.folder is not None:
        write_run(piece.folder, dataclasses.replace(made, algorithm=piece.algorithm))
    return dict(made.summary), list(made.machine.get("warnings", ()))
