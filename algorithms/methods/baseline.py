"""The baselines: one worker, and synchronous SGD by all-reduce."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from paceline.algorithms.core.compression import Compression, average_compressed, beginning, with_linear_compression
from paceline.algorithms.core.fast_values import replace
from paceline.algorithms.core.guarantees import Guarantee
from paceline.algorithms.core.method import AccumulatingMethod, RankContext, Replica, StalenessKind
from paceline.algorithms.core.operations import NextStep
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.steps import accumulated_gradient, apply_gradient
from paceline.algorithms.core.values import Weights


@dataclass(frozen=True, kw_only=True)
class SequentialSgd(AccumulatingMethod):
    """SGD on one worker, the reference for all other methods.

    x ← x − η g(x)
    """

    name = "sequential-sgd"
    staleness_kind = StalenessKind.STEPS
    source = "Robbins and Monro 1951; the baseline of all five papers"
    guarantees = frozenset({Guarantee.DETERMINISTIC, Guarantee.SYNCHRONOUS, Guarantee.REPLICAS_EQUAL})
    alone: ClassVar[bool] = True

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        rule = self.rule(me.layout.layers)
        while step := (yield from NextStep(state)):
            gradient = yield from accumulated_gradient(state.weights, step.samples, self.accumulate)
            state = yield from apply_gradient(rule, state, gradient)
        return state


@dataclass(frozen=True, kw_only=True)
class SyncSgd(AccumulatingMethod):
    """All workers average their gradients in each step and take the same step, as one worker with P times the batch.

    x ← x − η (1/P) Σ_i g_i(x)
    """

    name = "sync-sgd"
    staleness_kind = StalenessKind.STEPS
    source = "the synchronous baseline of all five papers"
    guarantees = frozenset({Guarantee.DETERMINISTIC, Guarantee.SYNCHRONOUS, Guarantee.REPLICAS_EQUAL})

    compression: Compression | None = None
    """compression of gradients before they are averaged; provenance: None, as in all five papers"""

    def linear_form(self) -> Self:
        return with_linear_compression(super().linear_form(), self.compression)

    def begin(self, me: RankContext, vector: Any) -> Replica:
        layers = me.layout.layers
        kept = beginning(self.compression, vector, layers)
        return Replica(0, Weights(vector, 0), self.rule(layers).init(vector), kept)

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        rule = self.rule(me.layout.layers)
        while step := (yield from NextStep(state)):
            gradient = yield from accumulated_gradient(state.weights, step.samples, self.accumulate)
            key = f"gradient {step.number}"
            mean, kept = yield from average_compressed(gradient, me.workers, key, self.compression, state.residual)
            state = yield from apply_gradient(rule, replace(state, residual=kept), mean)
        return state
