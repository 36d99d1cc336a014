"""Streaming DiLoCo: fragments of the weights are exchanged in turn, while the local steps go on.

A fragment is a set of whole layers. The outer optimizer's weights and velocity are those of `diloco`, and a fragment
changes only its own part of them. An exchange is a started collective whose handle is in the state, so a run may stop
while exchanges are in flight. The outer weights are recorded and evaluated; a worker's own weights differ from them and
from those of the others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, ClassVar, Literal

from paceline.algorithms.core import arrays
from paceline.algorithms.core.buckets import Bucket
from paceline.algorithms.core.guarantees import AppliedGradient, Guarantee, custom_guarantee
from paceline.algorithms.core.method import RankContext, SgdMethod
from paceline.algorithms.core.operations import (
    AllReduce,
    Charge,
    Handle,
    LayerGradients,
    Load,
    NextStep,
    RecordUpdate,
    Start,
    Wait,
)
from paceline.algorithms.core.option_groups import COUNT, FRACTION, STEPS_OR_NONE, Range
from paceline.algorithms.core.program import Program, Routine, program
from paceline.algorithms.core.quantization import Quantization
from paceline.algorithms.core.rules import Chain
from paceline.algorithms.core.steps import local_step
from paceline.algorithms.core.traffic import COMBINE, COPY, NOTHING, SCALE, Traffic
from paceline.algorithms.core.values import Layer, Rank, Weights, join
from paceline.algorithms.methods.outer import CHANGE, NESTEROV, NesterovRounds, Outer

MIXED = 2 * SCALE + COMBINE
"""memory traffic of `mixed`"""


def mixed(own: Any, outer: Any, alpha: float) -> Any:
    """Returns α x_i + (1 − α) x', or x' itself without a share of a worker's own weights.

    Args:
        own: x_i.
        outer: x'.
        alpha: α.
    """
    return alpha * own + (1 - alpha) * outer if alpha else outer


@dataclass(frozen=True, slots=True)
class Fragment:
    """A part of the weights that is exchanged at once.

    Args:
        parts: its positions in the whole vector, ascending; consecutive layers are one part.
        offset: the step of each round after which its exchange starts, from 1 to the number of steps in a round.
        places: the numbers of its layers, ascending.
    """

    parts: tuple[slice, ...]
    offset: int
    places: tuple[int, ...] = ()

    def of(self, vector: Any) -> Any:
        """Returns the fragment of a whole vector."""
        return join([vector[part] for part in self.parts])

    def put(self, vector: Any, fragment: Any, *, whole: bool) -> Any:
        """Returns a whole vector in which the fragment is replaced.

        Args:
            vector: the vector before.
            fragment: the new numbers.
            whole: whether the fragment has all numbers of the vector.
        """
        if whole:
            return fragment
        pieces, at, taken = [], 0, 0
        for part in self.parts:
            size = part.stop - part.start
            pieces += [vector[at : part.start], fragment[taken : taken + size]]
            at, taken = part.stop, taken + size
        return join([*pieces, vector[at:]])


def fragments_of(
    layers: Sequence[Layer], count: int, period: int, pattern: Literal["strided", "sequential"]
) -> tuple[Fragment, ...]:
    """Divides layers into fragments, whose exchanges are spread evenly over a round.

    Args:
        layers: all layers, first layer first.
        count: the number of fragments; if there are fewer layers, each is a fragment.
        period: the steps of a round.
        pattern: consecutive layers in a fragment, or every `count`-th layer.

    >>> layers = [Layer(name, n, n + 1) for n, name in enumerate("abcd")]
    >>> for pattern in ("sequential", "strided"):
    ...     print([(one.parts, one.offset) for one in fragments_of(layers, 2, 8, pattern)])
    [((slice(0, 2, None),), 4), ((slice(2, 4, None),), 8)]
    [((slice(0, 1, None), slice(2, 3, None)), 4), ((slice(1, 2, None), slice(3, 4, None)), 8)]
    """
    count, total = min(count, len(layers)), len(layers)
    fragments = []
    for number in range(count):
        if pattern == "strided":
            places = list(range(number, total, count))
        else:
            places = list(range(number * total // count, (number + 1) * total // count))
        runs = [[place for _, place in run] for _, run in groupby(enumerate(places), lambda pair: pair[1] - pair[0])]
        parts = tuple(slice(layers[run[0]].start, layers[run[-1]].stop) for run in runs)
        fragments.append(Fragment(parts, (number + 1) * period // count, tuple(places)))
    return tuple(fragments)


def too_many_fragments(count: int, period: int) -> list[str]:
    """Returns the error of more fragments than steps in a round, in which each of them is exchanged once."""
    words = f"fragments: found {count} with a period of {period}, expected at most one for each step"
    return [words] if count > period else []


@dataclass(frozen=True, slots=True)
class FragmentExchange:
    """The exchange of a fragment's change in flight."""

    fragment: int
    due: int
    """the number of completed steps after which it is applied"""
    change: Handle[Any] | tuple[Handle[Any], ...]
    """of the whole fragment, or of each of its layers, in the order of the fragment"""


@dataclass(frozen=True, slots=True)
class ExchangedLayer(Weights):
    """A worker's own weights of a layer after its exchange, and the outer ones with their velocity."""

    outer: Any = None
    velocity: Any = None


@dataclass(frozen=True, slots=True)
class Streaming(Outer):
    """A worker's state: that of `diloco`, and the exchanges in flight, oldest first."""

    exchanges: tuple[FragmentExchange, ...] = ()


@custom_guarantee("outer-weights-equal", "all workers hold the same outer weights and the same outer velocity")
def outer_weights_equal(job: Any, trace: Any) -> Any:
    """Yields a sentence for each worker whose outer weights or velocity differ from the first worker's."""
    first = trace.states[job.team[0].rank]
    for rank in job.team[0].workers:
        for name in ("start", "velocity"):
            if arrays.bits(getattr(trace.states[rank], name)) != arrays.bits(getattr(first, name)):
                yield f"at the end rank {rank} holds another {name} than rank {job.team[0].rank}"


@dataclass(frozen=True, kw_only=True)
class StreamingDiLoCo(NesterovRounds):
    """DiLoCo whose weights are exchanged fragment by fragment, while the workers take further local steps.

    each step:               x_i ← one step of the inner optimizer
    H | t − t_p:             start Δ_p = (1/P) Σ_i (x'[p] − x_i[p])
    τ steps after a start:   V[p] ← M V[p] + Δ_p;  x'[p] ← x'[p] − R (Δ_p + M V[p]);
                             x_i[p] ← α x_i[p] + (1 − α) x'[p]

    Fragment p of F starts after step t_p = ⌊(p + 1) H / F⌋ of each round, counted from 1, p from 0.
    """

    name = "streaming-diloco"
    source = "Douillard et al. 2025, 'Streaming DiLoCo with overlapping communication', arXiv 2501.18512, Algorithm 2"
    guarantees = frozenset({Guarantee.DETERMINISTIC, Guarantee.BOUNDED_STALENESS, outer_weights_equal})
    state: ClassVar[type[Outer]] = Streaming

    ranges: ClassVar[Mapping[str, Range]] = {"fragments": COUNT, "overlap": STEPS_OR_NONE, "alpha": FRACTION}

    fragments: int = 2
    """F, of whole layers; each layer is one if there are fewer; provenance: ours, the source has 3 layers in each"""
    pattern: Literal["strided", "sequential"] = "strided"
    """which layers a fragment has: every F-th, or consecutive ones; provenance: the source has both"""
    overlap: int = 1
    """τ, local steps between the start of an exchange and its application, below the period; provenance: 1 in
    the longest runs of the source, as Kale et al. 2025 name them"""
    alpha: float = 0.5
    """α, the share of a worker's own weights when a fragment is applied; provenance: the source plots 0 and 0.5"""
    quantization: Quantization | None = None
    """small floats for the changes; None: as wide as the weights; provenance: the source sends 4 bits, torchft 8"""
    layerwise: bool = False
    """whether the exchange of each layer of a fragment starts in the backward pass, as soon as the layer's inner step
    is done, and only the layer's own forward pass waits for it; provenance: false is the source's algorithm, true what
    the simulator of its table computes"""

    def problems(self, nodes: Sequence[Sequence[Rank]]) -> list[str]:
        problems = super().problems(nodes)
        if self.layerwise and self.max_grad_norm is not None:
            problems.append(
                f"max_grad_norm: found {self.max_grad_norm!r} with layerwise, expected null: "
                "the exchange of a layer starts before all gradients are there"
            )
        problems += too_many_fragments(self.fragments, self.period)
        if self.overlap >= self.period:
            problems.append(
                f"overlap: found {self.overlap} with a period of {self.period}, expected fewer steps than that: "
                "a fragment is applied before it is exchanged again"
            )
        return problems

    def bounds(self, workers: int) -> Mapping[Guarantee, float]:
        return {Guarantee.BOUNDED_STALENESS: self.period + self.overlap - 1}

    def longest_period(self, workers: int) -> int:
        return self.period + self.overlap

    def gradient_weight(self, gradient: AppliedGradient) -> float:
        """Returns the local step's, times f / (1 − α + α f) with f = R / (1 − M).

        After an exchange, α of a change is still in a worker's own weights. It is exchanged again, without the outer
        step that was made of it: e' = α (e − R s), with s the outer optimizer's gradient and velocity, sums up to
        this. Of a step that is taken while an exchange is in flight, only α survives when it is applied.
        """
        layers = [Layer(str(number), number, number + 1) for number in range(gradient.layers)]
        fragments = fragments_of(layers, self.fragments, self.period, self.pattern)
        (fragment,) = (
            part for part in fragments if any(piece.start <= gradient.layer < piece.stop for piece in part.parts)
        )
        late = (
            0 < (gradient.step + 1 - fragment.offset) % self.period <= self.overlap
            and gradient.step + 1 > fragment.offset
        )
        outer = self.outer_learning_rate / (1 - self.outer_momentum)
        local = SgdMethod.gradient_weight(self, gradient)
        return local * outer / (1 - self.alpha + self.alpha * outer) * (self.alpha if late else 1)

    def begin(self, me: RankContext, vector: Any) -> Outer:
        state = super().begin(me, vector)
        if not self.layerwise:
            return state
        parts = zip(me.layout.layers, self.rules(me), strict=True)
        memory = tuple(rule.init(vector[layer.part]) for layer, rule in parts)
        return replace(state, optimizer_state=memory)

    def worker(self, me: RankContext, state: Streaming) -> Routine[Streaming]:
        return self.worker_of_layers(me, state) if self.layerwise else self.worker_of_fragments(me, state)

    @program
    def worker_of_fragments(self, me: RankContext, state: Streaming) -> Program[Streaming]:
        """Exchanges fragments between inner steps."""
        rule = self.rule(me.layout.layers)
        fragments = self.parts_of(me)
        while step := (yield from NextStep(state)):
            state = yield from local_step(rule, state, step.samples)
            for number, fragment in enumerate(fragments):
                if (state.step - fragment.offset) % self.period == 0:
                    change = yield from self.begun(me, fragment, number, state)
                    exchange = FragmentExchange(number, state.step + self.overlap, change)
                    state = replace(state, exchanges=(*state.exchanges, exchange))
            while state.exchanges and state.exchanges[0].due <= state.step:
                state = yield from self.applied(fragments, state)
        return state

    @program
    def begun(self, me: RankContext, fragment: Fragment, number: int, state: Streaming) -> Program[Handle[Any]]:
        """Starts the exchange of a fragment's change; the time of computing it is part of the charge in `applied`."""
        change = fragment.of(state.start) - fragment.of(state.weights.vector)
        return (yield from self.started(me, change, f"fragment {number} {state.step}"))

    @property
    def outer_traffic(self) -> Traffic:
        """The memory traffic of a fragment's or a layer's change, outer step and mixing."""
        return CHANGE + NESTEROV + (MIXED if self.alpha else NOTHING)

    @program
    def started(self, me: RankContext, change: Any, key: str) -> Program[Handle[Any]]:
        """Starts the exchange of a change."""
        if self.quantization is not None:
            return (yield from self.quantization.start_gathering(change, me.workers, key))
        return (yield from Start(AllReduce(value=change, group=me.workers, key=key)))

    @program
    def arrived(self, exchanged: Handle[Any], like: Any) -> Program[Any]:
        """Waits for the mean of a change that has the size of `like`."""
        if self.quantization is not None:
            return (yield from self.quantization.mean(exchanged, like))
        return (yield from Wait(exchanged))

    @program
    def applied(self, fragments: Sequence[Fragment], state: Streaming) -> Program[Streaming]:
        """Waits for the oldest exchange, takes the outer step of its fragment and mixes the worker's own weights."""
        exchange, *later = state.exchanges
        fragment, whole, own = fragments[exchange.fragment], len(fragments) == 1, state.weights.vector
        start = fragment.of(state.start)
        assert isinstance(exchange.change, Handle), "a fragment has one exchange"
        change = yield from self.arrived(exchange.change, start)
        yield from Charge("update", change.nbytes, traffic=self.outer_traffic)
        new, velocity = self.outer(start, fragment.of(state.velocity), change)
        own_part = mixed(fragment.of(own), new, self.alpha)
        outer, vector, velocity = (
            fragment.put(vector, part, whole=whole)
            for vector, part in ((state.start, new), (own, own_part), (state.velocity, velocity))
        )
        if not whole:
            yield from Charge("update", own.nbytes, traffic=3 * COPY)
        version = yield from RecordUpdate(Weights(outer, state.weights.version))
        return replace(state, weights=Weights(vector, version), start=outer, velocity=velocity, exchanges=tuple(later))

    # --- layer by layer -----------------------------------------------------------------------------------------------

    def rules(self, me: RankContext) -> list[Chain]:
        """Returns the inner optimizer of each layer, first layer first."""
        return [self.rule(Bucket((layer,)).alone()) for layer in me.layout.layers]

    @program
    def worker_of_layers(self, me: RankContext, state: Streaming) -> Program[Streaming]:
        """Exchanges each layer of a fragment during the backward pass and the next forward passes."""
        rules, fragments = self.rules(me), self.parts_of(me)
        while step := (yield from NextStep(state)):
            begun = [
                (number, fragment)
                for number, fragment in enumerate(fragments)
                if (step.number + 1 - fragment.offset) % self.period == 0
            ]
            exchanged = frozenset(place for _, fragment in begun for place in fragment.places)
            state, landing = yield from self.landing(me, fragments, state)
            buckets = apart(me.layout.layers, exchanged | landing.keys())
            held = yield from self.point(state, buckets, landing)
            batch = yield from Load(step.samples)
            parts = yield from LayerGradients(held, batch, buckets)
            state = yield from self.settled(me, state, landing)  # does not wait: the forward pass has used every layer
            new, memory, changes = list[Any](), list[Any](), dict[int, Handle[Any]]()
            for bucket, part in zip(buckets, parts, strict=True):
                gradient = yield from Wait(part)
                yield from rules[0].charge(gradient.vector.nbytes)  # a charge depends on the rule alone
                for layer, alone in zip(bucket.layers[::-1], bucket.alone()[::-1], strict=True):
                    place, own = len(rules) - 1 - len(new), state.weights.vector[layer.part]
                    vector, kept = rules[place].update(own, gradient.vector[alone.part], state.optimizer_state[place])
                    if place in exchanged:
                        change, key = state.start[layer.part] - vector, f"layer {place} {step.number + 1}"
                        changes[place] = yield from self.started(me, change, key)
                    new.append(vector)
                    memory.append(kept)
            vector, origin = join(new[::-1]), gradient.contribution()
            version = yield from RecordUpdate(Weights(vector, state.weights.version), [origin], advance=False)
            started = tuple(
                FragmentExchange(number, step.number + 1 + self.overlap, tuple(changes[at] for at in fragment.places))
                for number, fragment in begun
            )
            state = replace(
                state,
                step=step.number + 1,
                weights=Weights(vector, version),
                optimizer_state=tuple(memory[::-1]),
                exchanges=(*state.exchanges, *started),
            )
        state, landing = yield from self.landing(me, fragments, state)
        return (yield from self.settled(me, state, landing))

    def parts_of(self, me: RankContext) -> tuple[Fragment, ...]:
        """Returns the fragments of the weights."""
        return fragments_of(me.layout.layers, self.fragments, self.period, self.pattern)

    @program
    def landing(
        self, me: RankContext, fragments: Sequence[Fragment], state: Streaming
    ) -> Program[tuple[Streaming, dict[int, Handle[ExchangedLayer]]]]:
        """Begins to apply the exchanges that are due, each layer when it has arrived.

        Args:
            me: the worker.
            fragments: of the weights.
            state: its state.

        Returns:
            The state without these exchanges, and the layers on their way by number.
        """
        landing = dict[int, Handle[ExchangedLayer]]()
        for exchange in state.exchanges:
            if exchange.due <= state.step:
                assert isinstance(exchange.change, tuple), "each layer has an exchange of its own"
                for place, change in zip(fragments[exchange.fragment].places, exchange.change, strict=True):
                    landing[place] = yield from Start(self.landed(me.layout.layers[place].part, state, change))
        later = tuple(exchange for exchange in state.exchanges if exchange.due > state.step)
        return replace(state, exchanges=later), landing

    @program
    def point(
        self, state: Streaming, parts: Sequence[Bucket], landing: Mapping[int, Handle[ExchangedLayer]]
    ) -> Program[Weights | tuple[Handle[Any], ...]]:
        """Returns the point of the next gradient: the weights, or one handle for each layer if some are on their way.

        Args:
            state: the state of the worker.
            parts: the buckets of the gradient, last layers first.
            landing: the layers on their way, by number.
        """
        if not landing:
            return state.weights
        held = list[Handle[Any]]()
        for bucket in reversed(parts):
            there: Handle[Any] | None = landing.get(len(held))
            if there is None:
                own = state.weights.vector[bucket.part]
                there = yield from Start(given(Weights(own, state.weights.version)))
            held += [there] * len(bucket.layers)
        return tuple(held)

    @program
    def landed(self, part: slice, state: Streaming, exchanged: Handle[Any]) -> Program[ExchangedLayer]:
        """Waits for the exchange of a layer, takes its outer step and mixes the worker's own weights.

        Args:
            part: the layer's position.
            state: the state of the worker.
            exchanged: its exchange.
        """
        start, own = state.start[part], state.weights.vector[part]
        change = yield from self.arrived(exchanged, start)
        yield from Charge("update", change.nbytes, traffic=self.outer_traffic)
        new, velocity = self.outer(start, state.velocity[part], change)
        return ExchangedLayer(mixed(own, new, self.alpha), state.weights.version, new, velocity)

    @program
    def settled(
        self, me: RankContext, state: Streaming, landing: Mapping[int, Handle[ExchangedLayer]]
    ) -> Program[Streaming]:
        """Returns the state in which the layers on their way are applied, and records the outer weights.

        Args:
            me: the worker.
            state: its state.
            landing: the layers on their way, by number.
        """
        if not landing:
            return state
        own, outer, velocity = list[Any](), list[Any](), list[Any]()
        for place, layer in enumerate(me.layout.layers):
            if place in landing:
                piece = yield from Wait(landing[place])
                values = piece.vector, piece.outer, piece.velocity
            else:
                values = tuple(whole[layer.part] for whole in (state.weights.vector, state.start, state.velocity))
            for pieces, value in zip((own, outer, velocity), values, strict=True):
                pieces.append(value)
        version = yield from RecordUpdate(Weights(join(outer), state.weights.version))
        weights = Weights(join(own), version)
        return replace(state, weights=weights, start=join(outer), velocity=join(velocity))


def apart(layers: Sequence[Layer], alone: Collection[int]) -> tuple[Bucket, ...]:
    """Returns buckets, last layers first, in which some layers are alone and the others with their neighbours.

    Args:
        layers: all layers, first layer first.
        alone: the numbers of the layers that are alone.

    >>> layers = [Layer(name, n, n + 1) for n, name in enumerate("abcd")]
    >>> [[layer.name for layer in bucket.layers] for bucket in apart(layers, {2})]
    [['d'], ['c'], ['a', 'b']]
    """
    runs = groupby(range(len(layers)), lambda place: place if place in alone else -1)
    return tuple([Bucket(tuple(layers[place] for place in run)) for _, run in runs][::-1])


@program
def given(weights: Weights) -> Program[Weights]:
    """Returns weights that are there, where a handle is needed."""
    yield from ()
    return weights
