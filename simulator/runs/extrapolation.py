"""Two steps to a model that cannot be trained here: its time per sample, simulated, and the samples that it needs.

time to the target = reference samples × statistical penalty / (samples per second)

Rules of this file:

* The first factor is a training that somebody made and reported, the last is a simulated run of the model without
  learning. Between them stands the penalty: of this method with so many workers, against the reference, from a stand-in
  that was trained or from a published relation.
* Assumptions are told as they were made, with their figures: nothing is listed that was not done.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from paceline.algorithms.core.method import StalenessKind
from paceline.records import Run
from paceline.records.extrapolated import ReferenceFacts, extrapolated
from paceline.scenarios.resolution.plan import Plan
from paceline.scenarios.sections.extrapolate import ExtrapolatePart, RelationPart, StandInPart, stand_for
from paceline.simulator.runs import assumptions
from paceline.simulator.runs.stand_in import Needed, Perform, alone, needed, stood_in
from paceline.workloads.models import published_relations


class Extrapolation:
    """Of one scenario: what its runs are told beside their own figures.

    Args:
        part: the section.
        plans: those of all algorithms and seeds.
        perform: what runs a plan.
    """

    def __init__(self, part: ExtrapolatePart, plans: Sequence[Plan], perform: Perform) -> None:
        self.part, self._plans, self._perform = part, plans, perform
        self._needed: dict[str | None, Needed] = {}
        """by algorithm; None is the reference"""
        self._problems = {}
        if part.stand_in is not None:
            self._problems = {plan.seed: part.stand_in.learner(plan.seed) for plan in plans}

    def added(self, run: Run, plan: Plan) -> Run:
        """The run with what is extrapolated from it."""
        penalty, evidence, assumed = (
            self._by_stand_in(self.part.stand_in, plan)
            if self.part.stand_in is not None
            else _by_relation(self.part, run, plan)
        )
        block = extrapolated(
            "relation" if self.part.stand_in is None else "stand-in",
            penalty=penalty,
            samples_per_s=run.summary["samples_per_s"],
            reference=self._reference(plan),
            evidence=evidence,
            assumptions=[*assumptions.of_all(self.part, plan), *assumed],
        )
        return dataclasses.replace(run, summary={**run.summary, "extrapolated": block})

    def _reference(self, plan: Plan) -> ReferenceFacts:
        known = self.part.reference
        return ReferenceFacts(
            reaches=known.reaches,
            epochs=known.epochs,
            samples=known.epochs * plan.scenario.workload.num_samples,
            batch=known.batch,
            provenance=known.provenance,
        )

    def _by_stand_in(self, part: StandInPart, plan: Plan) -> tuple[float | None, dict[str, Any], list[str]]:
        """What one seed's stand-in needed, against what it needed alone."""
        seeds = [other for other in self._plans if other.name == plan.name]
        if plan.name not in self._needed:
            own = [stood_in(one, part, self._problems[one.seed]) for one in seeds]
            self._needed[plan.name] = needed(own, part, self._perform)
        if None not in self._needed:
            own = [alone(one, part, self._problems[one.seed]) for one in seeds]
            self._needed[None] = needed(own, part, self._perform)
        mine, reference = self._needed[plan.name], self._needed[None]
        at = [one.seed for one in seeds].index(plan.seed)
        many, few = mine.samples[at], reference.samples[at]
        evidence = {
            "model": part.model,
            "accuracy": part.accuracy,
            "samples": many,
            "reference_samples": few,
            "learning_rate": mine.learning_rate,
            "reference_rate": reference.learning_rate,
            "batch_per_worker": part.batch_per_worker,
            "reference_batch": round(stand_for(plan.scenario.workload, part, self.part.reference.batch)),
        }
        penalty = None if many is None or few is None else many / few
        return penalty, evidence, assumptions.of_stand_in(self.part, part, plan, mine, reference)


def _by_relation(part: ExtrapolatePart, run: Run, plan: Plan) -> tuple[float, dict[str, Any], list[str]]:
    """What the relation says of the run's updates: their samples, and their staleness."""
    assert part.relation is not None
    batch = run.summary["samples"] / run.summary["updates"]
    stale = plan.job.method.staleness_kind is not StalenessKind.LOCAL_AGE
    staleness = run.summary["staleness"]["mean"] or 0.0 if stale else 0.0
    slowdown = slowdown_of(part.relation, staleness)
    penalty = published_relations.penalty(batch, part.reference.batch, part.relation.noise_scale, slowdown)
    evidence = {
        "samples_per_update": batch,
        "noise_scale": part.relation.noise_scale,
        "staleness": staleness,
        "slowdown": slowdown,
    }
    return penalty, evidence, assumptions.of_relation(part.relation, plan, batch, staleness)


def slowdown_of(relation: RelationPart, staleness: float) -> float:
    """By how much staleness slows the noise-free part of training."""
    if relation.staleness == "stability-limit":
        return published_relations.stability_slowdown(staleness)
    if relation.staleness == "implicit-momentum":
        assert relation.momentum is not None
        return published_relations.momentum_slowdown(staleness, relation.momentum)
    return 1.0
