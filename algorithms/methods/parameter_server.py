"""Parameter servers: workers push gradients, the server applies them and answers with its weights.

Rules of this file:

* There is one worker program and one server program. A method says how many gradients make an update, when a push is
  answered, and whether a gradient of older weights counts.
* An update takes the mean of its gradients, summed in the order of their arrival unless a method says otherwise.
* Between two updates every worker that has been heard has been answered. So whenever the server stops, each worker
  has exactly one push under way, or will have: the server takes it, drops it, and says goodbye.
* A worker that has died is not waited for. What it had pushed counts; an update still takes as many gradients.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from paceline.algorithms.core.compression import Compression, beginning, compressed, decompressed
from paceline.algorithms.core.damping import Damping, damped
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
from paceline.algorithms.core.option_groups import COUNT, Range
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.rules import Chain
from paceline.algorithms.core.values import Contribution, GradientResult, Message, Rank, Weights
from paceline.algorithms.methods.survivors import Crew, survives

SERVING = frozenset({Guarantee.FULL_UPDATES, Guarantee.CONSERVES_MESSAGES, Guarantee.SURVIVES_WORKERS})
"""what a server that waits for nobody in particular promises"""


@dataclass(frozen=True, slots=True)
class Push:
    """A worker's gradient, and where it comes from."""

    vector: Any
    origin: Contribution


def opened(message: Message) -> Push:
    """The push that a message brings, with the whole vector."""
    push: Push = message.value
    vector = decompressed(push.vector)
    return push if vector is push.vector else replace(push, vector=vector)


@dataclass(frozen=True, slots=True)
class Stop:
    """The server's goodbye."""


@dataclass(frozen=True, kw_only=True)
class ParameterServer(SgdMethod):
    """What the family shares.

    All start from the same weights, so the first pull of the papers' programs is left out. The answer to a push is its
    acknowledgement and the next pull in one, as in SC'17's Async SGD.
    """

    staleness_kind = StalenessKind.VERSION_LAG
    has_server: ClassVar[bool] = True
    prompt: ClassVar[bool] = True
    """a push that completes no update is answered at once; else every push is, after the update that it went into"""
    fresh: ClassVar[bool] = False
    """only gradients of the newest weights count; any other is dropped, and answered at once"""

    compression: Compression | None = None
    """how gradients are made smaller before they are pushed; provenance: None, as in the sources"""

    def begin(self, me: RankContext, vector: Any) -> Replica:
        layers = me.layout.layers
        kept = beginning(self.compression, vector, layers) if me.role == "worker" else None
        return Replica(0, Weights(vector, 0), self.rule(layers).init(vector), kept)

    def needed(self, workers: int) -> int:
        """How many gradients make an update."""
        return 1

    def distinct(self, workers: int) -> int:
        """How many workers an update needs: as many as gradients where each may give one only."""
        return 1 if self.prompt else self.needed(workers)

    def bounds(self, workers: int) -> Mapping[Guarantee, float]:
        return survives(workers - self.distinct(workers))

    def samples_per_step(self, batch: int, workers: int) -> int:
        return self.needed(workers) * batch

    def too_many(self, name: str, nodes: Sequence[Sequence[Rank]], spared: int = 0) -> list[str]:
        """What is wrong with a hyper-parameter that may not exceed the number of workers less `spared`."""
        value, most = getattr(self, name), sum(map(len, nodes)) - spared
        if value is None or value <= most:
            return []
        return [f"{name}: found {value}, expected at most {most} for {most + spared} workers"]

    def weighed(self, push: Push, version: int) -> Any:
        """The gradient as it counts in an update of the weights of this version."""
        return push.vector

    def applied(self, rule: Chain, state: Any, taken: Sequence[Push]) -> tuple[Any, Any]:
        """The vector and the memory after an update of these gradients."""
        mean = mean_of([self.weighed(push, state.weights.version) for push in taken])
        vector, optimizer_state = rule.update(state.weights.vector, mean, state.optimizer_state)
        return vector, optimizer_state

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        server = server_of(me)
        while step := (yield from NextStep(state)):
            batch = yield from Load(step.samples)
            gradient = yield from Gradient(state.weights, batch)
            kept = yield from self.push(me, gradient, state.residual)
            reply = (yield from Receive(server)).value
            if isinstance(reply, Stop):
                return state
            state = Replica(step.number + 1, reply, state.optimizer_state, kept)
        return state

    @program
    def push(self, me: RankContext, gradient: GradientResult, kept: Any) -> Program[Any]:
        """Sends the server a gradient, as small as compression makes it; answers what that has kept back."""
        message, kept = yield from compressed(gradient.vector, self.compression, kept)
        yield from Send(server_of(me), Push(message, gradient.contribution()))
        return kept

    @program
    def server(self, me: RankContext, state: Replica) -> Program[Replica]:
        rule, build_team = self.rule(me.layout.layers), Crew(me)
        while step := (yield from NextStep(state)):
            taken, waiting = yield from self.collect(me, build_team, state.weights)
            vector, optimizer_state = self.applied(rule, state, taken)
            version = yield from RecordUpdate(
                Weights(vector, state.weights.version), tuple(push.origin for push in taken)
            )
            state = Replica(step.number + 1, Weights(vector, version), optimizer_state)
            for rank in waiting:
                yield from Send(rank, state.weights)
        yield from self.farewell(build_team)
        return state

    @program
    def collect(
        self, me: RankContext, build_team: Crew, weights: Weights
    ) -> Program[tuple[Sequence[Push], Iterable[Rank]]]:
        """The gradients of the next update, and the ranks that are sent the weights that it makes."""
        taken: list[Push] = []
        waiting: list[Rank] = []
        while len(taken) < self.needed(len(me.workers)):
            message = yield from build_team.message()
            push = opened(message)
            if counts := not self.fresh or push.origin.version == weights.version:
                yield from Charge("update", push.vector.nbytes, where="host")
                taken.append(push)
            if counts and not (self.prompt and len(taken) < self.needed(len(me.workers))):
                waiting.append(message.source)
            else:
                yield from Send(message.source, weights)
        return taken, waiting

    @program
    def farewell(self, build_team: Crew) -> Program[None]:
        """How the server leaves."""
        yield from dismiss(build_team)


@dataclass(frozen=True, kw_only=True)
class SyncSgdPs(ParameterServer):
    """Synchronous SGD by a server (hardsync): it waits for everybody's gradient and answers all with the new weights.

    x ← x − η (1/P) Σ_i g_i(x)

    The sum is taken in rank order, whoever comes first, so that the same seed gives the same weights.
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

    def needed(self, workers: int) -> int:
        return workers

    @program
    def collect(
        self, me: RankContext, build_team: Crew, weights: Weights
    ) -> Program[tuple[Sequence[Push], Iterable[Rank]]]:
        taken, waiting = yield from super().collect(me, build_team, weights)
        return sorted(taken, key=lambda push: push.origin.rank), waiting


@dataclass(frozen=True, kw_only=True)
class Damped(ParameterServer):
    """A server that takes stale gradients, and may give them less weight."""

    ranges: ClassVar[Mapping[str, Range]] = {"damping_base": (lambda base: base >= 1, "a number of 1 or more")}

    damping: Damping = "none"
    """η(τ)/η: none 1, inverse 1/max(τ, 1), inverse-plus-one 1/(τ + 1), exponential base^(−τ); provenance: without
    damping, the rule of the source"""
    damping_base: float = 2.0
    """base of the exponential damping; provenance: ours, Chan and Lane's constants were not found"""

    def weighed(self, push: Push, version: int) -> Any:
        return damped(push.vector, version - push.origin.version, self.damping, self.damping_base)


@dataclass(frozen=True, kw_only=True)
class AsyncSgd(Damped):
    """Each worker's gradient is applied when it arrives, first come first served; the worker gets the new weights back.

    server, on push g from i:  x ← x − η g;  version ← version + 1;  reply x
    """

    name = "async-sgd"
    source = "Dean et al. 2012 (Downpour with period 1); You, Buluç, Demmel, SC'17 (Async SGD)"
    guarantees = SERVING | {Guarantee.DISTINCT_WORKERS}


@dataclass(frozen=True, kw_only=True)
class AsyncMsgd(AsyncSgd):
    """Asynchronous SGD with momentum at the server: one velocity for the gradients of all.

    server, on push g from i:  v ← μ v − η g;  x ← x + v;  version ← version + 1;  reply x
    """

    name = "async-msgd"
    source = "You, Buluç, Demmel, SC'17 (Async MSGD, equations (3) and (4))"

    learning_rate: float = 0.01
    """η; provenance: ours, a tenth of async-sgd's, since 1/(1 − μ) gradients add up in the velocity"""
    momentum: float = 0.9
    """μ; provenance: the usual value, ours; the paper's was not found"""


@dataclass(frozen=True, kw_only=True)
class Softsync(Damped):
    """n-softsync: an update for every c gradients, from any workers, each weighted by its own staleness.

    c = ⌊P / n⌋;  server, after c gradients g_k:  x ← x − (1/c) Σ_k η(τ_k) g_k;  version ← version + 1

    A push is answered at once, so one worker may be in an update twice, and n = 1 is not synchronous SGD. Staleness is
    counted when the update is made. n = P with damping none is async-sgd.
    """

    name = "softsync"
    source = "Zhang, Gupta, Lian, Liu, 'Staleness-aware Async-SGD', IJCAI'16 (arXiv 1511.05950)"
    guarantees = SERVING

    ranges: ClassVar[Mapping[str, Range]] = {"n": COUNT}

    n: int = 1
    """updates for every P gradients, 1 … P; provenance: ours, the paper tries 1, P/2 and P"""
    damping: Damping = "inverse"
    """as async-sgd's; provenance: the paper, α/τ for τ > 0"""

    def problems(self, nodes: Sequence[Sequence[Rank]]) -> list[str]:
        return super().problems(nodes) + self.too_many("n", nodes)

    def needed(self, workers: int) -> int:
        return workers // self.n


@program
def dismiss(build_team: Crew) -> Program[None]:
    """A stopped server's goodbye: each worker has one message under way; it is dropped, and its sender goes home."""
    told: set[Rank] = set()
    while build_team.living - told:
        if (message := (yield from build_team.hear())) is not None:
            yield from Send(message.source, Stop())
            told.add(message.source)


def mean_of(vectors: Sequence[Any]) -> Any:
    """The mean, summed in the order given."""
    total = vectors[0]
    for vector in vectors[1:]:
        total = total + vector
    return total / len(vectors) if len(vectors) > 1 else total  # dividing by 1 changes nothing, and takes its time


def server_of(me: RankContext) -> Rank:
    """The server's rank, for a method that has one."""
    assert me.server is not None, "a method with has_server=True is always given a server"
    return me.server
