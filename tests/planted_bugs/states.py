"""Planted bugs of states: what a program needs after `NextStep` is not in the state, or is in it twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from paceline.algorithms.core.method import RankContext, Replica
from paceline.algorithms.core.operations import NextStep, Receive, Send
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.steps import apply_gradient, average_gradient, gradient_at, local_step
from paceline.algorithms.core.values import GradientResult
from paceline.algorithms.methods.async_diloco import AsyncDiLoCo, AsyncServer, PseudoGradient, RoundState
from paceline.algorithms.methods.baseline import SyncSgd
from paceline.algorithms.methods.decoupled_diloco import DecoupledDiLoCo, LearnerState
from paceline.algorithms.methods.parameter_server import ServerStopped, server_of
from paceline.algorithms.methods.regional_servers import HALoS, RegionalRound
from paceline.algorithms.methods.streaming_diloco import Fragment
from paceline.algorithms.methods.survivors import LivingWorkers
from tests.planted_bugs.bug import planted
from tests.planted_bugs.replicas import EverySecond


@dataclass(frozen=True, kw_only=True)
class WithMomentum(SyncSgd):
    """`sync-sgd` with momentum."""

    name = "sync-sgd-momentum"

    momentum: float = 0.9


@dataclass(frozen=True, kw_only=True)
class ForgetsMomentum(WithMomentum):
    """The velocity is in a local variable and not in the state."""

    name = "sync-sgd-forgets-momentum"

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        rule = self.rule(me.layout.layers)
        memory = rule.init(state.weights.vector)
        while step := (yield from NextStep(state)):
            gradient = yield from gradient_at(state.weights, step.samples)
            mean = yield from average_gradient(gradient, me.workers, f"gradient {step.number}")
            after = yield from apply_gradient(rule, replace(state, optimizer_state=memory), mean)
            memory, state = after.optimizer_state, replace(after, optimizer_state=None)
        return state


@dataclass(frozen=True, kw_only=True)
class CountsInAVariable(EverySecond):
    """The local steps since the last average are counted in a local variable."""

    name = "k-avg-counts-in-a-variable"

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        rule, since = self.rule(me.layout.layers), 0
        while step := (yield from NextStep(state)):
            state = yield from local_step(rule, state, step.samples)
            since += 1
            if since == self.k:
                state, since = (yield from self.average_all(me, state)), 0
        return state


@dataclass(frozen=True, slots=True)
class Kept(Replica):
    """A replica with the mean gradient that has been applied last."""

    last: GradientResult | None = None


@dataclass(frozen=True, kw_only=True)
class AppliesAgain(SyncSgd):
    """A restarted program applies the last gradient of its state again."""

    name = "sync-sgd-applies-again"

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        rule, held = self.rule(me.layout.layers), Kept(state.step, state.weights, state.optimizer_state)
        if isinstance(state, Kept) and state.last is not None:
            again = yield from apply_gradient(rule, held, state.last)
            held = replace(again, step=held.step)
        while step := (yield from NextStep(held)):
            gradient = yield from gradient_at(held.weights, step.samples)
            mean = yield from average_gradient(gradient, me.workers, f"gradient {step.number}")
            kept = replace(mean, vector=mean.vector.copy())
            held = replace((yield from apply_gradient(rule, held, mean)), last=kept)
        return held


@dataclass(frozen=True, kw_only=True)
class KeepsTheFirstBatch(SyncSgd):
    """The program loads its first batch once more when it is restarted, because its own counter starts at 0."""

    name = "sync-sgd-own-counter"

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        rule, own = self.rule(me.layout.layers), 0
        while step := (yield from NextStep(state)):
            gradient = yield from gradient_at(state.weights, replace(step.samples, index=own))
            own += 1
            mean = yield from average_gradient(gradient, me.workers, f"gradient {step.number}")
            state = yield from apply_gradient(rule, state, mean)
        return state


@dataclass(frozen=True, kw_only=True)
class RoundsOfTwo(AsyncDiLoCo):
    """`async-diloco` with rounds of two steps."""

    name = "async-diloco-rounds-of-two"

    period: int = 2
    dylu: bool = False


@dataclass(frozen=True, kw_only=True)
class KeepsTheLastRound(RoundsOfTwo):
    """A worker keeps the gradients of earlier rounds in its state, so the server counts them again."""

    name = "async-diloco-keeps-the-last-round"

    @program
    def worker(self, me: RankContext, state: RoundState) -> Program[RoundState]:
        rule, server = self.rule(me.layout.layers), server_of(me)
        while True:
            if state.waits:
                answer = (yield from Receive(server)).value
                if isinstance(answer, ServerStopped):
                    return state
                state = replace(state.next_round(answer), origins=state.origins)
            if not (step := (yield from NextStep(state))):
                return state
            state = yield from self.inner_step(rule, state, step)
            if len(state.origins) % state.steps == 0:
                change = state.start - state.weights.vector
                yield from Send(server, PseudoGradient(change, state.origins, asks=True))
                state = replace(state, waits=True)


@dataclass(frozen=True, kw_only=True)
class SmallRegions(HALoS):
    """`halos` with rounds of two steps, of which two make a region's change."""

    name = "halos-of-two"

    period: int = 2
    region_rounds: int = 2
    dylu: bool = False


@dataclass(frozen=True, kw_only=True)
class LeavesAtOnce(SmallRegions):
    """The global server stops without receiving what its regions have sent."""

    name = "halos-leaves-at-once"

    @program
    def closed(self, team: LivingWorkers, state: AsyncServer) -> Program[AsyncServer]:
        for region in sorted(team.living):
            yield from Send(region, ServerStopped())
        return state


@dataclass(frozen=True, kw_only=True)
class ForgetsMomentumOfRegions(SmallRegions):
    """A restarted region begins with a momentum of 0."""

    name = "halos-forgets-momentum"

    @program
    def worker(self, me: RankContext, state: RoundState) -> Program[RoundState]:
        if isinstance(state, RegionalRound) and state.region is not None:
            memory = self.region_optimizer(len(me.node)).init(state.start)
            state = replace(state, region=replace(state.region, optimizer_state=memory))
        return (yield from super().worker(me, state))


@dataclass(frozen=True, kw_only=True)
class SmallFragments(DecoupledDiLoCo):
    """`decoupled-diloco` with fragments that are pushed after every second step."""

    name = "decoupled-diloco-of-two"

    period: int = 2


@dataclass(frozen=True, kw_only=True)
class CountsGradientsAgain(SmallFragments):
    """A learner keeps the gradients that it has pushed, so that they count in its next push too."""

    name = "decoupled-diloco-counts-again"

    @program
    def pushed(
        self, me: RankContext, fragments: Sequence[Fragment], state: LearnerState, number: int
    ) -> Program[LearnerState]:
        after = yield from super().pushed(me, fragments, state, number)
        return replace(after, origins=state.origins)


BUGS = (
    planted(ForgetsMomentum(), WithMomentum(), "complete-state"),
    planted(CountsInAVariable(), EverySecond(), "complete-state"),
    planted(AppliesAgain(), SyncSgd(), "complete-state", "gradients-once"),
    planted(KeepsTheFirstBatch(), SyncSgd(), "complete-state", "gradients-once"),
    planted(LeavesAtOnce(), SmallRegions(), "conserves-messages"),
    planted(ForgetsMomentumOfRegions(), SmallRegions(), "complete-state"),
    planted(CountsGradientsAgain(), SmallFragments(), "gradients-once", "conserves-messages"),
    planted(KeepsTheLastRound(), RoundsOfTwo(), "gradients-once", "conserves-messages"),
)
