"""Planted bugs of elastic averaging: the sum of the centre and the workers' weights, and the order of exchanges."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from paceline.algorithms.core.guarantees import Guarantee
from paceline.algorithms.core.method import RankContext, Replica
from paceline.algorithms.core.operations import Access, Lock, NextStep, Receive, RecordUpdate, Send, Unlock
from paceline.algorithms.core.program import Program, Routine, program
from paceline.algorithms.core.values import Weights
from paceline.algorithms.methods.async_elastic import AsyncEasgd, Delta, Eamsgd, landed
from paceline.algorithms.methods.elastic import Easgd, Exchange, SyncEasgd1
from paceline.algorithms.methods.hogwild import SHARED, Handled, HogwildEasgd, count
from paceline.algorithms.methods.hogwild import landed as updates_landed
from paceline.algorithms.methods.parameter_server import ServerStopped, dismiss
from paceline.algorithms.methods.survivors import LivingWorkers
from tests.planted_bugs.bug import planted


@dataclass(frozen=True, kw_only=True)
class RepliesAfterMove(AsyncEasgd):
    """The server moves the centre before it replies, so worker and centre move by different differences."""

    name = "easgd-replies-after-move"

    @program
    def server(self, me: RankContext, state: Replica) -> Program[Any]:
        team = LivingWorkers(me)
        while step := (yield from NextStep(state)):
            message = yield from team.message()
            exchange: Exchange = message.value
            centre, version = state.weights.vector, state.weights.version
            centre = centre + self.alpha(me) * (exchange.vector - centre)
            version = yield from RecordUpdate(Weights(centre, version), [replace(exchange.origin, version=version)])
            state = replace(state, step=step.number + 1, weights=Weights(centre, version))
            yield from Send(message.source, state.weights)
        yield from dismiss(team)
        return state


@dataclass(frozen=True, kw_only=True)
class CountsTheServer(SyncEasgd1):
    """The centre is subtracted P + 1 times from the sum of P workers, because the server is counted as a worker."""

    name = "easgd-counts-the-server"

    def moved(self, me: RankContext, centre: Any, total: Any) -> Any:
        return centre + self.alpha(me) * (total - len(me.world) * centre)


@dataclass(frozen=True, kw_only=True)
class ForgetsTheLastWorker(Easgd):
    """After its last step the server stops all workers except the last one, which waits forever."""

    name = "easgd-forgets-the-last-worker"

    @program
    def server(self, me: RankContext, state: Replica) -> Program[Replica]:
        alpha = self.alpha(me)
        while step := (yield from NextStep(state)):
            turn = me.workers.ranks[step.number % len(me.workers)]
            yield from Send(turn, state.weights)
            exchange: Exchange = (yield from Receive(turn)).value
            centre = state.weights.vector
            centre = centre + alpha * (exchange.vector - centre)
            version = yield from RecordUpdate(Weights(centre, state.weights.version), [exchange.origin])
            state = Replica(step.number + 1, Weights(centre, version))
        for worker in me.workers.ranks[:-1] or me.workers.ranks:
            yield from Send(worker, ServerStopped())
        return state


@dataclass(frozen=True, kw_only=True)
class OrderOfArrival(Easgd):
    """The server sends the centre to all workers at once and takes their exchanges in the order of arrival."""

    name = "easgd-order-of-arrival"

    @program
    def server(self, me: RankContext, state: Replica) -> Program[Replica]:
        alpha, asked = self.alpha(me), 0
        while step := (yield from NextStep(state)):
            if asked == 0:
                for worker in me.workers:
                    yield from Send(worker, state.weights)
                asked = len(me.workers)
            exchange: Exchange = (yield from Receive()).value
            asked -= 1
            centre = state.weights.vector
            centre = centre + alpha * (exchange.vector - centre)
            version = yield from RecordUpdate(Weights(centre, state.weights.version), [exchange.origin])
            state = Replica(step.number + 1, Weights(centre, version))
        for worker in me.workers:
            yield from Send(worker, ServerStopped())
        return state


@dataclass(frozen=True, kw_only=True)
class EveryStep(Eamsgd):
    """`eamsgd` that exchanges in every step, without momentum."""

    name = "eamsgd-every-step"

    period: int = 1
    momentum: float = 0.0


@dataclass(frozen=True, kw_only=True)
class LosesTheLastDelta(EveryStep):
    """When the server stops, it drops the differences that are on their way, although the workers have moved."""

    name = "eamsgd-loses-the-last-delta"

    @program
    def server(self, me: RankContext, state: Any) -> Program[Any]:
        team = LivingWorkers(me)
        while step := (yield from NextStep(state)):
            while isinstance((message := (yield from team.message())).value, Delta):
                state = yield from landed(state, message.value)
            yield from Send(message.source, state.weights)
            state = replace(state, step=step.number + 1)
        left = set(team.living)
        while left:
            message = yield from team.message()
            if not isinstance(message.value, Delta):
                yield from Send(message.source, ServerStopped())
                left.discard(message.source)
        return state


@dataclass(frozen=True, kw_only=True)
class Swapping(HogwildEasgd):
    """`hogwild-easgd` with a lock; a handler reads the centre, computes the new one and writes it."""

    name = "hogwild-easgd-swapping"
    guarantees = frozenset({Guarantee.CONSERVES_SUM})

    lock: bool = True

    def handler(self, me: RankContext, before: Any, done: int) -> Routine[Handled]:
        return self.locked(me, before, done) if self.lock else self.swapped(me, before, done)

    @program
    def locked(self, me: RankContext, before: Any, done: int) -> Program[Handled]:
        """Runs the exchange with the lock."""
        yield from Lock(SHARED)
        handled = yield from self.swapped(me, before, done)
        yield from Unlock(SHARED)
        return handled

    @program
    def swapped(self, me: RankContext, before: Any, done: int) -> Program[Handled]:
        """Moves the centre by a read and a swap."""
        version = yield from updates_landed(me)
        centre: Any = yield from Access(SHARED, "read")
        term = self.alpha(me) * (before - centre)
        yield from Access(SHARED, "swap", centre + term)
        yield from count(me.rank, done)
        landing = yield from updates_landed(me)
        return Handled(term, version, Weights(centre + term, landing - 1))


@dataclass(frozen=True, kw_only=True)
class LosesTheLock(Swapping):
    """The lock around read and write of the shared centre is missing, so one of two exchanges overwrites the other."""

    name = "hogwild-easgd-loses-the-lock"

    lock: bool = False


@dataclass(frozen=True, kw_only=True)
class WrongRate(AsyncEasgd):
    """The server moves the centre by the moving rate itself, not by one worker's share of it."""

    name = "easgd-moving-rate-not-shared"

    @program
    def server(self, me: RankContext, state: Replica) -> Program[Any]:
        team = LivingWorkers(me)
        while step := (yield from NextStep(state)):
            message = yield from team.message()
            exchange: Exchange = message.value
            yield from Send(message.source, state.weights)
            centre, version = state.weights.vector, state.weights.version
            centre = centre + self.moving_rate * (exchange.vector - centre)
            version = yield from RecordUpdate(Weights(centre, version), [replace(exchange.origin, version=version)])
            state = replace(state, step=step.number + 1, weights=Weights(centre, version))
        yield from dismiss(team)
        return state


BUGS = (
    planted(RepliesAfterMove(), AsyncEasgd(), "conserves-sum"),
    planted(CountsTheServer(), SyncEasgd1(), "conserves-sum"),
    planted(ForgetsTheLastWorker(), Easgd(), "no-deadlock"),
    planted(OrderOfArrival(), Easgd(), "round-robin", "deterministic"),
    planted(LosesTheLastDelta(), EveryStep(), "conserves-sum"),
    planted(LosesTheLock(), Swapping(), "conserves-sum"),
    planted(WrongRate(), AsyncEasgd(), "conserves-sum"),
)
