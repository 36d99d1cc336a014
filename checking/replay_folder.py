"""Replays a stored run from its scenario and its record, and compares the weights.

Rules of this file:

* Bits are compared, not numbers. A difference is reported with its size, and with every fact about this machine that
  has changed since the run.
* Runs whose order is not recorded are rejected before anything is run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from paceline.algorithms.core.checksums import reading
from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.job import Budget, Job
from paceline.checking.replay import Progress, Recording, replay
from paceline.records import Run
from paceline.records.figures import significant
from paceline.records.machine import machine_facts, package_versions
from paceline.records.store import as_array
from paceline.scenarios.resolution.load_scenario import load
from paceline.scenarios.resolution.plan import Plan
from paceline.workloads.models.threads import torch_threads

PACKAGES = ("paceline", "python", "torch", "numpy")
"""packages whose versions may affect the bits of a gradient"""


SUMS = (
    "No difference of the machine or the packages is known. If more than two ranks sum over sockets, gloo adds in its "
    "own order and a replay in the order of ranks, so sums differ in their last bits"
)
"""why bits may differ on the same machine"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The result of a replay."""

    run: Run
    """the recorded run"""
    weights: Any
    """the weights at the end of the replay"""
    steps: int
    """steps of the rank that owns the weights, or of all such ranks if they step independently"""
    heard: int
    """number of messages and timeouts in the record"""
    unlike: tuple[str, ...]
    """sentences about what has changed since the run was recorded"""

    @property
    def bit_identical(self) -> bool:
        """Whether the weights have the same bits as the stored ones."""
        stored, again = self._vectors
        return stored.dtype == again.dtype and stored.tobytes() == again.tobytes()

    @property
    def largest_difference(self) -> float | None:
        """max |replayed − stored| over all weights; None if a weight is NaN."""
        stored, again = (vector.astype(np.float64) for vector in self._vectors)
        if stored.shape != again.shape:
            return None
        if self.bit_identical:
            return 0.0
        largest = float(np.max(np.abs(again - stored)))
        return largest if np.isfinite(largest) else None

    @property
    def _vectors(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        stored, again = self.run.weights, as_array(self.weights)
        assert again is not None, "a learner whose stored weights have numbers has numbers"
        return stored, again

    def answer(self) -> dict[str, Any]:
        """Returns the JSON answer."""
        return {
            "path": str(self.run.path),
            "algorithm": self.run.algorithm,
            "seed": self.run.seed,
            "steps": self.steps,
            "heard": self.heard,
            "bit_identical": self.bit_identical,
            "largest_difference": self.largest_difference,
            "unlike": list(self.unlike),
        }

    @property
    def words(self) -> str:
        """The result in sentences."""
        done = f"{self.run.algorithm}, seed {self.run.seed}: {self.steps} steps and {self.heard} messages replayed"
        if self.bit_identical:
            return f"{done}; the weights are those of the run, bit for bit."
        size = self.largest_difference
        by = "" if size is None else f", by up to {significant(size)}"
        why = "; ".join(self.unlike) or SUMS
        return f"{done}; the weights differ from the run's{by}. {why}."


def replay_run(run: Run, progress: Progress = lambda _: None) -> Replayed:
    """Repeats a stored run as it was recorded, without a clock, in this process.

    Args:
        run: the stored run.
        progress: called with the completed fraction.

    Raises:
        InputError: the run is not a complete measured run with weights, or its order is not recorded.
        ReplayError: the program does something else than the record says.
    """
    with reading(Path(run.path or run.name), "a whole measured run"):
        plan = plan_of(run)
        recording = Recording.of_tables(run.tables)
    job = _as_long(plan.measured_job, recording)
    with torch_threads(plan.real.torch_threads):
        trace = replay(job, recording, progress)
    return Replayed(
        run=run,
        weights=trace.weights,
        steps=job.limit or 0,
        heard=len(run.tables.heard),
        unlike=tuple(unlike(run)),
    )


def plan_of(run: Run) -> Plan:
    """Returns the plan of the run, from its own scenario; raises `InputError` if it cannot be replayed."""
    where = run.path or run.name
    if run.kind != "measured":
        raise InputError(f"{where}: a {run.kind} run; expected a measured one (a simulation is repeated by simulate)")
    if run.summary["stop_reason"] == "failure":
        raise InputError(f"{where}: the run failed, so its record has no end to compare with; expected a whole run")
    if run.weights is None:
        raise InputError(f"{where}: the run has no weights to compare with; expected one that learned something")
    if not len(run.tables.steps):
        raise InputError(f"{where}: holds no steps.parquet; it was recorded before runs could be replayed")
    (plan,) = load(run.scenario).plans(paced=run.summary["paced"])
    if plan.job.method.shared:
        raise InputError(
            f"{where}: {run.algorithm} has no order to replay: its ranks add to shared memory concurrently, and the "
            "order of their additions is in no record, since recording it would take a lock"
        )
    if run.summary.get("failed_ranks"):
        raise InputError(f"{where}: ranks died in the run, and when the other ranks noticed is in no record")
    for note, what in (("resumed_from", "was resumed from a checkpoint"), ("checkpoints", "paused for checkpoints")):
        if run.machine.get(note) is not None and not plan.job.method.deterministic:
            raise InputError(
                f"{where}: the run {what}; servers then drop gradients that they have not applied, which is not "
                "recorded; expected a run without checkpoints"
            )
    return plan


def _as_long(job: Job, recording: Recording) -> Job:
    """Returns the job with the recorded number of steps as its budget, whatever ended the run."""
    taken = [recording.steps[rank] for rank in job.owners]
    steps = sum(taken) if job.method.independent else taken[0]
    return replace(job, budget=Budget(samples=job.samples_in(steps)))


def unlike(run: Run) -> Iterator[str]:
    """Yields the facts about this machine that may affect the bits of a gradient and differ from the run's record."""
    now, then = package_versions(), run.versions
    for package in PACKAGES:
        if now.get(package) != then.get(package):
            yield f"the run had {package} {then.get(package)}, this is {now.get(package)}"
    here = machine_facts()
    for fact in ("processor", "architecture"):
        if here[fact] != run.machine.get(fact):
            yield f"the run's {fact} was {run.machine.get(fact)}, this is {here[fact]}"
