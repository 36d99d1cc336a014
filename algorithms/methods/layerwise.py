"""Layer-wise exchange: a layer's all-reduce starts as its gradient is ready, while earlier layers still compute.

Rules of this file:

* What is listed by bucket stands last layers first, the order of the backward pass, of the exchanges and of updates. A
  bucket is what one message holds: a layer, or consecutive layers where `bucket` asks for more numbers than one has.
  In records it goes by the name of its first layer.
* These methods, and `layerwise-agd`, differ in nothing but where they wait for a layer's mean: after the backward pass,
  in order (`layerwise-sgd`) or as they come (`layerwise-sgd-lazy`); before the layer's next forward pass
  (`layerwise-sgd-next-forward`); before its exchange a step or more later (`layerwise-agd`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from paceline.algorithms.core.buckets import Bucket, buckets
from paceline.algorithms.core.guarantees import Guarantee
from paceline.algorithms.core.method import RankContext, Replica, SgdMethod, StalenessKind
from paceline.algorithms.core.operations import (
    Handle,
    LayerGradients,
    Load,
    NextStep,
    RecordUpdate,
    Start,
    Wait,
    WaitFor,
)
from paceline.algorithms.core.option_groups import COUNT, Range
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.rules import Chain
from paceline.algorithms.core.steps import apply_layer, start_average
from paceline.algorithms.core.values import Contribution, Rank, Step, Weights, join

Shares = Sequence[tuple[Bucket, Chain]]
"""what is exchanged together, last layers first, each with its own rule, which sees that bucket's slice alone"""


@dataclass(frozen=True, slots=True)
class Piece(Weights):
    """One bucket's weights, and what its rule remembers."""

    optimizer_state: Any = None


@dataclass(frozen=True, slots=True)
class Flight:
    """The reductions of a step that are under way, one or one for each bucket, and the own gradient in them."""

    means: tuple[Handle[Any], ...]
    origin: Contribution


class Landing(NamedTuple):
    """What it takes to apply one bucket's mean gradient, once that has come."""

    bucket: Bucket
    origin: Contribution
    """the own gradient in the mean"""
    mean: Handle[Any]
    piece: Piece
    rule: Chain


@program
def land(landing: Landing) -> Program[Piece]:
    """Waits for a bucket's mean gradient and applies it."""
    piece = landing.piece
    vector, optimizer_state = yield from apply_layer(
        landing.rule, piece, piece.optimizer_state, landing.mean, landing.origin, landing.bucket.name
    )
    return Piece(vector, piece.version + 1, optimizer_state)


@dataclass(frozen=True, kw_only=True)
class Layerwise(SgdMethod):
    """What all layer-wise methods do: each bucket of layers is exchanged, and updated by a rule, for itself."""

    staleness_kind = StalenessKind.STEPS
    ranges: ClassVar[Mapping[str, Range]] = {"bucket": COUNT}

    bucket: int | None = None
    """numbers from which on a message is sent, made of as many consecutive layers as that takes; None: each layer for
    itself; provenance: None is PNNL's; DistributedDataParallel of torch waits for 25 MiB, 6553600 numbers of 32 bits"""

    def shares(self, me: RankContext) -> Shares:
        """Worked out once, at the beginning of a program: nothing of it depends on the step."""
        return [(bucket, self.rule(bucket.alone())) for bucket in buckets(me.layout.layers, self.bucket)]

    def problems(self, nodes: Sequence[Sequence[Rank]]) -> list[str]:
        found = super().problems(nodes)
        if self.max_grad_norm is not None:
            found.append(
                f"max_grad_norm: found {self.max_grad_norm!r}, expected null: "
                "each layer is applied before the last one has arrived"
            )
        return found

    def begin(self, me: RankContext, vector: Any) -> Any:
        optimizer_state = tuple(rule.init(vector[bucket.part]) for bucket, rule in self.shares(me))
        return Replica(0, Weights(vector, 0), optimizer_state)

    def landings(
        self, shares: Shares, flight: Flight, weights: Weights, optimizer_state: Sequence[Any]
    ) -> list[Landing]:
        """How the means of a flight are applied to a replica."""
        parts = zip(shares, flight.means, optimizer_state, strict=True)
        return [
            Landing(bucket, flight.origin, mean, Piece(weights.vector[bucket.part], weights.version, own), rule)
            for (bucket, rule), mean, own in parts
        ]

    @program
    def exchange(
        self,
        me: RankContext,
        shares: Shares,
        step: Step,
        weights: Weights | tuple[Handle[Piece], ...],
        due: Sequence[Landing] = (),
    ) -> Program[tuple[Flight, list[Piece]]]:
        """Starts the reduction of each bucket's gradient as it is ready; before that, what is due there lands."""
        batch = yield from Load(step.samples)
        parts = yield from LayerGradients(weights, batch, [bucket for bucket, _ in shares])
        means, landed, landings = [], [], iter(due)
        for (bucket, _), part in zip(shares, parts, strict=True):
            if (landing := next(landings, None)) is not None:
                landed.append((yield from land(landing)))
            gradient = yield from Wait(part)
            means.append((yield from start_average(gradient, me.workers, f"gradient {step.number} {bucket.name}")))
        return Flight(tuple(means), gradient.contribution()), landed

    @program
    def settle(self, landings: Sequence[Landing]) -> Program[list[Piece]]:
        """Lands all buckets, in the order of their exchanges."""
        pieces = []
        for landing in landings:
            pieces.append((yield from land(landing)))
        return pieces


@program
def assembled(step: int, pieces: Sequence[Piece], held: Weights, origin: Contribution) -> Program[Replica]:
    """The replica after a step, whose buckets are these."""
    vector = join([piece.vector for piece in reversed(pieces)])
    version = yield from RecordUpdate(Weights(vector, held.version), [origin])
    return Replica(step, Weights(vector, version), tuple(piece.optimizer_state for piece in pieces))


@dataclass(frozen=True, kw_only=True)
class LayerwiseSgd(Layerwise):
    """Synchronous SGD with layer-wise overlap: backward goes last layer first, and so do the exchanges.

    x[l] ← x[l] − η (1/P) Σ_i g_i[l](x), for l = L…1, all before the next forward pass; in value, `sync-sgd`.
    """

    name = "layerwise-sgd"
    source = "PNNL (OpenReview rkFd2P5gl; class MPIAsyncParams of matex-org/caffe-intel), waiting before the update"
    guarantees = frozenset(
        {Guarantee.DETERMINISTIC, Guarantee.SYNCHRONOUS, Guarantee.REPLICAS_EQUAL, Guarantee.SAME_AS_SYNC_SGD}
    )

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        shares = self.shares(me)
        while step := (yield from NextStep(state)):
            flight, _ = yield from self.exchange(me, shares, step, state.weights)
            pieces = yield from self.settle(self.landings(shares, flight, state.weights, state.optimizer_state))
            state = yield from assembled(step.number + 1, pieces, state.weights, flight.origin)
        return state


@dataclass(frozen=True, kw_only=True)
class LayerwiseSgdLazy(LayerwiseSgd):
    """Layer-wise overlap in which whichever layer's average is there first is applied first.

    x[l] ← x[l] − η (1/P) Σ_i g_i[l](x), for l in the order of arrival, all before the next forward pass.
    """

    name = "layerwise-sgd-lazy"
    source = "class MPIAsyncLazyParamsCPU of matex-org/caffe-intel, the code of PNNL (OpenReview rkFd2P5gl)"

    @program
    def settle(self, landings: Sequence[Landing]) -> Program[list[Piece]]:
        """Lands all buckets, in the order in which their means come."""
        pieces: dict[int, Piece] = {}
        while missing := [place for place in range(len(landings)) if place not in pieces]:
            for found, _ in (yield from WaitFor([landings[place].mean for place in missing], "any")):
                pieces[missing[found]] = yield from land(landings[missing[found]])
        return [pieces[place] for place in range(len(landings))]


@dataclass(frozen=True, slots=True)
class Ahead:
    """A replica whose program has gone on before the step's means have landed: each layer is behind its handle."""

    step: int
    layers: tuple[Handle[Piece], ...]
    """first layer first, as the forward pass asks for them"""
    whole: Handle[Replica]


@program
def landed(step: int, parts: Sequence[Handle[Piece]], held: Weights, origin: Contribution) -> Program[Replica]:
    """The replica after the step, once every bucket has landed."""
    pieces = [piece for _, piece in (yield from WaitFor(parts))]
    return (yield from assembled(step, pieces, held, origin))


@dataclass(frozen=True, kw_only=True)
class LayerwiseSgdNextForward(Layerwise):
    """Layer-wise overlap that reaches into the next step: a layer is waited for just before its own forward pass.

    x[l] ← x[l] − η (1/P) Σ_i g_i[l](x), for l = L…1, each before layer l's next forward pass.
    """

    name = "layerwise-sgd-next-forward"
    source = "PNNL (OpenReview rkFd2P5gl), read as the strictest form that its abstract allows; our inference"
    guarantees = LayerwiseSgd.guarantees

    @program
    def worker(self, me: RankContext, state: Replica | Ahead) -> Program[Replica]:
        shares = self.shares(me)
        while step := (yield from NextStep(state)):
            held = state.layers if isinstance(state, Ahead) else state.weights
            flight, _ = yield from self.exchange(me, shares, step, held)
            before = yield from whole(state)  # is there: the forward pass has had every layer
            parts, layers = [], list[Handle[Piece]]()
            for landing in self.landings(shares, flight, before.weights, before.optimizer_state):
                parts.append((yield from Start(land(landing))))
                layers += [parts[-1]] * len(landing.bucket.layers)
            rest = yield from Start(landed(step.number + 1, parts, before.weights, flight.origin))
            state = Ahead(step.number + 1, tuple(reversed(layers)), rest)
        return (yield from whole(state))


@program
def whole(state: Replica | Ahead) -> Program[Replica]:
    """The replica, once it is complete."""
    return (yield from Wait(state.whole)) if isinstance(state, Ahead) else state
