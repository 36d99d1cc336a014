"""Delayed gradients: an all-reduce stays in flight for a fixed number of steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from paceline.algorithms.core.compression import Cast, landed_mean, started_mean
from paceline.algorithms.core.guarantees import Guarantee
from paceline.algorithms.core.method import AccumulatingMethod, RankContext, StalenessKind, changed
from paceline.algorithms.core.operations import (
    NextStep,
    RecordUpdate,
)
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.steps import accumulated_gradient
from paceline.algorithms.core.values import Contribution, Weights, join
from paceline.algorithms.methods.layerwise import BucketsInFlight, Layerwise


@dataclass(frozen=True, slots=True)
class Delayed:
    """A replica with the all-reduces of its last `delay` steps in flight."""

    step: int
    weights: Weights
    flights: tuple[BucketsInFlight, ...] = ()
    optimizer_state: Any = None


@dataclass(frozen=True, kw_only=True)
class Agd(AccumulatingMethod):
    """Asynchronous gradient descent with an exact delay d: step t applies the mean gradient of step t − d.

    x_{t+1} = x_t − η (1/P) Σ_i g_i(x_{t−d});  the first d steps change nothing.

    Gradients still in flight at the end are completed and kept in the state, not applied.
    """

    name = "agd"
    staleness_kind = StalenessKind.STEPS
    source = "PNNL, 'Leveraging Asynchronicity in Gradient Descent' (OpenReview rkFd2P5gl)"
    guarantees = frozenset({Guarantee.DETERMINISTIC, Guarantee.EXACT_DELAY, Guarantee.REPLICAS_EQUAL})

    delay: int = 1
    """d, in steps; provenance: ours, the delays of the paper were not found"""

    compression: Cast | None = None
    """the short type in which gradients are sent, see `Cast`; provenance: None, as in the source"""

    def linear_form(self) -> Self:
        return changed(super().linear_form(), compression=None)

    def bounds(self, workers: int) -> Mapping[Guarantee, float]:
        return {Guarantee.EXACT_DELAY: self.delay}

    def longest_period(self, workers: int) -> int:
        return self.delay + 1

    def initial_weight(self, updates: int) -> float | None:
        return super().initial_weight(max(0, updates - self.delay))  # the first d steps change nothing

    def begin(self, me: RankContext, vector: Any) -> Delayed:
        return Delayed(0, Weights(vector, 0), optimizer_state=self.rule(me.layout.layers).init(vector))

    @program
    def worker(self, me: RankContext, state: Delayed) -> Program[Delayed]:
        rule = self.rule(me.layout.layers)
        while step := (yield from NextStep(state)):
            gradient = yield from accumulated_gradient(state.weights, step.samples, self.accumulate)
            mean = yield from started_mean(gradient.vector, me.workers, f"gradient {step.number}", self.compression)
            flights = (*state.flights, BucketsInFlight((mean,), gradient.contribution()))
            vector, optimizer_state = state.weights.vector, state.optimizer_state
            inputs: list[Contribution] = []
            if len(flights) > self.delay:
                landing, *rest = flights
                reduced = yield from landed_mean(landing.means[0], vector, self.compression)
                yield from rule.charge(reduced.nbytes)
                vector, optimizer_state = rule.update(vector, reduced, optimizer_state)
                flights, inputs = tuple(rest), [landing.origin]
            version = yield from RecordUpdate(Weights(vector, state.weights.version), inputs)
            state = Delayed(step.number + 1, Weights(vector, version), flights, optimizer_state)
        return state


@dataclass(frozen=True, kw_only=True)
class LayerwiseAgd(Layerwise, Agd):
    """Delayed gradients, layer by layer: a layer's mean of step t − d is applied before its exchange of step t.

    x_{t+1}[l] = x_t[l] − η (1/P) Σ_i g_i[l](x_{t−d}), for l = L…1;  the first d steps change nothing.

    In value this is `agd`. Gradients still in flight at the end are completed and kept in the state, not applied.
    """

    name = "layerwise-agd"
    source = "PNNL (OpenReview rkFd2P5gl), 'limited asynchronicity', layer by layer; our inference"

    def begin(self, me: RankContext, vector: Any) -> Delayed:
        replica = super().begin(me, vector)
        return Delayed(0, replica.weights, optimizer_state=replica.optimizer_state)

    @program
    def worker(self, me: RankContext, state: Delayed) -> Program[Delayed]:
        shares = self.shares(me)
        while step := (yield from NextStep(state)):
            flights, weights, optimizer_state = state.flights, state.weights, state.optimizer_state
            due = self.landings(shares, flights[0], weights, optimizer_state) if 0 < self.delay == len(flights) else []
            flight, pieces = yield from self.exchange(me, shares, step, weights, due)
            flights = (*flights, flight)
            if self.delay == 0:
                pieces = yield from self.settle(self.landings(shares, flight, weights, optimizer_state))
            vector, inputs = weights.vector, list[Contribution]()
            if pieces:
                vector, optimizer_state = (
                    join([piece.vector for piece in reversed(pieces)]),
                    tuple(p.optimizer_state for p in pieces),
                )
                inputs, flights = [flights[0].origin], flights[1:]
            version = yield from RecordUpdate(Weights(vector, weights.version), inputs)
            state = Delayed(step.number + 1, Weights(vector, version), flights, optimizer_state)
        return state
