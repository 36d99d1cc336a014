"""Layer-wise exchange: the all-reduce of a layer starts when its gradient is ready, during the backward pass.

Sequences with one item per bucket have the last layers first: the order of the backward pass, of the exchanges and of
the updates. A bucket is the content of one message: as many consecutive layers as `bucket` takes, or one layer without
it. In records it has the name of its first layer.

Delayed gradients: an all-reduce stays in flight for a fixed number of steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Self

from paceline.algorithms.core.buckets import Bucket, buckets
from paceline.algorithms.core.compression import Cast, landed_mean, start_average_of, started_mean
from paceline.algorithms.core.guarantees import Guarantee
from paceline.algorithms.core.method import AccumulatingMethod, RankContext, Replica, StalenessKind, changed
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
from paceline.algorithms.core.steps import accumulated, accumulated_gradient, apply_layer
from paceline.algorithms.core.values import Contribution, GradientResult, Rank, Step, Weights, join

Shares = Sequence[tuple[Bucket, Chain]]
"""buckets, last layers first, each with the rule for its slice of the weights"""


@dataclass(frozen=True, slots=True)
class BucketWeights(Weights):
    """The weights and the optimizer state of one bucket."""

    optimizer_state: Any = None


@dataclass(frozen=True, slots=True)
class BucketsInFlight:
    """The all-reduces of a step in flight, one per bucket or one in total, and this rank's gradient in them."""

    means: tuple[Handle[Any], ...]
    origin: Contribution


class Landing(NamedTuple):
    """The arguments for applying the mean gradient of one bucket when it has arrived."""

    bucket: Bucket
    origin: Contribution
    """this rank's gradient in the mean"""
    mean: Handle[Any]
    piece: BucketWeights
    rule: Chain
    cast: Cast | None
    """the short type in which the mean was computed; None: that of the weights"""


@program
def land(landing: Landing) -> Program[BucketWeights]:
    """Waits for a bucket's mean gradient and applies it."""
    piece = landing.piece
    vector, optimizer_state = yield from apply_layer(
        landing.rule,
        piece,
        piece.optimizer_state,
        landing.mean,
        landing.origin,
        landing.bucket.name,
        landing.cast,
    )
    return BucketWeights(vector, piece.version + 1, optimizer_state)


@dataclass(frozen=True, kw_only=True)
class Layerwise(AccumulatingMethod):
    """Base of the layer-wise methods: each bucket of layers has its own exchange and its own rule."""

    staleness_kind = StalenessKind.STEPS
    ranges: ClassVar[Mapping[str, Range]] = {"bucket": COUNT, "first_bucket": COUNT}

    bucket: int | None = 6553600
    """minimum size of a message in numbers, reached by joining consecutive layers; None: one message per layer;
    provenance: 25 MiB of 32-bit numbers, the `bucket_cap_mb` of torch's DistributedDataParallel; None is PNNL's"""
    first_bucket: int | None = 262144
    """minimum size of the first message of a step, if that is less than `bucket`; None: as the others; provenance:
    1 MiB of 32-bit numbers, `_DEFAULT_FIRST_BUCKET_BYTES` of torch.distributed, so that communication begins early"""

    joined: Literal["backward", "forward"] = "backward"
    """the order in which layers are joined into messages, of which the one with the last layers is always sent first;
    provenance: torch's DistributedDataParallel joins in the order of the backward pass since 1.7 (MEMORY high); before,
    in that of the module's parameters (FOUND, `_compute_bucket_assignment_by_size` and a reversed list, torch 1.4)"""
    compression: Cast | None = None
    """the short type in which gradients are sent, see `Cast`; the sizes of buckets count numbers before it, as in
    torch; provenance: None, as in the sources"""

    def linear_form(self) -> Self:
        return changed(super().linear_form(), compression=None)

    def buckets(self, me: RankContext) -> tuple[Bucket, ...]:
        """Returns the buckets of the model."""
        return buckets(me.layout.layers, self.bucket, self.first_bucket, forward=self.joined == "forward")

    def parts_per_step(self, me: RankContext) -> int:
        """Returns the number of buckets."""
        return len(self.buckets(me))

    def shares(self, me: RankContext) -> Shares:
        """Returns the buckets with their rules. They do not depend on the step, so a program computes them once."""
        return [(bucket, self.rule(bucket.alone())) for bucket in self.buckets(me)]

    def problems(self, nodes: Sequence[Sequence[Rank]]) -> list[str]:
        problems = super().problems(nodes)
        if self.max_grad_norm is not None:
            problems.append(
                f"max_grad_norm: found {self.max_grad_norm!r}, expected null: "
                "each layer is applied before the last one has arrived"
            )
        return problems

    def begin(self, me: RankContext, vector: Any) -> Any:
        optimizer_state = tuple(rule.init(vector[bucket.part]) for bucket, rule in self.shares(me))
        return Replica(0, Weights(vector, 0), optimizer_state)

    def landings(
        self, shares: Shares, flight: BucketsInFlight, weights: Weights, optimizer_state: Sequence[Any]
    ) -> list[Landing]:
        """Combines the means of a step with the weights to which they are applied.

        Args:
            shares: the buckets with their rules.
            flight: the all-reduces of the step.
            weights: the weights before the update.
            optimizer_state: one for each bucket.
        """
        parts = zip(shares, flight.means, optimizer_state, strict=True)
        return [
            Landing(
                bucket,
                flight.origin,
                mean,
                BucketWeights(weights.vector[bucket.part], weights.version, own),
                rule,
                self.compression,
            )
            for (bucket, rule), mean, own in parts
        ]

    @program
    def exchange(
        self,
        me: RankContext,
        shares: Shares,
        step: Step,
        weights: Weights | tuple[Handle[BucketWeights], ...],
        due: Sequence[Landing] = (),
    ) -> Program[tuple[BucketsInFlight, list[BucketWeights]]]:
        """Starts the all-reduce of each bucket when its gradient is ready, after applying what is due for the bucket.

        Gradients of micro-batches before the last one are only added up, as under DDP's `no_sync`.

        Args:
            me: this rank.
            shares: the buckets with their rules.
            step: the step.
            weights: the point of the gradient, or one handle for each layer.
            due: means of an earlier step, one for each bucket, or empty.

        Returns:
            The all-reduces, and the buckets to which `due` was applied.
        """
        means, landed, landings = [], [], iter(due)
        *earlier, last = step.samples.micro_batches(self.accumulate)
        sums: list[list[GradientResult]] = [[] for _ in shares]
        for samples in earlier:
            batch = yield from Load(samples)
            parts = yield from LayerGradients(weights, batch, [bucket for bucket, _ in shares])
            for place, part in enumerate(parts):
                gradient = yield from Wait(part)
                sums[place] = [(yield from accumulated(sums[place], gradient, self.accumulate))]
        batch = yield from Load(last)
        parts = yield from LayerGradients(weights, batch, [bucket for bucket, _ in shares])
        for place, ((bucket, _), part) in enumerate(zip(shares, parts, strict=True)):
            if (landing := next(landings, None)) is not None:
                landed.append((yield from land(landing)))
            gradient = yield from Wait(part)
            gradient = yield from accumulated(sums[place], gradient, self.accumulate)
            key = f"gradient {step.number} {bucket.name}"
            means.append((yield from start_average_of(gradient, me.workers, key, self.compression)))
        return BucketsInFlight(tuple(means), gradient.contribution()), landed

    @program
    def settle(self, landings: Sequence[Landing]) -> Program[list[BucketWeights]]:
        """Applies the means of all buckets, in the order of their exchanges."""
        pieces = []
        for landing in landings:
            pieces.append((yield from land(landing)))
        return pieces


@program
def assembled(step: int, pieces: Sequence[BucketWeights], held: Weights, origin: Contribution) -> Program[Replica]:
    """Joins the buckets of a step and records the update.

    Args:
        step: the number of completed steps.
        pieces: the updated buckets.
        held: the weights before the update.
        origin: this rank's gradient in the means.

    Returns:
        The replica after the step.
    """
    vector = join([piece.vector for piece in reversed(pieces)])
    version = yield from RecordUpdate(Weights(vector, held.version), [origin])
    return Replica(step, Weights(vector, version), tuple(piece.optimizer_state for piece in pieces))


@dataclass(frozen=True, kw_only=True)
class LayerwiseSgd(Layerwise):
    """Synchronous SGD with layer-wise overlap: exchanges start during the backward pass, last layer first.

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
    """Layer-wise overlap in which averages are applied in the order of arrival.

    x[l] ← x[l] − η (1/P) Σ_i g_i[l](x), for l in the order of arrival, all before the next forward pass.
    """

    name = "layerwise-sgd-lazy"
    source = "class MPIAsyncLazyParamsCPU of matex-org/caffe-intel, the code of PNNL (OpenReview rkFd2P5gl)"

    @program
    def settle(self, landings: Sequence[Landing]) -> Program[list[BucketWeights]]:
        """Applies the means of all buckets, in the order of their arrival."""
        pieces: dict[int, BucketWeights] = {}
        while missing := [place for place in range(len(landings)) if place not in pieces]:
            for index, _ in (yield from WaitFor([landings[place].mean for place in missing], "any")):
                pieces[missing[index]] = yield from land(landings[missing[index]])
        return [pieces[place] for place in range(len(landings))]


@dataclass(frozen=True, slots=True)
class LazyReplica:
    """A replica while the means of its step are still being applied: each layer is available by its handle."""

    step: int
    layers: tuple[Handle[BucketWeights], ...]
    """first layer first, the order of the forward pass"""
    whole: Handle[Replica]


@program
def landed(step: int, parts: Sequence[Handle[BucketWeights]], held: Weights, origin: Contribution) -> Program[Replica]:
    """Waits for all buckets of a step and joins them, see `assembled`.

    Args:
        step: the number of completed steps.
        parts: the handles of the buckets.
        held: the weights before the update.
        origin: this rank's gradient in the means.
    """
    pieces = [piece for _, piece in (yield from WaitFor(parts))]
    return (yield from assembled(step, pieces, held, origin))


@dataclass(frozen=True, kw_only=True)
class LayerwiseSgdNextForward(Layerwise):
    """Layer-wise overlap that extends into the next step: the forward pass of a layer waits for that layer only.

    x[l] ← x[l] − η (1/P) Σ_i g_i[l](x), for l = L…1, each before layer l's next forward pass.
    """

    name = "layerwise-sgd-next-forward"
    source = "PNNL (OpenReview rkFd2P5gl), read as the strictest form that its abstract allows; our inference"
    guarantees = LayerwiseSgd.guarantees

    @program
    def worker(self, me: RankContext, state: Replica | LazyReplica) -> Program[Replica]:
        shares = self.shares(me)
        while step := (yield from NextStep(state)):
            held = state.layers if isinstance(state, LazyReplica) else state.weights
            flight, _ = yield from self.exchange(me, shares, step, held)
            before = yield from whole(state)  # does not wait: the forward pass has used every layer
            parts, layers = [], list[Handle[BucketWeights]]()
            for landing in self.landings(shares, flight, before.weights, before.optimizer_state):
                parts.append((yield from Start(land(landing))))
                layers += [parts[-1]] * len(landing.bucket.layers)
            rest = yield from Start(landed(step.number + 1, parts, before.weights, flight.origin))
            state = LazyReplica(step.number + 1, tuple(reversed(layers)), rest)
        return (yield from whole(state))


@program
def whole(state: Replica | LazyReplica) -> Program[Replica]:
    """Returns the replica when it is complete."""
    return (yield from Wait(state.whole)) if isinstance(state, LazyReplica) else state


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
