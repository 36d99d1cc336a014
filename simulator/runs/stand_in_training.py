"""Trains a small model, the stand-in, with the timing of a large one, and counts the samples that it needs.

* Only the numbers of the stand-in's run differ from the model's run: plan, network and interpreter are the same. So
  step times, messages, their order and the staleness of every update are those of the model.
* Samples are those of the stand-in; those of the reference come from one worker with the reference's batch.
* With several learning rates, the best one of a method is the one at which the slowest seed reaches the target after
  the fewest samples. A run at a rate that cannot be the best any more is stopped early.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from paceline.algorithms.core.job import Budget, Job, Learner
from paceline.algorithms.core.values import Rank
from paceline.records.extrapolated import Needed
from paceline.records.metrics import smoothed
from paceline.records.targets import SMOOTHING, crossing
from paceline.records.trace import Schedule, Snapshot, Trace
from paceline.scenarios import StandInWorkload
from paceline.scenarios.resolution.plan import Plan
from paceline.workloads.learners.stand_in import StandIn

Perform = Callable[[Plan, Schedule], Trace]
"""simulates a plan's job on its cluster"""


def stood_in(plan: Plan, part: StandInWorkload, problem: Learner) -> Plan:
    """Returns the plan with the numbers of a small problem, until its accuracy is reached or its epochs are over.

    Args:
        plan: the model's plan.
        part: the stand-in.
        problem: its learner.
    """
    model = plan.job.learner
    item_bytes = model.initial().nbytes // model.layout.size
    learner = StandIn(problem, model.layout, plan.work.batch, part.batch_per_worker, item_bytes)
    return _until(plan, replace(plan.job, learner=learner), part)


def alone(plan: Plan, part: StandInWorkload, problem: Learner, batch: int) -> Plan:
    """Returns a plan of one worker on the small problem, with the batch that corresponds to the reference's.

    Args:
        plan: the model's plan.
        part: the stand-in.
        problem: its learner.
        batch: the reference's batch, samples of the model.
    """
    small = round(part.stand_for(plan.work.batch, batch))
    job = Job.of(part.alone, [[Rank(0)]], problem, batch=small, budget=Budget(), seed=plan.seed)
    return _until(plan, job, part)


def _until(plan: Plan, job: Job, part: StandInWorkload) -> Plan:
    budget = Budget(
        samples=max(1, round(part.epochs * job.learner.num_samples)), accuracy=part.accuracy, divergence=True
    )
    return replace(plan, job=replace(job, budget=budget))


def needed(plans: Sequence[Plan], part: StandInWorkload, perform: Perform) -> Needed:
    """Returns the samples that the best of the learning rates needs.

    Args:
        plans: one plan for each seed, otherwise equal.
        part: the stand-in.
        perform: runs a plan.
    """
    own: float | None = getattr(plans[0].job.method, "learning_rate", None)
    rates: Sequence[float | None] = part.learning_rates if part.learning_rates and own is not None else [own]
    best, fewest = Needed((None,) * len(plans), rates[0] if len(rates) == 1 else None), math.inf
    for rate in rates:
        tried = _tried([_rated(plan, rate) for plan in plans], part, perform, fewest)
        if tried is not None:
            samples, fewest = tried
            best = Needed(samples, rate)
    return best


def _tried(
    plans: Sequence[Plan], part: StandInWorkload, perform: Perform, fewest: float
) -> tuple[tuple[float, ...], float] | None:
    """Returns the samples of each seed, and those at the evaluation that ends the slowest; None if not fewer."""
    counted_samples, slowest = [], 0.0
    for plan in plans:
        run = _within(plan, fewest)
        learner = run.job.learner
        got = reached(perform(run, part.evaluate.schedule(learner.num_samples)).snapshots, part.accuracy)
        if got is None or got[1] >= fewest:
            return None
        counted = learner.stand_for / learner.batch if isinstance(learner, StandIn) else 1.0
        counted_samples.append(got[0] * counted)
        slowest = max(slowest, got[1])
    return tuple(counted_samples), slowest


def _rated(plan: Plan, rate: float | None) -> Plan:
    if rate is None:
        return plan
    method = replace(plan.job.method, learning_rate=rate)  # type: ignore[call-arg]  # only methods that have one
    return replace(plan, job=replace(plan.job, method=method))


def _within(plan: Plan, samples: float) -> Plan:
    """Returns the plan with a budget of at most `samples`."""
    budget = plan.job.budget
    most = min(budget.samples or math.inf, samples)
    return replace(plan, job=replace(plan.job, budget=replace(budget, samples=math.ceil(most))))


def reached(shots: Sequence[Snapshot], accuracy: float) -> tuple[float, float] | None:
    """Returns the samples at which an accuracy was reached, and those at the evaluation that showed it.

    Accuracies and samples are both means of the last evaluations. A mean accuracy belongs to the middle of its window,
    so infrequent evaluations do not make a method look slow.

    Args:
        shots: the evaluated snapshots.
        accuracy: the target.

    Returns:
        The two numbers of samples; None if the accuracy was not reached.
    """
    scores = [None if shot.score is None else shot.score.accuracy for shot in shots]
    accuracies = [math.nan if score is None else score for score in scores]
    samples, means = [float(shot.samples) for shot in shots], smoothed(accuracies, SMOOTHING).tolist()
    crossed = crossing(accuracy, means)
    return None if crossed is None else (crossed.at(smoothed(samples, SMOOTHING).tolist()), samples[crossed.index])
