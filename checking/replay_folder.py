"""A stored run again: the run of a folder is replayed from its scenario and its record, and its weights are compared.

Rules of this file:

* Bits are compared, not numbers: weights are the same or they are not. A difference is told with its size, and with
  everything about this machine that is not as it was.
* What has no order to follow is refused before anything runs.
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
from paceline.checking.replay import Recording, Told, replay
from paceline.records import Run
from paceline.records.machine import machine_facts, package_versions
from paceline.records.store import as_array
from paceline.scenarios.resolution.load_scenario import load
from paceline.scenarios.resolution.plan import Plan
from paceline.workloads.models.threads import torch_threads

PACKAGES = ("paceline", "python", "torch", "numpy")
"""whose versions may show in the bits of a gradient"""


SUMS = (
    "Nothing is known to be unlike. Where more than two ranks sum over sockets, gloo adds in an order of its own, and "
    "a replay in the order of ranks: sums then differ in their last bits"
)
"""why bits may differ on the very machine that made them"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What came of a replay."""

    run: Run
    """the recorded one"""
    weights: Any
    """at the end of the replay"""
    steps: int
    """of the weights' keeper, or of all keepers where they step independently"""
    heard: int
    """messages, and receives that timed out, in the order of the record"""
    unlike: tuple[str, ...]
    """what is not as it was when the run was recorded, in words"""

    @property
    def bit_identical(self) -> bool:
        """Whether every bit of the weights is the stored one's."""
        stored, again = self._vectors
        return stored.dtype == again.dtype and stored.tobytes() == again.tobytes()

    @property
    def largest_difference(self) -> float | None:
        """max |replayed − stored| over all weights; None where a number on one side is none."""
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
        """As a JSON answer."""
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
        """In sentences."""
        done = f"{self.run.algorithm}, seed {self.run.seed}: {self.steps} steps and {self.heard} messages replayed"
        if self.bit_identical:
            return f"{done}; the weights are those of the run, bit for bit."
        size = self.largest_difference
        by = "" if size is None else f", by up to {size:.3g}"
        why = "; ".join(self.unlike) or SUMS
        return f"{done}; the weights differ from the run's{by}. {why}."


def replay_run(run: Run, told: Told = lambda _: None) -> Replayed:
    """Runs a stored run again as it was recorded, without a clock, in this process.

    Args:
        run: as it was read.
        told: told how much of it is done.

    Raises:
        InputError: it is no whole measured run with weights, or its method's order is in no record.
        ReplayError: the program leaves the record.
    """
    with reading(Path(run.path or run.name), "a whole measured run"):
        plan = plan_of(run)
        recording = Recording.of_tables(run.tables)
    job = _as_long(plan.measured_job, recording)
    with torch_threads(plan.scenario.train.torch_threads):
        trace = replay(job, recording, told)
    return Replayed(
        run=run,
        weights=trace.weights,
        steps=job.limit or 0,
        heard=len(run.tables.heard),
        unlike=tuple(unlike(run)),
    )


def plan_of(run: Run) -> Plan:
    """What the run was given, from its own scenario; raises `InputError` where it cannot be replayed."""
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
            f"{where}: {run.algorithm} has no order to replay: its ranks add to shared memory at once, and which of "
            "two came first to a number is in no record, since to note it would take a lock"
        )
    if run.summary.get("failed_ranks"):
        raise InputError(f"{where}: ranks died in the run, and when the others heard of it is in no record")
    for note, what in (("resumed_from", "went on from a checkpoint"), ("checkpoints", "paused for checkpoints")):
        if run.machine.get(note) is not None and not plan.job.method.deterministic:
            raise InputError(
                f"{where}: the run {what}, where servers drop what they have not applied, and that is in no record; "
                "expected one without checkpoints"
            )
    return plan


def _as_long(job: Job, recording: Recording) -> Job:
    """The job with a budget of the steps that were taken, whatever had ended it."""
    taken = [recording.steps[me.rank] for me in job.team if me.role == job.method.weights_owner]
    steps = sum(taken) if job.method.independent else taken[0]
    return replace(job, budget=Budget(samples=steps * job.samples_per_step))


def unlike(run: Run) -> Iterator[str]:
    """What of this machine may show in the bits of a gradient and is not as the run's record says."""
    now, then = package_versions(), run.versions
    for package in PACKAGES:
        if now.get(package) != then.get(package):
            yield f"the run had {package} {then.get(package)}, this is {now.get(package)}"
    here = machine_facts()
    for fact in ("processor", "architecture"):
        if here[fact] != run.machine.get(fact):
            yield f"the run's {fact} was {run.machine.get(fact)}, this is {here[fact]}"
