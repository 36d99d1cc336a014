"""How many gradients a run will compute, from which the records that it keeps are chosen."""

from __future__ import annotations

import math

from paceline.algorithms.core.values import Rank
from paceline.records.keeping import Choice, Keeping
from paceline.scenarios.resolution.plan import Plan


def expected_steps(plan: Plan) -> float:
    """Returns the expected number of gradients of all workers together; an upper limit if a target may end the run.

    min(samples / mean batch, Σ_workers seconds / seconds of the worker's gradient), of the limits that are given

    Args:
        plan: the run.

    >>> from paceline import load
    >>> (plan,) = load("quickstart", ["stop.epochs=null", "stop.updates=10"], algorithms=["sync-sgd"]).plans()
    >>> plan.job.workers, expected_steps(plan)
    (4, 40.0)
    """
    job, limits = plan.job, [math.inf]
    budget = job.budget
    if budget.samples is not None:
        limits.append(budget.samples * job.workers / sum(job.batches))
    if budget.seconds is not None:
        times_s = [plan.cluster.device_of(Rank(rank)).compute_s(batch) for rank, batch in enumerate(job.batches)]
        rate = sum(math.inf if one_s <= 0 else 1 / one_s for one_s in times_s)
        limits.append(max(1.0, budget.seconds * rate / plan.time_dilation))
    return min(limits)


def keeping_of(plan: Plan, choice: Choice | None = None) -> Keeping:
    """Returns which records a simulation of a plan keeps.

    A step of a layer-wise method has spans for each of its buckets, so each of them counts as a step.

    Args:
        plan: the run.
        choice: instead of the scenario's `records`.
    """
    job = plan.job
    parts = expected_steps(plan) * job.method.parts_per_step(job.team[0])
    return Keeping.of(choice or plan.records, job.workers, parts, plan.seed)
