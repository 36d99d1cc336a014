"""Planted bugs of rounds: what is mixed, what is remembered, whose change counts, and which moments are averaged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from paceline.algorithms.core.method import RankContext, Replica
from paceline.algorithms.core.operations import NextStep
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.steps import average_weights, local_step
from paceline.algorithms.core.values import Weights
from paceline.algorithms.methods.local_sgd import SlowMo
from paceline.algorithms.methods.outer import EagerDiLoCo, Outer, Overlapping
from paceline.algorithms.methods.periodic import DesLoc
from paceline.algorithms.methods.streaming_diloco import Fragment, Streaming, StreamingDiLoCo
from tests.planted_bugs.bug import planted


@dataclass(frozen=True, kw_only=True)
class ShortStreams(StreamingDiLoCo):
    """`streaming-diloco` with rounds of two steps."""

    name = "streaming-diloco-short"

    period: int = 2


@dataclass(frozen=True, kw_only=True)
class MixesTheOuterWeights(ShortStreams):
    """The mixed weights of a worker become its outer weights, from which its next change is computed."""

    name = "streaming-diloco-mixes-outer"

    @program
    def applied(self, fragments: Sequence[Fragment], state: Streaming) -> Program[Streaming]:
        after = yield from super().applied(fragments, state)
        return replace(after, start=after.weights.vector)


@dataclass(frozen=True, kw_only=True)
class ShortEager(EagerDiLoCo):
    """`eager-diloco` with rounds of one step."""

    name = "eager-diloco-short"

    period: int = 1


@dataclass(frozen=True, kw_only=True)
class ForgetsTheExchange(ShortEager):
    """The exchange in flight and the last change are in local variables."""

    name = "eager-diloco-forgets-the-exchange"

    @program
    def worker(self, me: RankContext, state: Overlapping) -> Program[Overlapping]:
        rule, change, mean = self.rule(me.layout.layers), None, None
        while step := (yield from NextStep(state)):
            state = yield from local_step(rule, state, step.samples)
            ended = yield from self.end_of_round(me, replace(state, change=change, mean=mean))
            change, mean = ended.change, ended.mean
            state = replace(ended, change=None, mean=None)
        return state


@dataclass(frozen=True, kw_only=True)
class ShortSlowMo(SlowMo):
    """`slowmo` with rounds of two steps."""

    name = "slowmo-short"

    period: int = 2


@dataclass(frozen=True, kw_only=True)
class StepsByOwnChange(ShortSlowMo):
    """Each worker computes the slow step from its own change, and the result is not averaged."""

    name = "slowmo-own-change"

    @program
    def end_of_round(self, me: RankContext, state: Outer) -> Program[Outer]:
        own = state.weights.vector.copy()
        yield from average_weights(state, me.workers, f"everyone {state.step}")
        return (yield from self.slow_step(replace(state, weights=Weights(own, state.weights.version))))


@dataclass(frozen=True, kw_only=True)
class ShortDesLoc(DesLoc):
    """`des-loc` with short periods."""

    name = "des-loc-short"

    period: int = 2
    first_moment_period: int | None = 1
    second_moment_period: int | None = 2


@dataclass(frozen=True, kw_only=True)
class MomentsOfTheNode(ShortDesLoc):
    """The moments are averaged over the workers of a node."""

    name = "des-loc-moments-of-the-node"

    @program
    def average_moments(self, me: RankContext, state: Replica) -> Program[Replica]:
        return (yield from super().average_moments(replace(me, workers=me.node), state))


@dataclass(frozen=True, kw_only=True)
class SecondMomentsTooRarely(ShortDesLoc):
    """The second moments are averaged after every third step, whatever their period."""

    name = "des-loc-second-moments-too-rarely"

    @program
    def average_moments(self, me: RankContext, state: Replica) -> Program[Replica]:
        rare: Any = replace(self, second_moment_period=3)
        return (yield from DesLoc.average_moments(rare, me, state))


BUGS = (
    planted(MomentsOfTheNode(), ShortDesLoc(), "moments-meet"),
    planted(SecondMomentsTooRarely(), ShortDesLoc(), "moments-meet"),
    planted(MixesTheOuterWeights(), ShortStreams(), "outer-weights-equal"),
    planted(ForgetsTheExchange(), ShortEager(), "complete-state"),
    planted(StepsByOwnChange(), ShortSlowMo(), "replicas-meet"),
)
