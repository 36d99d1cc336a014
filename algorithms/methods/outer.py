"""Rounds of local steps that end with the step of an outer optimizer: what `diloco` and its relatives share.

The outer optimizer exists once, as `outer_step`. Its gradient is the change of a round: the weights at the start of the
round minus those at its end.

The inner optimizer of methods that also have an outer one: AdamW, unless another one is chosen.

DiLoCo whose exchange of a round's changes takes place during the next round.

A worker's own change of this round is known at once; only those of the others are one round old. With eager updates,
each worker has outer weights and a velocity of its own. In the mean over all workers, they are those of an outer
optimizer with the gradient (1 − 1/P) Δ_{r−1} + (1/P) Δ_r.

Rounds of local steps whose average change is in flight during the next round.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

from paceline.algorithms.core import arrays
from paceline.algorithms.core.guarantees import AppliedGradient, Guarantee
from paceline.algorithms.core.method import FADING, Optimizer, RankContext, Replica, SgdMethod, StalenessKind, changed
from paceline.algorithms.core.operations import AllReduce, Charge, Handle, NextStep, RecordUpdate, Start, Wait
from paceline.algorithms.core.option_groups import FRACTION, POSITIVE, Range
from paceline.algorithms.core.program import Program, Routine, program
from paceline.algorithms.core.steps import local_step
from paceline.algorithms.core.traffic import COMBINE, NOTHING, SCALE
from paceline.algorithms.core.values import Rank, Vector, Weights


@dataclass(frozen=True, kw_only=True)
class InnerOptimizer(SgdMethod):
    """Base of methods whose local steps are those of an inner optimizer."""

    rate_of_adam: ClassVar[float | None] = None

    learning_rate: float = 0.005
    """η of the inner optimizer; provenance: ours; the length of AdamW's steps depends only on its learning rate"""
    inner: Optimizer = "adamw"
    """the inner optimizer; provenance: the source has AdamW; sgd is the chain that all methods share"""
    optimizer: Optimizer | None = None  # type: ignore[assignment]  # None: as `inner` says, see `steps_by`
    """the name that all other methods have for `inner`; None: as `inner` says"""

    @property
    def steps_by(self) -> Optimizer:
        """The inner optimizer."""
        return self.inner if self.optimizer is None else self.optimizer

    @property
    def _key_of_optimizer(self) -> str:
        return "inner" if self.optimizer is None else "optimizer"

    def problems(self, nodes: Sequence[Sequence[Rank]]) -> list[str]:
        problems = super().problems(nodes)
        if self.optimizer is not None and self.inner not in (self.optimizer, type(self).inner):
            problems.append(
                f"optimizer: found {self.optimizer} beside inner = {self.inner}, expected one of them: both are the "
                "inner optimizer"
            )
        return problems

    def linear_form(self) -> Self:
        return changed(super().linear_form(), inner="sgd", optimizer=None)

    def initial_weight(self, updates: int) -> float | None:
        return None  # an outer step changes what local steps have decayed


CHANGE = COMBINE
"""memory traffic of a round's change"""
HEAVY_BALL = 2 * (SCALE + COMBINE)
"""memory traffic of `outer_step` without Nesterov's term"""
NESTEROV = HEAVY_BALL + SCALE + COMBINE
"""memory traffic of `outer_step` with Nesterov's term"""


def outer_step(
    start: Any, velocity: Any, change: Any, learning_rate: float, momentum: float, *, nesterov: bool = True
) -> tuple[Any, Any]:
    """Takes a step of the outer optimizer, in the form of torch.optim.SGD.

    V ← M V + Δ;  x ← x − R (Δ + M V), or x − R V without Nesterov's term

    Args:
        start: x, the weights at the start of the round, or a part of them.
        velocity: V, of the same shape.
        change: Δ, the gradient of the outer optimizer, of the same shape.
        learning_rate: R.
        momentum: M.
        nesterov: whether the step has Nesterov's term.

    Returns:
        The new x and the new V.

    >>> import numpy as np
    >>> outer_step(np.array([1.0]), np.array([0.0]), np.array([0.5]), learning_rate=1.0, momentum=0.5)
    (array([0.25]), array([0.5]))
    """
    velocity = momentum * velocity + change
    step = change + momentum * velocity if nesterov else velocity
    return start - learning_rate * step, velocity


@dataclass(frozen=True, slots=True)
class Outer(Replica):
    """A worker's state: the weights at the start of the round, and the velocity of the outer optimizer."""

    start: Any = None
    velocity: Any = None


@dataclass(frozen=True, kw_only=True)
class OuterRounds(SgdMethod):
    """Base of methods with rounds of equally many local steps, each of which ends with a step of its own kind."""

    staleness_kind = StalenessKind.LOCAL_AGE
    state: ClassVar[type[Outer]] = Outer
    """the class of a worker's state; fields that it adds have defaults"""

    @property
    @abstractmethod
    def period(self) -> int:
        """H, the number of local steps in a round: a field of each method."""

    def bounds(self, workers: int) -> Mapping[Guarantee, float]:
        return {Guarantee.BOUNDED_STALENESS: self.period - 1}

    def longest_period(self, workers: int) -> int:
        return self.period

    def initial_weight(self, updates: int) -> float | None:
        return None  # an outer step changes what local steps have decayed

    def begin(self, me: RankContext, vector: Any) -> Outer:
        optimizer_state = self.rule(me.layout.layers).init(vector)
        return self.state(0, Weights(vector, 0), optimizer_state, start=vector, velocity=0 * vector)

    @program
    def worker(self, me: RankContext, state: Any) -> Program[Any]:
        rule = self.rule(me.layout.layers)
        while step := (yield from NextStep(state)):
            state = yield from local_step(rule, state, step.samples)
            if state.step % self.period == 0:
                state = yield from self.end_of_round(me, state)
        return state

    def end_of_round(self, me: RankContext, state: Any) -> Routine[Any]:
        """Ends a round; a method whose rounds end otherwise defines `worker` instead.

        Args:
            me: the worker.
            state: its state after the last local step of the round.

        Returns:
            The state with which the next round starts.
        """
        raise NotImplementedError(f"{self.name} defines neither end_of_round nor worker")


@dataclass(frozen=True, kw_only=True)
class Rounds(InnerOptimizer, OuterRounds):
    """Base of methods with rounds in which each worker keeps the inner optimizer's state."""

    period: int = 8
    """H, inner steps in a round; provenance: ours, the source takes 500 of far more steps"""


@dataclass(frozen=True, kw_only=True)
class NesterovRounds(Rounds):
    """Base of `diloco` and of its variants, whose outer optimizer is SGD with Nesterov momentum."""

    ranges: ClassVar[Mapping[str, Range]] = {"outer_learning_rate": POSITIVE, "outer_momentum": FRACTION}

    outer_learning_rate: float = 0.7
    """R; provenance: the source"""
    outer_momentum: float = 0.9
    """M; provenance: the source"""

    def linear_form(self) -> Self:
        return changed(super().linear_form(), outer_momentum=min(self.outer_momentum, FADING))

    def gradient_weight(self, gradient: AppliedGradient) -> float:
        """Returns the local step's, times R / (1 − M)."""
        return super().gradient_weight(gradient) * self.outer_learning_rate / (1 - self.outer_momentum)

    def outer(self, start: Any, velocity: Any, change: Any) -> tuple[Any, Any]:
        """Takes a step of the outer optimizer; arguments as in `outer_step`."""
        return outer_step(start, velocity, change, self.outer_learning_rate, self.outer_momentum)


REPLACED = 2 * SCALE + 2 * COMBINE
"""memory traffic of replacing a worker's share in a mean"""


@dataclass(frozen=True, slots=True)
class Overlapping(Outer):
    """A worker's state: that of `diloco`, its own change of the last round, and the mean of all of them in flight."""

    change: Any = None
    """None before the end of the first round, and with delayed updates"""
    mean: Handle[Any] | None = None


@dataclass(frozen=True, kw_only=True)
class EagerDiLoCo(NesterovRounds):
    """DiLoCo with eager updates: the mean of the last round's changes, in which a worker's own share is this round's.

    H times:  x_i ← one step of the inner optimizer
    then:     Δ_i ← x'_i − x_i;  start Δ = (1/P) Σ_j Δ_j;  wait for Δ⁻, the mean of the round before
              Δ' = (Δ⁻ − Δ_i⁻ / P) + Δ_i / P;  V_i ← M V_i + Δ';  x'_i ← x'_i − R (Δ' + M V_i);  x_i ← x'_i

    Δ⁻ and Δ_i⁻ are 0 in the first round. With `updates: delayed`, Δ' = Δ⁻, and the first round changes nothing.
    """

    name = "eager-diloco"
    source = "Kale, Douillard, Donchev 2025, 'Eager Updates for Overlapped Communication and Computation in DiLoCo', \
arXiv 2502.12996, Algorithm 3"
    guarantees = frozenset({Guarantee.DETERMINISTIC, Guarantee.BOUNDED_STALENESS})
    state: ClassVar[type[Outer]] = Overlapping

    updates: Literal["eager", "delayed"] = "eager"
    """whether a worker's own share is replaced by that of the present round; provenance: Algorithms 3 and 2 of the
    source, which has better results with eager ones"""

    def longest_period(self, workers: int) -> int:
        return 2 * self.period

    @program
    def end_of_round(self, me: RankContext, state: Overlapping) -> Program[Overlapping]:
        """Starts the exchange of this round's changes, and takes the outer step with those of the round before."""
        change = state.start - state.weights.vector
        average = AllReduce(value=change, group=me.workers, key=f"everyone {state.step}")
        mean = yield from Start(average)
        before = 0 * change if state.mean is None else (yield from Wait(state.mean))
        eager = self.updates == "eager"
        yield from Charge("update", change.nbytes, traffic=CHANGE + NESTEROV + (REPLACED if eager else NOTHING))
        gradient = self.with_own(before, state.change, change, len(me.workers)) if eager else before
        vector, velocity = self.outer(state.start, state.velocity, gradient)
        version = yield from RecordUpdate(Weights(vector, state.weights.version))
        kept = change if eager else None
        return replace(state, weights=Weights(vector, version), start=vector, velocity=velocity, change=kept, mean=mean)

    def with_own(self, mean: Any, old: Any, new: Any, workers: int) -> Any:
        """Returns a mean in which a worker's own share is another one.

        With one worker, the result is the new share, bit for bit.

        Args:
            mean: of all workers' changes.
            old: the worker's own share in it, times the number of workers; None: 0.
            new: what replaces it.
            workers: the number of workers.
        """
        others = mean if old is None else mean - old / workers
        return others + new / workers


OUTER_STEP = 2 * SCALE + COMBINE + SCALE + SCALE + COMBINE
"""memory traffic of an outer step: the momentum, its limits, and the step"""


@dataclass(frozen=True, slots=True)
class Overlapped(Outer):
    """The state of a worker with an outer optimizer, and the change that is in flight."""

    flight: Handle[Vector] | None = None


@dataclass(frozen=True, kw_only=True)
class Co2(OuterRounds):
    """Rounds of local steps; a round ends with an outer step by the average change of the round before.

    round t, H times:  x_i ← x_i − η g_i(x_i), from x_i = y_t
    then:              D_t = (1/P) Σ_i (y_t − x_i)  starts, and lands until the end of round t + 1
                       V ← M V + D_{t−1} / G;  y_{t+1} = y_t − R clip(V);  x_i ← y_{t+1}

    The first round ends where it began. clip limits each number to ± c. The change in flight at the end of a run is
    completed and kept in the state, not applied.
    """

    name = "co2"
    source = "Sun et al. 2024, 'CO2: Efficient Distributed Training with Full Communication-Computation Overlap'"
    guarantees = frozenset({Guarantee.DETERMINISTIC, Guarantee.REPLICAS_MEET, Guarantee.BOUNDED_STALENESS})
    state: ClassVar[type[Outer]] = Overlapped

    ranges: ClassVar[Mapping[str, Range]] = {
        "outer_learning_rate": POSITIVE,
        "outer_momentum": FRACTION,
        "gap_penalty": POSITIVE,
        "clip": POSITIVE,
    }

    period: int = 8
    """H, local steps in a round; provenance: ours, the authors' code has 48 of far more steps"""
    outer_learning_rate: float = 1.0
    """R; provenance: `outer_lr` of the authors' code"""
    outer_momentum: float = 0.5
    """M; provenance: `outer_momentum` of the authors' code, whose README has 0.2"""
    gap_penalty: float = 1.0
    """G, by which a late change is divided; provenance: `co2_gap_penalty` of the authors' code, a constant there. The
    paper's formula for it was not found in text"""
    clip: float | None = None
    """c, the limit of each number of the momentum; None: no limit; provenance: `co2_clip` of the authors' code is
    off"""

    def longest_period(self, workers: int) -> int:
        return 2 * self.period

    def linear_form(self) -> Self:
        return changed(super().linear_form(), clip=None, outer_momentum=min(self.outer_momentum, FADING))

    def gradient_weight(self, gradient: AppliedGradient) -> float:
        """Returns the local step's, times R / G / (1 − M)."""
        outer = self.outer_learning_rate / self.gap_penalty / (1 - self.outer_momentum)
        return outer * super().gradient_weight(gradient)

    @program
    def end_of_round(self, me: RankContext, state: Overlapped) -> Program[Overlapped]:
        """Ends a round: starts to average its change, and applies that of the round before."""
        yield from Charge("update", state.start.nbytes, traffic=COMBINE)
        moved = state.start - state.weights.vector
        late = None if state.flight is None else (yield from Wait(state.flight))
        flight = yield from Start(AllReduce(value=moved, group=me.workers, key=f"everyone {state.step}"))
        vector, velocity = state.start, state.velocity
        if late is not None:
            yield from Charge("update", late.nbytes, traffic=OUTER_STEP)
            velocity = self.limited(self.outer_momentum * velocity + late / self.gap_penalty)
            vector = vector - self.outer_learning_rate * velocity
        version = yield from RecordUpdate(Weights(vector, state.weights.version))
        return replace(state, weights=Weights(vector, version), start=vector, velocity=velocity, flight=flight)

    def limited(self, velocity: Any) -> Any:
        """Limits each number of the momentum."""
        return velocity if self.clip is None else arrays.clipped(velocity, self.clip)
