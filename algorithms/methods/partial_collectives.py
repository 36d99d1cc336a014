"""Eager SGD: all-reduces that start before all workers have their gradients (partial collectives).

* Round t is the t-th all-reduce. All workers take part in all rounds in order, and apply all means in order, so that
  replicas are equal. A worker enters a round with its own gradient of step t; or it enters when it hears that the round
  has begun, with the gradients that it has not sent yet, or with zeros.
* A round becomes known by a flood: a worker that enters it tells its neighbours, once. Neighbours are positions whose
  numbers differ in one bit, so the flood takes at most log2 P messages in a row, rounded up. The number of messages of
  a round is fixed, so a worker knows how many it has to receive before it ends.
* Messages of one sender arrive in order, and a worker begins a round only after it has applied the round before. So a
  message is about the next round of its receiver, or about one that the receiver has entered already.
* A worker waits for messages together with its gradient or its mean, so it enters rounds while it computes. No other
  program runs beside it, and all that it remembers is in its state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np

from paceline.algorithms.core.guarantees import AppliedGradient, Guarantee, custom_guarantee
from paceline.algorithms.core.method import RankContext, SgdMethod, StalenessKind
from paceline.algorithms.core.operations import (
    AllReduce,
    Cancel,
    Charge,
    Gradient,
    Handle,
    Load,
    NextStep,
    Receive,
    RecordUpdate,
    Send,
    Start,
    Wait,
    WaitFor,
)
from paceline.algorithms.core.option_groups import COUNT, Range
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.traffic import COMBINE
from paceline.algorithms.core.values import Contribution, GradientResult, Message, Rank, Vector, Weights


@custom_guarantee("fresh-quorum", "every round has the fresh gradients that its kind of collective promises")
def fresh_quorum(job: Any, trace: Any) -> Iterator[str]:
    """Checks each round: that of the drawn worker in majority, of any worker in solo, of all in a synchronous round."""
    fresh: dict[int, set[Rank]] = {number: set() for number in range(trace.states[job.weights_owner].step)}
    for row in trace.updates:
        if row.staleness == 0:
            fresh[row.version_applied].add(row.rank)
    ranks = job.team[0].workers.ranks
    first = min((row.version_applied for row in trace.updates), default=0)  # a run may continue an earlier one
    for number in range(first, len(fresh)):
        needed = job.method.promised(number, ranks)
        if not needed <= fresh[number] or not fresh[number]:
            wanted = f"that of rank {', '.join(map(str, sorted(needed)))}" if needed else "one"
            contributors = f"of rank {', '.join(map(str, sorted(fresh[number])))}" if fresh[number] else "none"
            yield f"the fresh gradients of round {number} are {contributors}, promised {wanted} at least"


@custom_guarantee("gradients-kept", "every gradient is applied by a later round or kept unsent at the end")
def gradients_kept(_: Any, trace: Any) -> Iterator[str]:
    """Checks that no gradient is lost, and that none is both applied and kept."""
    computed = {(span.rank, span.step) for span in trace.spans if span.activity == "compute"}
    applied = {(row.rank, row.step) for row in trace.updates}
    unsent = [state.unsent.origins for state in trace.states.values() if state.unsent is not None]
    kept = {(origin.rank, origin.step) for origins in unsent for origin in origins}
    for rank, step in sorted(computed - applied - kept):
        yield f"the gradient of rank {rank}'s step {step} was neither applied nor kept"
    for rank, step in sorted(applied & kept):
        yield f"the gradient of rank {rank}'s step {step} was applied and is still kept"


@lru_cache(maxsize=1024)
def drawn(seed: int, number: int, workers: int) -> int:
    """Returns the position of the worker that begins a round of a majority all-reduce.

    Args:
        seed: of the method.
        number: of the round.
        workers: number of workers.

    >>> drawn(0, 1, 4) == drawn(0, 1, 4) < 4
    True
    """
    return int(np.random.default_rng([seed, number]).integers(workers))


def neighbours(me: RankContext) -> tuple[Rank, ...]:
    """Returns the workers whose positions differ from the rank's in one bit: 1 to log2 P of them, rounded up."""
    ranks = me.workers.ranks
    place = ranks.index(me.rank)
    flipped = (place ^ 1 << bit for bit in range((len(ranks) - 1).bit_length()))
    return tuple(ranks[other] for other in flipped if other < len(ranks))


@dataclass(frozen=True, slots=True)
class Begun:
    """Tells a neighbour that the sender has entered a round."""

    number: int


@dataclass(frozen=True, slots=True)
class Unsent:
    """The sum of the gradients that a worker has computed and not yet contributed to a round."""

    vector: Any
    origins: tuple[Contribution, ...]


@dataclass(frozen=True, slots=True)
class EnteredRound:
    """A round that a worker has entered: its mean in flight, and the worker's gradients in it."""

    mean: Handle[Vector]
    origins: tuple[Contribution, ...]


@dataclass(frozen=True, slots=True)
class Eager:
    """A replica, and the rounds that it has entered ahead of its own step."""

    step: int
    weights: Weights
    optimizer_state: Any = None
    unsent: Unsent | None = None
    """None: nothing; the contribution to a round is then zero"""
    entered: int = 0
    """the number of rounds that the worker has entered"""
    ahead: tuple[EnteredRound, ...] = ()
    """the last of them, whose means are not applied yet; the first is the round of the next step"""
    heard: int = 0
    """messages received"""
    hearing: Handle[Message] | None = None
    """the next message; None without neighbours, before the start and after the end"""


@dataclass(frozen=True, kw_only=True)
class EagerSgd(SgdMethod):
    """All-reduces that do not wait for slow workers, whose gradients are added to a later one.

    worker i, with g at x_t:  u_i ← u_i + g;  begin round t, or wait until it has begun, unless i has entered it
    when round t begins:      c_i ← u_i;  u_i ← 0;  all-reduce t of c_i
    then:                     x_{t+1} ← x_t − η (1/P) Σ_i c_i

    The first worker begins a round (solo), or a random one (majority), and all others enter it at once, also while they
    compute: with gradients of earlier steps, or with zero. Every `sync_every`-th round waits for all workers.
    """

    name = "eager-sgd"
    staleness_kind = StalenessKind.STEPS
    source = (
        "Li, Ben-Nun, Di Girolamo, Alistarh, Hoefler, 'Taming Unbalanced Training Workloads in Deep Learning with "
        "Partial Collective Operations', PPoPP'20, arXiv 1908.04207; the authors' code (Shigangli/eager-SGD)"
    )
    guarantees = frozenset({Guarantee.REPLICAS_EQUAL, Guarantee.BOUNDED_STALENESS, fresh_quorum, gradients_kept})

    ranges: ClassVar[Mapping[str, Range]] = {"sync_every": COUNT}

    collective: Literal["solo", "majority"] = "majority"
    """who begins a round: the first worker that has its gradient, or a worker drawn for the round, which is in the
    middle of the order of arrival on average; provenance: both are the source's, the default is ours"""
    sync_every: int = 33
    """the last of so many rounds begins when all workers have their gradients, which bounds staleness; provenance: the
    authors' solo collective has 32 rounds between two synchronous ones; their majority collective has none"""
    seed: int = 0
    """seed of the workers that begin the rounds of a majority, the same on all workers; provenance: ours, independent
    of the run's seed, so that runs with several seeds differ only in their data"""

    def bounds(self, workers: int) -> Mapping[Guarantee, float]:
        return {Guarantee.BOUNDED_STALENESS: self.sync_every - 1}

    def longest_period(self, workers: int) -> int:
        return self.sync_every

    def gradient_weight(self, gradient: AppliedGradient) -> float:
        """Returns η / (1 − μ) / P, with η of the round that applies the gradient."""
        return self.learning_rate_at(gradient.version) / (1 - self.momentum) / gradient.workers

    def partial(self, number: int) -> bool:
        """Returns whether a round begins before all workers have their gradients.

        Args:
            number: of the round.
        """
        return (number + 1) % self.sync_every != 0

    def promised(self, number: int, workers: Sequence[Rank]) -> frozenset[Rank]:
        """Returns the workers whose gradients of a step are certainly in the round of that step.

        Args:
            number: of the round.
            workers: all workers.
        """
        if not self.partial(number):
            return frozenset(workers)
        return (
            frozenset() if self.collective == "solo" else frozenset({workers[drawn(self.seed, number, len(workers))]})
        )

    def begins(self, me: RankContext, number: int) -> bool:
        """Returns whether a worker with its gradient begins a round, if no other has begun it.

        Args:
            me: the worker.
            number: of the round.
        """
        promised = self.promised(number, me.workers.ranks)
        return not promised or me.rank in promised

    def begin(self, me: RankContext, vector: Any) -> Eager:
        return Eager(0, Weights(vector, 0), self.rule(me.layout.layers).init(vector))

    @program
    def worker(self, me: RankContext, state: Eager) -> Program[Eager]:
        rule = self.rule(me.layout.layers)
        if state.hearing is None and neighbours(me):
            state = replace(state, hearing=(yield from Start(Receive())))
        while step := (yield from NextStep(state)):
            batch = yield from Load(step.samples)
            computing = yield from Start(Gradient(state.weights, batch))
            state, gradient = yield from self.until(me, state, computing)
            state = yield from add(state, gradient)
            if state.entered == step.number and self.begins(me, step.number):
                state = yield from self.enter_round(me, state)
            while state.entered == step.number:
                assert state.hearing is not None, "a worker without neighbours begins every round"
                state = yield from self.hear(me, state, (yield from Wait(state.hearing)))
            state, mean = yield from self.until(me, state, state.ahead[0].mean)
            yield from rule.charge(mean.nbytes)
            vector, optimizer_state = rule.update(state.weights.vector, mean, state.optimizer_state)
            part, *ahead = state.ahead
            version = yield from RecordUpdate(Weights(vector, state.weights.version), part.origins)
            state = replace(
                state,
                step=step.number + 1,
                weights=Weights(vector, version),
                optimizer_state=optimizer_state,
                ahead=tuple(ahead),
            )
        return (yield from self.receive_the_rest(me, state))

    @program
    def until(self, me: RankContext, state: Eager, handle: Handle[Any]) -> Program[tuple[Eager, Any]]:
        """Waits for a gradient or a mean, and meanwhile enters the rounds that have begun.

        If it is done at the same time as a message, the message has to wait: the gradient is then in the round.

        Args:
            me: the worker.
            state: its state.
            handle: the gradient or the mean.

        Returns:
            The new state, and the answer of the handle.
        """
        while True:
            waiting = [handle] if state.hearing is None else [handle, state.hearing]
            done = dict((yield from WaitFor(waiting, "any")))
            if 0 in done:
                return state, done[0]
            state = yield from self.hear(me, state, done[1])

    @program
    def hear(self, me: RankContext, state: Eager, message: Message) -> Program[Eager]:
        """Enters the round of a message, unless the worker has done so.

        Args:
            me: the worker.
            state: its state.
            message: the answer of `state.hearing`.

        Returns:
            The new state, which waits for the next message.
        """
        state = replace(state, heard=state.heard + 1, hearing=(yield from Start(Receive())))
        if message.value.number == state.entered:
            state = yield from self.enter_round(me, state)
        return state

    @program
    def enter_round(self, me: RankContext, state: Eager) -> Program[Eager]:
        """Enters the next round with all that has not been sent yet, and tells the neighbours if it is a partial one.

        Args:
            me: the worker.
            state: its state.

        Returns:
            The new state.
        """
        number, unsent = state.entered, state.unsent
        if self.partial(number):
            for neighbour in neighbours(me):
                yield from Send(neighbour, Begun(number))
        value, origins = (0 * state.weights.vector, ()) if unsent is None else (unsent.vector, unsent.origins)
        mean = yield from Start(AllReduce(value=value, group=me.workers, key=f"gradient {number}"))
        return replace(state, unsent=None, entered=number + 1, ahead=(*state.ahead, EnteredRound(mean, origins)))

    @program
    def receive_the_rest(self, me: RankContext, state: Eager) -> Program[Eager]:
        """Receives what the neighbours have still to send about rounds that are over.

        Args:
            me: the worker.
            state: its state after its last step.

        Returns:
            The state, with nothing in flight.
        """
        announced = sum(map(self.partial, range(state.step))) * len(neighbours(me))
        while state.hearing is not None and state.heard < announced:
            yield from Wait(state.hearing)
            hearing = (yield from Start(Receive())) if state.heard + 1 < announced else None
            state = replace(state, heard=state.heard + 1, hearing=hearing)
        if state.hearing is not None:
            yield from Cancel(state.hearing)
        return replace(state, hearing=None)


@program
def add(state: Eager, gradient: GradientResult) -> Program[Eager]:
    """Adds a gradient to those that a worker has not sent yet.

    Args:
        state: of the worker.
        gradient: its own.

    Returns:
        The new state.
    """
    vector, origin, before = gradient.vector, gradient.contribution(), state.unsent
    if before is None:
        return replace(state, unsent=Unsent(vector, (origin,)))
    yield from Charge("update", vector.nbytes, traffic=COMBINE)
    return replace(state, unsent=Unsent(before.vector + vector, (*before.origins, origin)))
