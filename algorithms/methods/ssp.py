"""Stale synchronous parallel: workers may run ahead of the slowest, but not far.

Rules of this file:

* A worker's clock is the number of iterations that it has finished. The server holds the clocks; a worker may start its
  next iteration if its clock is at most `slack` above the slowest.
* Who may not start waits for nothing but an answer: the server withholds it until the slowest clock has risen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import ClassVar, Literal

from paceline.algorithms.core.guarantees import Guarantee
from paceline.algorithms.core.method import RankContext, SgdMethod, StalenessKind
from paceline.algorithms.core.operations import Charge, Gradient, Load, NextStep, Receive, RecordUpdate, Send
from paceline.algorithms.core.option_groups import STEPS_OR_NONE, Range
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Rank, Vector, Weights
from paceline.algorithms.methods.parameter_server import Stop, server_of
from paceline.algorithms.methods.pull_on_demand import Desk, Packet, Reader, close
from paceline.algorithms.methods.survivors import Crew, survives


@dataclass(frozen=True, slots=True)
class Cached(Reader):
    """A worker and its copy of the weights."""

    clock: int = 0
    """the slowest worker's clock when the copy was read: it holds every update of iterations before this one"""


@dataclass(frozen=True, slots=True)
class Clocks(Desk):
    """The server; `clocks` has, for each worker, its iterations that are in the weights."""

    clocks: tuple[int, ...] = ()

    def finished(self, rank: Rank) -> int:
        """A worker's iterations that have come here, applied or not."""
        return self.clocks[rank] + sum(source == rank for source, _ in self.heard)


@dataclass(frozen=True, slots=True)
class Answer:
    """The weights, and the slowest worker's clock."""

    weights: Weights
    clock: int


@dataclass(frozen=True, kw_only=True)
class Ssp(SgdMethod):
    """A parameter server whose workers may be `slack` iterations ahead of the slowest when they start one, not more.

    worker i, clock c_i:  starts iteration c_i only if c_i − min_j c_j ≤ s
    server, on push g:    x ← x − η g;  c_i ← c_i + 1;  reply x once c_i − min_j c_j ≤ s

    Bounds, for every order of events. A worker starts with a clock of at most min + s and adds 1 by finishing, while
    the slowest clock never falls: the gap is at most s + 1 when an iteration is finished. Let i read when the slowest
    clock is m, and use what it read in the iteration after c of its own; the rule above, or that of the cache, says
    m ≥ c − s. At the read, every worker's clock is at least c − s. Until i's gradient is applied its clock is c there,
    so nobody starts an iteration beyond c + s, and no clock exceeds c + s + 1. So each of the P − 1 others adds at most
    2 s + 1 updates between i's read and its gradient's application, and i itself at most s, where it reads its cache:
    version lag ≤ (P − 1)(2 s + 1), plus s with ``pull="when-stale"``. With ``visibility="clock-edge"`` versions are
    clock edges: weights read hold m ≥ c − s of them, the gradient goes into edge c, and the lag is at most s.
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
    computes on the copy, in which it sees its own updates; provenance: the default is ours, the simplest to compare"""
    visibility: Literal["arrival", "clock-edge"] = "arrival"
    """when others see an update: as soon as it arrives (Ho et al.), or when all have finished its iteration, as the
    mean of all. With slack 0 the latter is sync-sgd; provenance: inference, what makes slack 0 equal to it"""

    def samples_per_step(self, batch: int, workers: int) -> int:
        """One batch, or everybody's where a step is a clock edge."""
        return batch * workers if self.visibility == "clock-edge" else batch

    def bounds(self, workers: int) -> Mapping[Guarantee, float]:
        """The largest gap between clocks, and the largest version lag; see above for why."""
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
                if isinstance(answer, Stop):
                    return state
                state = replace(state, weights=answer.weights, clock=answer.clock, waits=False)
            if not (step := (yield from NextStep(state))):
                return state
            batch = yield from Load(step.samples)
            gradient = yield from Gradient(state.weights, batch)
            asks = self.pull == "always" or step.number + 1 - state.clock > self.slack
            yield from Send(server, Packet(gradient.vector, (gradient.contribution(),), asks))
            weights, optimizer_state = state.weights, state.optimizer_state
            if not asks:  # its own update, in its own copy
                yield from Charge("update", gradient.vector.nbytes)
                own = gradient.vector / len(me.workers) if self.visibility == "clock-edge" else gradient.vector
                vector, optimizer_state = rule.update(weights.vector, own, optimizer_state)
                weights = Weights(vector, weights.version)
            state = Cached(step.number + 1, weights, optimizer_state, asks, state.clock)

    @program
    def server(self, me: RankContext, state: Clocks) -> Program[Clocks]:
        build_team = Crew(me)
        while (yield from NextStep(state)):
            while not (due := self.due(build_team, state)):
                state = yield from self.release(build_team, state)
                message = yield from build_team.hear()
                state = state if message is None else state.hear(message)
            state = yield from self.apply(me, state, due)
            state = yield from self.release(build_team, state)
        return (yield from close(build_team, state))

    def due(self, build_team: Crew, state: Clocks) -> list[tuple[Rank, Packet]]:
        """What is to be applied now: the oldest that came, or the oldest of every worker once all have come."""
        if self.visibility == "arrival":
            return list(state.heard[:1])
        oldest = dict(reversed(state.heard))
        return [] if build_team.living - oldest.keys() else sorted(oldest.items())

    @program
    def apply(self, me: RankContext, state: Clocks, due: Sequence[tuple[Rank, Packet]]) -> Program[Clocks]:
        """The mean of what is due becomes one step."""
        total = reduce(add, (packet.vector for _, packet in due))
        yield from Charge("update", len(due) * total.nbytes, where="host")
        vector, optimizer_state = self.rule(me.layout.layers).update(
            state.weights.vector, total / len(due), state.optimizer_state
        )
        origins = [origin for _, packet in due for origin in packet.origins]
        version = yield from RecordUpdate(Weights(vector, state.weights.version), origins)
        ranks = [rank for rank, _ in due]
        return replace(
            state,
            step=state.step + 1,
            weights=Weights(vector, version),
            optimizer_state=optimizer_state,
            heard=tuple(item for item in state.heard if item not in due),
            clocks=tuple(clock + (rank in ranks) for rank, clock in enumerate(state.clocks)),
        )

    @program
    def release(self, build_team: Crew, state: Clocks) -> Program[Clocks]:
        """Answers, in rank order, those who wait and may start; nobody is held back by one who has died."""
        slowest = min(state.clocks[rank] for rank in build_team.living)
        free = [rank for rank in sorted(state.waiting) if self.may_start(state, rank, slowest)]
        for rank in free:
            yield from Send(rank, Answer(state.weights, slowest))
        return state.answered(*free)

    def may_start(self, state: Clocks, rank: Rank, slowest: int) -> bool:
        """Whether a worker is close enough to the slowest and, where that can be, will see its own last update."""
        finished = state.finished(rank)
        seen = finished == state.clocks[rank] or self.visibility == "clock-edge"
        return seen and finished - slowest <= self.slack
