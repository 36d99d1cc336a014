"""Planted bugs that no promise covers: how much a gradient counts, which weights a server sends, what ranks share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar, Literal

from paceline.algorithms.core.compression import Compression, TopK, average_compressed, compressed
from paceline.algorithms.core.method import RankContext, Replica
from paceline.algorithms.core.operations import AllReduce, NextStep, Receive, RecordUpdate, Send
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.rules import Chain, ScaleByLearningRate
from paceline.algorithms.core.schedules import LearningRateSchedule, Steps
from paceline.algorithms.core.steps import apply_gradient, average_gradient, gradient_at, local_step
from paceline.algorithms.core.values import GradientResult, Group, Rank, Weights, join
from paceline.algorithms.methods.accumulating import Acco, Accumulating
from paceline.algorithms.methods.async_elastic import AsyncEasgd, Delta, landed
from paceline.algorithms.methods.baseline import ChipPartitionedSgd, SyncSgd, part_of
from paceline.algorithms.methods.dynamic_batch import Balance, DbsSgd, Portion, Timed
from paceline.algorithms.methods.local_sgd import DiLoCo
from paceline.algorithms.methods.outer import Outer
from paceline.algorithms.methods.parameter_server import (
    AsyncMsgd,
    AsyncSgd,
    Push,
    ServerStopped,
    Softsync,
    dismiss,
    server_of,
)
from paceline.algorithms.methods.periodic import KAvg
from paceline.algorithms.methods.ssp import Accruing, Downpour, Packet
from paceline.algorithms.methods.streaming_diloco import Fragment, Streaming, StreamingDiLoCo
from paceline.algorithms.methods.survivors import LivingWorkers, among_living
from tests.planted_bugs.bug import planted

EIGHTH, HALVING = TopK(ratio=0.125), Steps(milestones=(1, 2, 3), gamma=0.5)
WEIGHTS, NEWEST, SHARED = "gradient-weights", "newest-weights", "no-shared-state"


@dataclass(frozen=True, kw_only=True)
class Compressed(SyncSgd):
    """`sync-sgd` that sends an eighth of its gradients' numbers."""

    name = "sync-sgd-compressed"

    compression: Compression | None = EIGHTH


@dataclass(frozen=True, kw_only=True)
class ResidualTwice(Compressed):
    """The worker adds the residual to its gradient, and the compression adds it again."""

    name = "sync-sgd-residual-twice"

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        rule = self.rule(me.layout.layers)
        while step := (yield from NextStep(state)):
            gradient = yield from gradient_at(state.weights, step.samples)
            gradient = replace(gradient, vector=gradient.vector + state.residual)
            key = f"gradient {step.number}"
            mean, kept = yield from average_compressed(gradient, me.workers, key, self.compression, state.residual)
            state = yield from apply_gradient(rule, replace(state, residual=kept), mean)
        return state


@dataclass(frozen=True, kw_only=True)
class CompressedPushes(AsyncSgd):
    """`async-sgd` that sends an eighth of its gradients' numbers."""

    name = "async-sgd-compressed"

    compression: Compression | None = EIGHTH


@dataclass(frozen=True, kw_only=True)
class ResidualOfAnotherLayer(CompressedPushes):
    """The residuals of the two layers are exchanged."""

    name = "async-sgd-residual-of-another-layer"

    @program
    def push(self, me: RankContext, gradient: GradientResult, kept: Any) -> Program[Any]:
        message, kept = yield from compressed(gradient.vector, self.compression, kept)
        yield from Send(server_of(me), Push(message, gradient.contribution()))
        first, second = (kept[layer.part] for layer in me.layout.layers)
        return join([second, first])


@dataclass(frozen=True, kw_only=True)
class ShortRounds(StreamingDiLoCo):
    """`streaming-diloco` with two exchanges in flight."""

    name = "streaming-diloco-short-rounds"

    period: int = 2


@dataclass(frozen=True, kw_only=True)
class NewestExchange(ShortRounds):
    """The newest of the exchanges in flight is applied in the place of the oldest."""

    name = "streaming-diloco-newest-exchange"

    @program
    def applied(self, fragments: Sequence[Fragment], state: Streaming) -> Program[Streaming]:
        oldest, *later = state.exchanges
        if later:
            state = replace(state, exchanges=(replace(oldest, change=later[-1].change), *later))
        return (yield from super().applied(fragments, state))


@dataclass(frozen=True, kw_only=True)
class RepliesWithOldWeights(AsyncSgd):
    """The server answers a gradient with the weights from before its update."""

    name = "async-sgd-replies-with-old-weights"

    @program
    def server(self, me: RankContext, state: Replica) -> Program[Replica]:
        rule, team = self.rule(me.layout.layers), LivingWorkers(me)
        while step := (yield from NextStep(state)):
            taken, waiting = yield from self.collect(me, team, state.weights)
            vector, memory = self.applied(rule, state, taken)
            before = state.weights
            version = yield from RecordUpdate(Weights(vector, before.version), tuple(push.origin for push in taken))
            state = Replica(step.number + 1, Weights(vector, version), memory)
            for rank in waiting:
                yield from Send(rank, before)
        yield from self.farewell(team)
        return state


@dataclass(frozen=True, kw_only=True)
class RepliesAtOnce(AsyncSgd):
    """The server answers a gradient before it applies it."""

    name = "async-sgd-replies-at-once"

    @program
    def server(self, me: RankContext, state: Replica) -> Program[Replica]:
        rule, team = self.rule(me.layout.layers), LivingWorkers(me)
        while step := (yield from NextStep(state)):
            taken, waiting = yield from self.collect(me, team, state.weights)
            for rank in waiting:
                yield from Send(rank, state.weights)
            vector, memory = self.applied(rule, state, taken)
            origins = tuple(push.origin for push in taken)
            version = yield from RecordUpdate(Weights(vector, state.weights.version), origins)
            state = Replica(step.number + 1, Weights(vector, version), memory)
        yield from self.farewell(team)
        return state


@dataclass(frozen=True, kw_only=True)
class Scheduled(AsyncSgd):
    """`async-sgd` with a learning rate that falls."""

    name = "async-sgd-scheduled"

    schedule: LearningRateSchedule | None = HALVING


@dataclass(frozen=True, kw_only=True)
class RateOfOwnStep(Scheduled):
    """The learning rate is that of the worker's own step, not that of the server's update."""

    name = "async-sgd-rate-of-own-step"

    def rule(self, layers: Any) -> Chain:
        return super().rule(layers) if self.decay else Chain((ScaleByLearningRate(1.0),), layers)

    @program
    def push(self, me: RankContext, gradient: GradientResult, kept: Any) -> Program[Any]:
        scaled = self.learning_rate_at(gradient.step) * gradient.vector
        yield from Send(server_of(me), Push(scaled, gradient.contribution()))
        return kept


@dataclass(frozen=True, kw_only=True)
class OftenBalanced(DbsSgd):
    """`dbs-sgd` that adjusts the batches at every second update."""

    name = "dbs-sgd-often"

    interval: int = 2


@dataclass(frozen=True, kw_only=True)
class WrongBatch(OftenBalanced):
    """A gradient is weighted by the batch that its worker gets next, not by the one from which it was computed."""

    name = "dbs-sgd-wrong-batch"

    @program
    def server(self, me: RankContext, state: Balance) -> Program[Balance]:
        rule, team = self.rule(me.layout.layers), LivingWorkers(me)
        while step := (yield from NextStep(state)):
            message = yield from team.message()
            push: Timed = message.value
            batches = state.batches or me.batches
            estimates = self.measured(state.estimates or (None,) * len(me.workers), message.source, push)
            if (step.number + 1) % self.interval == 0 and len(team.living) == len(me.workers):
                batches = self.rebalanced(batches, estimates)
            gradient = batches[message.source] / push.base * push.vector
            vector, memory = rule.update(state.weights.vector, gradient, state.optimizer_state)
            version = yield from RecordUpdate(Weights(vector, state.weights.version), [push.origin])
            state = Balance(step.number + 1, Weights(vector, version), memory, batches, estimates)
            yield from Send(message.source, Portion(state.weights, state.part(message.source)))
        yield from dismiss(team)
        return state


@dataclass(frozen=True, kw_only=True)
class SharedVelocity(SyncSgd):
    """The velocity is in a dictionary of the class, which all ranks of a process share."""

    name = "sync-sgd-shared-velocity"
    velocity: ClassVar[dict[str, Any]] = {}

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        rule = self.rule(me.layout.layers)
        while step := (yield from NextStep(state)):
            gradient = yield from gradient_at(state.weights, step.samples)
            mean = yield from average_gradient(gradient, me.workers, f"gradient {step.number}")
            if me.rank == me.workers.ranks[0]:
                self.velocity["last"] = 0.5 * self.velocity.get("last", 0.0) * (step.number > 0) + mean.vector
            moved = yield from AllReduce(
                value=self.velocity["last"] / len(me.workers), group=me.workers, key=f"v {step.number}", op="sum"
            )
            state = yield from apply_gradient(rule, state, replace(mean, vector=moved))
        return state


SEEN: list[Any] = []
"""what `KeepsInTheModule` keeps"""


@dataclass(frozen=True, kw_only=True)
class KeepsInTheModule(SyncSgd):
    """The first gradient of a process is kept in a list of the module, and a tenth of it is added to all others."""

    name = "sync-sgd-keeps-in-the-module"

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        rule = self.rule(me.layout.layers)
        while step := (yield from NextStep(state)):
            gradient = yield from gradient_at(state.weights, step.samples)
            mean = yield from average_gradient(gradient, me.workers, f"gradient {step.number}")
            if not SEEN:
                SEEN.append(mean.vector.copy())
            state = yield from apply_gradient(rule, state, replace(mean, vector=mean.vector + 0.1 * SEEN[0]))
        return state


def smoothed(vector: Any, memory: dict[str, Any] = {}) -> Any:  # noqa: B006  # this is the mistake
    """Returns the mean of a vector and the one before."""
    before = memory.get("vector", vector)
    memory["vector"] = vector.copy()
    return (vector + before) / 2


@dataclass(frozen=True, kw_only=True)
class KeepsInADefault(AsyncSgd):
    """The gradient before is kept in a default argument, which all ranks of a process share."""

    name = "async-sgd-keeps-in-a-default"

    @program
    def push(self, me: RankContext, gradient: GradientResult, kept: Any) -> Program[Any]:
        yield from Send(server_of(me), Push(smoothed(gradient.vector), gradient.contribution()))
        return kept


@dataclass(frozen=True, kw_only=True)
class KeepsInTheMethod(AsyncSgd):
    """A worker's last gradient is kept in the method, an object that all ranks of a process share."""

    name = "async-sgd-keeps-in-the-method"

    @cached_property
    def kept(self) -> list[Any]:
        """The gradients so far."""
        return []

    @program
    def push(self, me: RankContext, gradient: GradientResult, kept: Any) -> Program[Any]:
        vector = gradient.vector + (0.25 * self.kept[-1] if self.kept else 0.0)
        self.kept.append(gradient.vector.copy())
        yield from Send(server_of(me), Push(vector, gradient.contribution()))
        return kept


@dataclass(frozen=True, kw_only=True)
class ShortDiLoCo(DiLoCo):
    """`diloco` with rounds of two steps."""

    name = "diloco-short"

    period: int = 2


@dataclass(frozen=True, kw_only=True)
class SumOfTheLiving(ShortDiLoCo):
    """The mean of a round divides the sum of the living workers' changes by the number of all workers."""

    name = "diloco-sum-of-the-living"

    @program
    def worker(self, me: RankContext, state: Outer) -> Program[Outer]:
        rule, group = self.rule(me.layout.layers), me.workers
        while step := (yield from NextStep(state)):
            state = yield from local_step(rule, state, step.samples)
            if state.step % self.period == 0:
                moved, key = state.start - state.weights.vector, f"everyone {state.step}"
                make = partial(sum_over, moved, key)
                total, group = yield from among_living(make, group)
                vector, velocity = self.outer(state.start, state.velocity, total / len(me.workers))
                version = yield from RecordUpdate(Weights(vector, state.weights.version))
                state = replace(state, weights=Weights(vector, version), start=vector, velocity=velocity)
        return state


def sum_over(vector: Any, key: str, group: Group) -> AllReduce:
    """Returns the sum of a vector over a group."""
    return AllReduce(value=vector, group=group, key=key, op="sum")


@dataclass(frozen=True, kw_only=True)
class MomentumTwice(AsyncMsgd):
    """The workers smooth their gradients with the momentum that the server applies too."""

    name = "async-msgd-momentum-twice"

    @program
    def push(self, me: RankContext, gradient: GradientResult, kept: Any) -> Program[Any]:
        velocity = gradient.vector + (0.0 if kept is None else self.momentum * kept)
        yield from Send(server_of(me), Push(velocity, gradient.contribution()))
        return velocity


@dataclass(frozen=True, kw_only=True)
class OwnPeriods(Downpour):
    """`downpour` that fetches more often than it pushes."""

    name = "downpour-own-periods"

    n_push: int = 2
    n_fetch: int = 1


@dataclass(frozen=True, kw_only=True)
class DroppedAtAFetch(OwnPeriods):
    """A fetch between two pushes drops the gradients that have not been pushed."""

    name = "downpour-dropped-at-a-fetch"

    @program
    def worker(self, me: RankContext, state: Accruing) -> Program[Accruing]:
        server = server_of(me)
        while True:
            if state.waits:
                answer = (yield from Receive(server)).value
                if isinstance(answer, ServerStopped):
                    return state
                state = replace(state, weights=answer, waits=False)
            if not (step := (yield from NextStep(state))):
                return state
            gradient = yield from gradient_at(state.weights, step.samples)
            total = gradient.vector if state.total is None else state.total + gradient.vector
            origins = (*state.origins, gradient.contribution())
            pushes = (step.number + 1) % self.n_push == 0
            yield from Send(server, Packet(total, origins, True) if pushes else Packet(None, (), True))
            state = replace(state, step=step.number + 1, total=None, origins=(), waits=True)


@dataclass(frozen=True, kw_only=True)
class LeavesOutTheLast(Softsync):
    """The mean of an update leaves out its last gradient."""

    name = "softsync-leaves-out-the-last"

    def applied(self, rule: Chain, state: Any, taken: Sequence[Push]) -> tuple[Any, Any]:
        return super().applied(rule, state, taken[:-1] or taken)


@dataclass(frozen=True, kw_only=True)
class DecayOfOldWeights(AsyncSgd):
    """The worker adds the weight decay of the weights that it has, which are older than those that are updated."""

    name = "async-sgd-decay-of-old-weights"

    weight_decay: float = 0.1

    def rule(self, layers: Any) -> Chain:
        return Chain((ScaleByLearningRate(self.learning_rate, self.schedule),), layers)

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        server = server_of(me)
        while step := (yield from NextStep(state)):
            gradient = yield from gradient_at(state.weights, step.samples)
            decayed = gradient.vector + self.weight_decay * state.weights.vector
            yield from Send(server, Push(decayed, gradient.contribution()))
            reply = (yield from Receive(server)).value
            if not isinstance(reply, Weights):
                return state
            state = Replica(step.number + 1, reply, state.optimizer_state)
        return state


@dataclass(frozen=True, kw_only=True)
class SendsDeltas(AsyncEasgd):
    """`async-easgd` whose workers send the difference by which they move."""

    name = "async-easgd-sends-deltas"

    sends: Literal["weights", "delta"] = "delta"


@dataclass(frozen=True, kw_only=True)
class LostWhenTwoCross(SendsDeltas):
    """A difference is lost if the centre has moved since the worker asked for it."""

    name = "async-easgd-lost-when-two-cross"

    @program
    def server(self, me: RankContext, state: Replica) -> Program[Replica]:
        team, stopped = LivingWorkers(me), set[Rank]()
        while not team.living <= stopped:
            step = None if stopped else (yield from NextStep(state))
            asked = False
            while not asked and not team.living <= stopped:
                if (message := (yield from team.receive())) is None:
                    continue
                if isinstance(message.value, Delta):
                    if message.value.origins[0].version == state.weights.version:
                        state = yield from landed(state, message.value)
                elif step is None:
                    yield from Send(message.source, ServerStopped())
                    stopped.add(message.source)
                else:
                    yield from Send(message.source, state.weights)
                    asked = True
            if step is not None:
                state = replace(state, step=step.number + 1)
        return state


@dataclass(frozen=True, kw_only=True)
class PlainAverage(SyncSgd):
    """The gradients of batches that differ are averaged as if the batches were equal."""

    name = "sync-sgd-plain-average"

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        rule = self.rule(me.layout.layers)
        while step := (yield from NextStep(state)):
            gradient = yield from gradient_at(state.weights, replace(step.samples, weight=1.0))
            mean = yield from average_gradient(gradient, me.workers, f"gradient {step.number}")
            state = yield from apply_gradient(rule, state, mean)
        return state


@dataclass(frozen=True, kw_only=True)
class DividesByWorkers(ChipPartitionedSgd):
    """The parts of a batch, of which the last may be smaller, are averaged as if they were equal."""

    name = "chip-partitioned-sgd-divides-by-workers"

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        rule = self.rule(me.layout.layers)
        while step := (yield from NextStep(state)):
            gradient = yield from gradient_at(state.weights, part_of(step.samples))
            mean = yield from average_gradient(gradient, me.workers, f"gradient {step.number}")
            state = yield from apply_gradient(rule, state, mean)
        return state


@dataclass(frozen=True, kw_only=True)
class OneHalfTwice(Acco):
    """The second half of a round starts with the sum of the first and is added to it again."""

    name = "acco-one-half-twice"

    @program
    def accumulated(self, state: Accumulating, gradient: GradientResult) -> Program[Accumulating]:
        if state.total is not None:
            gradient = replace(gradient, vector=gradient.vector + state.total)
        return (yield from super().accumulated(state, gradient))


@dataclass(frozen=True, kw_only=True)
class ShortAverages(KAvg):
    """`k-avg` with K = 2, whose replicas promise nothing."""

    name = "k-avg-short-averages"
    guarantees = frozenset()

    k: int = 2


@dataclass(frozen=True, kw_only=True)
class AverageWithoutTheLast(ShortAverages):
    """The last worker takes the average of the others, and its own weights are not part of it."""

    name = "k-avg-without-the-last"

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        rule, last = self.rule(me.layout.layers), me.rank == me.workers.ranks[-1] and len(me.workers) > 1
        while step := (yield from NextStep(state)):
            state = yield from local_step(rule, state, step.samples)
            if state.step % self.k == 0:
                others = max(1, len(me.workers) - 1)
                share = (0.0 if last else 1.0 / others) * state.weights.vector
                vector = yield from AllReduce(value=share, group=me.workers, key=f"everyone {state.step}", op="sum")
                version = yield from RecordUpdate(Weights(vector, state.weights.version))
                state = replace(state, weights=Weights(vector, version))
        return state


BUGS = (
    planted(ResidualTwice(), Compressed(), WEIGHTS),
    planted(ResidualOfAnotherLayer(), CompressedPushes(), WEIGHTS),
    planted(NewestExchange(), ShortRounds(), WEIGHTS),
    planted(RepliesWithOldWeights(), AsyncSgd(), NEWEST),
    planted(RepliesAtOnce(), AsyncSgd(), NEWEST),
    planted(RateOfOwnStep(), Scheduled(), WEIGHTS),
    planted(WrongBatch(), OftenBalanced(), WEIGHTS),
    planted(SharedVelocity(), SyncSgd(), SHARED),
    planted(KeepsInTheModule(), SyncSgd(), SHARED),
    planted(KeepsInADefault(), AsyncSgd(), SHARED),
    planted(KeepsInTheMethod(), AsyncSgd(), SHARED),
    planted(SumOfTheLiving(), ShortDiLoCo(), WEIGHTS),
    planted(MomentumTwice(), AsyncMsgd(), WEIGHTS),
    planted(DroppedAtAFetch(), OwnPeriods(), WEIGHTS),
    planted(LeavesOutTheLast(), Softsync(), WEIGHTS),
    planted(DecayOfOldWeights(), AsyncSgd(), WEIGHTS),
    planted(LostWhenTwoCross(), SendsDeltas(), WEIGHTS, "conserves-sum"),
    planted(DividesByWorkers(), ChipPartitionedSgd(), WEIGHTS),
    planted(PlainAverage(), SyncSgd(), WEIGHTS),
    planted(OneHalfTwice(), Acco(), WEIGHTS),
    planted(AverageWithoutTheLast(), ShortAverages(), WEIGHTS),
)
