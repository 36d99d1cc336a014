"""Stale synchronous parallel: workers may run ahead of the slowest, but not far.

A worker's clock is the number of iterations that it has finished. The server stores the clocks; a worker may start its
next iteration if its clock is at most `slack` above the slowest. A worker that may not start waits for the server's
answer, which the server delays until the slowest clock advances.

Servers whose workers push without waiting and request weights only sometimes: used by `ssp` and `downpour`.

A worker that has requested weights waits for them before its next step. A push without a request is not acknowledged. A
stop loses no message. A stopped server receives messages until every worker waits, stores the messages that it has not
applied in its state, and sends `ServerStopped`. After a restart it applies them, and the workers still wait.

Downpour SGD: workers take local steps, push sums of gradients and fetch weights, each with its own period.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from operator import add
from typing import Any, ClassVar, Literal, Self, TypeVar

from paceline.algorithms.core.guarantees import AppliedGradient, Guarantee
from paceline.algorithms.core.method import RankContext, SgdMethod, StalenessKind
from paceline.algorithms.core.operations import Gradient, Load, NextStep, Receive, RecordUpdate, Send
from paceline.algorithms.core.option_groups import NOT_NEGATIVE, STEPS, STEPS_OR_NONE, Range
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.rules import Chain
from paceline.algorithms.core.traffic import COMBINE, NOTHING, SCALE
from paceline.algorithms.core.values import Contribution, Message, Rank, Vector, Weights
from paceline.algorithms.methods.parameter_server import ServerStopped, server_of
from paceline.algorithms.methods.survivors import LivingWorkers, survives


@dataclass(frozen=True, slots=True, eq=False)
class Packet:
    """A message of a worker: a gradient or a sum of gradients, their origins, and whether it requests weights.

    Packets are compared by identity.
    """

    vector: Any
    """None if nothing is pushed"""
    origins: tuple[Contribution, ...]
    asks: bool


@dataclass(frozen=True, slots=True)
class WorkerState:
    """A worker between two steps."""

    step: int
    weights: Weights
    optimizer_state: Any = None
    waits: bool = False
    """whether it has requested weights and has no answer yet"""


@dataclass(frozen=True, slots=True)
class ServerState:
    """A server between two steps."""

    step: int
    weights: Weights
    optimizer_state: Any = None
    pending: tuple[tuple[Rank, Packet], ...] = ()
    """packets that have arrived and are not applied, oldest first"""
    waiting: tuple[Rank, ...] = ()
    """workers that have requested weights and have no answer yet"""

    def received(self, message: Message) -> Self:
        """Returns the state after one more message."""
        rank, packet = message.source, message.value
        waiting = (*self.waiting, rank) if packet.asks else self.waiting
        return replace(self, pending=(*self.pending, (rank, packet)), waiting=waiting)

    def answered(self, *ranks: Rank) -> Self:
        """Returns the state in which these workers no longer wait."""
        return replace(self, waiting=tuple(rank for rank in self.waiting if rank not in ranks))


D = TypeVar("D", bound=ServerState)


@program
def close(team: LivingWorkers, state: D, tag: str = "") -> Program[D]:
    """Receives messages until every worker waits, and sends `ServerStopped` to each.

    Args:
        team: the living workers.
        state: the state of the server.
        tag: that of answers.

    Returns:
        The state in which the server stops.
    """
    for worker in sorted(state.waiting):
        yield from Send(worker, ServerStopped(), tag)
    while team.living - set(state.waiting):
        if (message := (yield from team.receive())) is None:
            continue
        state = state.received(message)
        if message.value.asks:
            yield from Send(message.source, ServerStopped(), tag)
    return state


@dataclass(frozen=True, slots=True)
class Farewell:
    """The last message of a worker before a stop that it did not ask for: it sends nothing more."""


@program
def dismissed(team: LivingWorkers, state: D) -> Program[D]:
    """Tells workers that do not wait for the server that the run ends, and receives what they have sent before.

    Args:
        team: the living workers, each of which answers `ServerStopped` with a `Farewell`.
        state: the state of the server.

    Returns:
        The state in which the server stops.
    """
    for worker in sorted(team.living):
        yield from Send(worker, ServerStopped())
    gone = set[Rank]()
    while team.living - gone:
        if (message := (yield from team.receive())) is None:
            continue
        if isinstance(message.value, Farewell):
            gone.add(message.source)
        else:
            state = state.received(message)
    return state


@dataclass(frozen=True, slots=True)
class Cached(WorkerState):
    """The state of a worker, with its copy of the weights."""

    clock: int = 0
    """the slowest worker's clock when the copy was read: the copy contains all updates of earlier iterations"""


@dataclass(frozen=True, slots=True)
class Clocks(ServerState):
    """The state of the server; `clocks` are the iterations of each worker that have been applied."""

    clocks: tuple[int, ...] = ()

    def finished(self, rank: Rank) -> int:
        """Returns the number of a worker's iterations that have arrived, applied or not."""
        return self.clocks[rank] + sum(source == rank for source, _ in self.pending)


@dataclass(frozen=True, slots=True)
class ClockedWeights:
    """The weights, and the slowest worker's clock."""

    weights: Weights
    clock: int


@dataclass(frozen=True, kw_only=True)
class Ssp(SgdMethod):
    """A parameter server whose workers may start an iteration at most `slack` iterations ahead of the slowest.

    worker i, clock c_i:  starts iteration c_i only if c_i − min_j c_j ≤ s
    server, on push g:    x ← x − η g;  c_i ← c_i + 1;  reply x once c_i − min_j c_j ≤ s

    Bounds, for every order of events: a worker starts with a clock of at most min + s and adds 1 when it finishes, and
    the slowest clock never decreases, so the gap is at most s + 1 when an iteration is finished. Let worker i read when
    the slowest clock is m, and use these weights in its iteration after c finished ones; the rule above, or that of the
    cache, implies m ≥ c − s. At the read, every worker's clock is at least c − s. Until i's gradient is applied, i's
    clock at the server is c, so no worker starts an iteration beyond c + s, and no clock exceeds c + s + 1. So each of
    the P − 1 others adds at most 2 s + 1 updates between i's read and the application of its gradient, and i itself
    adds at most s if it reads its cache: version lag ≤ (P − 1)(2 s + 1), plus s with ``pull="when-stale"``. With
    ``visibility="clock-edge"`` versions are clock edges: the weights read contain m ≥ c − s of them, the gradient is
    part of edge c, and the lag is at most s.
    """

    name = "ssp"
    staleness_kind = StalenessKind.VERSION_LAG
    source = "Ho et al., NIPS 2013"
    guarantees = frozenset(
        {
            Guarantee.BOUNDED_CLOCK_GAP,
            Guarantee.BOUNDED_STALENESS,
            Guarantee.CONSERVES_MESSAGES,
            Guarantee.SURVIVES_WORKERS,
        }
    )
    has_server: ClassVar[bool] = True
    ranges: ClassVar[Mapping[str, Range]] = {"slack": STEPS_OR_NONE}

    slack: int = 3
    """s, in iterations; provenance: ours. 0 has the schedule of bulk-synchronous SGD, infinity that of async-sgd"""
    pull: Literal["always", "when-stale"] = "always"
    """when a worker reads: in every iteration, or when its copy's clock is below c_i − s (Ho et al.). In between it
    uses the copy, to which it applies its own updates; provenance: the default is ours, the simplest to compare"""
    visibility: Literal["arrival", "clock-edge"] = "arrival"
    """when an update is visible to others: when it arrives (Ho et al.), or when all workers have finished the
    iteration, as their mean. With slack 0 the latter is sync-sgd; provenance: inference, chosen such that slack 0
    equals it"""

    def sees_own_updates(self, workers: int) -> bool:
        return self.pull == "always" and self.visibility == "arrival"

    def samples_per_step(self, batch: int, workers: int) -> int:
        """Returns one batch, or those of all workers if a step is a clock edge."""
        return batch * workers if self.visibility == "clock-edge" else batch

    def bounds(self, workers: int) -> Mapping[Guarantee, float]:
        """Returns the largest gap between clocks and the largest version lag, derived above."""
        own = self.slack if self.pull == "when-stale" else 0
        lag = self.slack if self.visibility == "clock-edge" else (workers - 1) * (2 * self.slack + 1) + own
        clocks = {Guarantee.BOUNDED_CLOCK_GAP: self.slack + 1, Guarantee.BOUNDED_STALENESS: lag}
        return {**clocks, **survives(workers - 1)}

    def begin(self, me: RankContext, vector: Vector) -> Cached | Clocks:
        weights, optimizer_state = Weights(vector, 0), self.rule(me.layout.layers).init(vector)
        if me.role == "server":
            return Clocks(0, weights, optimizer_state, clocks=(0,) * len(me.workers))
        return Cached(0, weights, optimizer_state)

    @program
    def worker(self, me: RankContext, state: Cached) -> Program[Cached]:
        server, rule = server_of(me), self.rule(me.layout.layers)
        while True:
            if state.waits:
                answer = (yield from Receive(server)).value
                if isinstance(answer, ServerStopped):
                    return state
                state = replace(state, weights=answer.weights, clock=answer.clock, waits=False)
            if not (step := (yield from NextStep(state))):
                return state
            batch = yield from Load(step.samples)
            gradient = yield from Gradient(state.weights, batch)
            asks = self.pull == "always" or step.number + 1 - state.clock > self.slack
            yield from Send(server, Packet(gradient.vector, (gradient.contribution(),), asks))
            weights, optimizer_state = state.weights, state.optimizer_state
            if not asks:  # applies its own update to its own copy
                shared = SCALE if self.visibility == "clock-edge" else NOTHING
                yield from rule.charge(gradient.vector.nbytes, also=shared)
                own = gradient.vector / len(me.workers) if self.visibility == "clock-edge" else gradient.vector
                vector, optimizer_state = rule.update(weights.vector, own, optimizer_state)
                weights = Weights(vector, weights.version)
            state = Cached(step.number + 1, weights, optimizer_state, asks, state.clock)

    @program
    def server(self, me: RankContext, state: Clocks) -> Program[Clocks]:
        team = LivingWorkers(me)
        while (yield from NextStep(state)):
            while not (due := self.due(team, state)):
                state = yield from self.release(team, state)
                message = yield from team.receive()
                state = state if message is None else state.received(message)
            state = yield from self.apply(me, state, due)
            state = yield from self.release(team, state)
        return (yield from close(team, state))

    def due(self, team: LivingWorkers, state: Clocks) -> list[tuple[Rank, Packet]]:
        """Returns the packets to apply now: the oldest one, or at a clock edge the oldest one of each worker.

        Args:
            team: the living workers.
            state: the state of the server.
        """
        if self.visibility == "arrival":
            return list(state.pending[:1])
        oldest = dict(reversed(state.pending))
        return [] if team.living - oldest.keys() else sorted(oldest.items())

    @program
    def apply(self, me: RankContext, state: Clocks, due: Sequence[tuple[Rank, Packet]]) -> Program[Clocks]:
        """Applies the mean of the packets that are due as one step.

        Args:
            me: the server.
            state: its state.
            due: the packets.

        Returns:
            The new state.
        """
        rule, total = self.rule_of(me), reduce(add, (packet.vector for _, packet in due))
        yield from rule.charge(total.nbytes, "host", also=(len(due) - 1) * COMBINE + SCALE)
        vector, optimizer_state = rule.update(state.weights.vector, total / len(due), state.optimizer_state)
        origins = [origin for _, packet in due for origin in packet.origins]
        version = yield from RecordUpdate(Weights(vector, state.weights.version), origins)
        ranks = [rank for rank, _ in due]
        return replace(
            state,
            step=state.step + 1,
            weights=Weights(vector, version),
            optimizer_state=optimizer_state,
            pending=tuple(item for item in state.pending if item not in due),
            clocks=tuple(clock + (rank in ranks) for rank, clock in enumerate(state.clocks)),
        )

    @program
    def release(self, team: LivingWorkers, state: Clocks) -> Program[Clocks]:
        """Answers, in rank order, the waiting workers that may start. Clocks of dead workers do not count.

        Args:
            team: the living workers.
            state: the state of the server.
        """
        slowest = min(state.clocks[rank] for rank in team.living)
        free = [rank for rank in sorted(state.waiting) if self.may_start(state, rank, slowest)]
        for rank in free:
            yield from Send(rank, ClockedWeights(state.weights, slowest))
        return state.answered(*free)

    def may_start(self, state: Clocks, rank: Rank, slowest: int) -> bool:
        """Returns whether a worker may start: it is close enough to the slowest, and its own last update is visible.

        At clock edges, its own update need not be visible.

        Args:
            state: the state of the server.
            rank: the worker.
            slowest: the slowest clock.
        """
        finished = state.finished(rank)
        seen = finished == state.clocks[rank] or self.visibility == "clock-edge"
        return seen and finished - slowest <= self.slack


@dataclass(frozen=True, slots=True)
class Accruing(WorkerState):
    """The state of a worker, with the gradients that it has not pushed."""

    total: Any = None
    origins: tuple[Contribution, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Downpour(SgdMethod):
    """Workers take steps on their own copies, and periodically push the sum of their gradients and fetch new weights.

    worker, step t = 1, 2, …:  G ← G + g(x)
                               if n_push divides t:  push G;  G ← 0
                               if n_fetch divides t:  x ← fetched,  else:  x ← x − η' g(x)
    server, on push G:         x ← x − η G;  version ← version + 1

    A push and a fetch in the same step are one message; `answer` decides whether the fetched weights include the push.
    A worker never waits for a push alone. Fetched weights replace the local ones, including their local steps.
    """

    name = "downpour"
    staleness_kind = StalenessKind.VERSION_LAG
    source = "Dean et al., NIPS 2012; local steps and the accumulator as in mpiT's downpour.lua"
    guarantees = frozenset({Guarantee.CONSERVES_MESSAGES, Guarantee.SURVIVES_WORKERS})
    has_server: ClassVar[bool] = True
    ranges: ClassVar[Mapping[str, Range]] = {"n_push": STEPS, "n_fetch": STEPS, "local_learning_rate": NOT_NEGATIVE}

    n_push: int = 4
    """local gradients in one push; provenance: ours. Dean et al. and mpiT have 1 (from memory), TorchMPI 10"""
    n_fetch: int = 4
    """local steps between two fetches; provenance: ours, as n_push"""
    local_learning_rate: float | None = None
    """η' of the local steps, 0 for none; None is `learning_rate`, as in mpiT, where both are the same"""
    answer: Literal["after", "before"] = "after"
    """whether weights fetched together with a push include it (after) or not (before); provenance: in the sources both
    are in flight at once, so that either may happen; the default is ours, as in async-sgd"""

    def samples_per_step(self, batch: int, workers: int) -> int:
        """Returns the samples of all gradients in a push."""
        return batch * self.n_push

    def longest_period(self, workers: int) -> int:
        return max(self.n_push, self.n_fetch)

    def sees_own_updates(self, workers: int) -> bool:
        return self.n_push == self.n_fetch == 1 and self.answer == "after"

    def global_steps(self, me: RankContext) -> Fraction:
        """Returns the global steps in an update; a worker takes no step of its own where it fetches weights."""
        if me.role == "worker" and self.n_fetch > 1:
            return Fraction(self.n_fetch, self.n_fetch - 1)
        return super().global_steps(me)

    def gradient_weight(self, gradient: AppliedGradient) -> float:
        """Returns η / (1 − μ): a push is a sum."""
        return self.learning_rate_at(gradient.version) / (1 - self.momentum)

    def bounds(self, workers: int) -> Mapping[Guarantee, float]:
        return survives(workers - 1)

    def begin(self, me: RankContext, vector: Vector) -> Accruing | ServerState:
        kind = ServerState if me.role == "server" else Accruing
        return kind(0, Weights(vector, 0), self.rule(me.layout.layers).init(vector))

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
            batch = yield from Load(step.samples)
            gradient = yield from Gradient(state.weights, batch)
            total = gradient.vector if state.total is None else state.total + gradient.vector
            origins = (*state.origins, gradient.contribution())
            pushes, fetches = (step.number + 1) % self.n_push == 0, (step.number + 1) % self.n_fetch == 0
            if pushes or fetches:
                yield from Send(server, Packet(total, origins, fetches) if pushes else Packet(None, (), fetches))
            if pushes:
                total, origins = None, ()
            state = replace(state, step=step.number + 1, total=total, origins=origins, waits=fetches)
            if not fetches and self.local_learning_rate != 0:
                yield from self.local_rule(me).charge(gradient.vector.nbytes)
                state = self.stepped(me, state, gradient.vector)

    def stepped(self, me: RankContext, state: Accruing, gradient: Vector) -> Accruing:
        """Returns the state after a local step; the version does not change."""
        vector, optimizer_state = self.local_rule(me).update(state.weights.vector, gradient, state.optimizer_state)
        return replace(state, weights=Weights(vector, state.weights.version), optimizer_state=optimizer_state)

    def local_rule(self, me: RankContext) -> Chain:
        """Returns the rule of local steps."""
        local = self if self.local_learning_rate is None else replace(self, learning_rate=self.local_learning_rate)
        return local.rule_of(me)

    @program
    def server(self, me: RankContext, state: ServerState) -> Program[ServerState]:
        team = LivingWorkers(me)
        while step := (yield from NextStep(state)):
            while state.step == step.number:  # until a push has been applied
                if not state.pending:
                    state = state.received((yield from team.message()))
                state = yield from self.serve(me, state)
        return (yield from close(team, state))

    @program
    def serve(self, me: RankContext, state: ServerState) -> Program[ServerState]:
        """Processes the oldest message."""
        (source, packet), *others = state.pending
        state = replace(state, pending=tuple(others))
        if packet.asks and self.answer == "before":
            yield from Send(source, state.weights)
        if packet.vector is not None:
            rule = self.rule_of(me)
            yield from rule.charge(packet.vector.nbytes, "host")
            vector, optimizer_state = rule.update(state.weights.vector, packet.vector, state.optimizer_state)
            version = yield from RecordUpdate(Weights(vector, state.weights.version), packet.origins)
            state = replace(
                state, step=state.step + 1, weights=Weights(vector, version), optimizer_state=optimizer_state
            )
        if packet.asks and self.answer == "after":
            yield from Send(source, state.weights)
        return state.answered(source) if packet.asks else state
