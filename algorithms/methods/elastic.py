"""Elastic averaging: each worker's weights and a centre variable move towards each other.

Both sides move by the same difference in opposite directions, so that the sum of centre and workers is conserved. If
weights are sent, both sides use the same pair (worker weights, centre) from before either moves. If the difference is
sent, the worker computes it once, and the centre may have changed since.

Synchronous elastic averaging in three variants with the same results and increasingly less communication time.

All three broadcast the centre along one tree and reduce the workers' weights along another, in this order. Both trees
use the values from before the step, so they do not depend on its gradient. They differ in the rank that holds the
centre (a host process, or the first worker) and in when the trees start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from paceline.algorithms.core.fast_values import replace
from paceline.algorithms.core.guarantees import AppliedGradient, Guarantee
from paceline.algorithms.core.method import RankContext, Replica, SgdMethod, StalenessKind, changed
from paceline.algorithms.core.operations import (
    Broadcast,
    Charge,
    Gradient,
    Handle,
    Load,
    NextStep,
    Receive,
    RecordUpdate,
    Reduce,
    Send,
    Start,
    Wait,
)
from paceline.algorithms.core.option_groups import NOT_NEGATIVE, Range
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.traffic import COMBINE, ELASTIC_PULL, NOTHING, SCALE
from paceline.algorithms.core.values import Contribution, Group, Rank, Weights, join
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


MOVE = 2 * (SCALE + COMBINE)
"""memory traffic of `SyncElastic.moved`"""
NO_WEIGHTS = SCALE
"""memory traffic of 0 c, which the host adds to the sum"""


@dataclass(frozen=True, slots=True)
class Trees:
    """The broadcasts of the centre and the reductions of the workers' weights in flight, a handle for each message."""

    down: tuple[Handle[Any], ...]
    up: tuple[Handle[Any], ...]


@dataclass(frozen=True, kw_only=True)
class SyncElastic(Elastic):
    """Base of the three variants: the trees, and the update of the centre."""

    staleness_kind = StalenessKind.EXCHANGE_LAG
    guarantees = frozenset({Guarantee.DETERMINISTIC, Guarantee.SYNCHRONOUS, Guarantee.CONSERVES_SUM})

    packed: bool = True
    """whether all layers are one message; one for each costs (L − 1) α more in each tree (SC'17 packs them)"""

    def group(self, me: RankContext) -> tuple[Group, Rank]:
        """Returns the members of the trees and their root."""
        return me.workers, me.workers.ranks[0]

    @program
    def begun(self, me: RankContext, step: int, *, centre: Any, own: Any) -> Program[Trees]:
        """Starts both trees.

        Args:
            me: this rank.
            step: the number of the step.
            centre: the centre; its numbers matter only at the root.
            own: what this rank adds to the sum.
        """
        group, root = self.group(me)
        packets = [("", slice(None))] if self.packed else [(f" {layer.name}", layer.part) for layer in me.layout.layers]
        down, up = [], []
        for name, part in packets:
            tree = Broadcast(value=centre[part], group=group, root=root, key=f"centre {step}{name}")
            down.append((yield from Start(tree)))
        for name, part in packets:
            sums = Reduce(value=own[part], group=group, root=root, key=f"weights {step}{name}")
            up.append((yield from Start(sums)))
        return Trees(tuple(down), tuple(up))

    @program
    def ended(self, trees: Trees) -> Program[tuple[Any, Any]]:
        """Waits for both trees.

        Returns:
            The centre from before the step and, at the root, the sum of the workers' weights; None elsewhere.
        """
        centre, total = [], []
        for handle in trees.down:
            centre.append((yield from Wait(handle)))
        for handle in trees.up:
            total.append((yield from Wait(handle)))
        return self._whole(centre), None if total[0] is None else self._whole(total)

    def _whole(self, parts: list[Any]) -> Any:
        return parts[0] if self.packed else join(parts)

    def moved(self, me: RankContext, centre: Any, total: Any) -> Any:
        """Returns the new centre by equation (2): c + α (Σ x_i − P c).

        Args:
            me: the rank that holds the centre.
            centre: c.
            total: Σ x_i.
        """
        return centre + self.alpha(me) * (total - len(me.workers) * centre)


@dataclass(frozen=True, slots=True)
class Begin:
    """The server's message at the start of a step: the version of the centre that it is about to send."""

    version: int


@dataclass(frozen=True, kw_only=True)
class SyncEasgd1(SyncElastic):
    """Synchronous EASGD whose master is a process on the host: trees instead of turns, without overlap.

    worker i:  x_i ← x_i − η g(x_i) − α (x_i − c)
    master:    c ← c + α (Σ x_i − P c)

    The host is the root of both trees, so weights cross the link between host and devices. The host adds zeros to the
    sum.
    """

    name = "sync-easgd1"
    source = "You, Buluç, Demmel, SC'17, Algorithm 2 (Sync EASGD1)"
    guarantees = SyncElastic.guarantees | {Guarantee.CONSERVES_MESSAGES}
    has_server: ClassVar[bool] = True

    def samples_per_step(self, batch: int, workers: int) -> int:
        return batch * workers

    def begin(self, me: RankContext, vector: Any) -> Any:
        return Replica(0, Weights(vector, 0), self.rule(me.layout.layers).init(vector))

    def group(self, me: RankContext) -> tuple[Group, Rank]:
        return me.world, server_of(me)

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        server, alpha, rule = server_of(me), self.alpha(me), self.rule(me.layout.layers)
        while step := (yield from NextStep(state)):
            batch = yield from Load(step.samples)
            gradient = yield from Gradient(state.weights, batch)
            word = (yield from Receive(server)).value  # sent when the step began, so there is no wait
            if isinstance(word, ServerStopped):
                return state
            yield from Send(server, gradient.contribution(version=word.version))
            before = state.weights.vector
            trees = yield from self.begun(me, step.number, centre=before, own=before)
            centre, _ = yield from self.ended(trees)
            yield from rule.charge(before.nbytes, also=ELASTIC_PULL)
            stepped, optimizer_state = rule.update(before, gradient.vector, state.optimizer_state)
            vector = stepped - alpha * (before - centre)
            state = Replica(step.number + 1, Weights(vector, state.weights.version + 1), optimizer_state)
        return state

    @program
    def server(self, me: RankContext, state: Replica) -> Program[Replica]:
        while step := (yield from NextStep(state)):
            centre, version = state.weights.vector, state.weights.version
            for worker in me.workers:
                yield from Send(worker, Begin(version))
            trees = yield from self.begun(me, step.number, centre=centre, own=0 * centre)
            centre, total = yield from self.ended(trees)
            origins: list[Contribution] = []
            for worker in me.workers:
                origins.append((yield from Receive(worker)).value)
            yield from Charge("update", centre.nbytes, where="host", traffic=MOVE + NO_WEIGHTS)
            centre = self.moved(me, centre, total)
            version = yield from RecordUpdate(Weights(centre, version), origins)
            state = replace(state, step=step.number + 1, weights=Weights(centre, version))
        for worker in me.workers:
            yield from Send(worker, ServerStopped())
        return state


@dataclass(frozen=True, slots=True)
class Elastically:
    """A worker's state in synchronous EASGD; the numbers of `centre` matter only at the master."""

    step: int
    weights: Weights
    centre: Weights
    optimizer_state: Any = None


@dataclass(frozen=True, kw_only=True)
class SyncEasgd2(SyncElastic):
    """Synchronous EASGD whose master is the first worker: weights are sent between devices, without overlap.

    worker i:  x_i ← x_i − η g(x_i) − α (x_i − c)
    master:    c ← c + α (Σ x_i − P c)

    Sequence: gradient, broadcast, reduction, update.
    """

    name = "sync-easgd2"
    source = "You, Buluç, Demmel, SC'17, Algorithm 3 (Sync EASGD2)"
    overlaps: ClassVar[bool] = False
    """whether the trees start before the gradient"""

    def begin(self, me: RankContext, vector: Any) -> Any:
        return Elastically(0, Weights(vector, 0), Weights(vector, 0), self.rule(me.layout.layers).init(vector))

    @program
    def worker(self, me: RankContext, state: Elastically) -> Program[Elastically]:
        alpha, rule = self.alpha(me), self.rule(me.layout.layers)
        while step := (yield from NextStep(state)):
            before, old = state.weights.vector, state.centre
            if self.overlaps:
                trees = yield from self.begun(me, step.number, centre=old.vector, own=before)
            batch = yield from Load(step.samples)
            gradient = yield from Gradient(state.weights, batch)
            if not self.overlaps:
                trees = yield from self.begun(me, step.number, centre=old.vector, own=before)
            centre, total = yield from self.ended(trees)
            yield from rule.charge(before.nbytes, also=ELASTIC_PULL + (NOTHING if total is None else MOVE))
            stepped, optimizer_state = rule.update(before, gradient.vector, state.optimizer_state)
            vector = stepped - alpha * (before - centre)
            if total is not None:
                centre = self.moved(me, centre, total)
            version = yield from RecordUpdate(
                Weights(centre, old.version), [gradient.contribution(version=old.version)]
            )
            weights = Weights(vector, state.weights.version + 1)
            state = Elastically(step.number + 1, weights, Weights(centre, version), optimizer_state)
        return state


@dataclass(frozen=True, kw_only=True)
class SyncEasgd3(SyncEasgd2):
    """Synchronous EASGD with communication hidden behind the gradient; the first worker is also the master.

    worker i:  x_i ← x_i − η g(x_i) − α (x_i − c)
    master:    c ← c + α (Σ x_i − P c)

    The centre and the workers' weights are known before the gradient, so both trees start before it.
    """

    name = "sync-easgd3"
    source = "You, Buluç, Demmel, SC'17, Sync EASGD3 (equations (1) and (2), Algorithm 4's placement)"
    overlaps: ClassVar[bool] = True
