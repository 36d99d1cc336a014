"""Estimates the time to a target for a model that cannot be trained here.

time to the target = reference samples × statistical penalty / (samples per second)

* The reference samples come from a published training. The samples per second come from a simulated run of the model
  without learning. The penalty is that of this method with this number of workers relative to the reference; it comes
  from training a smaller model, the stand-in, or from a published relation.
* The assumptions are listed with their figures, and only those that were made.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from paceline.algorithms.core.method import StalenessKind
from paceline.records import Run
from paceline.records.extrapolated import (
    Needed,
    ReferenceFacts,
    RelationAssumptions,
    StandInAssumptions,
    extrapolated,
    reference_sentences,
)
from paceline.scenarios import Extrapolate, Relation, StandInWorkload
from paceline.scenarios.resolution.plan import Plan
from paceline.simulator.runs.stand_in_training import Perform, alone, needed, stood_in

# Theory. McCandlish et al. (arXiv 1812.06162) minimise a quadratic's expected loss after one step η: with gradient G,
# curvature H and per-sample noise Σ, the step gains η G'G − η²/2 (G'HG + tr(HΣ)/B). The best rate η_max/(1 + Bn/B)
# gains gain_max/(1 + Bn/B), with Bn = tr(HΣ)/(G'HG). So S = Smin (1 + Bn/B) steps and E = B S = Emin (1 + B/Bn)
# samples reach a given loss: far below Bn a larger batch costs nothing, far above it is wasted.
# A stale gradient lowers the rate that the curvature allows and does not change the noise. If the noise-free rate is
# smaller by a factor s, so are gain_max and Bn: η_max → s η_max, G'HG → G'HG/s. Then E = Emin (1 + B/(s Bn)):
# staleness enlarges the effective batch by the slowdown 1/s. This combination is derived here, not taken from a
# paper.


def samples_needed(batch: float, noise_scale: float, slowdown: float = 1.0) -> float:
    """Returns the samples to a target, as a multiple of those of the smallest batches.

    E / Emin = 1 + slowdown · B / Bn

    Args:
        batch: B, samples of one update of the weights.
        noise_scale: Bn, in samples.
        slowdown: 1/s, the factor by which staleness lowers the noise-free rate.

    >>> samples_needed(1000, noise_scale=1000), samples_needed(1, noise_scale=1000)
    (2.0, 1.001)
    """
    return 1 + slowdown * batch / noise_scale


def batch_penalty(batch: float, reference: float, noise_scale: float, slowdown: float = 1.0) -> float:
    """Returns the samples to a target relative to those of a reference batch without staleness.

    (1 + slowdown · B/Bn) / (1 + Bref/Bn)

    >>> batch_penalty(256, 256, noise_scale=8192), round(batch_penalty(4096, 256, noise_scale=8192), 4)
    (1.0, 1.4545)
    """
    return samples_needed(batch, noise_scale, slowdown) / samples_needed(reference, noise_scale)


def stability_slowdown(staleness: float) -> float:
    """Returns the factor by which a constant delay lowers the largest stable rate of gradient descent on a quadratic.

    1 / sin(π / (2 (2τ + 1))), as η λ < 2 sin(π / (2 (2τ + 1))) is stable

    Args:
        staleness: τ, updates between reading the weights and applying the gradient; may be a mean.

    >>> [round(2 / stability_slowdown(delay), 6) for delay in (0, 1, 2)]
    [2.0, 1.0, 0.618034]
    """
    return 1 / math.sin(math.pi / (2 * (2 * staleness + 1)))


def implicit_momentum(staleness: float) -> float:
    """Returns the mean momentum effect of asynchrony, with M = τ + 1 workers whose step times are exponential.

    1 − 1/M. Source: Mitliagkas, Zhang, Hadjis, Ré, Allerton 2016 (arXiv 1605.09774).

    >>> implicit_momentum(3), implicit_momentum(15)
    (0.75, 0.9375)
    """
    return 1 - 1 / (staleness + 1)


def momentum_slowdown(staleness: float, momentum: float) -> float:
    """Returns the slowdown by implicit momentum of a quadratic that was tuned with another momentum.

    (1 − √μ) / (1 − √μ'), with the implicit μ' = 1 − 1/(τ + 1), if μ' > μ; else 1, as one's own momentum is lowered
    correspondingly. Heavy ball reduces errors by √μ per update, for all curvatures that it does not overdamp.

    >>> momentum_slowdown(3, momentum=0.9), round(momentum_slowdown(127, momentum=0.9), 2)
    (1.0, 13.11)
    """
    implied = implicit_momentum(staleness)
    return max(1.0, (1 - math.sqrt(momentum)) / (1 - math.sqrt(implied)))


class Extrapolation:
    """The extrapolation of a scenario.

    Args:
        part: the scenario's section.
        plans: the plans of all algorithms and seeds.
        perform: runs a plan.
    """

    def __init__(self, part: Extrapolate, plans: Sequence[Plan], perform: Perform) -> None:
        self.part, self._plans, self._perform = part, plans, perform
        self._needed: dict[str | None, Needed] = {}
        """the samples that each algorithm needs; None is the reference"""
        self._problems = {}
        if part.stand_in is not None:
            self._problems = {plan.seed: part.stand_in.learner(plan.seed) for plan in plans}

    def added(self, run: Run, plan: Plan) -> Run:
        """Returns the run with its extrapolation in the summary.

        Args:
            run: the simulated run.
            plan: its plan.
        """
        penalty, evidence, assumed = (
            self._by_stand_in(self.part.stand_in, plan)
            if self.part.stand_in is not None
            else _by_relation(self.part, run, plan)
        )
        reference = self._reference(plan)
        block = extrapolated(
            "relation" if self.part.stand_in is None else "stand-in",
            model=plan.work.model,
            penalty=penalty,
            samples_per_s=run.summary["samples_per_s"],
            reference=reference,
            evidence=evidence,
            assumptions=[*reference_sentences(plan.work.model, reference), *assumed.sentences()],
        )
        return dataclasses.replace(run, summary={**run.summary, "extrapolated": block})

    def _reference(self, plan: Plan) -> ReferenceFacts:
        known = self.part.reference
        return ReferenceFacts(
            reaches=known.reaches,
            epochs=known.epochs,
            samples=known.epochs * plan.work.samples,
            batch=known.batch,
            provenance=known.provenance,
        )

    def _by_stand_in(
        self, part: StandInWorkload, plan: Plan
    ) -> tuple[float | None, dict[str, Any], StandInAssumptions]:
        """Returns the samples of one seed's stand-in relative to those of one worker, the evidence and assumptions."""
        seeds = [other for other in self._plans if other.name == plan.name]
        if plan.name not in self._needed:
            own = [stood_in(seed_plan, part, self._problems[seed_plan.seed]) for seed_plan in seeds]
            self._needed[plan.name] = needed(own, part, self._perform)
        if None not in self._needed:
            own = [
                alone(seed_plan, part, self._problems[seed_plan.seed], self.part.reference.batch) for seed_plan in seeds
            ]
            self._needed[None] = needed(own, part, self._perform)
        of_method, reference = self._needed[plan.name], self._needed[None]
        at = [seed_plan.seed for seed_plan in seeds].index(plan.seed)
        many, few = of_method.samples[at], reference.samples[at]
        work, known = plan.work, self.part.reference
        assumed = StandInAssumptions(
            method=plan.name,
            model=work.model,
            stand_in=part.model,
            accuracy=part.accuracy,
            model_batch=work.batch,
            batch=part.batch_per_worker,
            reference_batch=known.batch,
            reference_updates=known.epochs * work.samples / known.batch,
            evaluated=part.evaluate.text,
            epochs=part.epochs,
            rates=part.learning_rates,
            alone=part.alone.name,
            needed=of_method,
            needed_alone=reference,
        )
        evidence = {
            "model": part.model,
            "accuracy": part.accuracy,
            "samples": many,
            "reference_samples": few,
            "learning_rate": of_method.learning_rate,
            "reference_rate": reference.learning_rate,
            "batch_per_worker": part.batch_per_worker,
            "reference_batch": assumed.batch_alone,
        }
        penalty = None if many is None or few is None else many / few
        return penalty, evidence, assumed


def _by_relation(part: Extrapolate, run: Run, plan: Plan) -> tuple[float, dict[str, Any], RelationAssumptions]:
    """Returns the penalty by the published relation, from the samples and the staleness of the run's updates."""
    assert part.relation is not None
    batch = run.summary["samples"] / run.summary["updates"]
    stale = plan.job.method.staleness_kind is not StalenessKind.LOCAL_AGE
    staleness = run.summary["staleness"]["mean"] or 0.0 if stale else 0.0
    slowdown = slowdown_of(part.relation, staleness)
    penalty = batch_penalty(batch, part.reference.batch, part.relation.noise_scale, slowdown)
    evidence = {
        "samples_per_update": batch,
        "noise_scale": part.relation.noise_scale,
        "staleness": staleness,
        "slowdown": slowdown,
    }
    assumed = RelationAssumptions(
        method=plan.name,
        noise_scale=part.relation.noise_scale,
        provenance=part.relation.provenance,
        batch=batch,
        staleness=staleness,
        slowdown=part.relation.staleness,
        local_steps=not stale,
    )
    return penalty, evidence, assumed


def slowdown_of(relation: Relation, staleness: float) -> float:
    """Returns the factor by which staleness slows the noise-free part of training.

    Args:
        relation: the relation.
        staleness: the mean staleness of the updates.
    """
    if relation.staleness == "stability-limit":
        return stability_slowdown(staleness)
    if relation.staleness == "implicit-momentum":
        assert relation.momentum is not None
        return momentum_slowdown(staleness, relation.momentum)
    return 1.0
