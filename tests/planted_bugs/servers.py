"""Planted bugs of parameter servers: which gradients an update has, how stale they are, and which messages are read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from paceline.algorithms.core.fast_values import replace
from paceline.algorithms.core.guarantees import Guarantee
from paceline.algorithms.core.method import RankContext, Replica
from paceline.algorithms.core.operations import Gradient, Load, NextStep, Receive, RecordUpdate, Send, Start, WaitFor
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import GradientResult, Rank, Weights, join
from paceline.algorithms.methods.dynamic_batch import DbsSgd, Estimate, quotas
from paceline.algorithms.methods.parameter_server import (
    AsyncSgd,
    ParameterServer,
    Push,
    ServerStopped,
    ShardedReplica,
    Softsync,
    SyncSgdPs,
    mean_of,
    opened,
    server_of,
)
from paceline.algorithms.methods.partial_waiting import BackupWorkers, KAsync, KSync
from paceline.algorithms.methods.ssp import Clocks, Ssp
from paceline.algorithms.methods.survivors import LivingWorkers
from tests.planted_bugs.bug import planted

Collected = tuple[Sequence[Push], Iterable[Rank]]


@dataclass(frozen=True, kw_only=True)
class GateOffByOne(Ssp):
    """A worker may start one iteration too early."""

    name = "ssp-gate-off-by-one"

    slack: int = 0

    def may_start(self, state: Clocks, rank: Rank, slowest: int) -> bool:
        finished = state.finished(rank)
        return finished == state.clocks[rank] and finished - slowest <= self.slack + 1


@dataclass(frozen=True, kw_only=True)
class ComparesWithTheFastest(Ssp):
    """The gate compares a worker with the fastest one instead of the slowest, so no worker is ever held."""

    name = "ssp-compares-with-the-fastest"

    slack: int = 0

    def may_start(self, state: Clocks, rank: Rank, slowest: int) -> bool:
        return super().may_start(state, rank, max(state.clocks))


@dataclass(frozen=True, kw_only=True)
class BoundOffByOne(Ssp):
    """The promised bound of staleness is one too small."""

    name = "ssp-bound-off-by-one"

    slack: int = 0

    def bounds(self, workers: int) -> Mapping[Guarantee, float]:
        right = super().bounds(workers)
        return {**right, Guarantee.BOUNDED_STALENESS: max(0, right[Guarantee.BOUNDED_STALENESS] - 1)}


@dataclass(frozen=True, kw_only=True)
class ReceivesFromEach(SyncSgdPs):
    """`sync-sgd-ps` whose server starts one receive for each worker and waits for them."""

    name = "sync-sgd-ps-receives-from-each"
    need: ClassVar[Literal["all", "any"]] = "all"

    @program
    def server(self, me: RankContext, state: Replica) -> Program[Replica]:
        rule = self.rule(me.layout.layers)
        while step := (yield from NextStep(state)):
            coming = []
            for worker in me.workers:
                coming.append((yield from Start(Receive(worker))))
            messages = [message for _, message in (yield from WaitFor(coming, self.need))]
            taken = [opened(message) for message in messages]
            mean = mean_of([push.vector for push in taken])
            vector, optimizer_state = rule.update(state.weights.vector, mean, state.optimizer_state)
            origins = [push.origin for push in taken]
            version = yield from RecordUpdate(Weights(vector, state.weights.version), origins)
            state = Replica(step.number + 1, Weights(vector, version), optimizer_state)
            for message in messages:
                yield from Send(message.source, state.weights)
        yield from self.farewell(LivingWorkers(me))
        return state


@dataclass(frozen=True, kw_only=True)
class WaitsForAny(ReceivesFromEach):
    """The server waits for any of the receives that it has started instead of all of them."""

    name = "sync-sgd-ps-waits-for-any"
    need: ClassVar[Literal["all", "any"]] = "any"


@dataclass(frozen=True, kw_only=True)
class InOrderOfArrival(SyncSgdPs):
    """The server weights gradients by their place in the order of arrival, so the weights depend on the speeds."""

    name = "sync-sgd-ps-order-of-arrival"

    @program
    def collect(self, me: RankContext, team: LivingWorkers, weights: Weights) -> Program[Collected]:
        taken, waiting = yield from ParameterServer.collect(self, me, team, weights)
        scaled = [Push((1 + place) * push.vector / len(taken), push.origin) for place, push in enumerate(taken)]
        return scaled, waiting


@dataclass(frozen=True, kw_only=True)
class TwoOfAll(KAsync):
    """`k-async` with K = 2."""

    name = "k-async-2"

    k: int | None = 2


@dataclass(frozen=True, kw_only=True)
class CountsTwice(TwoOfAll):
    """A push is answered before its update, so the same worker is counted twice among the K."""

    name = "k-async-counts-twice"
    prompt: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class DropsAGradient(Softsync):
    """A gradient that is older than the weights is counted, but not applied."""

    name = "softsync-drops-a-gradient"

    @program
    def collect(self, me: RankContext, team: LivingWorkers, weights: Weights) -> Program[Collected]:
        taken, waiting = yield from super().collect(me, team, weights)
        fresh = [push for push in taken if push.origin.version == weights.version]
        return fresh or taken, waiting


@dataclass(frozen=True, kw_only=True)
class OneBackup(BackupWorkers):
    """`backup-workers` with one backup."""

    name = "backup-workers-1"

    backups: int | None = 1


@dataclass(frozen=True, kw_only=True)
class AcceptsLateGradients(OneBackup):
    """The server applies gradients of older weights instead of dropping them."""

    name = "backup-workers-accepts-late-gradients"
    fresh: ClassVar[bool] = False


@dataclass(frozen=True, kw_only=True)
class VersionByTwo(AsyncSgd):
    """The server adds 1 to the version that `RecordUpdate` has already increased."""

    name = "async-sgd-version-by-two"

    @program
    def server(self, me: RankContext, state: Replica) -> Program[Replica]:
        rule, team = self.rule(me.layout.layers), LivingWorkers(me)
        while step := (yield from NextStep(state)):
            taken, waiting = yield from self.collect(me, team, state.weights)
            vector, optimizer_state = self.applied(rule, state, taken)
            origins = tuple(push.origin for push in taken)
            version = yield from RecordUpdate(Weights(vector, state.weights.version), origins)
            state = Replica(step.number + 1, Weights(vector, version + 1), optimizer_state)
            for rank in waiting:
                yield from Send(rank, state.weights)
        yield from self.farewell(team)
        return state


@dataclass(frozen=True, kw_only=True)
class UnreadGoodbye(AsyncSgd):
    """A worker that is stopped sends a last message, which the server never receives."""

    name = "async-sgd-unread-goodbye"

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        server = server_of(me)
        while step := (yield from NextStep(state)):
            batch = yield from Load(step.samples)
            gradient = yield from Gradient(state.weights, batch)
            kept = yield from self.push(me, gradient, state.residual)
            reply = (yield from Receive(server)).value
            if isinstance(reply, ServerStopped):
                yield from Send(server, reply)
                return state
            state = Replica(step.number + 1, reply, state.optimizer_state, kept)
        return state


@dataclass(frozen=True, kw_only=True)
class TwoServers(AsyncSgd):
    """`async-sgd` with two servers."""

    name = "async-sgd-two-servers"

    servers: int = 2


@dataclass(frozen=True, kw_only=True)
class EndsWithOneServer(TwoServers):
    """A worker ends when one of two servers has stopped, and the other waits for its last push."""

    name = "async-sgd-ends-with-one-server"

    @program
    def worker_of_shards(self, me: RankContext, state: ShardedReplica) -> Program[Replica]:
        while step := (yield from NextStep(state)):
            gradient = yield from Gradient(state.weights, (yield from Load(step.samples)))
            yield from self.push_parts(me, gradient, state)
            replies = []
            for server in me.servers:
                replies.append((yield from Receive(server)).value)
            if any(isinstance(reply, ServerStopped) for reply in replies):
                return state
            versions = tuple(reply.version for reply in replies)
            weights = Weights(join([reply.vector for reply in replies]), versions[0])
            state = replace(state, step=step.number + 1, weights=weights, versions=versions)
        return state


@dataclass(frozen=True, kw_only=True)
class VersionOfOneServer(TwoServers):
    """A worker tells both servers the version of the first one's weights."""

    name = "async-sgd-version-of-one-server"

    @program
    def push_parts(self, me: RankContext, gradient: GradientResult, state: ShardedReplica) -> Program[tuple[Any, ...]]:
        first = (state.versions[0],) * len(me.shards)
        return (yield from super().push_parts(me, gradient, replace(state, versions=first)))


@dataclass(frozen=True, kw_only=True)
class EndsTooEarly(KSync):
    """The server stops all workers and ends without receiving the gradients that are on their way."""

    name = "k-sync-ends-too-early"

    @program
    def farewell(self, team: LivingWorkers) -> Program[None]:
        for worker in sorted(team.living):
            yield from Send(worker, ServerStopped())


@dataclass(frozen=True, kw_only=True)
class OftenBalanced(DbsSgd):
    """`dbs-sgd` that adjusts the batches after every second update."""

    name = "dbs-sgd-often"

    interval: int = 2
    dead_band: float = 0.0


@dataclass(frozen=True, kw_only=True)
class RoundsDown(OftenBalanced):
    """The batches are rounded down, so that samples of the total are lost."""

    name = "dbs-sgd-rounds-down"

    def rebalanced(self, batches: tuple[int, ...], estimates: Sequence[Estimate | None]) -> tuple[int, ...]:
        known = [estimate for estimate in estimates if estimate is not None]
        if len(known) < len(batches):
            return batches
        shares = quotas(sum(batches), [one.speed for one in known], [one.overhead for one in known], least=1)
        return tuple(int(share) for share in shares)


@dataclass(frozen=True, kw_only=True)
class WaitsForAnAnswer(AsyncSgd):
    """The server receives the next push before it answers the last one, so the only worker waits forever."""

    name = "async-sgd-answers-late"

    @program
    def server(self, me: RankContext, state: Replica) -> Program[Replica]:
        rule, team = self.rule(me.layout.layers), LivingWorkers(me)
        message = yield from team.message()
        while step := (yield from NextStep(state)):
            push, source = opened(message), message.source
            vector, optimizer_state = self.applied(rule, state, [push])
            version = yield from RecordUpdate(Weights(vector, state.weights.version), [push.origin])
            state = Replica(step.number + 1, Weights(vector, version), optimizer_state)
            message = yield from team.message()
            yield from Send(source, state.weights)
        yield from Send(message.source, ServerStopped())
        team.living -= {message.source}
        yield from self.farewell(team)
        return state


@dataclass(frozen=True, kw_only=True)
class NoSlack(Ssp):
    """`ssp` without slack."""

    name = "ssp-no-slack"

    slack: int = 0


BUGS = (
    planted(GateOffByOne(), NoSlack(), "bounded-clock-gap", "bounded-staleness"),
    planted(ComparesWithTheFastest(), NoSlack(), "bounded-clock-gap", "bounded-staleness"),
    planted(BoundOffByOne(), NoSlack(), "bounded-staleness"),
    planted(WaitsForAny(), ReceivesFromEach(), "full-updates", "no-deadlock", "deterministic"),
    planted(InOrderOfArrival(), SyncSgdPs(), "deterministic", "same-as-sync-sgd"),
    planted(CountsTwice(), TwoOfAll(), "distinct-workers"),
    planted(DropsAGradient(), Softsync(), "full-updates"),
    planted(AcceptsLateGradients(), OneBackup(), "synchronous"),
    planted(VersionByTwo(), AsyncSgd(), "versions-by-one"),
    planted(UnreadGoodbye(), AsyncSgd(), "conserves-messages", "messages-read"),
    planted(EndsTooEarly(), KSync(), "conserves-messages", "messages-read"),
    planted(RoundsDown(), OftenBalanced(), "constant-total"),
    planted(WaitsForAnAnswer(), AsyncSgd(), "no-deadlock"),
    planted(EndsWithOneServer(), TwoServers(), "no-deadlock"),
    planted(VersionOfOneServer(), TwoServers(), "newest-weights", "gradients-once"),
)
