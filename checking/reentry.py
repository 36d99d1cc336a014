"""Stops a run and enters its programs again from their states: what a checkpoint relies on, tried without a disk."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from paceline.algorithms.job import Budget, Job
from paceline.checking.anyorder import AnyOrder
from paceline.checking.moves import Chooser, first
from paceline.checking.tasks import Checkpoint
from paceline.records.trace import Trace


def run_in_parts(job: Job, stops: Sequence[int], choose: Callable[[], Chooser] = lambda: first) -> list[Trace]:
    """Runs `job` up to each of these steps of the keeper's role, and from the last one to its end.

    At each stop every program returns its state, what is in flight is completed, and all programs are entered again
    from the states alone, the handles in them answered.

    Args:
        job: what to run.
        stops: steps, rising, below the job's own limit.
        choose: makes the chooser of each part.

    Returns:
        The trace of each part; the last one's states and weights are the run's.
    """
    checkpoint: Checkpoint | None = None
    traces = []
    for stop in [*stops, job.limit]:
        samples = job.budget.samples if stop is None else stop * job.samples_per_step
        part = AnyOrder(dataclasses.replace(job, budget=Budget(samples=samples)), start=checkpoint)
        traces.append(part.run(choose()))
        checkpoint = part.checkpoint()
    return traces
