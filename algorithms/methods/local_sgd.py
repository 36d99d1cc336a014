"""Variants of local SGD: a synchronous phase before the local one, an outer optimizer, and slow momentum.

Two-level synchronization: inside each node first, then between one rank of each node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

from paceline.algorithms.core.guarantees import AppliedGradient, Guarantee
from paceline.algorithms.core.method import (
    FADING,
    AccumulatingMethod,
    Optimizer,
    RankContext,
    Replica,
    StalenessKind,
    changed,
)
from paceline.algorithms.core.operations import AllReduce, Broadcast, Charge, NextStep, RecordUpdate, Reduce
from paceline.algorithms.core.option_groups import FRACTION, POSITIVE, STEPS_OR_NONE, Range
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.rules import ADAM_LEARNING_RATE, Chain, Lars, OptimizerState, ScaleByLearningRate
from paceline.algorithms.core.steps import (
    accumulated_gradient,
    apply_gradient,
    average_gradient,
    average_weights,
    descend,
    gradient_at,
    local_step,
    mean_of,
)
from paceline.algorithms.core.traffic import SCALE
from paceline.algorithms.core.values import Group, Rank, Weights
from paceline.algorithms.methods.outer import CHANGE, HEAVY_BALL, NESTEROV, NesterovRounds, Outer, Rounds, outer_step
from paceline.algorithms.methods.periodic import AveragingWithMomentum
from paceline.algorithms.methods.survivors import among_living, survives


@dataclass(frozen=True, kw_only=True)
class PostLocalSgd(AveragingWithMomentum):
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


@dataclass(frozen=True, kw_only=True)
class DiLoCo(NesterovRounds):
    """Rounds of local steps, whose average change is the gradient of an outer optimizer with Nesterov momentum.

    H times:  x_i ← one step of the inner optimizer
    then:     Δ = (1/P) Σ_i (x' − x_i);  V ← M V + Δ;  x' ← x' − R (Δ + M V);  x_i ← x'

    Each worker keeps the state of its inner optimizer from round to round. P is the number of living workers: a round
    that is interrupted by a worker's death is averaged among the others.
    """

    name = "diloco"
    source = "Douillard et al. 2023, 'DiLoCo: Distributed Low-Communication Training of Language Models', Algorithm 1"
    guarantees = frozenset(
        {
            Guarantee.DETERMINISTIC,
            Guarantee.REPLICAS_MEET,
            Guarantee.BOUNDED_STALENESS,
            Guarantee.SURVIVES_WORKERS,
        }
    )

    def bounds(self, workers: int) -> Mapping[Guarantee, float]:
        return {Guarantee.BOUNDED_STALENESS: self.period - 1, **survives(workers - 1)}

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

        def average(members: Group) -> AllReduce:
            return AllReduce(value=moved, group=members, key=f"everyone {state.step}")

        change, group = yield from among_living(average, group)
        yield from Charge("update", change.nbytes, traffic=CHANGE + NESTEROV)
        vector, velocity = self.outer(state.start, state.velocity, change)
        version = yield from RecordUpdate(Weights(vector, state.weights.version))
        return replace(state, weights=Weights(vector, version), start=vector, velocity=velocity), group


@dataclass(frozen=True, kw_only=True)
class SlowMo(Rounds):
    """Slow momentum: rounds of local steps, an average of all weights, and a heavy-ball step on the round's change.

    H times:  x_i ← one step of the inner optimizer
    then:     u ← β u + (1/γ) (x' − (1/P) Σ_i x_i);  x' ← x' − α γ u;  x_i ← x'

    γ is the learning rate of the round's first step. If it is 0, u ← β u and x' stays.
    """

    name = "slowmo"
    source = "Wang, Tantia, Ballas, Rabbat 2019, 'SlowMo', arXiv 1910.00643, Algorithm 1"
    guarantees = frozenset({Guarantee.DETERMINISTIC, Guarantee.REPLICAS_MEET, Guarantee.BOUNDED_STALENESS})

    ranges: ClassVar[Mapping[str, Range]] = {"slow_learning_rate": POSITIVE, "slow_momentum": FRACTION}

    rate_of_adam: ClassVar[float | None] = ADAM_LEARNING_RATE

    learning_rate: float = 0.1
    """γ of the inner optimizer; provenance: as for every method whose default is plain SGD"""
    period: int = 8
    """H, inner steps in a round (τ in the source); provenance: ours, torchdistx has 48"""
    inner: Optimizer = "sgd"
    """the inner optimizer; provenance: the source has SGD and Adam"""
    slow_learning_rate: float = 1.0
    """α; provenance: the default of torchdistx"""
    slow_momentum: float = 0.5
    """β; provenance: the default of torchdistx"""
    buffers: Literal["maintain", "reset", "average"] = "maintain"
    """what happens to the inner optimizer's moments at the end of a round: each worker keeps its own, they return to
    0, or they are averaged; provenance: the source has the three, torchdistx maintains them"""

    def linear_form(self) -> Self:
        """Returns the form with a constant learning rate, by which a round's change is divided and multiplied."""
        momentum = 0.0 if self.buffers == "reset" else min(self.momentum, FADING)
        slow = min(self.slow_momentum, FADING)
        return changed(super().linear_form(), schedule=None, momentum=momentum, slow_momentum=slow)

    def gradient_weight(self, gradient: AppliedGradient) -> float:
        """Returns the local step's, times α / (1 − β)."""
        return super().gradient_weight(gradient) * self.slow_learning_rate / (1 - self.slow_momentum)

    def problems(self, nodes: Sequence[Sequence[Rank]]) -> list[str]:
        problems = super().problems(nodes)
        if self.buffers == "reset" and self.uses_adam and self.schedule is not None:
            problems.append(
                f"buffers: found reset with {self._key_of_optimizer} = {self.steps_by} and a schedule, whose count of "
                "steps would be reset too; use maintain or average, or no schedule"
            )
        return problems

    @program
    def end_of_round(self, me: RankContext, state: Outer) -> Program[Outer]:
        mean = yield from average_weights(state, me.workers, f"everyone {state.step}")
        memory = yield from self.memory_after(self.rule(me.layout.layers), mean, me.workers)
        return (yield from self.slow_step(replace(mean, optimizer_state=memory)))

    @program
    def memory_after(self, rule: Chain, state: Outer, group: Group) -> Program[OptimizerState]:
        """Returns the inner optimizer's state at the start of the next round.

        Args:
            rule: the inner optimizer.
            state: the state at the end of the round.
            group: all workers.
        """
        memory: OptimizerState = state.optimizer_state
        if self.buffers == "average":
            return replace(memory, links=(yield from mean_of(memory.links, group, f"buffers {state.step}")))
        if self.buffers == "reset":
            first = rule.init(state.start)
            # Adam's corrections count the steps since the moments were 0, a schedule counts all steps
            return first if self.uses_adam else replace(first, number=memory.number)
        return memory

    @program
    def slow_step(self, state: Outer) -> Program[Outer]:
        """Takes the slow step, given the mean of all weights as the state's."""
        rate = ScaleByLearningRate(self.learning_rate, self.schedule).at(state.step - self.period)
        change = state.start - state.weights.vector
        yield from Charge("update", change.nbytes, traffic=CHANGE + SCALE + HEAVY_BALL)
        gradient = change / rate if rate else 0 * change
        alpha = self.slow_learning_rate * rate
        vector, velocity = outer_step(state.start, state.velocity, gradient, alpha, self.slow_momentum, nesterov=False)
        version = yield from RecordUpdate(Weights(vector, state.weights.version))
        return replace(state, weights=Weights(vector, version), start=vector, velocity=velocity)


AS_PUBLISHED = Lars()
"""the layer-wise learning rates of LARS's authors"""


@dataclass(frozen=True, kw_only=True)
class Hsgd(AccumulatingMethod):
    """Hierarchical synchronous SGD: gradients are summed in each node, then among the nodes' leaders, in every step.

    node k:       s_k = Σ_{i in k} g_i(x), at its leader
    leaders:      s = Σ_k s_k
    every worker: x ← x − η s / P

    The sum is divided by all workers at the end; a mean of the nodes' means would favour workers on small nodes.
    """

    name = "hsgd"
    staleness_kind = StalenessKind.STEPS
    source = "Wang, Lu, Chen, Li, IEICE Trans. E103-D(12), 2020 (HSGD); its listing was not found, the program is ours"
    guarantees = frozenset(
        {Guarantee.DETERMINISTIC, Guarantee.SYNCHRONOUS, Guarantee.REPLICAS_EQUAL, Guarantee.SAME_AS_SYNC_SGD}
    )

    learning_rate: float = 3.0
    """γ of LARS; provenance: ours, it trains the digits; LARS's own rates are for ImageNet"""
    momentum: float = 0.9
    """μ; provenance: LARS's authors"""
    weight_decay: float = 5e-4
    """β; provenance: LARS's authors, for AlexNet"""
    lars: Lars | None = AS_PUBLISHED
    """layer-wise learning rates, as in the paper; None for the plain rule"""

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        rule = self.rule(me.layout.layers)
        while step := (yield from NextStep(state)):
            gradient = yield from accumulated_gradient(state.weights, step.samples, self.accumulate)
            mean = yield from self.mean(me, gradient.vector, step.number)
            state = yield from descend(rule, state, mean, gradient.contribution(), also=SCALE)
        return state

    @program
    def mean(self, me: RankContext, vector: Any, number: int) -> Program[Any]:
        """Averages a vector over all workers: reduce in the node, all-reduce between leaders, broadcast in the node.

        Args:
            me: this rank.
            vector: its gradient.
            number: of the step, for the keys.
        """
        leader = me.node.ranks[0]
        total = yield from Reduce(value=vector, group=me.node, root=leader, key=f"up {number}")
        if total is not None:
            total = yield from AllReduce(value=total, group=me.leaders, key=f"across {number}", op="sum")
        node_mean = vector if total is None else total
        everyones: Any = yield from Broadcast(value=node_mean, group=me.node, root=leader, key=f"down {number}")
        return everyones / len(me.workers)
