"""Elastic averaging: each worker's weights and a centre variable move towards each other.

Both sides move by the same difference in opposite directions, so that the sum of centre and workers is conserved. If
weights are sent, both sides use the same pair (worker weights, centre) from before either moves. If the difference is
sent, the worker computes it once, and the centre may have changed since.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from paceline.algorithms.core.fast_values import replace
from paceline.algorithms.core.gradient_weights import AppliedGradient
from paceline.algorithms.core.guarantees import Guarantee
from paceline.algorithms.core.method import RankContext, Replica, SgdMethod, StalenessKind, changed
from paceline.algorithms.core.operations import (
    Charge,
    Gradient,
    Load,
    NextStep,
    Receive,
    RecordUpdate,
    Send,
)
from paceline.algorithms.core.option_groups import NOT_NEGATIVE, Range
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.traffic import ELASTIC_PULL
from paceline.algorithms.core.values import Contribution, Rank, Weights, join
from paceline.algorithms.methods.parameter_server import ServerStopped, server_of


@dataclass(frozen=True, slots=True)
class Exchange:
    """A worker's weights before its update, and the origin of the elastic term that is computed from them."""

    vector: Any
    origin: Contribution


@dataclass(frozen=True, kw_only=True)
class Elastic(SgdMethod):
    """Base of the EASGD family.

    The elastic rate α is given in one of three ways: NIPS'15 has the moving rate β = Pα, SC'17 has α = ηρ, and
    `elastic` is α itself.
    """

    ranges: ClassVar[Mapping[str, Range]] = {"rho": NOT_NEGATIVE}

    moving_rate: float = 0.9
    """β of Zhang, Choromanska, LeCun, NIPS'15 (their default)"""
    elastic: float | None = None
    """α, instead of β / P"""
    rho: float | None = None
    """ρ of SC'17: α = ηρ, instead of β / P; a schedule does not change this η"""

    def alpha(self, me: RankContext) -> float:
        """Returns α for this number of workers.

        >>> from types import SimpleNamespace
        >>> four = SimpleNamespace(workers=range(4))
        >>> Easgd(moving_rate=0.8).alpha(four), Easgd(learning_rate=0.1, rho=2.0).alpha(four)
        (0.2, 0.2)
        """
        if self.rho is not None:
            return self.learning_rate * self.rho
        return self.moving_rate / len(me.workers) if self.elastic is None else self.elastic

    def linear_form(self) -> Self:
        """Returns the form with the largest usual α: with a small one, the distance from the centre fades slowly."""
        return changed(super().linear_form(), moving_rate=0.9, elastic=None, rho=None)

    def initial_weight(self, updates: int) -> float | None:
        return None  # the centre follows the decay of the workers

    def gradient_weight(self, gradient: AppliedGradient) -> float:
        """Returns η / (1 − μ) / (P + 1): in the end the centre and the workers share what one worker has moved."""
        return self.learning_rate_at(gradient.step) / (1 - self.momentum) / (gradient.living + 1)

    def problems(self, nodes: Sequence[Sequence[Rank]]) -> list[str]:
        problems = super().problems(nodes)
        if self.rho is not None and self.elastic is not None:
            problems.append("rho: found beside elastic, expected one of them: elastic is α itself, rho gives α = ηρ")
        return problems


@dataclass(frozen=True, kw_only=True)
class Easgd(Elastic):
    """Original EASGD: the server exchanges with the workers strictly in turn.

    worker j = t mod P:  x_j ← x_j − η g(x_j) − α (x_j − c)
    server:              c ← c + α (x_j − c), with x_j from before its update

    By default nothing overlaps: a turn is the centre, the gradient, then the weights. With `overlap`, a worker sends
    its weights before its gradient, which does not change them, so that the next turn begins meanwhile. The numbers are
    the same.
    """

    name = "easgd"
    staleness_kind = StalenessKind.EXCHANGE_LAG
    source = "You, Buluç, Demmel, SC'17, Algorithm 1 (Original EASGD)"
    guarantees = frozenset(
        {Guarantee.DETERMINISTIC, Guarantee.ROUND_ROBIN, Guarantee.CONSERVES_SUM, Guarantee.CONSERVES_MESSAGES}
    )
    has_server: ClassVar[bool] = True

    packed: bool = True
    """whether all layers are one message, or one for each layer in each direction"""
    overlap: bool = False
    """whether a worker's exchange overlaps with its gradient; provenance: SC'17's baseline does not overlap"""

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        alpha, rule = self.alpha(me), self.rule(me.layout.layers)
        while step := (yield from NextStep(state)):
            before = state.weights.vector
            origin = Contribution(me.rank, step.number, 0, step.samples.count)  # the server knows the centre's version
            centre: Weights | None = None
            if self.overlap:
                yield from self.send_weights(me, before, origin)
            elif (centre := (yield from self.receive_centre(me))) is None:
                return state
            batch = yield from Load(step.samples)
            gradient = yield from Gradient(state.weights, batch)
            if centre is not None:
                yield from self.send_weights(me, before, origin)
            elif (centre := (yield from self.receive_centre(me))) is None:
                return state
            yield from rule.charge(before.nbytes, also=ELASTIC_PULL)
            stepped, optimizer_state = rule.update(before, gradient.vector, state.optimizer_state)
            vector = stepped - alpha * (before - centre.vector)
            state = Replica(step.number + 1, Weights(vector, state.weights.version + 1), optimizer_state)
        return state

    @program
    def server(self, me: RankContext, state: Replica) -> Program[Replica]:
        alpha, parts = self.alpha(me), self.parts(me)
        while step := (yield from NextStep(state)):
            turn = me.workers.ranks[step.number % len(me.workers)]
            centre, version = state.weights.vector, state.weights.version
            for part in parts:
                yield from Send(turn, Weights(centre[part], version))
            exchanges: list[Exchange] = []
            for _ in parts:
                exchanges.append((yield from Receive(turn)).value)
            replicas = self.whole([exchange.vector for exchange in exchanges])
            yield from Charge("update", replicas.nbytes, where="host", traffic=ELASTIC_PULL)
            centre = centre + alpha * (replicas - centre)
            version = yield from RecordUpdate(Weights(centre, version), [replace(exchanges[0].origin, version=version)])
            state = Replica(step.number + 1, Weights(centre, version))
        for worker in me.workers:
            yield from Send(worker, ServerStopped())
        return state

    def parts(self, me: RankContext) -> list[slice]:
        """Returns the part of the weights in each message."""
        return [slice(None)] if self.packed else [layer.part for layer in me.layout.layers]

    def whole(self, parts: list[Any]) -> Any:
        """Returns the vector whose parts were sent."""
        return parts[0] if self.packed else join(parts)

    @program
    def send_weights(self, me: RankContext, vector: Any, origin: Contribution) -> Program[None]:
        """Sends a worker's weights to the server.

        Args:
            me: the worker.
            vector: its weights before the update.
            origin: its gradient.
        """
        for part in self.parts(me):
            yield from Send(server_of(me), Exchange(vector[part], origin))

    @program
    def receive_centre(self, me: RankContext) -> Program[Weights | None]:
        """Returns the centre that the server sends in this worker's turn; None if the server has stopped.

        Args:
            me: the worker.
        """
        received: list[Weights] = []
        for _ in self.parts(me):
            message = (yield from Receive(server_of(me))).value
            if isinstance(message, ServerStopped):
                return None
            received.append(message)
        return Weights(self.whole([part.vector for part in received]), received[0].version)
