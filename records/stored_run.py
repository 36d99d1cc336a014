"""A run as its readers see it: typed, whole, the same for simulated and measured ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.algorithms.core.errors import RunFailed
from paceline.algorithms.core.job import Job, Learner
from paceline.records.fault_records import Slowed
from paceline.records.machine import machine_facts, package_versions
from paceline.records.pace import Asked
from paceline.records.summary import Kind, Summary, summarise
from paceline.records.tables import Tables, assemble
from paceline.records.trace import Snapshot, Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One method on one seed, run once: what ``RUN/`` holds."""

    scenario: Mapping[str, Any]
    """the resolved scenario, as it can be run again"""
    name: str
    """the scenario's name"""
    algorithm: str
    seed: int
    summary: Summary
    tables: Tables
    weights: Any = None
    """the weights being learned, at the end: a flat vector, or None where the run had no numbers"""
    machine: Mapping[str, Any] = field(default_factory=dict)
    """facts about the machine and this very run; they differ from one run to the next"""
    versions: Mapping[str, str] = field(default_factory=package_versions)
    trace: Trace | None = None
    """the raw record, while the run is in memory; it is not stored"""
    files: Mapping[str, bytes] = field(default_factory=dict, compare=False, repr=False)
    """what is stored beside the tables as it is, by its path in the folder; it is not read back"""
    path: Path | None = None
    """where it has been stored"""
    checkpoints: Path | None = None
    """where its checkpoints lie; they are moved to where it is stored"""

    @property
    def kind(self) -> Kind:
        """Simulated or measured."""
        return self.summary["kind"]

    @staticmethod
    def of(
        trace: Trace,
        *,
        job: Job,
        kind: Kind,
        scenario: Mapping[str, Any],
        name: str,
        algorithm: str | None = None,
        target: float | None = None,
        target_loss: float | None = None,
        paced: bool = False,
        emulated_network: bool = False,
        slowed: Slowed | None = None,
        checkpoints: Path | None = None,
        asked: Asked | None = None,
    ) -> Run:
        """The run that left `trace` behind; snapshots that have not been evaluated yet are evaluated here.

        Args:
            trace: what the interpreter wrote down.
            job: what it ran.
            kind: simulated or measured.
            scenario: the resolved scenario.
            name: the scenario's name.
            algorithm: the name in tables and folders, where it is not the method's.
            target: the accuracy that time to accuracy is measured against.
            target_loss: the loss that time to loss is measured against.
            paced: whether a measured run held its steps to device times.
            emulated_network: whether a measured run's messages crossed an emulated network.
            asked: of a paced run: seconds that a gradient was to take.
            slowed: of a run with slowdowns or crashes: by how much they made a stretch of work longer.
            checkpoints: where its checkpoints lie, if it has some.
        """
        trace.snapshots = [evaluated(shot, job.learner) for shot in trace.snapshots]
        tables = assemble(trace, num_samples=job.learner.num_samples, replayable=kind == "measured")
        summary = summarise(
            tables,
            kind=kind,
            wall_s=trace.wall_s,
            workers=job.workers,
            staleness_kind=job.method.staleness_kind,
            target=target,
            target_loss=target_loss,
            stop_reason=trace.stop_reason,
            paced=paced,
            emulated_network=emulated_network,
            slowed=slowed,
            lost_updates=trace.lost_updates,
            each_counts=job.method.shared,
            longest_period=job.method.longest_period(job.workers),
            reads=trace.reads,
            failed_ranks=trace.failed_ranks,
            asked=asked,
        )
        return Run(
            scenario=scenario,
            name=name,
            algorithm=algorithm or job.method.name,
            seed=job.seed,
            summary=summary,
            tables=tables,
            weights=trace.weights,
            machine={**machine_facts(), **trace.notes},
            trace=trace,
            checkpoints=checkpoints,
            files=trace.files,
        )


def evaluated(shot: Snapshot, learner: Learner) -> Snapshot:
    """The snapshot with its score."""
    return shot if shot.score is not None else dataclasses.replace(shot, score=learner.evaluate(shot.vector))


class RunsFailed(RunFailed):
    """A run ended before its time; `runs` are those before it and, last, what it had recorded until then."""

    def __init__(self, message: str, runs: Sequence[Run] = ()) -> None:
        super().__init__(message, runs)
        self.message, self.runs = message, runs

    def __str__(self) -> str:
        return self.message
