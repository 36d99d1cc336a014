"""Gradients are accumulated while the all-reduce of earlier ones is in flight."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Self

from paceline.algorithms.core.compression import Cast, landed_mean, started_mean
from paceline.algorithms.core.guarantees import AppliedGradient, Guarantee
from paceline.algorithms.core.method import RankContext, SgdMethod, StalenessKind, changed
from paceline.algorithms.core.operations import Charge, Handle, NextStep, RecordUpdate
from paceline.algorithms.core.option_groups import COUNT, Range
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.rules import Chain
from paceline.algorithms.core.steps import gradient_at
from paceline.algorithms.core.traffic import COMBINE, SCALE
from paceline.algorithms.core.values import Contribution, GradientResult, Vector, Weights


@dataclass(frozen=True, slots=True)
class Accumulating:
    """A replica in a round of two halves, with the all-reduce of the half or of the round before in flight."""

    step: int
    weights: Weights
    optimizer_state: Any = None
    estimate: Any = None
    """the vector at which the first half of a round computes its gradients; None: at the weights"""
    total: Any = None
    """the sum of this worker's gradients of the round; None before the first"""
    origins: tuple[Contribution, ...] = ()
    """of the gradients in the sum"""
    flight: Handle[Vector] | None = None
    landing: tuple[Contribution, ...] = ()
    """of the gradients of the last whole round, until they are applied"""


@dataclass(frozen=True, kw_only=True)
class Acco(SgdMethod):
    """Rounds of two halves: while one half computes gradients, the mean of those before is in flight.

    first half of round t:   h_t = mean of A gradients at the estimate y_t;  θ_t lands meanwhile
    second half:             g_t = mean of A gradients at θ_t;  y_{t+1} = θ_t − η (1/P) Σ_i h_t  lands meanwhile
    then:                    θ_{t+1} = θ_t − η (1/P) Σ_i (h_t + g_t) / 2,  and y_0 = θ_0

    The optimizer state of the step to an estimate is dropped. What is in flight at the end of a run is completed and
    kept in the state, not applied.
    """

    name = "acco"
    staleness_kind = StalenessKind.STEPS
    source = "Nabli et al. 2024, 'ACCO: Accumulate While You Communicate', arXiv 2406.02613, and its code"
    guarantees = frozenset({Guarantee.DETERMINISTIC, Guarantee.REPLICAS_EQUAL, Guarantee.BOUNDED_STALENESS})

    ranges: ClassVar[Mapping[str, Range]] = {"accumulate": COUNT}

    accumulate: int = 1
    """A, gradients of each worker in half a round; provenance: `n_grad_accumulation` of the authors' configuration,
    which is the least number there: workers go on until the communication ends"""

    compression: Cast | None = None
    """the short type in which gradients are sent, see `Cast`; provenance: None, as in the source"""

    def linear_form(self) -> Self:
        return changed(super().linear_form(), compression=None)

    def bounds(self, workers: int) -> Mapping[Guarantee, float]:
        return {Guarantee.BOUNDED_STALENESS: 1}

    def longest_period(self, workers: int) -> int:
        return 3 * self.accumulate

    def initial_weight(self, updates: int) -> float | None:
        return None  # the first round applies nothing

    def global_steps(self, me: RankContext) -> Fraction:
        return Fraction(2 * self.accumulate)  # a round has so many steps of each worker

    def gradient_weight(self, gradient: AppliedGradient) -> float:
        """Returns η / (1 − μ) / (2 A P), with η of the round: a round is the mean of its gradients."""
        return self.learning_rate_at(gradient.version) / (1 - self.momentum) / (2 * self.accumulate * gradient.workers)

    def begin(self, me: RankContext, vector: Any) -> Accumulating:
        return Accumulating(0, Weights(vector, 0), self.rule(me.layout.layers).init(vector))

    @program
    def worker(self, me: RankContext, state: Accumulating) -> Program[Accumulating]:
        rule = self.rule_of(me)
        while step := (yield from NextStep(state)):
            held = state.weights
            point = held if state.estimate is None else Weights(state.estimate, held.version)
            state = yield from self.accumulated(state, (yield from gradient_at(point, step.samples)))
            halves, rest = divmod(state.step, self.accumulate)
            if rest == 0:
                end = self.end_first_half if halves % 2 == 1 else self.end_second_half
                state = yield from end(me, rule, state)
        return state

    @program
    def accumulated(self, state: Accumulating, gradient: GradientResult) -> Program[Accumulating]:
        """Adds a gradient to the sum of the round."""
        total = gradient.vector
        if state.total is not None:
            yield from Charge("accumulate", total.nbytes, traffic=COMBINE)
            total = state.total + total
        origins = (*state.origins, gradient.contribution())
        return replace(state, step=state.step + 1, total=total, origins=origins)

    @program
    def start_mean(self, me: RankContext, state: Accumulating) -> Program[Handle[Vector]]:
        """Starts to average the mean of the gradients of the round so far."""
        yield from Charge("accumulate", state.total.nbytes, traffic=SCALE)
        mean = state.total / len(state.origins)
        return (yield from started_mean(mean, me.workers, f"gradients {state.step}", self.compression))

    @program
    def end_first_half(self, me: RankContext, rule: Chain, state: Accumulating) -> Program[Accumulating]:
        """Applies the round before, and starts to average the first half, for the next estimate."""
        landed = None
        if state.flight is not None:
            landed = yield from landed_mean(state.flight, state.weights.vector, self.compression)
        flight = yield from self.start_mean(me, state)
        weights, memory = state.weights, state.optimizer_state
        if landed is not None:
            yield from rule.charge(landed.nbytes)
            vector, memory = rule.update(weights.vector, landed, memory)
            version = yield from RecordUpdate(Weights(vector, weights.version), state.landing)
            weights = Weights(vector, version)
        return replace(state, weights=weights, optimizer_state=memory, estimate=None, flight=flight, landing=())

    @program
    def end_second_half(self, me: RankContext, rule: Chain, state: Accumulating) -> Program[Accumulating]:
        """Estimates the next weights from the first half, and starts to average the whole round."""
        assert state.flight is not None, "the first half has started an all-reduce"
        half = yield from landed_mean(state.flight, state.weights.vector, self.compression)
        flight = yield from self.start_mean(me, state)
        yield from rule.charge(half.nbytes)
        estimate, _ = rule.update(state.weights.vector, half, state.optimizer_state)
        return replace(state, estimate=estimate, total=None, origins=(), flight=flight, landing=state.origins)
