"""Asynchronous elastic averaging: the server processes exchanges in the order of arrival.

A server that receives weights replies with the centre and moves it before it receives the next message. A server that
receives differences may have moved the centre since the worker requested it. When the server stops, every difference by
which a worker has moved has been applied to the centre.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from paceline.algorithms.core.fast_values import replace
from paceline.algorithms.core.guarantees import Guarantee
from paceline.algorithms.core.method import RankContext, Replica, StalenessKind
from paceline.algorithms.core.operations import (
    Charge,
    Gradient,
    Load,
    NextStep,
    Receive,
    RecordUpdate,
    Send,
)
from paceline.algorithms.core.program import Program, Routine, program
from paceline.algorithms.core.traffic import COMBINE, ELASTIC_PULL, NOTHING
from paceline.algorithms.core.values import Contribution, Rank, Weights
from paceline.algorithms.methods.elastic import Elastic, Exchange
from paceline.algorithms.methods.parameter_server import ServerStopped, dismiss, server_of
from paceline.algorithms.methods.survivors import LivingWorkers, survives


@dataclass(frozen=True, slots=True)
class Ask:
    """A worker's request for the centre; the worker answers with a `Delta`."""


@dataclass(frozen=True, slots=True)
class Delta:
    """The difference by which a worker has moved and the centre will move, and the gradients since the last one."""

    vector: Any
    origins: tuple[Contribution, ...]


@program
def takes_weights(alpha: float, me: RankContext, state: Replica) -> Program[Replica]:
    """The program of a server that receives weights: it replies with the centre and then moves it.

    Args:
        alpha: α.
        me: the server.
        state: its state.
    """
    team = LivingWorkers(me)
    while step := (yield from NextStep(state)):
        message = yield from team.message()
        exchange: Exchange = message.value
        yield from Send(message.source, state.weights)
        yield from Charge("update", exchange.vector.nbytes, where="host", traffic=ELASTIC_PULL)
        centre, version = state.weights.vector, state.weights.version
        centre = centre + alpha * (exchange.vector - centre)
        version = yield from RecordUpdate(Weights(centre, version), [replace(exchange.origin, version=version)])
        state = replace(state, step=step.number + 1, weights=Weights(centre, version))
    yield from dismiss(team)
    return state


@program
def takes_deltas(me: RankContext, state: Any) -> Program[Any]:
    """The program of a server that sends the centre on request and later receives a delta, which it adds to the centre.

    A step is a request, so after a stop no more requests are granted. A worker that has received the centre sends its
    delta before its next request, and messages of one sender arrive in order. So when every living worker has sent one
    more request and got `ServerStopped`, all deltas of the living have been applied; those of the dead never arrive.

    Args:
        me: the server.
        state: its state.
    """
    team, stopped = LivingWorkers(me), set[Rank]()
    while step := (yield from NextStep(state)):
        while isinstance((message := (yield from team.message())).value, Delta):
            state = yield from landed(state, message.value)
        yield from Send(message.source, state.weights)
        state = replace(state, step=step.number + 1)
    while not team.living <= stopped:
        received = yield from team.receive()
        if received is None:
            continue
        if isinstance(received.value, Delta):
            state = yield from landed(state, received.value)
        else:
            yield from Send(received.source, ServerStopped())
            stopped.add(received.source)
    return state


@program
def landed(state: Any, delta: Delta) -> Program[Any]:
    """Applies a delta to the centre.

    Args:
        state: the state of the server.
        delta: the difference.

    Returns:
        The new state.
    """
    yield from Charge("update", delta.vector.nbytes, where="host", traffic=COMBINE)
    centre = Weights(state.weights.vector + delta.vector, state.weights.version)
    version = yield from RecordUpdate(centre, delta.origins)
    return replace(state, weights=Weights(centre.vector, version))


@dataclass(frozen=True, kw_only=True)
class AsyncEasgd(Elastic):
    """EASGD whose server processes exchanges in the order of arrival, concurrently with the workers' gradients.

    worker i:             x_i ← x_i − η g(x_i) − α (x_i − c)
    server, on x_i sent:  reply c;  c ← c + α (x_i − c)

    The worker sends its weights, computes its gradient meanwhile, and updates with the centre that it receives.
    """

    name = "async-easgd"
    staleness_kind = StalenessKind.EXCHANGE_LAG
    source = "You, Buluç, Demmel, SC'17 (Async EASGD), equations (1) and (2)"
    guarantees = frozenset({Guarantee.CONSERVES_SUM, Guarantee.CONSERVES_MESSAGES, Guarantee.SURVIVES_WORKERS})
    has_server: ClassVar[bool] = True

    sends: Literal["weights", "delta"] = "weights"
    """the worker's weights, as in SC'17, or the delta α (x_i − c), as in mpiT, whose centre may have moved since"""

    def bounds(self, workers: int) -> Mapping[Guarantee, float]:
        return survives(workers - 1)

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        server, alpha, rule = server_of(me), self.alpha(me), self.rule(me.layout.layers)
        while step := (yield from NextStep(state)):
            before, count = state.weights.vector, state.weights.version
            # the server replaces the version by that of the centre that it reads
            exchange = Exchange(before, Contribution(me.rank, step.number, 0, step.samples.count))
            yield from Send(server, exchange if self.sends == "weights" else Ask())
            batch = yield from Load(step.samples)
            gradient = yield from Gradient(state.weights, batch)
            centre = (yield from Receive(server)).value
            if isinstance(centre, ServerStopped):
                return state
            pull = alpha * (before - centre.vector)
            if self.sends == "delta":
                yield from Send(server, Delta(pull, (gradient.contribution(version=centre.version),)))
            yield from rule.charge(before.nbytes, also=ELASTIC_PULL)
            stepped, optimizer_state = rule.update(before, gradient.vector, state.optimizer_state)
            state = Replica(step.number + 1, Weights(stepped - pull, count + 1), optimizer_state)
        return state

    def server(self, me: RankContext, state: Replica) -> Routine[Any]:
        return takes_weights(self.alpha(me), me, state) if self.sends == "weights" else takes_deltas(me, state)


@dataclass(frozen=True, kw_only=True)
class AsyncMeasgd(AsyncEasgd):
    """Asynchronous EASGD with momentum in the worker's step, but not in the elastic term.

    worker i:             v_i ← μ v_i − η g(x_i);  x_i ← x_i + v_i − α (x_i − c)
    server, on x_i sent:  reply c;  c ← c + α (x_i − c)

    It is `async-easgd` with a different default.
    """

    name = "async-measgd"
    source = "You, Buluç, Demmel, SC'17 (Async MEASGD), equations (5), (6) and (2)"

    momentum: float = 0.9
    """μ; provenance: You, Buluç, Demmel, SC'17, about 0.9"""


@dataclass(frozen=True, slots=True)
class Travelling:
    """The state of a worker between exchanges; a server has no origins."""

    step: int
    weights: Weights
    optimizer_state: Any = None
    origins: tuple[Contribution, ...] = ()
    """the worker's gradients since the last exchange"""


@dataclass(frozen=True, kw_only=True)
class Eamsgd(Elastic):
    """Elastic averaging every τ steps, with Nesterov's momentum δ in between.

    worker i, if τ | t:  ask for c;  Δ = α (x_i − c);  send Δ;  x_i ← x_i − Δ, together with the step
    worker i, always:    v_i ← δ v_i − η g(x_i + δ v_i);  x_i ← x_i + v_i
    server, on Δ:        c ← c + Δ

    Δ and the gradient use x_i from before the step. With δ = 0 this is asynchronous EASGD with a period.
    Decay and layer-wise rates act on the gradient, g ← λ (g + β x_i), and do not move the point at which it is taken.
    """

    name = "eamsgd"
    staleness_kind = StalenessKind.EXCHANGE_LAG
    source = "Zhang, Choromanska, LeCun, NIPS'15, Algorithms 1 and 2; the authors' mpiT (eamsgd.lua)"
    guarantees = frozenset({Guarantee.CONSERVES_SUM, Guarantee.CONSERVES_MESSAGES, Guarantee.SURVIVES_WORKERS})
    has_server: ClassVar[bool] = True

    period: int = 4
    """τ, local steps between exchanges; provenance: one of 1, 4, 16, 64 in NIPS'15 (CIFAR); mpiT has 100"""
    momentum: float = 0.9
    """δ; provenance: ours; NIPS'15 and mpiT have 0.99, mpiT with a learning rate of 0.01"""

    def samples_per_step(self, batch: int, workers: int) -> int:
        return batch * self.period

    def longest_period(self, workers: int) -> int:
        return self.period

    def bounds(self, workers: int) -> Mapping[Guarantee, float]:
        return survives(workers - 1)

    def begin(self, me: RankContext, vector: Any) -> Any:
        return Travelling(0, Weights(vector, 0), self.rule(me.layout.layers).init(vector))

    @program
    def worker(self, me: RankContext, state: Travelling) -> Program[Travelling]:
        server, alpha, rule = server_of(me), self.alpha(me), self.rule(me.layout.layers)
        while step := (yield from NextStep(state)):
            before, count, origins = state.weights.vector, state.weights.version, state.origins
            pull = None
            if origins and step.number % self.period == 0:
                yield from Send(server, Ask())
                centre = (yield from Receive(server)).value
                if isinstance(centre, ServerStopped):
                    return state
                pull = alpha * (before - centre.vector)
                yield from Send(
                    server, Delta(pull, tuple(replace(origin, version=centre.version) for origin in origins))
                )
                origins = ()
            batch = yield from Load(step.samples)
            ahead = rule.look_ahead(before, state.optimizer_state)
            gradient = yield from Gradient(Weights(ahead, count), batch)
            own = rule.look_ahead_traffic + (NOTHING if pull is None else ELASTIC_PULL)
            yield from rule.charge(before.nbytes, also=own)
            vector, optimizer_state = rule.update(before, gradient.vector, state.optimizer_state)
            vector = vector if pull is None else vector - pull
            origins = (*origins, gradient.contribution())
            state = Travelling(step.number + 1, Weights(vector, count + 1), optimizer_state, origins)
        return state

    def server(self, me: RankContext, state: Travelling) -> Routine[Any]:
        return takes_deltas(me, state)
