"""Downpour SGD: workers take local steps, push sums of gradients and fetch weights, each with its own period."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Literal

from paceline.algorithms.core.gradient_weights import AppliedGradient
from paceline.algorithms.core.guarantees import Guarantee
from paceline.algorithms.core.method import RankContext, SgdMethod, StalenessKind
from paceline.algorithms.core.operations import Gradient, Load, NextStep, Receive, RecordUpdate, Send
from paceline.algorithms.core.option_groups import NOT_NEGATIVE, STEPS, Range
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.rules import Chain
from paceline.algorithms.core.values import Contribution, Vector, Weights
from paceline.algorithms.methods.parameter_server import ServerStopped, server_of
from paceline.algorithms.methods.pull_on_demand import Packet, ServerState, WorkerState, close
from paceline.algorithms.methods.survivors import LivingWorkers, survives


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
