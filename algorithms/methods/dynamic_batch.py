"""Dynamic batch sizes: each worker of a parameter server gets the batch that its speed can do in everybody's time.

Rules of this file:

* A worker measures its own gradients with `Now`, which is recorded: a replay shares out the batch as the run did.
* The batches in force are `batches` of the server's state. Their sum is the total, always; a worker hears of its own
  with its next answer, so one batch computed meanwhile may still be of the old size.
* The part of a worker that has died goes to the others in equal shares, until the next look.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from paceline.algorithms.core.apportion import Estimate, apportion, change
from paceline.algorithms.core.guarantees import Guarantee
from paceline.algorithms.core.method import RankContext, SgdMethod, StalenessKind
from paceline.algorithms.core.operations import Charge, Gradient, Load, NextStep, Now, Receive, RecordUpdate, Send
from paceline.algorithms.core.option_groups import COUNT, NOT_NEGATIVE, SHARE, Range
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Contribution, Rank, Samples, Vector, Weights
from paceline.algorithms.methods.parameter_server import Stop, dismiss, server_of
from paceline.algorithms.methods.survivors import Crew, survives


@dataclass(frozen=True, slots=True)
class Timed:
    """A worker's gradient, where it comes from, how long it took, and what batch everybody has by default."""

    vector: Any
    origin: Contribution
    seconds: float
    base: int


@dataclass(frozen=True, slots=True)
class Part:
    """A worker's part of the global batch, as `Samples` has it."""

    count: int
    before: int
    together: int

    def of(self, samples: Samples) -> Samples:
        """These samples, cut anew."""
        return replace(samples, count=self.count, before=self.before, together=self.together)


@dataclass(frozen=True, slots=True)
class Portion:
    """The server's answer: new weights, and the worker's part from now on."""

    weights: Weights
    part: Part


@dataclass(frozen=True, slots=True)
class Portioned:
    """A worker; `part` is None until it has heard of one."""

    step: int
    weights: Weights
    optimizer_state: Any = None
    part: Part | None = None


@dataclass(frozen=True, slots=True)
class Balance:
    """The server: `batches` are those in force, in worker order; empty until the first gradient has come."""

    step: int
    weights: Weights
    optimizer_state: Any = None
    batches: tuple[int, ...] = ()
    estimates: tuple[Estimate | None, ...] = ()

    def part(self, rank: Rank) -> Part:
        """A worker's part of the global batch."""
        return Part(self.batches[rank], sum(self.batches[:rank]), sum(self.batches))


@dataclass(frozen=True, kw_only=True)
class DbsSgd(SgdMethod):
    """Asynchronous SGD in which each worker's batch follows its speed, so that all take about the same time for one.

    server, on push g of b_i samples from i:  x ← x − η (b_i P / B) g;  version ← version + 1;  reply x, b_i
    now and then:                             b_i ← v_i (T − o_i), rounded, with T from Σ b_i = B

    B is P times the scenario's batch per worker; all begin with that. A worker sends the seconds that its gradient
    took, without any waiting; the server fits t = o + b / v to them, node by node. Wherever the fit is wrong, shares
    that no longer change are still right: they make the measured times equal, whatever o and v each is put down to.
    """

    name = "dbs-sgd"
    staleness_kind = StalenessKind.VERSION_LAG
    source = "Ji et al., J. Comp. R&D 56(11), 2019, from its abstract; formulas: see the page"
    guarantees = frozenset({Guarantee.CONSTANT_TOTAL, Guarantee.CONSERVES_MESSAGES, Guarantee.SURVIVES_WORKERS})
    has_server: ClassVar[bool] = True
    ranges: ClassVar[Mapping[str, Range]] = {"interval": COUNT, "smoothing": SHARE, "dead_band": NOT_NEGATIVE}

    interval: int = 32
    """updates between two looks at the batches; provenance: ours, the paper's interval was not found"""
    smoothing: float = 0.2
    """what a new measurement counts for in a node's means, from above 0 to 1; provenance: ours"""
    dead_band: float = 0.1
    """batches stay as they are if nobody's would change by more than this share; provenance: ours, OmniLearn's code
    has 0.2"""

    def longest_period(self, workers: int) -> int:
        return -(-self.interval // workers)  # the interval counts the updates of all workers

    def bounds(self, workers: int) -> Mapping[Guarantee, float]:
        return survives(workers - 1)

    def begin(self, me: RankContext, vector: Vector) -> Portioned | Balance:
        kind = Balance if me.role == "server" else Portioned
        return kind(0, Weights(vector, 0), self.rule(me.layout.layers).init(vector))

    @program
    def worker(self, me: RankContext, state: Portioned) -> Program[Portioned]:
        server = server_of(me)
        while step := (yield from NextStep(state)):
            batch = yield from Load(state.part.of(step.samples) if state.part else step.samples)
            begun_s = yield from Now()
            gradient = yield from Gradient(state.weights, batch)
            seconds = (yield from Now()) - begun_s
            yield from Send(server, Timed(gradient.vector, gradient.contribution(), seconds, step.samples.count))
            reply = (yield from Receive(server)).value
            if isinstance(reply, Stop):
                return state
            state = Portioned(step.number + 1, reply.weights, state.optimizer_state, reply.part)
        return state

    @program
    def server(self, me: RankContext, state: Balance) -> Program[Balance]:
        rule, build_team = self.rule(me.layout.layers), Crew(me)
        while step := (yield from NextStep(state)):
            message = yield from build_team.message()
            push: Timed = message.value
            gradient = self.weight(push) * push.vector
            yield from Charge("update", gradient.nbytes, where="host")
            vector, optimizer_state = rule.update(state.weights.vector, gradient, state.optimizer_state)
            version = yield from RecordUpdate(Weights(vector, state.weights.version), [push.origin])
            batches = handed_on(state.batches or (push.base,) * len(me.workers), build_team.living)
            estimates = self.measured(state.estimates or (None,) * len(me.workers), message.source, push)
            if (step.number + 1) % self.interval == 0:
                left = sorted(build_team.living)
                theirs = self.shared_out(tuple(batches[rank] for rank in left), [estimates[rank] for rank in left])
                batches = spread(theirs, left, len(batches))
            state = Balance(step.number + 1, Weights(vector, version), optimizer_state, batches, estimates)
            yield from Send(message.source, Portion(state.weights, state.part(message.source)))
        yield from dismiss(build_team)
        return state

    def weight(self, push: Timed) -> float:
        """b_i P / B: each sample counts the same, whoever computed it, and an epoch as much as with equal batches."""
        return push.origin.samples / push.base

    def measured(self, estimates: tuple[Estimate | None, ...], rank: Rank, push: Timed) -> tuple[Estimate | None, ...]:
        """With what a push says of its sender; a clock that has not moved says nothing."""
        if push.seconds <= 0:
            return estimates
        before, batch = estimates[rank], push.origin.samples
        now = before.seen(batch, push.seconds, self.smoothing) if before else Estimate(batch, push.seconds)
        return (*estimates[:rank], now, *estimates[rank + 1 :])

    def shared_out(self, batches: tuple[int, ...], estimates: Sequence[Estimate | None]) -> tuple[int, ...]:
        """The batches by what is known now; the same as before if somebody is unknown, or if little would change."""
        known = [estimate for estimate in estimates if estimate is not None]
        if len(known) < len(batches):
            return batches
        speeds, overheads = [one.speed for one in known], [one.overhead for one in known]
        wanted = apportion(sum(batches), speeds, overheads)
        return wanted if change(batches, wanted) > self.dead_band else batches


def handed_on(batches: tuple[int, ...], living: Collection[Rank]) -> tuple[int, ...]:
    """The batches when those of the dead have gone to the living, in equal shares.

    >>> handed_on((8, 8, 8), {Rank(0), Rank(2)})
    (12, 0, 12)
    """
    ranks = sorted(living)
    kept = [batches[rank] for rank in ranks]
    if (orphaned := sum(batches) - sum(kept)) == 0:
        return batches
    more = apportion(orphaned, [1] * len(ranks), least=0)
    return spread([own + part for own, part in zip(kept, more, strict=True)], ranks, len(batches))


def spread(batches: Sequence[int], ranks: Sequence[Rank], workers: int) -> tuple[int, ...]:
    """These ranks' batches among those of all workers; the others have none.

    >>> spread([5, 7], [Rank(0), Rank(2)], 3)
    (5, 0, 7)
    """
    of = dict(zip(ranks, batches, strict=True))
    return tuple(of.get(Rank(rank), 0) for rank in range(workers))
