"""Rounds of local steps whose average change is in flight during the next round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from paceline.algorithms.core import arrays
from paceline.algorithms.core.gradient_weights import AppliedGradient
from paceline.algorithms.core.guarantees import Guarantee
from paceline.algorithms.core.method import FADING, RankContext, SgdMethod, StalenessKind, changed
from paceline.algorithms.core.operations import AllReduce, Charge, Handle, NextStep, RecordUpdate, Start, Wait
from paceline.algorithms.core.option_groups import FRACTION, POSITIVE, Range
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.steps import local_step
from paceline.algorithms.core.traffic import COMBINE, SCALE
from paceline.algorithms.core.values import Vector, Weights
from paceline.algorithms.methods.outer import Outer

OUTER_STEP = 2 * SCALE + COMBINE + SCALE + SCALE + COMBINE
"""memory traffic of an outer step: the momentum, its limits, and the step"""


@dataclass(frozen=True, slots=True)
class Overlapped(Outer):
    """The state of a worker with an outer optimizer, and the change that is in flight."""

    flight: Handle[Vector] | None = None


@dataclass(frozen=True, kw_only=True)
class Co2(SgdMethod):
    """Rounds of local steps; a round ends with an outer step by the average change of the round before.

    round t, H times:  x_i ← x_i − η g_i(x_i), from x_i = y_t
    then:              D_t = (1/P) Σ_i (y_t − x_i)  starts, and lands until the end of round t + 1
                       V ← M V + D_{t−1} / G;  y_{t+1} = y_t − R clip(V);  x_i ← y_{t+1}

    The first round ends where it began. clip limits each number to ± c. The change in flight at the end of a run is
    completed and kept in the state, not applied.
    """

    name = "co2"
    staleness_kind = StalenessKind.LOCAL_AGE
    source = "Sun et al. 2024, 'CO2: Efficient Distributed Training with Full Communication-Computation Overlap'"
    guarantees = frozenset({Guarantee.DETERMINISTIC, Guarantee.REPLICAS_MEET, Guarantee.BOUNDED_STALENESS})

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

    def bounds(self, workers: int) -> Mapping[Guarantee, float]:
        return {Guarantee.BOUNDED_STALENESS: self.period - 1}

    def longest_period(self, workers: int) -> int:
        return 2 * self.period

    def linear_form(self) -> Self:
        return changed(super().linear_form(), clip=None, outer_momentum=min(self.outer_momentum, FADING))

    def initial_weight(self, updates: int) -> float | None:
        return None  # an outer step changes what local steps have decayed

    def gradient_weight(self, gradient: AppliedGradient) -> float:
        """Returns the local step's, times R / G / (1 − M)."""
        outer = self.outer_learning_rate / self.gap_penalty / (1 - self.outer_momentum)
        return outer * super().gradient_weight(gradient)

    def begin(self, me: RankContext, vector: Any) -> Overlapped:
        optimizer_state = self.rule(me.layout.layers).init(vector)
        return Overlapped(0, Weights(vector, 0), optimizer_state, start=vector, velocity=0 * vector)

    @program
    def worker(self, me: RankContext, state: Overlapped) -> Program[Overlapped]:
        rule = self.rule(me.layout.layers)
        while step := (yield from NextStep(state)):
            state = yield from local_step(rule, state, step.samples)
            if state.step % self.period == 0:
                state = yield from self.outer_step(me, state)
        return state

    @program
    def outer_step(self, me: RankContext, state: Overlapped) -> Program[Overlapped]:
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
