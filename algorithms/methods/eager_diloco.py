"""DiLoCo whose exchange of a round's changes takes place during the next round.

A worker's own change of this round is known at once; only those of the others are one round old. With eager updates,
each worker has outer weights and a velocity of its own. In the mean over all workers, they are those of an outer
optimizer with the gradient (1 − 1/P) Δ_{r−1} + (1/P) Δ_r.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from paceline.algorithms.core.guarantees import Guarantee
from paceline.algorithms.core.method import RankContext
from paceline.algorithms.core.operations import AllReduce, Charge, Handle, NextStep, RecordUpdate, Start, Wait
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.steps import local_step
from paceline.algorithms.core.traffic import COMBINE, NOTHING, SCALE
from paceline.algorithms.core.values import Weights
from paceline.algorithms.methods.outer import CHANGE, NESTEROV, NesterovRounds, Outer

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

    def bounds(self, workers: int) -> Mapping[Guarantee, float]:
        return {Guarantee.BOUNDED_STALENESS: self.period - 1}

    def longest_period(self, workers: int) -> int:
        return 2 * self.period

    @program
    def worker(self, me: RankContext, state: Overlapping) -> Program[Overlapping]:
        rule = self.rule(me.layout.layers)
        while step := (yield from NextStep(state)):
            state = yield from local_step(rule, state, step.samples)
            if state.step % self.period == 0:
                state = yield from self.end_of_round(me, state)
        return state

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
