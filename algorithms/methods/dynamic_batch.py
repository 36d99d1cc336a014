"""Dynamic batch sizes: each worker gets a batch for which all workers take the same time.

A worker measures its gradients with `Now`, which is recorded, so a replay divides the batch in the same way. The
current batches are `batches` in the state of the server, or of every worker where there is none. Their sum is always
the total. A worker of a server receives its batch with its next answer, so one gradient computed meanwhile may still
have the old size. The part of a worker that has died is divided equally among the others, until the next adjustment.

Divides a batch among nodes of different speed. Pure functions, exact if their arguments are.

A node needs t = o + b / v seconds for b samples: an overhead o, and 1 / v for each sample. All nodes take the same time
T with the shares b_i = v_i (T − o_i) of a total B, where T follows from Σ b_i = B. Shares are rounded by the method of
largest remainders, so the sum is exactly B and each share changes by less than one sample.

Everything is computed in fractions, because rounding errors would decide ties and sometimes lose a sample.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Literal, Self

from paceline.algorithms.core.guarantees import Guarantee
from paceline.algorithms.core.method import RankContext, Replica, SgdMethod, StalenessKind, changed
from paceline.algorithms.core.operations import Gradient, Load, NextStep, Now, Receive, RecordUpdate, Send
from paceline.algorithms.core.option_groups import COUNT, NOT_NEGATIVE, SHARE, Range
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.steps import apply_gradient, average_gradient
from paceline.algorithms.core.traffic import SCALE
from paceline.algorithms.core.values import Contribution, Rank, Samples, Vector, Weights
from paceline.algorithms.methods.parameter_server import ServerStopped, dismiss, server_of
from paceline.algorithms.methods.survivors import LivingWorkers, survives

APART = 0.05
"""minimum standard deviation of a node's batches, relative to their mean, for fitting its overhead; provenance: ours"""
MOST = 0.9
"""maximum fraction of a step that counts as overhead; provenance: ours"""
Number = float | Fraction
Weighting = Literal["samples", "equal"]
ZERO = Fraction(0)


def quotas(total: int, speeds: Sequence[Number], overheads: Sequence[Number] = (), least: int = 0) -> list[Fraction]:
    """Returns the unrounded shares with which all nodes take the same time.

    b_i = max(least, v_i (T − o_i)), Σ b_i = B

    Args:
        total: B, in samples; at least `least` for each node.
        speeds: v, in samples per second, above 0.
        overheads: o, in seconds per batch; empty: all 0.
        least: the minimum share of a node, in samples.

    >>> quotas(8, [1.0, 3.0])
    [Fraction(2, 1), Fraction(6, 1)]
    >>> quotas(8, [1.0, 1.0], overheads=[0.0, 2.0])
    [Fraction(5, 1), Fraction(3, 1)]
    """
    exact = [Fraction(speed) for speed in speeds]
    fixed = [Fraction(overhead) for overhead in overheads] or [ZERO] * len(exact)
    above = set(range(len(exact)))
    while above:
        rest = total - least * (len(exact) - len(above))
        end = (rest + sum((exact[i] * fixed[i] for i in above), ZERO)) / sum((exact[i] for i in above), ZERO)
        low = {i for i in above if exact[i] * (end - fixed[i]) < least}
        if not low:
            break
        above -= low
    shares = [Fraction(least)] * len(exact)
    for i in above:
        shares[i] = exact[i] * (end - fixed[i])
    return shares


def rounded(shares: Sequence[Fraction]) -> tuple[int, ...]:
    """Rounds shares to integers with the same sum: the largest remainders are rounded up, ties by index.

    >>> rounded([Fraction(5, 2), Fraction(7, 2), Fraction(2)])
    (3, 3, 2)
    """
    whole = [share.numerator // share.denominator for share in shares]
    left = int(sum(shares)) - sum(whole)
    largest = sorted(range(len(shares)), key=lambda i: (whole[i] - shares[i], i))[:left]
    return tuple(count + (i in largest) for i, count in enumerate(whole))


def apportion(
    total: int, speeds: Sequence[Number], overheads: Sequence[Number] = (), *, least: int = 1
) -> tuple[int, ...]:
    """Divides a batch among nodes such that all take about the same time.

    Args:
        total: B, in samples; at least `least` for each node.
        speeds: v, in samples per second, above 0.
        overheads: o, in seconds per batch; empty: all 0.
        least: the minimum share of a node, in samples.

    Returns:
        The batch of each node, in samples.

    >>> apportion(512, [8, 4, 4, 2, 2, 1, 1, 1])
    (178, 89, 89, 45, 45, 22, 22, 22)
    """
    return rounded(quotas(total, speeds, overheads, least))


def change(old: Sequence[int], new: Sequence[int]) -> float:
    """Returns the largest relative change of a batch.

    Args:
        old: the batches before, in samples, above 0.
        new: the batches after, in the same order.

    >>> change([10, 30], [12, 28])
    0.2
    """
    return max(abs(after - before) / before for before, after in zip(old, new, strict=True))


@dataclass(frozen=True, slots=True)
class Estimate:
    """Estimates speed and overhead of a node from exponentially weighted moments of its batches and their times.

    Fitting the line t = o + b / v requires batches that differ. Until they do, o is 0; when they no longer do, o keeps
    its last value and v follows from the means: v = b̄ / (t̄ − o).

    >>> seen = Estimate(10, 3.0).seen(20, 5.0, weight=0.5)
    >>> round(seen.overhead, 6), round(seen.speed, 6)
    (1.0, 5.0)
    """

    batch: float
    """b̄, in samples"""
    seconds: float
    """t̄"""
    variance: float = 0.0
    """of batches"""
    covariance: float = 0.0
    """of batches and seconds"""
    overhead: float = 0.0
    """o, in seconds"""

    @property
    def speed(self) -> float:
        """v, in samples per second."""
        return self.batch / (self.seconds - self.overhead)

    def seen(self, batch: int, seconds: float, weight: float) -> Estimate:
        """Returns the estimate after one more measurement.

        Args:
            batch: in samples.
            seconds: the time of the batch.
            weight: of the measurement in the means, above 0, up to 1.
        """
        wider, longer = batch - self.batch, seconds - self.seconds
        mean, mean_s = self.batch + weight * wider, self.seconds + weight * longer
        variance = (1 - weight) * (self.variance + weight * wider * wider)
        covariance = (1 - weight) * (self.covariance + weight * wider * longer)
        overhead = self.overhead
        if variance > (APART * mean) ** 2:
            overhead = mean_s - covariance / variance * mean
        return Estimate(mean, mean_s, variance, covariance, min(max(overhead, 0.0), MOST * mean_s))


@dataclass(frozen=True, slots=True)
class Timed:
    """A worker's gradient, its origin, its duration, and the mean batch of a worker."""

    vector: Any
    origin: Contribution
    seconds: float
    base: float


@dataclass(frozen=True, slots=True)
class BatchPart:
    """A worker's part of the global batch, see `Samples`."""

    count: int
    before: int
    together: int

    @staticmethod
    def of_rank(rank: Rank, batches: Sequence[int]) -> BatchPart:
        """Returns the part of a worker if these are the batches of all, by rank."""
        return BatchPart(batches[rank], sum(batches[:rank]), sum(batches))

    def of(self, samples: Samples) -> Samples:
        """Returns these samples with this part of the global batch and its weight."""
        return samples.share(self.count, self.before, self.together)


@dataclass(frozen=True, slots=True)
class Portion:
    """The server's answer: new weights, and the worker's new part."""

    weights: Weights
    part: BatchPart


@dataclass(frozen=True, slots=True)
class Portioned:
    """The state of a worker; `part` is None until it has received one."""

    step: int
    weights: Weights
    optimizer_state: Any = None
    part: BatchPart | None = None


@dataclass(frozen=True, slots=True)
class Balance:
    """The state of the server: `batches` are the current ones, by rank; empty before the first gradient."""

    step: int
    weights: Weights
    optimizer_state: Any = None
    batches: tuple[int, ...] = ()
    estimates: tuple[Estimate | None, ...] = ()

    def part(self, rank: Rank) -> BatchPart:
        """Returns a worker's part of the global batch."""
        return BatchPart.of_rank(rank, self.batches)


@dataclass(frozen=True, slots=True)
class Balanced(Replica):
    """The state of a synchronous worker: the batches of all, empty before the first change, and its own estimate."""

    batches: tuple[int, ...] = ()
    estimate: Estimate | None = None


@dataclass(frozen=True, kw_only=True)
class MeasuredBatches(SgdMethod):
    """Base of the methods whose batches follow measured speeds: when they change, and what to."""

    ranges: ClassVar[Mapping[str, Range]] = {"interval": COUNT, "smoothing": SHARE, "dead_band": NOT_NEGATIVE}

    interval: int = 32
    """updates between two adjustments of the batches; provenance: ours, the paper's interval was not found"""
    smoothing: float = 0.2
    """weight of a new measurement in a node's means, above 0, up to 1; provenance: ours"""
    dead_band: float = 0.1
    """batches do not change if no worker's would change by more than this fraction; provenance: ours, OmniLearn's code
    has 0.2"""

    def seen(self, before: Estimate | None, batch: int, seconds: float) -> Estimate | None:
        """Returns the estimate of a worker after a gradient; unchanged if the clock has not advanced.

        Args:
            before: the estimate before it; None before the first gradient.
            batch: its samples.
            seconds: its duration.
        """
        if seconds <= 0:
            return before
        return before.seen(batch, seconds, self.smoothing) if before else Estimate(batch, seconds)

    def rebalanced(self, batches: tuple[int, ...], estimates: Sequence[Estimate | None]) -> tuple[int, ...]:
        """Returns batches by the current estimates; unchanged if one is missing or if the change would be small.

        Args:
            batches: the current batches of the living workers.
            estimates: in the same order.
        """
        known = [estimate for estimate in estimates if estimate is not None]
        if len(known) < len(batches):
            return batches
        speeds, overheads = [estimate.speed for estimate in known], [estimate.overhead for estimate in known]
        wanted = apportion(sum(batches), speeds, overheads)
        return wanted if change(batches, wanted) > self.dead_band else batches


@dataclass(frozen=True, kw_only=True)
class DbsSgd(MeasuredBatches):
    """Asynchronous SGD in which each worker's batch depends on its speed, so that all take about the same time for one.

    server, on push g of b_i samples from i:  x ← x − η (b_i P / B) g;  version ← version + 1;  reply x, b_i
    now and then:                             b_i ← v_i (T − o_i), rounded, with T from Σ b_i = B

    B is the sum of the batches of the scenario, which are the initial ones. A worker sends the duration of its
    gradient, without waiting; the server fits t = o + b / v to the durations of each worker. Even if the fit is wrong,
    batches that no longer change are right: they make the measured times equal, regardless of the fitted o and v.
    """

    name = "dbs-sgd"
    staleness_kind = StalenessKind.VERSION_LAG
    source = "Ji et al., J. Comp. R&D 56(11), 2019, from its abstract; formulas: see the page"
    guarantees = frozenset({Guarantee.CONSTANT_TOTAL, Guarantee.CONSERVES_MESSAGES, Guarantee.SURVIVES_WORKERS})
    has_server: ClassVar[bool] = True

    weighting: Weighting = "samples"
    """factor of a gradient at the server: samples b_i P / B, equal 1; provenance: ours, the paper's was not found"""

    def longest_period(self, workers: int) -> int:
        return -(-self.interval // workers)  # the interval counts the updates of all workers

    def bounds(self, workers: int) -> Mapping[Guarantee, float]:
        return survives(workers - 1)

    def begin(self, me: RankContext, vector: Vector) -> Portioned | Balance:
        kind = Balance if me.role == "server" else Portioned
        return kind(0, Weights(vector, 0), self.rule(me.layout.layers).init(vector))

    @program
    def worker(self, me: RankContext, state: Portioned) -> Program[Portioned]:
        server, base = server_of(me), sum(me.batches) / len(me.batches)
        while step := (yield from NextStep(state)):
            own = state.part.of(step.samples) if state.part else step.samples
            batch = yield from Load(replace(own, weight=1.0))  # the server weighs
            begun_s = yield from Now()
            gradient = yield from Gradient(state.weights, batch)
            seconds = (yield from Now()) - begun_s
            yield from Send(server, Timed(gradient.vector, gradient.contribution(), seconds, base))
            reply = (yield from Receive(server)).value
            if isinstance(reply, ServerStopped):
                return state
            state = Portioned(step.number + 1, reply.weights, state.optimizer_state, reply.part)
        return state

    @program
    def server(self, me: RankContext, state: Balance) -> Program[Balance]:
        rule, team = self.rule_of(me), LivingWorkers(me)
        while step := (yield from NextStep(state)):
            message = yield from team.message()
            push: Timed = message.value
            gradient = self.weight(push) * push.vector
            yield from rule.charge(gradient.nbytes, "host", also=SCALE)
            vector, optimizer_state = rule.update(state.weights.vector, gradient, state.optimizer_state)
            version = yield from RecordUpdate(Weights(vector, state.weights.version), [push.origin])
            batches = redistributed(state.batches or me.batches, team.living)
            estimates = self.measured(state.estimates or (None,) * len(me.workers), message.source, push)
            if (step.number + 1) % self.interval == 0:
                left = sorted(team.living)
                assigned = self.rebalanced(tuple(batches[rank] for rank in left), [estimates[rank] for rank in left])
                batches = by_rank(assigned, left, len(batches))
            state = Balance(step.number + 1, Weights(vector, version), optimizer_state, batches, estimates)
            yield from Send(message.source, Portion(state.weights, state.part(message.source)))
        yield from dismiss(team)
        return state

    def linear_form(self) -> Self:
        return changed(super().linear_form(), weighting="samples")  # every sample counts as much, as the check expects

    def weight(self, push: Timed) -> float:
        """Returns b_i P / B: each sample has the same weight, and an epoch the same effect as with equal batches.

        With equal weighting it is 1: a sample of a small batch counts more.
        """
        return push.origin.samples / push.base if self.weighting == "samples" else 1.0

    def measured(self, estimates: tuple[Estimate | None, ...], rank: Rank, push: Timed) -> tuple[Estimate | None, ...]:
        """Updates the estimate of a worker by the duration in a push; ignored if the clock has not advanced.

        Args:
            estimates: by rank.
            rank: the sender.
            push: its gradient.
        """
        now = self.seen(estimates[rank], push.origin.samples, push.seconds)
        return (*estimates[:rank], now, *estimates[rank + 1 :])


@dataclass(frozen=True, kw_only=True)
class SyncDbsSgd(MeasuredBatches):
    """Synchronous SGD in which each worker's batch depends on its speed, so that nobody waits for the slowest.

    x ← x − η Σ_i (b_i / B) g_i(x)
    every `interval` steps:  b_i ← v_i (T − o_i), rounded, with T from Σ b_i = B

    B is the sum of the batches of the scenario, which are the initial ones. Each worker measures its own gradients; the
    first worker collects the estimates, divides B as `dbs-sgd` does, and sends all batches to everyone. Every sample
    counts as much, so the step is that of one worker with the global batch, whoever computes which part.
    """

    name = "sync-dbs-sgd"
    staleness_kind = StalenessKind.STEPS
    source = "Chen, Weng, Wang, Li, Li, 'Semi-dynamic load balancing', SoCC'20 (LB-BSP); formulas of dbs-sgd"
    guarantees = frozenset(
        {Guarantee.SYNCHRONOUS, Guarantee.REPLICAS_EQUAL, Guarantee.CONSTANT_TOTAL, Guarantee.CONSERVES_MESSAGES}
    )

    @property
    def even_steps(self) -> bool:
        return True  # all workers together use the global batch in each step

    def longest_period(self, workers: int) -> int:
        return self.interval

    def begin(self, me: RankContext, vector: Vector) -> Balanced:
        return Balanced(0, Weights(vector, 0), self.rule(me.layout.layers).init(vector))

    @program
    def worker(self, me: RankContext, state: Balanced) -> Program[Balanced]:
        rule = self.rule_of(me)
        while step := (yield from NextStep(state)):
            samples = BatchPart.of_rank(me.rank, state.batches).of(step.samples) if state.batches else step.samples
            batch = yield from Load(samples)
            begun_s = yield from Now()
            gradient = yield from Gradient(state.weights, batch)
            seconds = (yield from Now()) - begun_s
            estimate = self.seen(state.estimate, gradient.samples, seconds)
            mean = yield from average_gradient(gradient, me.workers, f"gradient {step.number}")
            state = yield from apply_gradient(rule, replace(state, estimate=estimate), mean)
            if (step.number + 1) % self.interval == 0:
                state = replace(state, batches=(yield from self.agreed(me, state)))
        return state

    @program
    def agreed(self, me: RankContext, state: Balanced) -> Program[tuple[int, ...]]:
        """Returns the batches of all workers, which the first one computes from everyone's estimate."""
        first, *others = me.workers.ranks
        if me.rank != first:
            yield from Send(first, state.estimate)
            batches: tuple[int, ...] = (yield from Receive(first)).value
            return batches
        estimates = [state.estimate]
        for rank in others:
            estimates.append((yield from Receive(rank)).value)
        batches = self.rebalanced(state.batches or me.batches, estimates)
        for rank in others:
            yield from Send(rank, batches)
        return batches


def redistributed(batches: tuple[int, ...], living: Collection[Rank]) -> tuple[int, ...]:
    """Divides the batches of dead workers equally among the living.

    Args:
        batches: by rank.
        living: the living workers.

    >>> redistributed((8, 8, 8), {Rank(0), Rank(2)})
    (12, 0, 12)
    """
    ranks = sorted(living)
    kept = [batches[rank] for rank in ranks]
    if (orphaned := sum(batches) - sum(kept)) == 0:
        return batches
    more = apportion(orphaned, [1] * len(ranks), least=0)
    return by_rank([own + part for own, part in zip(kept, more, strict=True)], ranks, len(batches))


def by_rank(batches: Sequence[int], ranks: Sequence[Rank], workers: int) -> tuple[int, ...]:
    """Returns the batches of all workers by rank; 0 for workers not in `ranks`.

    Args:
        batches: one for each of the ranks.
        ranks: the ranks.
        workers: number of all workers.

    >>> by_rank([5, 7], [Rank(0), Rank(2)], 3)
    (5, 0, 7)
    """
    of = dict(zip(ranks, batches, strict=True))
    return tuple(of.get(Rank(rank), 0) for rank in range(workers))
