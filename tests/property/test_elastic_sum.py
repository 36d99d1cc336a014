"""Number 10: without gradients, centre plus workers is constant. The property, and the mutations that it must kill.

The mutations are methods with one of the mistakes that the papers' equations allow to be made: a reply after the
update, a centre that sees the worker where it has already moved to, a reply that is an exchange old. Those of
asynchronous methods are in `test_elastic_sum_async`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from paceline.algorithms.core.method import RankContext, Replica
from paceline.algorithms.core.operations import (
    Broadcast,
    Gradient,
    Load,
    NextStep,
    Receive,
    RecordUpdate,
    Reduce,
    Send,
)
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Weights
from paceline.algorithms.methods.elastic import Exchange
from paceline.algorithms.methods.parameter_server import ServerStopped, server_of
from paceline.algorithms.methods.sync_elastic import Elastically, SyncEasgd1, SyncEasgd2
from tests.elastic import check_the_sum
from tests.exact import EasgdApart, SyncEasgd3Apart, apart


@dataclass(frozen=True, kw_only=True)
class ReplyAfterUpdate(EasgdApart):
    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        server, alpha = server_of(me), self.alpha(me)
        while step := (yield from NextStep(state)):
            batch = yield from Load(step.samples)
            gradient = yield from Gradient(state.weights, batch)
            before = state.weights.vector
            yield from Send(server, Exchange(before, gradient.contribution()))
            centre = (yield from Receive(server)).value
            if isinstance(centre, ServerStopped):
                return state
            vector = before - self.learning_rate * gradient.vector - alpha * (before - centre.vector)
            state = Replica(step.number + 1, Weights(vector, state.weights.version + 1))
        return state

    @program
    def server(self, me: RankContext, state: Replica) -> Program[Replica]:
        alpha = self.alpha(me)
        while step := (yield from NextStep(state)):
            turn = me.workers.ranks[step.number % len(me.workers)]
            exchange: Exchange = (yield from Receive(turn)).value
            centre = state.weights.vector
            centre = centre + alpha * (exchange.vector - centre)
            version = yield from RecordUpdate(Weights(centre, state.weights.version), [exchange.origin])
            state = Replica(step.number + 1, Weights(centre, version))
            yield from Send(turn, state.weights)
        for worker in me.workers:
            yield from Send(worker, ServerStopped())
        return state


@dataclass(frozen=True, kw_only=True)
class CentreSeesMovedWorker(EasgdApart):
    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        server, alpha = server_of(me), self.alpha(me)
        while step := (yield from NextStep(state)):
            centre = (yield from Receive(server)).value
            if isinstance(centre, ServerStopped):
                return state
            batch = yield from Load(step.samples)
            gradient = yield from Gradient(state.weights, batch)
            before = state.weights.vector
            vector = before - self.learning_rate * gradient.vector - alpha * (before - centre.vector)
            yield from Send(server, Exchange(vector, gradient.contribution(version=centre.version)))
            state = Replica(step.number + 1, Weights(vector, state.weights.version + 1))
        return state


@dataclass(frozen=True, kw_only=True)
class StaleReply(EasgdApart):
    """The worker moves by the centre of its last exchange, the server by the newest."""

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        server, alpha = server_of(me), self.alpha(me)
        while step := (yield from NextStep(state)):
            newest = (yield from Receive(server)).value
            if isinstance(newest, ServerStopped):
                return state
            centre = state.optimizer_state if isinstance(state.optimizer_state, Weights) else newest
            batch = yield from Load(step.samples)
            gradient = yield from Gradient(state.weights, batch)
            before = state.weights.vector
            yield from Send(server, Exchange(before, gradient.contribution(version=centre.version)))
            vector = before - self.learning_rate * gradient.vector - alpha * (before - centre.vector)
            state = Replica(step.number + 1, Weights(vector, state.weights.version + 1), newest)
        return state


@dataclass(frozen=True, kw_only=True)
class SynchronousCentreSeesMovedWorkers(SyncEasgd3Apart):
    @program
    def worker(self, me: RankContext, state: Elastically) -> Program[Elastically]:
        alpha, master = self.alpha(me), me.workers.ranks[0]
        while step := (yield from NextStep(state)):
            before: Any = state.weights.vector
            centre: Any = yield from Broadcast(value=state.centre.vector, group=me.workers, root=master, key="centre")
            batch = yield from Load(step.samples)
            gradient = yield from Gradient(state.weights, batch)
            vector = before - self.learning_rate * gradient.vector - alpha * (before - centre)
            total = yield from Reduce(value=vector, group=me.workers, root=master, key="weights")
            if total is not None:
                centre = centre + alpha * (total - len(me.workers) * centre)
            version = yield from RecordUpdate(Weights(centre, state.centre.version), [gradient.contribution()])
            state = Elastically(step.number + 1, Weights(vector, 0), Weights(centre, version))
        return state


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("method", [apart(SyncEasgd1), apart(SyncEasgd2), SyncEasgd3Apart])
def test_the_sum_is_conserved_synchronously(method: Callable[..., Any], packed: bool) -> None:
    """Number 10, in one message or in one for each layer."""
    check_the_sum(method, packed=packed)


@pytest.mark.parametrize("method", [EasgdApart, SyncEasgd3Apart])
def test_the_sum_is_conserved(method: Callable[..., Any]) -> None:
    """Number 10, for original EASGD once quiescent and for synchronous EASGD at every step's end."""
    check_the_sum(method)


@pytest.mark.parametrize(
    "mutant", [ReplyAfterUpdate, CentreSeesMovedWorker, StaleReply, SynchronousCentreSeesMovedWorkers]
)
def test_the_mutation_is_killed(mutant: Callable[..., Any]) -> None:
    """Number 10 fails, as it must, on each of the mutations that docs/invariants.md names."""
    with pytest.raises(AssertionError, match="the sum has moved"):
        check_the_sum(mutant)
