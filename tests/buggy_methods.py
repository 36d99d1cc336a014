"""Methods with bugs, each found by a guarantee that it declares or that all methods must keep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from paceline.algorithms import (
    AllReduce,
    Barrier,
    Gradient,
    Guarantee,
    Load,
    NextStep,
    Program,
    RankContext,
    Receive,
    RecordUpdate,
    Replica,
    Send,
    SgdMethod,
    StalenessKind,
    Weights,
    program,
)
from paceline.algorithms.methods.elastic import Easgd, Exchange
from paceline.algorithms.methods.parameter_server import AsyncSgd, ServerStopped, server_of


@dataclass(frozen=True, kw_only=True)
class SkipsTheMean(SgdMethod):
    """Synchronous SGD in which rank 1 applies its own gradient instead of the mean."""

    name = "skips-the-mean"
    staleness_kind = StalenessKind.STEPS
    source = "a test"
    guarantees = frozenset({Guarantee.SYNCHRONOUS, Guarantee.REPLICAS_EQUAL})

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        rule = self.rule(me.layout.layers)
        while step := (yield from NextStep(state)):
            batch = yield from Load(step.samples)
            gradient = yield from Gradient(state.weights, batch)
            mean = yield from AllReduce(value=gradient.vector, group=me.workers, key=f"gradient {step.number}")
            used = gradient.vector if me.rank == 1 else mean
            vector, memory = rule.update(state.weights.vector, used, state.optimizer_state)
            version = yield from RecordUpdate(Weights(vector, state.weights.version), [gradient.contribution()])
            state = Replica(step.number + 1, Weights(vector, version), memory)
        return state


@dataclass(frozen=True, kw_only=True)
class RepliesAfterTheMove(Easgd):
    """EASGD whose server sends the centre from after its move, so that the two sides move by different amounts."""

    name = "replies-after-the-move"

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        server, alpha, rule = server_of(me), self.alpha(me), self.rule(me.layout.layers)
        while step := (yield from NextStep(state)):
            word = (yield from Receive(server, "begin")).value
            if isinstance(word, ServerStopped):
                return state
            batch = yield from Load(step.samples)
            gradient = yield from Gradient(state.weights, batch)
            before = state.weights.vector
            yield from Send(server, Exchange(before, gradient.contribution(version=word)))
            centre = (yield from Receive(server)).value
            vector, memory = rule.update(before, gradient.vector, state.optimizer_state)
            vector = vector - alpha * (before - centre.vector)
            state = Replica(step.number + 1, Weights(vector, state.weights.version + 1), memory)
        return state

    @program
    def server(self, me: RankContext, state: Replica) -> Program[Replica]:
        alpha = self.alpha(me)
        while step := (yield from NextStep(state)):
            turn = me.workers.ranks[step.number % len(me.workers)]
            yield from Send(turn, state.weights.version, "begin")
            exchange: Exchange = (yield from Receive(turn)).value
            centre = state.weights.vector
            centre = centre + alpha * (exchange.vector - centre)
            version = yield from RecordUpdate(Weights(centre, state.weights.version), [exchange.origin])
            state = Replica(step.number + 1, Weights(centre, version))
            yield from Send(turn, state.weights)
        for worker in me.workers:
            yield from Send(worker, ServerStopped(), "begin")
        return state


@dataclass(frozen=True, kw_only=True)
class NoBound(AsyncSgd):
    """Asynchronous SGD that promises a staleness of 0."""

    name = "no-bound"
    guarantees = AsyncSgd.guarantees | {Guarantee.BOUNDED_STALENESS}

    def bounds(self, workers: int) -> Mapping[Guarantee, float]:
        return {**super().bounds(workers), Guarantee.BOUNDED_STALENESS: 0}


@dataclass(frozen=True, kw_only=True)
class BothReceiveFirst(SgdMethod):
    """Neighbours that receive before they send."""

    name = "both-receive-first"
    staleness_kind = StalenessKind.STEPS
    source = "a test"
    guarantees: ClassVar[frozenset[Any]] = frozenset()

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        other = me.workers.ranks[(me.rank + 1) % len(me.workers)]
        while (yield from NextStep(state)):
            message = yield from Receive(other, "weights")
            yield from Send(other, state.weights, "weights")
            state = Replica(state.step + 1, message.value, state.optimizer_state)
        return state


@dataclass(frozen=True, kw_only=True)
class Fails(SgdMethod):
    """A program with an exception."""

    name = "fails"
    staleness_kind = StalenessKind.STEPS
    source = "a test"
    guarantees: ClassVar[frozenset[Any]] = frozenset()

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        while step := (yield from NextStep(state)):
            if step.number == 1 and me.rank == 1:
                raise KeyError("momentum")
            state = Replica(step.number + 1, state.weights, state.optimizer_state)
        return state


@dataclass(frozen=True, kw_only=True)
class NeverReceives(SgdMethod):
    """Rank 0 sends a message that no rank receives."""

    name = "never-receives"
    staleness_kind = StalenessKind.STEPS
    source = "a test"
    guarantees: ClassVar[frozenset[Any]] = frozenset()

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        while step := (yield from NextStep(state)):
            if me.rank == 0:
                yield from Send(me.workers.ranks[1], "rank 0", "hello")
            state = Replica(step.number + 1, state.weights, state.optimizer_state)
        return state


@dataclass(frozen=True, kw_only=True)
class CrossedBarriers(SgdMethod):
    """Each rank enters a barrier of its own."""

    name = "crossed-barriers"
    staleness_kind = StalenessKind.STEPS
    source = "a test"
    guarantees: ClassVar[frozenset[Any]] = frozenset()

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        while step := (yield from NextStep(state)):
            yield from Barrier(group=me.workers, key=f"of rank {me.rank}")
            state = Replica(step.number + 1, state.weights, state.optimizer_state)
        return state
