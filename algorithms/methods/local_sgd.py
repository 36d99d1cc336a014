"""Variants of local SGD: a synchronous phase before the local one, and an outer optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from paceline.algorithms.core.guarantees import Guarantee
from paceline.algorithms.core.method import RankContext, Replica, StalenessKind
from paceline.algorithms.core.operations import AllReduce, Charge, NextStep, RecordUpdate
from paceline.algorithms.core.option_groups import FRACTION, POSITIVE, STEPS_OR_NONE, Range
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.steps import apply_gradient, average_gradient, gradient_at, local_step
from paceline.algorithms.core.traffic import COMBINE, SCALE
from paceline.algorithms.core.values import Group, Weights
from paceline.algorithms.methods.inner_optimizer import InnerOptimizer
from paceline.algorithms.methods.periodic import Averaging
from paceline.algorithms.methods.survivors import among_living, survives


@dataclass(frozen=True, kw_only=True)
class PostLocalSgd(Averaging):
    """Synchronous SGD up to the switch, then local steps with an average of all workers' weights after every H of them.

    step t < switch, counted from 0:  x ← x − η (1/P) Σ_i g_i(x)
    from then on:                     x_i ← x_i − η g_i(x_i);  after every H of these x_i ← (1/P) Σ_j x_j
    """

    name = "post-local-sgd"
    source = "Lin, Stich, Patel, Jaggi 2018, 'Don't Use Large Mini-Batches, Use Local SGD', arXiv 1808.07217"
    guarantees = frozenset(
        {
            Guarantee.DETERMINISTIC,
            Guarantee.REPLICAS_MEET,
            Guarantee.BOUNDED_STALENESS,
            Guarantee.CONSERVES_MEAN,
        }
    )

    ranges: ClassVar[Mapping[str, Range]] = {"switch": STEPS_OR_NONE}

    switch: int = 64
    """synchronous steps before the first local one; provenance: ours, the paper switches at the first drop of its
    learning rate"""
    period: int = 8
    """H, local steps between averages; provenance: ours, the paper tries 2 to 32"""

    def bounds(self, workers: int) -> Mapping[Guarantee, float]:
        return {Guarantee.BOUNDED_STALENESS: self.period - 1}

    def longest_period(self, workers: int) -> int:
        return self.switch + self.period

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        rule = self.rule(me.layout.layers)
        while step := (yield from NextStep(state)):
            if step.number < self.switch:
                gradient = yield from gradient_at(state.weights, step.samples)
                mean = yield from average_gradient(gradient, me.workers, f"gradient {step.number}")
                state = yield from apply_gradient(rule, state, mean)
            else:
                state = yield from local_step(rule, state, step.samples)
                if (state.step - self.switch) % self.period == 0:
                    state = yield from self.average_all(me, state)
        return state


OUTER_STEP = COMBINE + 3 * (SCALE + COMBINE)
"""memory traffic of a round's change, and of the outer step with Nesterov momentum"""


@dataclass(frozen=True, slots=True)
class Outer(Replica):
    """A worker's state in DiLoCo: the weights at the start of the round, and the velocity of the outer optimizer."""

    start: Any = None
    velocity: Any = None


@dataclass(frozen=True, kw_only=True)
class DiLoCo(InnerOptimizer):
    """Rounds of local steps, whose average change is the gradient of an outer optimizer with Nesterov momentum.

    H times:  x_i ← one step of the inner optimizer
    then:     Δ = (1/P) Σ_i (x' − x_i);  V ← M V + Δ;  x' ← x' − R (Δ + M V);  x_i ← x'

    Each worker keeps the state of its inner optimizer from round to round. P is the number of living workers: a round
    that is interrupted by a worker's death is averaged among the others.
    """

    name = "diloco"
    staleness_kind = StalenessKind.LOCAL_AGE
    source = "Douillard et al. 2023, 'DiLoCo: Distributed Low-Communication Training of Language Models', Algorithm 1"
    guarantees = frozenset(
        {
            Guarantee.DETERMINISTIC,
            Guarantee.REPLICAS_MEET,
            Guarantee.BOUNDED_STALENESS,
            Guarantee.SURVIVES_WORKERS,
        }
    )

    ranges: ClassVar[Mapping[str, Range]] = {
        "outer_learning_rate": POSITIVE,
        "outer_momentum": FRACTION,
    }

    period: int = 8
    """H, inner steps in a round; provenance: ours, the source takes 500 of far more steps"""
    outer_learning_rate: float = 0.7
    """R; provenance: the source"""
    outer_momentum: float = 0.9
    """M; provenance: the source"""

    def bounds(self, workers: int) -> Mapping[Guarantee, float]:
        return {Guarantee.BOUNDED_STALENESS: self.period - 1, **survives(workers - 1)}

    def longest_period(self, workers: int) -> int:
        return self.period

    def begin(self, me: RankContext, vector: Any) -> Outer:
        optimizer_state = self.rule(me.layout.layers).init(vector)
        return Outer(0, Weights(vector, 0), optimizer_state, start=vector, velocity=0 * vector)

    @program
    def worker(self, me: RankContext, state: Outer) -> Program[Outer]:
        rule, group = self.rule(me.layout.layers), me.workers
        while step := (yield from NextStep(state)):
            state = yield from local_step(rule, state, step.samples)
            if state.step % self.period == 0:
                state, group = yield from self.outer_step(state, group)
        return state

    @program
    def outer_step(self, state: Outer, group: Group) -> Program[tuple[Outer, Group]]:
        """Ends a round: averages the changes of the living members of a group.

        Returns:
            The state after the outer step, and the living members.
        """
        moved = state.start - state.weights.vector

        def mean_of(members: Group) -> AllReduce:
            return AllReduce(value=moved, group=members, key=f"everyone {state.step}")

        change, group = yield from among_living(mean_of, group)
        yield from Charge("update", change.nbytes, traffic=OUTER_STEP)
        velocity = self.outer_momentum * state.velocity + change
        vector = state.start - self.outer_learning_rate * (change + self.outer_momentum * velocity)
        version = yield from RecordUpdate(Weights(vector, state.weights.version))
        return replace(state, weights=Weights(vector, version), start=vector, velocity=velocity), group
