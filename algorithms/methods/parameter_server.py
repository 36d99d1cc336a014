"""Parameter servers: workers push gradients, the server applies them and answers with its weights.

* There is one worker program and one server program. A method defines how many gradients an update needs, when a push
  is answered, and whether a gradient of older weights counts.
* An update applies the mean of its gradients, summed in the order of their arrival unless a method overrides this.
* Between two updates, every push that has arrived has been answered. So when the server stops, each worker has exactly
  one push in flight, or will have: the server receives it, drops it and answers `ServerStopped`.
* With several servers, each holds a shard of the weights and runs the same program with it: it counts its own versions,
  and stops after as many updates as the others. A worker pushes each shard of a gradient to its server, and continues
  when all have answered. Asynchronous servers may apply pushes in different orders, so the last updates of one may
  contain other gradients than those of another: a worker goes on with those that have not stopped.
* With `layerwise`, a worker pushes a shard when the backward pass has its gradient, and asks for the new weights when
  it has pushed all. The next forward pass waits for a layer when it arrives at it.
* The server does not wait for a worker that has died. The gradients that it had pushed count; the number of gradients
  in an update does not change.

Staleness-aware learning rates: factors by which a stale gradient is scaled before it is applied.

Each is a pure function of a gradient and its staleness τ, in versions.

Delay compensation: a stale gradient is corrected for the change of the weights since it was computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

from paceline.algorithms.core.compression import (
    Compression,
    beginning,
    compressed,
    decompressed,
    opening_traffic,
    with_linear_compression,
)
from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.fast_values import fast_constructor, replace
from paceline.algorithms.core.guarantees import AnyGuarantee, AppliedGradient, Guarantee
from paceline.algorithms.core.method import AccumulatingMethod, RankContext, Replica, StalenessKind
from paceline.algorithms.core.operations import (
    Charge,
    Handle,
    LayerGradients,
    Load,
    NextStep,
    Receive,
    RecordUpdate,
    Send,
    Start,
    Wait,
    WaitFor,
)
from paceline.algorithms.core.option_groups import COUNT, FRACTION, NOT_NEGATIVE, Range
from paceline.algorithms.core.program import Program, Routine, program
from paceline.algorithms.core.rules import Chain
from paceline.algorithms.core.steps import accumulated_gradient
from paceline.algorithms.core.traffic import COMBINE, NOTHING, SCALE, Traffic
from paceline.algorithms.core.values import Contribution, GradientResult, Message, Rank, Step, Weights, join, root
from paceline.algorithms.methods.survivors import LivingWorkers, survives

Damping = Literal["none", "inverse", "inverse-plus-one", "exponential"]


def damped(gradient: Any, staleness: int, form: Damping, base: float = 2.0) -> Any:
    """Scales a gradient by α(τ) / α, so that the rule can multiply by α as usual.

    none: 1;  inverse: 1 / max(τ, 1);  inverse-plus-one: 1 / (τ + 1);  exponential: base^(−τ)

    Args:
        gradient: a vector.
        staleness: τ, the updates between reading the weights and applying the gradient, 0 or more.
        form: the form of α(τ). "inverse" is Zhang, Gupta, Lian, Liu, IJCAI'16: α for τ = 0 and for τ = 1; others
            divide by τ + 1, which differs at τ = 1 already. "exponential" is the idea of Chan and Lane, Interspeech
            2014.
        base: of the exponential form, 1 or more.

    Returns:
        The scaled gradient; the same object with "none".

    >>> from typing import get_args
    >>> [[damped(12.0, staleness, form) for staleness in (0, 1, 2, 3)] for form in get_args(Damping)]
    [[12.0, 12.0, 12.0, 12.0], [12.0, 12.0, 6.0, 4.0], [12.0, 6.0, 4.0, 3.0], [12.0, 6.0, 3.0, 1.5]]
    """
    match form:
        case "none":
            return gradient
        case "inverse":
            return gradient / max(staleness, 1)
        case "inverse-plus-one":
            return gradient / (staleness + 1)
        case "exponential":
            return gradient * base**-staleness


SERVING: frozenset[AnyGuarantee] = frozenset(
    {Guarantee.FULL_UPDATES, Guarantee.CONSERVES_MESSAGES, Guarantee.SURVIVES_WORKERS}
)
"""the guarantees of a server that does not wait for specific workers"""


@fast_constructor
@dataclass(frozen=True, slots=True)
class Push:
    """A worker's gradient and its origin."""

    vector: Any
    origin: Contribution


def opened(message: Message) -> Push:
    """Returns the push in a message, decompressed."""
    push: Push = message.value
    vector = decompressed(push.vector)
    return push if vector is push.vector else replace(push, vector=vector)


@dataclass(frozen=True, slots=True)
class ServerStopped:
    """The server's last message to a worker: it has stopped."""


@dataclass(frozen=True, kw_only=True)
class ParameterServer(AccumulatingMethod):
    """Base of the parameter servers.

    All ranks start from the same weights, so the first pull in the papers' programs is omitted. The answer to a push is
    both its acknowledgement and the next pull, as in SC'17's Async SGD.
    """

    staleness_kind = StalenessKind.VERSION_LAG
    has_server: ClassVar[bool] = True
    prompt: ClassVar[bool] = True
    """a push that does not complete an update is answered immediately; if false, after the update that contains it"""
    fresh: ClassVar[bool] = False
    """only gradients of the newest weights count; others are dropped and answered immediately"""

    compression: Compression | None = None
    """compression of gradients before they are pushed; provenance: None, as in the sources"""

    def begin(self, me: RankContext, vector: Any) -> Replica:
        layers = me.layout.layers
        if me.shard is not None:
            vector = vector[me.shard.part]
        kept = beginning(self.compression, vector, layers) if me.role == "worker" else None
        return Replica(0, Weights(vector, 0), self.rule(layers).init(vector), kept)

    def needed(self, workers: int) -> int:
        """Returns the number of gradients in an update."""
        return 1

    def distinct(self, workers: int) -> int:
        """Returns how many different workers an update needs."""
        return 1 if self.prompt else self.needed(workers)

    def bounds(self, workers: int) -> Mapping[Guarantee, float]:
        return survives(workers - self.distinct(workers))

    def samples_per_step(self, batch: int, workers: int) -> int:
        return self.needed(workers) * batch

    def linear_form(self) -> Self:
        return with_linear_compression(super().linear_form(), self.compression)

    def sees_own_updates(self, workers: int) -> bool:
        return not self.prompt or self.needed(workers) == 1

    def too_many(self, name: str, nodes: Sequence[Sequence[Rank]], spared: int = 0) -> list[str]:
        """Returns the error of a hyper-parameter that exceeds the number of workers minus `spared`.

        Args:
            name: the hyper-parameter.
            nodes: the workers on each node.
            spared: by how much the limit is below the number of workers.
        """
        value, most = getattr(self, name), sum(map(len, nodes)) - spared
        if value is None or value <= most:
            return []
        return [f"{name}: found {value}, expected at most {most} for {most + spared} workers"]

    def weighed(self, push: Push, version: int) -> Any:
        """Returns the gradient of a push, scaled for an update of the weights of this version."""
        return push.vector

    def applied(self, rule: Chain, state: Any, taken: Sequence[Push]) -> tuple[Any, Any]:
        """Returns the weights and the optimizer state after an update with these gradients.

        Args:
            rule: computes the step.
            state: the state of the server.
            taken: the gradients.
        """
        mean = mean_of([self.weighed(push, state.weights.version) for push in taken])
        vector, optimizer_state = rule.update(state.weights.vector, mean, state.optimizer_state)
        return vector, optimizer_state

    def traffic(self, count: int) -> Traffic:
        """Returns the memory traffic of `applied` for so many gradients, without that of the rule."""
        return (count - 1) * COMBINE + (SCALE if count > 1 else NOTHING)  # as in `mean_of`

    def charge(self, me: RankContext, push: Push, count: int) -> Charge:
        """Returns the charge of a push: its decompression, and the whole update if it is the last one.

        Args:
            me: the server.
            push: the push.
            count: the number of pushes for this update, including this one.
        """
        key = push.vector.nbytes, count, len(me.workers), len(me.layout.layers)
        if (charge := self._charges.get(key)) is None:
            charge = self._charges[key] = self._charge(me, *key[:2])
        return charge

    @cached_property
    def _charges(self) -> dict[tuple[int, int, int, int], Charge]:
        """The charges so far: computing one took 7 % of a step of async-sgd in the simulator."""
        return {}

    def _charge(self, me: RankContext, nbytes: int, count: int) -> Charge:
        opening = opening_traffic(self.compression)
        if count < self.needed(len(me.workers)):
            return Charge("update", nbytes, where="host", traffic=opening)
        return self.rule(me.layout.layers).charge(nbytes, "host", also=opening + self.traffic(count))

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        server = server_of(me)
        while step := (yield from NextStep(state)):
            gradient = yield from accumulated_gradient(state.weights, step.samples, self.accumulate)
            kept = yield from self.push(me, gradient, state.residual)
            reply = (yield from Receive(server)).value
            if isinstance(reply, ServerStopped):
                return state
            state = Replica(step.number + 1, reply, state.optimizer_state, kept)
        return state

    @program
    def push(self, me: RankContext, gradient: GradientResult, kept: Any) -> Program[Any]:
        """Sends a gradient, compressed if the method says so, to the server.

        Args:
            me: this rank.
            gradient: its gradient.
            kept: the residual of compression.

        Returns:
            The new residual.
        """
        message, kept = yield from compressed(gradient.vector, self.compression, kept)
        yield from Send(server_of(me), Push(message, gradient.contribution()))
        return kept

    @program
    def server(self, me: RankContext, state: Replica) -> Program[Replica]:
        rule, team = self.rule_of(me), LivingWorkers(me)
        while step := (yield from NextStep(state)):
            taken, waiting = yield from self.collect(me, team, state.weights)
            vector, optimizer_state = self.applied(rule, state, taken)
            version = yield from RecordUpdate(
                Weights(vector, state.weights.version), tuple(push.origin for push in taken)
            )
            state = Replica(step.number + 1, Weights(vector, version), optimizer_state)
            yield from self.answer(waiting, state.weights)
        yield from self.farewell(team)
        return state

    @program
    def answer(self, waiting: Iterable[Rank], weights: Weights) -> Program[None]:
        """Sends the weights after an update to the ranks that wait for them."""
        for rank in waiting:
            yield from Send(rank, weights)

    @program
    def collect(
        self, me: RankContext, team: LivingWorkers, weights: Weights
    ) -> Program[tuple[Sequence[Push], Iterable[Rank]]]:
        """Receives the gradients of the next update.

        Args:
            me: the server.
            team: the living workers.
            weights: the current weights, for pushes that are answered immediately.

        Returns:
            The gradients, and the ranks that are waiting for the weights after the update.
        """
        taken: list[Push] = []
        waiting: list[Rank] = []
        while len(taken) < self.needed(len(me.workers)):
            message = yield from team.message()
            push = opened(message)
            if counts := not self.fresh or push.origin.version == weights.version:
                yield from self.charge(me, push, len(taken) + 1)
                taken.append(push)
            if counts and not (self.prompt and len(taken) < self.needed(len(me.workers))):
                waiting.append(message.source)
            else:
                yield from Send(message.source, weights)
        return taken, waiting

    @program
    def farewell(self, team: LivingWorkers) -> Program[None]:
        """Stops the workers after the server has stopped."""
        yield from dismiss(team)


@dataclass(frozen=True, slots=True)
class ShardedReplica(Replica):
    """The state of a worker whose weights are on several servers; its version of the weights is that of shard 0."""

    versions: tuple[int, ...] = ()
    """of each shard"""
    serving: tuple[int, ...] = ()
    """the numbers of the servers that have not stopped"""


@dataclass(frozen=True, kw_only=True)
class Sharded(ParameterServer):
    """Base of parameter servers of which there may be several, each with a part of the weights."""

    ranges: ClassVar[Mapping[str, Range]] = {"servers": COUNT}

    servers: int = 1
    """parameter servers, each with consecutive layers of about equal size: on the node `cluster.server.node`, the one
    after it, and so on; provenance: 1, as in the sources; several as in Dean et al. 2012, Li et al., OSDI'14, and the
    parameter servers of TensorFlow and MXNet"""

    @property
    def num_servers(self) -> int:
        return self.servers

    def problems(self, nodes: Sequence[Sequence[Rank]]) -> list[str]:
        problems = super().problems(nodes)
        if self.servers > 1:
            for key, why in (("max_grad_norm", "the norm of a whole gradient"), ("lars", "whole layers")):
                if getattr(self, key) is not None:
                    words = f"expected null with servers = {self.servers}: no server is certain to have {why}"
                    problems.append(f"{key}: found {'it' if key == 'lars' else repr(getattr(self, key))}, {words}")
        return problems

    def begin(self, me: RankContext, vector: Any) -> Replica:
        replica = super().begin(me, vector)
        if me.role == "server" or not me.shards:
            return replica
        kept = tuple(beginning(self.compression, vector[shard.part], shard.alone()) for shard in me.shards)
        every = tuple(range(len(me.shards)))
        return ShardedReplica(0, replica.weights, replica.optimizer_state, kept, (0,) * len(every), every)

    def worker(self, me: RankContext, state: Replica) -> Routine[Replica]:
        return self.worker_of_shards(me, state) if isinstance(state, ShardedReplica) else super().worker(me, state)

    @program
    def worker_of_shards(self, me: RankContext, state: ShardedReplica) -> Program[Replica]:
        """As `worker`, with a push to each server and an answer of each."""
        while step := (yield from NextStep(state)):
            gradient = yield from accumulated_gradient(state.weights, step.samples, self.accumulate)
            kept = yield from self.push_parts(me, gradient, state)
            parts, versions = [state.weights.vector[shard.part] for shard in me.shards], list(state.versions)
            serving = []
            for place in state.serving:
                reply = (yield from Receive(me.servers[place])).value
                if not isinstance(reply, ServerStopped):
                    parts[place], versions[place] = reply.vector, reply.version
                    serving.append(place)
            if not serving:
                return replace(state, serving=tuple(range(len(me.shards))))
            weights = Weights(join(parts), versions[0])
            state = ShardedReplica(
                step.number + 1, weights, state.optimizer_state, kept, tuple(versions), tuple(serving)
            )
        return state

    @program
    def push_parts(self, me: RankContext, gradient: GradientResult, state: ShardedReplica) -> Program[tuple[Any, ...]]:
        """Sends each part of a gradient to its server, as `push`, if that has not stopped.

        Args:
            me: this rank.
            gradient: its gradient.
            state: its state.

        Returns:
            The new residual of each part.
        """
        kept = list(state.residual)
        for place in state.serving:
            part = gradient.vector[me.shards[place].part]
            message, kept[place] = yield from compressed(part, self.compression, kept[place])
            yield from Send(me.servers[place], Push(message, gradient.contribution(state.versions[place])))
        return tuple(kept)


PULL = "pull"
"""the tag of requests for weights, and of their answers"""


@dataclass(frozen=True, slots=True)
class Pull:
    """A worker's request for the weights after the update that its last push is in."""


@dataclass(frozen=True, slots=True)
class PullingReplica:
    """A worker whose weights are on their way: those of each shard are available by their handle."""

    step: int
    pulls: tuple[Handle[Weights | ServerStopped], ...]
    """of the servers in their order, which is that of the layers in the forward pass"""
    optimizer_state: Any
    residual: tuple[Any, ...]


@program
def pulled(server: Rank) -> Program[Weights | ServerStopped]:
    """Requests the weights of a server's shard and waits for them."""
    yield from Send(server, Pull(), PULL)
    answer: Weights | ServerStopped = (yield from Receive(server, PULL)).value
    return answer


@program
def whole(me: RankContext, state: ShardedReplica | PullingReplica) -> Program[ShardedReplica]:
    """Returns the replica when all its shards have arrived."""
    if isinstance(state, ShardedReplica):
        return state
    shards = []
    for pull in state.pulls:
        weights = yield from Wait(pull)
        assert isinstance(weights, Weights), "a worker goes on only with weights"
        shards.append(weights)
    versions = tuple(weights.version for weights in shards)
    vector = join([weights.vector for weights in shards])
    every = tuple(range(len(me.shards)))
    return ShardedReplica(
        state.step, Weights(vector, versions[0]), state.optimizer_state, state.residual, versions, every
    )


@dataclass(frozen=True, kw_only=True)
class SyncSgdPs(Sharded):
    """Synchronous SGD by a server (hardsync): it waits for the gradients of all workers and sends all the new weights.

    x ← x − η (1/P) Σ_i g_i(x)

    The sum is computed in rank order, regardless of arrival, so that the same seed gives the same weights.
    """

    name = "sync-sgd-ps"
    source = "hardsync of Zhang, Gupta, Lian, Liu, IJCAI'16; the synchronous parameter server of all five papers"
    guarantees = frozenset(
        {
            Guarantee.DETERMINISTIC,
            Guarantee.SYNCHRONOUS,
            Guarantee.SAME_AS_SYNC_SGD,
            Guarantee.REPLICAS_EQUAL,
            Guarantee.FULL_UPDATES,
            Guarantee.DISTINCT_WORKERS,
            Guarantee.CONSERVES_MESSAGES,
        }
    )
    prompt: ClassVar[bool] = False

    layerwise: bool = False
    """with several servers: whether a shard is pushed as soon as the backward pass has its gradient, and pulled when
    all are pushed, while the next forward pass begins; provenance: false, as in the sources; true as in TensorFlow,
    whose transfers of variables are operations of the graph like the layers, between barriers at the ends of steps
    (FOUND, `sync_queues_step_end_` of tensorflow/benchmarks)"""

    def problems(self, nodes: Sequence[Sequence[Rank]]) -> list[str]:
        problems = super().problems(nodes)
        if self.layerwise and self.servers == 1:
            problems.append("layerwise: found true with servers = 1, expected 2 or more: a server has one message")
        if self.layerwise and self.accumulate > 1:
            problems.append(f"accumulate: found {self.accumulate} with layerwise, expected 1")
        return problems

    def needed(self, workers: int) -> int:
        return workers

    def begin(self, me: RankContext, vector: Any) -> Replica:
        layers = me.layout.layers
        if self.layerwise and me.role == "worker" and len(layers) < self.servers:
            most = f"expected at most {len(layers)} with layerwise, the number of layers"
            raise InputError(f"servers: found {self.servers}, {most}")
        return super().begin(me, vector)

    def worker(self, me: RankContext, state: Replica | PullingReplica) -> Routine[Replica]:
        if isinstance(state, PullingReplica) or (self.layerwise and isinstance(state, ShardedReplica)):
            return self.worker_of_layers(me, state)
        return super().worker(me, state)

    @program
    def worker_of_layers(self, me: RankContext, state: ShardedReplica | PullingReplica) -> Program[Replica]:
        """As `worker_of_shards`, with pushes during the backward pass and pulls during the forward pass."""
        while step := (yield from NextStep(state)):
            held: Weights | tuple[Handle[Any], ...]
            if isinstance(state, PullingReplica):
                pairs = zip(me.shards, state.pulls, strict=True)
                held = tuple(pull for shard, pull in pairs for _ in shard.layers)
            else:
                held = state.weights
            kept = yield from self.push_layers(me, step, held, state.residual)
            pulls = []
            for server in me.servers:
                pulls.append((yield from Start(pulled(server))))
            if isinstance((yield from Wait(pulls[0])), ServerStopped):  # all stop after the same update
                yield from WaitFor(pulls)
                return (yield from whole(me, state))  # does not wait: the forward pass has used every layer
            state = PullingReplica(step.number + 1, tuple(pulls), state.optimizer_state, kept)
        return (yield from whole(me, state))

    @program
    def push_layers(
        self, me: RankContext, step: Step, held: Weights | tuple[Handle[Any], ...], residual: Sequence[Any]
    ) -> Program[tuple[Any, ...]]:
        """Computes a gradient and sends each part of it to its server when the backward pass has it.

        Args:
            me: this rank.
            step: the step.
            held: the point of the gradient, or one handle for each layer.
            residual: that of the compression of each part.

        Returns:
            The new residual of each part.
        """
        batch, kept = (yield from Load(step.samples)), list(residual)
        parts = yield from LayerGradients(held, batch, me.shards[::-1])
        for place, part in zip(reversed(range(len(me.shards))), parts, strict=True):
            gradient = yield from Wait(part)
            message, kept[place] = yield from compressed(gradient.vector, self.compression, kept[place])
            yield from Send(me.servers[place], Push(message, gradient.contribution()))
        return tuple(kept)

    @program
    def collect(
        self, me: RankContext, team: LivingWorkers, weights: Weights
    ) -> Program[tuple[Sequence[Push], Iterable[Rank]]]:
        taken, waiting = yield from super().collect(me, team, weights)
        return sorted(taken, key=lambda push: push.origin.rank), waiting

    def answer(self, waiting: Iterable[Rank], weights: Weights) -> Routine[None]:
        return self.answer_pulls(tuple(waiting), weights) if self.layerwise else super().answer(waiting, weights)

    @program
    def answer_pulls(self, waiting: Sequence[Rank], answer: Weights | ServerStopped) -> Program[None]:
        """Sends the weights when all ranks have asked for them: a worker may ask again before another one asks."""
        for rank in waiting:
            yield from Receive(rank, PULL)
        for rank in waiting:
            yield from Send(rank, answer, PULL)

    def farewell(self, team: LivingWorkers) -> Routine[None]:
        return self.dismiss_layers(team) if self.layerwise else super().farewell(team)

    @program
    def dismiss_layers(self, team: LivingWorkers) -> Program[None]:
        """Drops the last push of each worker, and answers its request for weights."""
        for _ in team.living:
            yield from team.message()
        yield from self.answer_pulls(sorted(team.living), ServerStopped())


@dataclass(frozen=True, kw_only=True)
class Damped(ParameterServer):
    """Base of servers that apply stale gradients, optionally with a lower weight."""

    ranges: ClassVar[Mapping[str, Range]] = {"damping_base": (lambda base: base >= 1, "a number of 1 or more")}

    damping: Damping = "none"
    """η(τ)/η: none 1, inverse 1/max(τ, 1), inverse-plus-one 1/(τ + 1), exponential base^(−τ); provenance: without
    damping, the rule of the source"""
    damping_base: float = 2.0
    """base of the exponential damping; provenance: ours, Chan and Lane's constants were not found"""

    def weighed(self, push: Push, version: int) -> Any:
        return damped(push.vector, version - push.origin.version, self.damping, self.damping_base)

    def gradient_weight(self, gradient: AppliedGradient) -> float:
        return float(damped(super().gradient_weight(gradient), gradient.staleness, self.damping, self.damping_base))

    def traffic(self, count: int) -> Traffic:
        return super().traffic(count) + (0 if self.damping == "none" else count) * SCALE


@dataclass(frozen=True, kw_only=True)
class AsyncSgd(Sharded, Damped):
    """Each worker's gradient is applied when it arrives, and the worker receives the new weights.

    server, on push g from i:  x ← x − η g;  version ← version + 1;  reply x
    """

    name = "async-sgd"
    source = "Dean et al. 2012 (Downpour with period 1); You, Buluç, Demmel, SC'17 (Async SGD)"
    guarantees = SERVING | {Guarantee.DISTINCT_WORKERS}


@dataclass(frozen=True, kw_only=True)
class AsyncMsgd(AsyncSgd):
    """Asynchronous SGD with momentum at the server: one velocity for the gradients of all workers.

    server, on push g from i:  v ← μ v − η g;  x ← x + v;  version ← version + 1;  reply x
    """

    name = "async-msgd"
    source = "You, Buluç, Demmel, SC'17 (Async MSGD, equations (3) and (4))"

    learning_rate: float = 0.01
    """η; provenance: ours, a tenth of async-sgd's, since 1/(1 − μ) gradients add up in the velocity"""
    momentum: float = 0.9
    """μ; provenance: the usual value, ours; the paper's was not found"""


@dataclass(frozen=True, kw_only=True)
class Softsync(Sharded, Damped):
    """n-softsync: an update for every c gradients, from any workers, each weighted by its own staleness.

    c = ⌊P / n⌋;  server, after c gradients g_k:  x ← x − (1/c) Σ_k η(τ_k) g_k;  version ← version + 1

    A push is answered immediately, so an update may contain two gradients of one worker, and n = 1 is not synchronous
    SGD. Staleness is determined at the update. n = P with damping none is async-sgd.
    """

    name = "softsync"
    source = "Zhang, Gupta, Lian, Liu, 'Staleness-aware Async-SGD', IJCAI'16 (arXiv 1511.05950)"
    guarantees = SERVING

    ranges: ClassVar[Mapping[str, Range]] = {"n": COUNT}

    n: int = 1
    """updates for every P gradients, 1 … P; provenance: ours, the paper tries 1, P/2 and P"""
    damping: Damping = "inverse"
    """as in async-sgd; provenance: the paper, α/τ for τ > 0"""

    def problems(self, nodes: Sequence[Sequence[Rank]]) -> list[str]:
        return super().problems(nodes) + self.too_many("n", nodes)

    def needed(self, workers: int) -> int:
        return workers // self.n


@program
def dismiss(team: LivingWorkers) -> Program[None]:
    """Stops all workers: each has one message in flight, which is dropped and answered with `ServerStopped`."""
    stopped: set[Rank] = set()
    while not team.living <= stopped:  # takes constant time until the numbers are equal, unlike a difference
        if (message := (yield from team.receive())) is not None:
            yield from Send(message.source, ServerStopped())
            stopped.add(message.source)


def mean_of(vectors: Sequence[Any]) -> Any:
    """Returns the mean of vectors, summed in the given order."""
    total = vectors[0]
    for vector in vectors[1:]:
        total = total + vector
    return total / len(vectors) if len(vectors) > 1 else total  # a division by 1 would only cost time


def server_of(me: RankContext) -> Rank:
    """Returns the rank of the server, for a method that has one."""
    assert me.server is not None, "a method with has_server=True always has a server"
    return me.server


EPSILON = 1e-7


@dataclass(frozen=True, slots=True)
class Backups:
    """The memory of the server: the weights of each worker, by rank; the mean square; the state of the rule."""

    weights: tuple[Any, ...]
    square: Any
    rule: Any


@dataclass(frozen=True, kw_only=True)
class DcAsgd(Sharded):
    """Asynchronous SGD with delay compensation: the first Taylor term of the gradient, with g ⊙ g for the Hessian.

    server, on push g from i:  x ← x − η (g + λ g ⊙ g ⊙ (x − b_i));  b_i ← x;  version ← version + 1;  reply x
    adaptive:  s ← m s + (1 − m) g ⊙ g;  λ_t = λ / √(s + 1e-7), in place of λ

    b_i are the weights that worker i received last, at which its gradient was computed. The server stores them, so a
    push is no larger than in async-sgd; with λ = 0 it is async-sgd.
    """

    name = "dc-asgd"
    source = "Zheng, Meng, Wang, Chen, Yu, Ma, Liu, 'ASGD with Delay Compensation', ICML'17 (arXiv 1609.08326)"
    guarantees = SERVING | {Guarantee.DISTINCT_WORKERS}

    ranges: ClassVar[Mapping[str, Range]] = {"compensation": NOT_NEGATIVE, "square_decay": FRACTION}

    compensation: float = 0.04
    """λ; provenance: the paper's constant variant on CIFAR-10, and MXNet's; its adaptive one has 2.0"""
    adaptive: bool = False
    """whether λ is divided by the root mean square of the gradients (DC-ASGD-a); provenance: the paper has both"""
    square_decay: float = 0.95
    """m of the mean square; provenance: the paper on CIFAR-10 (0 on ImageNet)"""

    def begin(self, me: RankContext, vector: Any) -> Replica:
        replica = super().begin(me, vector)
        if me.role == "worker":
            return replica
        held = replica.weights.vector
        return replace(replica, optimizer_state=Backups((held,) * len(me.workers), 0 * held, replica.optimizer_state))

    def applied(self, rule: Chain, state: Replica, taken: Sequence[Push]) -> tuple[Any, Backups]:
        (push,) = taken
        optimizer_state: Backups = state.optimizer_state
        rank, g, x = push.origin.rank, push.vector, state.weights.vector
        square = self.square_decay * optimizer_state.square + (1 - self.square_decay) * (g * g)
        correction = self.compensation * (g * g) * (x - optimizer_state.weights[rank])
        if self.adaptive:
            correction = correction / root(square, EPSILON)
        vector, kept = rule.update(x, g + correction, optimizer_state.rule)
        weights = (*optimizer_state.weights[:rank], vector, *optimizer_state.weights[rank + 1 :])
        return vector, Backups(weights, square, kept)

    def traffic(self, count: int) -> Traffic:
        square = 3 * SCALE + COMBINE
        correction = 2 * SCALE + 2 * COMBINE
        division = 2 * SCALE + COMBINE if self.adaptive else NOTHING
        return square + correction + division + COMBINE
