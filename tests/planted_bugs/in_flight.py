"""Planted bugs of methods that send a part of a momentum, or compute while an average is in flight."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from paceline.algorithms.core.chunk_top_k import ChunkMemory, ChunkTopK
from paceline.algorithms.core.dct_top_k import DctTopK, TopKMemory
from paceline.algorithms.core.method import RankContext
from paceline.algorithms.core.operations import NextStep
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.rules import Chain
from paceline.algorithms.core.steps import local_step
from paceline.algorithms.core.values import Group, Weights
from paceline.algorithms.methods.accumulating import Acco, Accumulating
from paceline.algorithms.methods.decoupled_momentum import DeMo, SparseLoCo
from paceline.algorithms.methods.outer import Co2, Outer, Overlapped
from tests.planted_bugs.bug import planted


@dataclass(frozen=True, kw_only=True)
class OwnMessageTwice(DctTopK):
    """A mean to which each member adds its own message, although that is among the gathered ones."""

    @program
    def averaged(self, group: Group, vector: Any, key: str, memory: TopKMemory) -> Program[tuple[Any, TopKMemory]]:
        own, _ = self.compress(vector, memory)
        mean, memory = yield from DctTopK.averaged(self, group, vector, key, memory)
        return mean + own.dense() / len(group), memory


@dataclass(frozen=True, kw_only=True)
class PlainSteps(DeMo):
    """`demo` with the mean itself as its step."""

    name = "demo-plain-steps"
    update: Literal["sign", "plain"] = "plain"


@dataclass(frozen=True, kw_only=True)
class AddsItsOwnMessage(PlainSteps):
    """A worker adds its own coefficients to the sum of those that it has gathered, which contains them."""

    name = "demo-adds-its-own-message"

    @property
    def extraction(self) -> DctTopK:
        return OwnMessageTwice(chunk=self.chunk, k=self.k, decay=self.momentum, average_over=self.average_over)


@dataclass(frozen=True, kw_only=True)
class AppliesItsOwnHalf(Acco):
    """The weights move by the worker's own sum of gradients instead of the mean that has landed."""

    name = "acco-applies-its-own-half"

    @program
    def end_first_half(self, me: RankContext, rule: Chain, state: Accumulating) -> Program[Accumulating]:
        ended = yield from Acco.end_first_half(self, me, rule, state)
        if state.flight is None:
            return ended
        own = state.total / len(state.origins)
        vector, _ = rule.update(state.weights.vector, own, state.optimizer_state)
        return replace(ended, weights=Weights(vector, ended.weights.version))


@dataclass(frozen=True, kw_only=True)
class EverySecondRound(Co2):
    """`co2` with rounds of two steps."""

    name = "co2-every-second"
    period: int = 2


@dataclass(frozen=True, kw_only=True)
class MovesItsOwnWeights(EverySecondRound):
    """The outer step moves each worker's own weights instead of those at the start of the round."""

    name = "co2-moves-its-own-weights"

    @program
    def end_of_round(self, me: RankContext, state: Overlapped) -> Program[Overlapped]:
        ended = yield from Co2.end_of_round(self, me, state)
        vector = state.weights.vector + (ended.weights.vector - state.start)
        return replace(ended, weights=Weights(vector, ended.weights.version), start=vector)


@dataclass(frozen=True, kw_only=True)
class ShortSparseLoCo(SparseLoCo):
    """`sparse-loco` with rounds of two steps and small chunks."""

    name = "sparse-loco-short"

    period: int = 2
    chunk: int = 4
    k: int = 1


@dataclass(frozen=True, kw_only=True)
class DropsTheRest(ChunkTopK):
    """A compression that keeps nothing."""

    def compress(self, vector: Any, memory: ChunkMemory) -> tuple[Any, ChunkMemory]:
        message, kept = super().compress(vector, memory)
        return message, replace(kept, vector=0 * kept.vector)


@dataclass(frozen=True, kw_only=True)
class WithoutErrorFeedback(ShortSparseLoCo):
    """What a worker does not send of a change is lost."""

    name = "sparse-loco-drops-the-rest"

    @property
    def sparsification(self) -> ChunkTopK:
        return DropsTheRest(**vars(super().sparsification))


@dataclass(frozen=True, kw_only=True)
class ForgetsTheRest(ShortSparseLoCo):
    """What a worker has not sent is in a local variable."""

    name = "sparse-loco-forgets-the-rest"

    @program
    def worker(self, me: RankContext, state: Outer) -> Program[Outer]:
        rule, unsent = self.rule(me.layout.layers), self.begin(me, state.start).residual
        while step := (yield from NextStep(state)):
            state = yield from local_step(rule, state, step.samples)
            ended = yield from self.end_of_round(me, replace(state, residual=unsent))
            state, unsent = replace(ended, residual=None), ended.residual
        return state


@dataclass(frozen=True, kw_only=True)
class StepsByItsOwnRest(ShortSparseLoCo):
    """A worker takes the outer step by the mean and by what it has not sent."""

    name = "sparse-loco-steps-by-its-own-rest"

    @program
    def end_of_round(self, me: RankContext, state: Outer) -> Program[Outer]:
        ended = yield from SparseLoCo.end_of_round(self, me, state)
        vector = ended.weights.vector - self.outer_learning_rate * ended.residual.vector
        return replace(ended, weights=Weights(vector, ended.weights.version), start=vector)


BUGS = (
    planted(WithoutErrorFeedback(), ShortSparseLoCo(), "gradient-weights"),
    planted(ForgetsTheRest(), ShortSparseLoCo(), "complete-state"),
    planted(StepsByItsOwnRest(), ShortSparseLoCo(), "replicas-meet"),
    planted(AddsItsOwnMessage(), PlainSteps(), "replicas-equal"),
    planted(AppliesItsOwnHalf(), Acco(), "replicas-equal"),
    planted(MovesItsOwnWeights(), EverySecondRound(), "replicas-meet", "deterministic"),
)
