"""Asynchronous DiLoCo: a server applies each worker's round of local steps by an outer optimizer when it arrives.

A worker sends what a round has changed, its pseudo-gradient, and waits for the weights of its next round. The answer to
a push also has the number of steps of the next round. A worker that measures its steps with `Now` sends the seconds
with its push; `Now` is recorded, so a replay gives every worker the same numbers of steps. A stop loses no round:
workers finish theirs, and the stopped server keeps what it has not applied in its state.

The outer optimizers of a server that applies pseudo-gradients one by one, as they arrive.

Plain momenta are those of `outer_step`, which `diloco` uses; this file adds the delay.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal, Self

from paceline.algorithms.core.guarantees import AnyGuarantee, AppliedGradient, Guarantee
from paceline.algorithms.core.method import FADING, RankContext, StalenessKind, changed
from paceline.algorithms.core.operations import Charge, NextStep, Now, Receive, RecordUpdate, Send
from paceline.algorithms.core.option_groups import COUNT, FRACTION, NOT_NEGATIVE, POSITIVE, SHARE, Range
from paceline.algorithms.core.program import Program, Routine, program
from paceline.algorithms.core.rules import Chain
from paceline.algorithms.core.steps import unrecorded_step
from paceline.algorithms.core.traffic import COMBINE, NOTHING, SCALE, Traffic
from paceline.algorithms.core.values import Contribution, Group, Rank, Step, Weights
from paceline.algorithms.methods.outer import HEAVY_BALL, NESTEROV, InnerOptimizer, outer_step
from paceline.algorithms.methods.parameter_server import ServerStopped, server_of
from paceline.algorithms.methods.ssp import Packet, ServerState, WorkerState, close
from paceline.algorithms.methods.survivors import LivingWorkers, survives

OuterKind = Literal["delayed-nesterov", "nesterov", "heavy-ball", "sgd"]


@dataclass(frozen=True, slots=True)
class OuterMemory:
    """The memory of an outer optimizer."""

    number: int
    """pseudo-gradients applied"""
    velocity: Any
    """V; None without momentum"""
    total: Any = None
    """the sum of the pseudo-gradients since the last update of a delayed V; None if there is none"""


@dataclass(frozen=True, slots=True)
class OuterOptimizer:
    """Applies one pseudo-gradient Δ to the weights x.

    delayed-nesterov, arrival t = 1, 2, …:
        if N divides t:  V ← M V + (1/N) Σ of the last N Δ;  x ← x − R (Δ/N + (1 − c (N − 1)) M V)
        else:            x ← x − R (Δ/N + c M V)
    nesterov:            V ← M V + Δ;  x ← x − R (Δ + M V)
    heavy-ball:          V ← M V + Δ;  x ← x − R V
    sgd:                 x ← x − R Δ

    With N = 1 the delayed form is plain Nesterov, whatever c is. With c = 0, N pseudo-gradients move x as one step of
    plain Nesterov with their mean does. With c = 1/N each of the N arrivals gets an equal part of the momentum.

    Args:
        kind: the form.
        learning_rate: R.
        momentum: M; not used by sgd.
        count: N, the arrivals between two updates of a delayed V.
        c: the part of the momentum in each arrival between two updates of a delayed V, from 0 to 1/N.

    Source: Liu et al. 2024, arXiv 2401.09135, Algorithm 3, as implemented in HALoS (utnslab/halos); see the page of
    `async-diloco`.

    >>> import numpy as np
    >>> x, rule = np.array([1.0]), OuterOptimizer("delayed-nesterov", learning_rate=0.5, momentum=0.5, count=2)
    >>> memory = rule.init(x)
    >>> for _ in range(2):
    ...     x, memory = rule.update(x, np.array([1.0]), memory)
    >>> float(x[0]), float(memory.velocity[0])  # − 0.5 · 1/2, then − 0.5 (1/2 + 0.5 · 1)
    (0.25, 1.0)
    """

    kind: OuterKind
    learning_rate: float
    momentum: float
    count: int = 1
    c: float = 0.0

    def problems(self, given: int | None, prefix: str = "") -> list[str]:
        """Returns the errors of N and c, which only a delayed momentum has.

        Args:
            given: the scenario's N; None: none.
            prefix: of the names of the hyper-parameters.
        """
        problems, most = [], 1 / max(1, self.count)
        if self.kind != "delayed-nesterov":
            without = f"with {prefix}outer = {self.kind}, which does not delay its momentum"
            if given is not None:
                problems.append(f"{prefix}buffer_size: found {given}, expected none {without}")
            if self.c:
                problems.append(f"{prefix}c: found {self.c!r}, expected 0 {without}")
        elif self.c > most:
            problems.append(f"{prefix}c: found {self.c!r}, expected at most 1/N = {most:.4g}")
        return problems

    def init(self, vector: Any) -> OuterMemory:
        """Returns the memory before the first arrival."""
        return OuterMemory(0, None if self.kind == "sgd" else 0 * vector)

    def update(self, vector: Any, change: Any, memory: OuterMemory) -> tuple[Any, OuterMemory]:
        """Takes a step.

        Args:
            vector: x, the weights.
            change: Δ, a vector of the same shape and type.
            memory: the result of `init` or of the last step.

        Returns:
            The new weights and the new memory.
        """
        number = memory.number + 1
        if self.kind == "sgd":
            return vector - self.learning_rate * change, OuterMemory(number, None)
        if self.kind == "delayed-nesterov":
            direction, memory = self._delayed(change, memory)
            return vector - self.learning_rate * direction, memory
        plain = partial(outer_step, nesterov=self.kind == "nesterov")
        vector, velocity = plain(vector, memory.velocity, change, self.learning_rate, self.momentum)
        return vector, OuterMemory(number, velocity)

    def _delayed(self, change: Any, memory: OuterMemory) -> tuple[Any, OuterMemory]:
        """Returns the direction of a step with delayed momentum, and the new memory."""
        number, part = memory.number + 1, self._mean(change)
        total = change if memory.total is None else memory.total + change
        if number % self.count == 0:
            velocity = self.momentum * memory.velocity + self._mean(total)
            share = (1 - self.c * (self.count - 1)) * self.momentum
            return part + share * velocity, OuterMemory(number, velocity)
        if self.c:
            part = part + self.c * self.momentum * memory.velocity
        return part, OuterMemory(number, memory.velocity, total)

    def _mean(self, vector: Any) -> Any:
        return vector / self.count if self.count > 1 else vector  # a division by 1 would only cost time

    def traffic(self, memory: OuterMemory) -> Traffic:
        """Returns the memory traffic of `update` with this memory."""
        step, momentum = SCALE + COMBINE, SCALE + COMBINE
        if self.kind == "sgd":
            return step
        if self.kind == "heavy-ball":
            return HEAVY_BALL
        if self.kind == "nesterov":
            return NESTEROV
        before = NOTHING if memory.total is None else COMBINE
        mean = SCALE if self.count > 1 else NOTHING
        if (memory.number + 1) % self.count == 0:
            return before + 2 * (mean + momentum) + step
        return before + mean + (momentum if self.c else NOTHING) + step


@dataclass(frozen=True, slots=True, eq=False)
class PseudoGradient(Packet):
    """The pseudo-gradient of a round, the gradients in it, and the seconds of its steps; 0 if they are not measured."""

    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class RoundStart:
    """The server's answer: the weights from which the next round begins, and its number of steps."""

    weights: Weights
    steps: int


@dataclass(frozen=True, slots=True)
class RoundState(WorkerState):
    """A worker in a round."""

    start: Any = None
    """the weights with which the round began"""
    steps: int = 1
    """H_i, the steps of the round"""
    origins: tuple[Contribution, ...] = ()
    """the gradients of the round so far"""
    seconds: float = 0.0
    """the duration of these steps, if they are measured"""

    def next_round(self, answer: RoundStart) -> Self:
        """Returns the state at the start of the next round; the inner optimizer keeps its memory."""
        start, steps = answer.weights.vector, answer.steps
        return replace(self, weights=answer.weights, waits=False, start=start, steps=steps, origins=(), seconds=0.0)


@dataclass(frozen=True, slots=True)
class AsyncServer(ServerState):
    """The state of the server; `step_s` has the mean seconds of a local step by rank, None if not yet measured."""

    step_s: tuple[float | None, ...] = ()


@dataclass(frozen=True, kw_only=True)
class AsyncDiLoCo(InnerOptimizer):
    """DiLoCo without rounds in step: the server applies each worker's round on arrival, by a delayed Nesterov momentum.

    worker i, H_i times:             x_i ← one step of the inner optimizer
    then:                            push Δ = x' − x_i;  x_i, x', H_i ← the answer
    server, on arrival t = 1, 2, …:  V, x ← one step of the outer optimizer with Δ
    outer = delayed-nesterov:        if N divides t:  V ← M V + (1/N) Σ of the last N Δ;
                                                      x ← x − R (Δ/N + (1 − c (N − 1)) M V)
                                     else:            x ← x − R (Δ/N + c M V)
    H_i = ⌊(v_i / v_max) H⌋, at least 1, with v_i the speed of worker i in steps per second

    x' are the weights with which the round began. The inner optimizer is that of `diloco`, and each worker keeps its
    state from round to round. No staleness is bounded: a worker never waits for another one, so while one computes a
    round the others may apply any number of theirs.
    """

    name = "async-diloco"
    staleness_kind = StalenessKind.VERSION_LAG
    source = "Liu et al. 2024, 'Asynchronous Local-SGD Training for Language Modeling', arXiv 2401.09135, Algorithm 3"
    guarantees: ClassVar[frozenset[AnyGuarantee]] = frozenset(
        {Guarantee.CONSERVES_MESSAGES, Guarantee.SURVIVES_WORKERS}
    )
    has_server: ClassVar[bool] = True
    ranges: ClassVar[Mapping[str, Range]] = {
        "outer_learning_rate": POSITIVE,
        "outer_momentum": FRACTION,
        "buffer_size": COUNT,
        "c": NOT_NEGATIVE,
        "smoothing": SHARE,
    }

    period: int = 8
    """H, inner steps in a round of the fastest worker; provenance: as in diloco"""
    outer_learning_rate: float = 0.7
    """R; provenance: as in diloco; with outer = nesterov the authors' notebook has 0.07, of pseudo-gradients that it
    divides by √P"""
    outer_momentum: float = 0.9
    """M; provenance: as in diloco; the authors' notebook has the same"""

    outer: OuterKind = "delayed-nesterov"
    """the outer optimizer; the others are those with which the source compares its own; sgd does not use M"""
    buffer_size: int | None = None
    """N, the arrivals between two updates of a delayed momentum; None: the number of workers; provenance: the authors'
    notebook adds up as many pseudo-gradients as it has workers; the paper's value was not found in text"""
    c: float = 0.0
    """the part of the momentum in each arrival between two updates of it, from 0 to 1/N; provenance: HALoS's
    implementation of the source has the default 0, and torchft's has no c"""
    dylu: bool = True
    """dynamic local updates: whether slow workers take fewer steps in a round; provenance: the source's proposal"""
    speeds: tuple[float, ...] | None = None
    """v_i by rank, in any unit, if they are known; None: measured by the workers; provenance: ours"""
    smoothing: float = 0.2
    """weight of a new round in a worker's mean seconds of a step, above 0, up to 1; provenance: ours, as in dbs-sgd"""

    def problems(self, nodes: Sequence[Sequence[Rank]]) -> list[str]:
        workers = sum(map(len, nodes))
        delay = self.outer_optimizer(workers).problems(self.buffer_size)
        return super().problems(nodes) + delay + self._speed_problems(workers)

    def _speed_problems(self, workers: int) -> list[str]:
        if self.speeds is None:
            return []
        problems = []
        if not self.dylu:
            problems.append("speeds: found them with dylu = false, expected none, since all workers take as many steps")
        if len(self.speeds) != workers:
            problems.append(f"speeds: found {len(self.speeds)}, expected {workers}, one for each worker")
        if not all(0 < speed < float("inf") for speed in self.speeds):
            problems.append(f"speeds: found {list(self.speeds)}, expected numbers above 0")
        return problems

    def arrivals(self, workers: int) -> int:
        """Returns N: the arrivals between two updates of the momentum."""
        if self.outer != "delayed-nesterov":
            return 1
        return workers if self.buffer_size is None else self.buffer_size

    def outer_optimizer(self, workers: int) -> OuterOptimizer:
        """Returns the outer optimizer for this number of workers at the start of the run."""
        return OuterOptimizer(self.outer, self.outer_learning_rate, self.outer_momentum, self.arrivals(workers), self.c)

    @property
    def even_steps(self) -> bool:
        return not self.dylu

    @property
    def measures(self) -> bool:
        """Whether workers measure their steps."""
        return self.dylu and self.speeds is None

    def samples_per_step(self, batch: int, workers: int) -> int:
        """Returns the samples of a whole round; rounds of slow workers have fewer."""
        return batch * self.period

    def sees_own_updates(self, workers: int) -> bool:
        return False  # within a round

    def linear_form(self) -> Self:
        return changed(super().linear_form(), outer_momentum=min(self.outer_momentum, FADING))

    def gradient_weight(self, gradient: AppliedGradient) -> float:
        """Returns the local step's, times R / N / (1 − M)."""
        momentum = 0.0 if self.outer == "sgd" else self.outer_momentum
        outer = self.outer_learning_rate / self.arrivals(gradient.workers) / (1 - momentum)
        return self.learning_rate_at(gradient.step) / (1 - self.momentum) * outer

    def longest_period(self, workers: int) -> int:
        return -(-self.arrivals(workers) // workers) * self.period

    def bounds(self, workers: int) -> Mapping[Guarantee, float]:
        return survives(workers - 1)

    def begin(self, me: RankContext, vector: Any) -> Any:
        weights = Weights(vector, 0)
        if me.role == "server":
            memory = self.outer_optimizer(len(me.workers)).init(vector)
            return AsyncServer(0, weights, memory, step_s=(None,) * len(me.workers))
        inner = self.rule(me.layout.layers).init(vector)
        return RoundState(0, weights, inner, start=vector, steps=self.first_steps(me))

    @program
    def worker(self, me: RankContext, state: RoundState) -> Program[RoundState]:
        rule, (server, tag) = self.rule(me.layout.layers), self.served_by(me)
        while True:
            if state.waits:
                answer = (yield from Receive(server, tag)).value
                if isinstance(answer, ServerStopped):
                    return state
                state = state.next_round(answer)
            if not (step := (yield from NextStep(state))):
                return state
            state = yield from self.inner_step(rule, state, step)
            if len(state.origins) == state.steps:
                change = state.start - state.weights.vector
                yield from Send(server, PseudoGradient(change, state.origins, asks=True, seconds=state.seconds))
                state = replace(state, waits=True)

    def served_by(self, me: RankContext) -> tuple[Rank, str]:
        """Returns the rank to which a worker pushes its rounds, and the tag of the answers."""
        return server_of(me), ""

    @program
    def inner_step(self, rule: Chain, state: RoundState, step: Step) -> Program[RoundState]:
        """Takes a local step, and measures it if the method needs the speeds of workers.

        Args:
            rule: the inner optimizer.
            state: the state before the step.
            step: its number and samples.

        Returns:
            The state after it. The version of the weights is still that of the round's start.
        """
        begun_s = (yield from Now()) if self.measures else 0.0
        change = COMBINE if len(state.origins) + 1 == state.steps else NOTHING
        own = state.weights, state.optimizer_state
        gradient, vector, memory = yield from unrecorded_step(rule, *own, step.samples, also=change)
        taken_s = (yield from Now()) - begun_s if self.measures else 0.0
        return replace(
            state,
            step=step.number + 1,
            weights=Weights(vector, state.weights.version),
            optimizer_state=memory,
            origins=(*state.origins, gradient.contribution()),
            seconds=state.seconds + taken_s,
        )

    @program
    def server(self, me: RankContext, state: AsyncServer) -> Program[AsyncServer]:
        outer, team = self.outer_optimizer(len(me.workers)), LivingWorkers(me, self.served(me))
        while step := (yield from NextStep(state)):
            if not state.pending:
                state = state.received((yield from team.message()))
            (source, push), *others = state.pending
            assert isinstance(push, PseudoGradient), "workers send nothing else"
            yield from Charge("update", push.vector.nbytes, where="host", traffic=outer.traffic(state.optimizer_state))
            vector, memory = outer.update(state.weights.vector, push.vector, state.optimizer_state)
            version = yield from RecordUpdate(Weights(vector, state.weights.version), push.origins)
            step_s = self.measured(state.step_s, source, push)
            steps = self.round_steps(source, step_s, team.living)
            weights = Weights(vector, version)
            state = replace(
                state.answered(source),
                step=step.number + 1,
                weights=weights,
                optimizer_state=memory,
                pending=tuple(others),
                step_s=step_s,
            )
            yield from Send(source, RoundStart(weights, steps))
        return (yield from self.closed(team, state))

    def served(self, me: RankContext) -> Group:
        """Returns the ranks whose rounds the server applies."""
        return me.workers

    def closed(self, team: LivingWorkers, state: AsyncServer) -> Routine[AsyncServer]:
        """Returns the program that ends the run for the ranks that the server serves."""
        return close(team, state)

    def measured(self, step_s: tuple[float | None, ...], rank: Rank, push: PseudoGradient) -> tuple[float | None, ...]:
        """Returns the mean seconds of a local step by rank, after one more round.

        Args:
            step_s: those before.
            rank: the sender.
            push: its round; one without a duration, because the clock has not advanced, is ignored.
        """
        if push.seconds <= 0:
            return step_s
        new, before = push.seconds / len(push.origins), step_s[rank]
        mean = new if before is None else before + self.smoothing * (new - before)
        return (*step_s[:rank], mean, *step_s[rank + 1 :])

    def first_steps(self, me: RankContext) -> int:
        """Returns the steps of a worker's first round: H until its speed is known."""
        return self.period if self.speeds is None else self.round_steps(me.rank, (), me.workers.ranks)

    def round_steps(self, rank: Rank, step_s: Sequence[float | None], living: Collection[Rank]) -> int:
        """Returns H_i: the steps of a worker's next round.

        Args:
            rank: the worker.
            step_s: mean seconds of a local step by rank, as far as they have been measured; used without `speeds`.
            living: the living workers, of which v_max is the fastest.
        """
        if not self.dylu:
            return self.period
        if self.speeds is not None:
            return local_steps(self.period, self.speeds[rank], max(self.speeds[other] for other in living))
        if (own := step_s[rank]) is None:
            return self.period
        least = min(seconds for other in living if (seconds := step_s[other]) is not None)
        return local_steps(self.period, least, own)  # v_i / v_max is the quotient of the seconds, inverted


def local_steps(period: int, part: float, whole: float) -> int:
    """Returns ⌊(part / whole) · period⌋, and at least 1; a relative 1e-9 below a whole number counts as that.

    Two clocks that differ by rounding would otherwise cost a worker a step.

    Args:
        period: H.
        part: the speed of a worker.
        whole: that of the fastest.

    >>> [local_steps(10, speed, 3.0) for speed in (3.0, 2.0, 1.0, 0.1)]
    [10, 6, 3, 1]
    """
    return max(1, int(part / whole * period * (1 + 1e-9)))
