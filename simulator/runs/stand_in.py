"""A small problem trained in the place of a big model, on the big model's clock: how many samples it needs.

Rules of this file:

* The stand-in's run is the model's in everything but its numbers: the same plan, the same network, the same function
  that performs it. So steps, messages, their order and the staleness of every update are the model's.
* Samples are counted as the stand-in's; those of the reference come from one worker with the reference's batch.
* With several rates to try, a method's best one is that whose slowest seed is seen to get there after the fewest
  samples. A rate that can no more be the best is not tried to the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from paceline.algorithms.core.job import Budget, Job, Learner
from paceline.algorithms.core.values import Rank
from paceline.records.goals import SMOOTHING, crossing
from paceline.records.metrics import smoothed
from paceline.records.trace import Schedule, Snapshot, Trace
from paceline.scenarios.resolution.plan import Plan
from paceline.scenarios.sections.extrapolate import StandInPart, stand_for
from paceline.workloads.learners.stand_in import StandIn

Perform = Callable[[Plan, Schedule], Trace]
"""runs a plan's job on its cluster in virtual time"""


@dataclass(frozen=True, slots=True)
class Needed:
    """Samples to the stand-in's accuracy, one figure for each seed; None where it was not reached."""

    samples: tuple[float | None, ...]
    learning_rate: float | None = None
    """None for a method without one"""

    @property
    def mean(self) -> float:
        """Of the seeds; infinite where one did not get there."""
        return math.fsum(math.inf if one is None else one for one in self.samples) / len(self.samples)


def stood_in(plan: Plan, part: StandInPart, problem: Learner) -> Plan:
    """The same plan with the numbers of a small problem, until its accuracy is reached or its epochs are over."""
    workload, model = plan.scenario.workload, plan.job.learner
    item_bytes = model.initial().nbytes // model.layout.size
    learner = StandIn(problem, model.layout, workload.batch_per_worker, part.batch_per_worker, item_bytes)
    return _until(plan, replace(plan.job, learner=learner), part)


def alone(plan: Plan, part: StandInPart, problem: Learner) -> Plan:
    """One worker on the small problem, with the batch that the reference's stands for."""
    batch = round(stand_for(plan.scenario.workload, part, _reference_batch(plan)))
    job = Job.of(part.alone, [[Rank(0)]], problem, batch=batch, budget=Budget(), seed=plan.seed)
    return _until(plan, job, part)


def _until(plan: Plan, job: Job, part: StandInPart) -> Plan:
    budget = Budget(
        samples=max(1, round(part.epochs * job.learner.num_samples)), accuracy=part.accuracy, divergence=True
    )
    return replace(plan, job=replace(job, budget=budget))


def _reference_batch(plan: Plan) -> int:
    assert plan.scenario.extrapolate is not None
    return plan.scenario.extrapolate.reference.batch


def needed(plans: Sequence[Plan], part: StandInPart, perform: Perform) -> Needed:
    """What the best rate needs, of those to be tried.

    Args:
        plans: one for each seed, alike but for the seed.
        part: the stand-in.
        perform: what runs them.
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
    plans: Sequence[Plan], part: StandInPart, perform: Perform, fewest: float
) -> tuple[tuple[float, ...], float] | None:
    """The samples of each seed, and those after which the slowest was seen; None as soon as these are not fewer."""
    found, slowest = [], 0.0
    for plan in plans:
        run = _within(plan, fewest)
        learner = run.job.learner
        got = reached(perform(run, part.evaluate.schedule(learner.num_samples)).snapshots, part.accuracy)
        if got is None or got[1] >= fewest:
            return None
        counted = learner.stand_for / learner.batch if isinstance(learner, StandIn) else 1.0
        found.append(got[0] * counted)
        slowest = max(slowest, got[1])
    return tuple(found), slowest


def _rated(plan: Plan, rate: float | None) -> Plan:
    if rate is None:
        return plan
    method = replace(plan.job.method, learning_rate=rate)  # type: ignore[call-arg]  # only methods that have one
    return replace(plan, job=replace(plan.job, method=method))


def _within(plan: Plan, samples: float) -> Plan:
    """The plan with no more samples than can still be the fewest."""
    budget = plan.job.budget
    most = min(budget.samples or math.inf, samples)
    return replace(plan, job=replace(plan.job, budget=replace(budget, samples=math.ceil(most))))


def reached(shots: Sequence[Snapshot], accuracy: float) -> tuple[float, float] | None:
    """The samples at which the accuracy was reached, and those after which that was seen; None if it never was.

    Both accuracies and samples are means of the last evaluations: a mean's accuracy is that of its middle, so that
    whoever is evaluated seldom does not seem late.
    """
    scores = [None if shot.score is None else shot.score.accuracy for shot in shots]
    accuracies = [math.nan if score is None else score for score in scores]
    samples, means = [float(shot.samples) for shot in shots], smoothed(accuracies, SMOOTHING).tolist()
    found = crossing(accuracy, means)
    return None if found is None else (found.at(smoothed(samples, SMOOTHING).tolist()), samples[found.index])
