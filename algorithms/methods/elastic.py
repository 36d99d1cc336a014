"""Elastic averaging: each worker's weights and a centre variable move towards each other.

Rules of this file:

* Both sides move by the same difference in opposite directions, so that the sum of centre and workers is conserved. If
  weights are sent, both sides use the same pair (worker weights, centre) from before either moves. If the difference is
  sent, the worker computes it once, and the centre may have changed since.
* This file has the base class and the original method, in which workers take turns. The others are in `async_elastic`
  and `sync_elastic`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from paceline.algorithms.core.guarantees import Guarantee
from paceline.algorithms.core.method import RankContext, Replica, SgdMethod, StalenessKind
from paceline.algorithms.core.operations import (
    Charge,
    Gradient,
    Load,
    NextStep,
    Receive,
    RecordUpdate,
    Send,
)
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Contribution, Weights
from paceline.algorithms.methods.parameter_server import Stop, server_of


@dataclass(frozen=True, slots=True)
class Exchange:
    """A worker's weights before its update, and the origin of the elastic term that is computed from them."""

    vector: Any
    origin: Contribution


@dataclass(frozen=True, kw_only=True)
class Elastic(SgdMethod):
    """Base of the EASGD family.

    The elastic rate is α = ηρ. The papers specify its sum over the workers, the moving rate β = Pα; `elastic` sets α
    directly.
    """

    moving_rate: float = 0.9
    """β of Zhang, Choromanska, LeCun, NIPS'15 (their default)"""
    elastic: float | None = None
    """α, instead of β / P"""

    def alpha(self, me: RankContext) -> float:
        """Returns α for this number of workers."""
        return self.moving_rate / len(me.workers) if self.elastic is None else self.elastic


@dataclass(frozen=True, kw_only=True)
class Easgd(Elastic):
    """Original EASGD: the server exchanges with the workers strictly in turn, without overlap.

    worker j = t mod P:  x_j ← x_j − η g(x_j) − α (x_j − c)
    server:              c ← c + α (x_j − c), with x_j from before its update
    """

    name = "easgd"
    staleness_kind = StalenessKind.EXCHANGE_LAG
    source = "You, Buluç, Demmel, SC'17, Algorithm 1 (Original EASGD)"
    guarantees = frozenset(
        {Guarantee.DETERMINISTIC, Guarantee.ROUND_ROBIN, Guarantee.CONSERVES_SUM, Guarantee.CONSERVES_MESSAGES}
    )
    has_server: ClassVar[bool] = True

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        server, alpha, rule = server_of(me), self.alpha(me), self.rule(me.layout.layers)
        while step := (yield from NextStep(state)):
            centre = (yield from Receive(server)).value
            if isinstance(centre, Stop):
                return state
            batch = yield from Load(step.samples)
            gradient = yield from Gradient(state.weights, batch)
            before = state.weights.vector
            yield from Send(server, Exchange(before, gradient.contribution(version=centre.version)))
            yield from Charge("update", before.nbytes)
            stepped, optimizer_state = rule.update(before, gradient.vector, state.optimizer_state)
            vector = stepped - alpha * (before - centre.vector)
            state = Replica(step.number + 1, Weights(vector, state.weights.version + 1), optimizer_state)
        return state

    @program
    def server(self, me: RankContext, state: Replica) -> Program[Replica]:
        alpha = self.alpha(me)
        while step := (yield from NextStep(state)):
            turn = me.workers.ranks[step.number % len(me.workers)]
            yield from Send(turn, state.weights)
            exchange: Exchange = (yield from Receive(turn)).value
            yield from Charge("update", exchange.vector.nbytes, where="host")
            centre = state.weights.vector
            centre = centre + alpha * (exchange.vector - centre)
            version = yield from RecordUpdate(Weights(centre, state.weights.version), [exchange.origin])
            state = Replica(step.number + 1, Weights(centre, version))
        for worker in me.workers:
            yield from Send(worker, Stop())
        return state
