"""Number 10: without gradients, centre plus workers is constant. The property, and the mutations that it must kill.

The mutations are methods with one of the mistakes that the papers' equations allow to be made: a reply after the
update, a centre that sees the worker where it has already moved to, a reply that is an exchange old.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from paceline.algorithms.elastic import Exchange
from paceline.algorithms.method import Me, Replica
from paceline.algorithms.operations import (
    Applied,
    Broadcast,
    Gradient,
    Load,
    Next,
    Receive,
    Reduce,
    Send,
)
from paceline.algorithms.program import Program, program
from paceline.algorithms.server import Stop, server_of
from paceline.algorithms.sync_elastic import Elastically
from paceline.algorithms.values import Weights
from paceline.checking.anyorder import AnyOrder
from paceline.checking.strategies import drawn
from tests.exact import EasgdApart, ExactBowl, SyncEasgd3Apart
from tests.support import job_of


def check_the_sum(method: Callable[..., Any]) -> None:
    """The property, exactly, in fractions: once every exchange has landed, the sum is the first one."""

    @settings(database=None, phases=[Phase.generate])  # a mutation need only be found, not made small
    @given(
        data=st.data(),
        workers=st.integers(1, 4),
        alpha=st.fractions(Fraction(1, 20), Fraction(19, 20), max_denominator=20),
        steps=st.integers(0, 9),
    )
    def conserved(data: st.DataObject, workers: int, alpha: Fraction, steps: int) -> None:
        job = job_of(method(rate=Fraction(0), elastic=alpha), workers, steps=steps, learner=ExactBowl())
        start = {me.rank: job.method.begin(me, job.learner.initial()) for me in job.team}
        end = AnyOrder(job).run(drawn(data)).states
        assert (total(start) == total(end)).all(), "the sum has moved"

    conserved()


def total(states: dict[Any, Any]) -> Any:
    """Workers and centre; in the synchronous method rank 0 holds both."""
    vectors = [state.weights.vector for state in states.values()]
    if isinstance(states[0], Elastically):
        vectors.append(states[0].centre.vector)
    return sum(vectors)


@dataclass(frozen=True, kw_only=True)
class ReplyAfterUpdate(EasgdApart):
    @program
    def worker(self, me: Me, state: Replica) -> Program[Replica]:
        server, alpha = server_of(me), self.alpha(me)
        while step := (yield from Next(state)):
            batch = yield from Load(step.samples)
            gradient = yield from Gradient(state.weights, batch)
            before = state.weights.vector
            yield from Send(server, Exchange(before, gradient.contribution()))
            centre = (yield from Receive(server)).value
            if isinstance(centre, Stop):
                return state
            vector = before - self.rate * gradient.vector - alpha * (before - centre.vector)
            state = Replica(step.number + 1, Weights(vector, state.weights.version + 1))
        return state

    @program
    def server(self, me: Me, state: Replica) -> Program[Replica]:
        alpha = self.alpha(me)
        while step := (yield from Next(state)):
            turn = me.workers.ranks[step.number % len(me.workers)]
            exchange: Exchange = (yield from Receive(turn)).value
            centre = state.weights.vector
            centre = centre + alpha * (exchange.vector - centre)
            version = yield from Applied(Weights(centre, state.weights.version), [exchange.origin])
            state = Replica(step.number + 1, Weights(centre, version))
            yield from Send(turn, state.weights)
        for worker in me.workers:
            yield from Send(worker, Stop())
        return state


@dataclass(frozen=True, kw_only=True)
class CentreSeesMovedWorker(EasgdApart):
    @program
    def worker(self, me: Me, state: Replica) -> Program[Replica]:
        server, alpha = server_of(me), self.alpha(me)
        while step := (yield from Next(state)):
            centre = (yield from Receive(server)).value
            if isinstance(centre, Stop):
                return state
            batch = yield from Load(step.samples)
            gradient = yield from Gradient(state.weights, batch)
            before = state.weights.vector
            vector = before - self.rate * gradient.vector - alpha * (before - centre.vector)
            yield from Send(server, Exchange(vector, gradient.contribution(version=centre.version)))
            state = Replica(step.number + 1, Weights(vector, state.weights.version + 1))
        return state


@dataclass(frozen=True, kw_only=True)
class StaleReply(EasgdApart):
    """The worker moves by the centre of its last exchange, the server by the newest."""

    @program
    def worker(self, me: Me, state: Replica) -> Program[Replica]:
        server, alpha = server_of(me), self.alpha(me)
        while step := (yield from Next(state)):
            newest = (yield from Receive(server)).value
            if isinstance(newest, Stop):
                return state
            centre = state.memory if isinstance(state.memory, Weights) else newest
            batch = yield from Load(step.samples)
            gradient = yield from Gradient(state.weights, batch)
            before = state.weights.vector
            yield from Send(server, Exchange(before, gradient.contribution(version=centre.version)))
            vector = before - self.rate * gradient.vector - alpha * (before - centre.vector)
            state = Replica(step.number + 1, Weights(vector, state.weights.version + 1), newest)
        return state


@dataclass(frozen=True, kw_only=True)
class SynchronousCentreSeesMovedWorkers(SyncEasgd3Apart):
    @program
    def worker(self, me: Me, state: Elastically) -> Program[Elastically]:
        alpha, master = self.alpha(me), me.workers.ranks[0]
        while step := (yield from Next(state)):
            before: Any = state.weights.vector
            centre: Any = yield from Broadcast(value=state.centre.vector, group=me.workers, root=master, key="centre")
            batch = yield from Load(step.samples)
            gradient = yield from Gradient(state.weights, batch)
            vector = before - self.rate * gradient.vector - alpha * (before - centre)
            total = yield from Reduce(value=vector, group=me.workers, root=master, key="weights")
            if total is not None:
                centre = centre + alpha * (total - len(me.workers) * centre)
            version = yield from Applied(Weights(centre, state.centre.version), [gradient.contribution()])
            state = Elastically(step.number + 1, Weights(vector, 0), Weights(centre, version))
        return state


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
