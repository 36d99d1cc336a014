"""The class of runs, the same for simulated and measured runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.algorithms.core.errors import RunFailed
from paceline.algorithms.core.job import Job, Learner
from paceline.records.faults import Slowed
from paceline.records.figures import SECONDS
from paceline.records.machine import machine_facts, package_versions
from paceline.records.pace import Asked, pace_figures
from paceline.records.sampled_figures import rank_table, reduce_counters
from paceline.records.summary import Kind, Summary, reduce_tables, summarise
from paceline.records.tables import Tables, assemble, frame
from paceline.records.targets import Targets
from paceline.records.trace import Snapshot, Trace


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Run:
    """One run of one method with one seed: the content of ``RUN/``.

    Its representation is one line; the figures are in `summary`, the rows in `tables`.
    """

    scenario: Mapping[str, Any]
    """the resolved scenario, as it can be run again"""
    name: str
    """the scenario's name"""
    algorithm: str
    seed: int
    summary: Summary
    tables: Tables
    weights: Any = None
    """the weights being learned, at the end: a flat vector, or None for a run without numbers"""
    machine: Mapping[str, Any] = field(default_factory=dict)
    """facts about the machine and the run that differ between repeated runs"""
    versions: Mapping[str, str] = field(default_factory=package_versions)
    trace: Trace | None = None
    """the raw record, only while the run is in memory and not of a summary; it is not stored"""
    files: Mapping[str, bytes] = field(default_factory=dict, compare=False, repr=False)
    """further files to store, by path in the folder; they are not read back"""
    path: Path | None = None
    """the folder in which it is stored"""
    checkpoints: Path | None = None
    """the folder of its checkpoints; they are moved into the run's folder"""

    def __repr__(self) -> str:
        facts = f"{self.summary['updates']} updates in {SECONDS.with_symbol(self.summary['wall_s'])}"
        place = "" if self.path is None else f", stored in {self.path}"
        return f"<{self.kind} run of {self.algorithm}, scenario {self.name}, seed {self.seed}: {facts}{place}>"

    @property
    def kind(self) -> Kind:
        """Whether it is simulated or measured."""
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
        stand_in: str | None = None,
    ) -> Run:
        """Returns the run that a trace records; evaluates snapshots that have not been evaluated.

        Args:
            trace: the record of the interpreter.
            job: the job that was run.
            kind: simulated or measured.
            scenario: the resolved scenario.
            name: the scenario's name.
            algorithm: the name in tables and folders; by default the method's.
            target: the accuracy for time to accuracy.
            target_loss: the loss for time to loss.
            paced: whether a measured run was paced to device times.
            emulated_network: whether a measured run used an emulated network.
            slowed: the seconds that slowdowns added to work, for a run with slowdowns or crashes.
            checkpoints: the folder of its checkpoints, if any.
            asked: the modelled seconds of a gradient, for a paced run.
            stand_in: which problem was learned in place of the scenario's model, and for what.
        """
        trace.snapshots = [evaluated(shot, job.learner) for shot in trace.snapshots]
        tables = assemble(trace, num_samples=job.learner.num_samples, measured=kind == "measured")
        targets = Targets(accuracy=target, loss=target_loss)
        if trace.counters is None:
            reduced = reduce_tables(
                tables,
                wall_s=trace.wall_s,
                workers=job.workers,
                staleness_kind=job.method.staleness_kind,
                longest_period=job.method.longest_period(job.workers),
                targets=targets,
                stop_reason=trace.stop_reason,
                slowed=slowed,
                each_counts=job.method.independent,
            )
        else:
            reduced = reduce_counters(trace, tables, job, targets)
            tables = kept_tables(tables, trace)
        summary = summarise(
            reduced,
            trace,
            kind=kind,
            paced=paced,
            emulated_network=emulated_network,
            pace=None if asked is None else pace_figures(tables.spans, asked),
            stand_in=stand_in,
        )
        return Run(
            scenario=scenario,
            name=name,
            algorithm=algorithm or job.method.name,
            seed=job.seed,
            summary=summary,
            tables=tables,
            weights=trace.weights,
            machine={**machine_facts(), **trace.notes, **assumptions(trace)},
            trace=trace if trace.keeping.kind != "summary" else None,
            checkpoints=checkpoints,
            files=trace.files,
        )


def assumptions(trace: Trace) -> dict[str, list[str]]:
    """Returns what a simulation assumes about costs that its scenario does not give, in sentences."""
    if trace.free_on is None:
        return {}
    free = (
        f"Updates, averages and copies take no time on {', '.join(trace.free_on)}: the scenario gives no "
        "memory_bandwidth of the device and no charges.core_bandwidth of the host."
    )
    return {"assumptions": [free] if trace.free_on else []}


def kept_tables(tables: Tables, trace: Trace) -> Tables:
    """Returns the tables to store of a run whose records are sampled: with its ranks, and of a summary without records.

    Args:
        tables: the tables of the kept records.
        trace: the record of the run.
    """
    assert trace.counters is not None, "records are sampled"
    kept = dataclasses.replace(tables, ranks=rank_table(trace.counters, trace.wall_s))
    if trace.keeping.kind == "summary":
        empty = {name: frame(name, ()) for name in ("spans", "updates", "layers")}
        kept = dataclasses.replace(kept, **empty)
    return kept


def evaluated(shot: Snapshot, learner: Learner) -> Snapshot:
    """Returns the snapshot with its evaluation."""
    return shot if shot.score is not None else dataclasses.replace(shot, score=learner.evaluate(shot.vector))


class RunsFailed(RunFailed):
    """A run failed; `runs` are the runs before it, and last the record of the failed run."""

    def __init__(self, message: str, runs: Sequence[Run] = ()) -> None:
        super().__init__(message, runs)
        self.message, self.runs = message, runs

    def __str__(self) -> str:
        return self.message
