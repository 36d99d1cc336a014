"""Periodic and hierarchical averaging: local steps with an average of weights after every few of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from paceline.algorithms.core.fast_values import replace
from paceline.algorithms.core.guarantees import AppliedGradient, Guarantee
from paceline.algorithms.core.method import RankContext, Replica, SgdMethod, StalenessKind
from paceline.algorithms.core.operations import AllReduce, Charge, NextStep, RecordUpdate
from paceline.algorithms.core.option_groups import POSITIVE, Range
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.steps import average_weights, descend, gradient_at, local_step, mean_of
from paceline.algorithms.core.traffic import COMBINE, SCALE
from paceline.algorithms.core.values import Group, Rank, Weights


@dataclass(frozen=True, kw_only=True)
class Averaging(SgdMethod):
    """Base of methods that average weights.

    The learning rate is that of one worker, since weights are averaged and gradients are not summed.
    """

    staleness_kind = StalenessKind.LOCAL_AGE

    average_momentum: bool = False
    """whether the optimizer state is averaged with the weights; provenance: torch's averagers leave it local"""

    @program
    def average(self, state: Replica, group: Group, key: str) -> Program[Replica]:
        """Averages weights, and with `average_momentum` the optimizer state, over a group.

        Args:
            state: as `local_step` returned it; the buffer of its weights is reused, see `average_weights`.
            group: the ranks that take part.
            key: the name of the all-reduce.
        """
        state = yield from average_weights(state, group, key)
        if self.average_momentum:
            memory = yield from mean_of(state.optimizer_state, group, f"momentum of {key}")
            state = replace(state, optimizer_state=memory)
        return state

    @program
    def average_all(self, me: RankContext, state: Replica) -> Program[Replica]:
        """Averages the weights after a local step over all workers, and records the result, which is evaluated."""
        state = yield from self.average(state, me.workers, f"everyone {state.step}")
        version = yield from RecordUpdate(state.weights)
        return replace(state, weights=Weights(state.weights.vector, version))


@dataclass(frozen=True, kw_only=True)
class HbsSgd(Averaging):
    """Hierarchical bulk-synchronous SGD: local steps, averages in the group every K1 and over all every K2 steps.

    after step t, counted from 1:  x ← mean over all, if K2 | t;  else mean over the group, if K1 | t
    """

    name = "hbs-sgd"
    source = "Cong and Bhardwaj, ICMLA'17, by the rule of Hier-AVG (Zhou and Cong, arXiv 1903.05133)"
    guarantees = frozenset(
        {
            Guarantee.DETERMINISTIC,
            Guarantee.REPLICAS_MEET,
            Guarantee.BOUNDED_STALENESS,
            Guarantee.CONSERVES_MEAN,
        }
    )

    k1: int = 2
    """steps between averages in a group; provenance: ours, the paper's values were not found"""
    k2: int = 8
    """steps between averages of all workers, a multiple of k1; provenance: ours"""
    group: int | Literal["node"] = "node"
    """the workers of a node, or this number of consecutive workers"""

    def problems(self, nodes: Sequence[Sequence[Rank]]) -> list[str]:
        problems = super().problems(nodes)
        workers = sum(map(len, nodes))
        if self.k1 < 1:
            problems.append(f"k1: {self.k1} is no number of steps; give 1 or more")
        elif self.k2 < 1 or self.k2 % self.k1:
            problems.append(f"k2: {self.k2} is no multiple of k1 = {self.k1}")
        if self.group != "node" and (self.group < 1 or workers % self.group):
            fitting = ", ".join(str(n) for n in range(1, workers + 1) if workers % n == 0)
            problems.append(
                f"group: groups of {self.group} do not divide the {workers} workers; {fitting} would, or 'node'"
            )
        return problems

    def bounds(self, workers: int) -> Mapping[Guarantee, float]:
        return {Guarantee.BOUNDED_STALENESS: self.k2 - 1}

    def longest_period(self, workers: int) -> int:
        return self.k2

    def group_of(self, me: RankContext) -> Group:
        """Returns the ranks with which this one averages every K1 steps."""
        if self.group == "node":
            return me.node
        first = me.workers.ranks.index(me.rank) // self.group * self.group
        return Group(me.workers.ranks[first : first + self.group])

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        rule, near = self.rule(me.layout.layers), self.group_of(me)
        while step := (yield from NextStep(state)):
            state = yield from local_step(rule, state, step.samples)
            if state.step % self.k2 == 0:
                state = yield from self.average_all(me, state)
            elif state.step % self.k1 == 0 and len(near) > 1:
                state = yield from self.average(state, near, f"group {state.step}")
        return state


@dataclass(frozen=True, kw_only=True)
class KAvg(Averaging):
    """Local steps, with an average of all workers' weights after every K of them.

    after step t, counted from 1:  x_i ← (1/P) Σ_j x_j, if K | t − phase
    """

    name = "k-avg"
    source = "Zhou and Cong, IJCAI'18, arXiv 1708.01012 (K-AVG)"
    guarantees = HbsSgd.guarantees

    k: int = 8
    """K, steps between averages; provenance: ours, the paper's best K are above 1 and differ by problem"""
    phase: int = 0
    """steps before the first average, K if 0; torch's PeriodicModelAverager has 1"""

    def problems(self, nodes: Sequence[Sequence[Rank]]) -> list[str]:
        problems = super().problems(nodes)
        if not 0 <= self.phase < self.k:
            problems.append(f"phase: found {self.phase}, expected 0 to {self.k - 1}, below k")
        return problems

    def bounds(self, workers: int) -> Mapping[Guarantee, float]:
        return {Guarantee.BOUNDED_STALENESS: self.k - 1}

    def longest_period(self, workers: int) -> int:
        return self.k

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        rule = self.rule(me.layout.layers)
        while step := (yield from NextStep(state)):
            state = yield from local_step(rule, state, step.samples)
            if (state.step - self.phase) % self.k == 0:
                state = yield from self.average_all(me, state)
        return state


@dataclass(frozen=True, slots=True)
class SasgdReplica(Replica):
    """A worker's state within a round of SASGD: the weights at its start, and the sum of the gradients since."""

    start: Any = None
    total: Any = None


@dataclass(frozen=True, kw_only=True)
class Sasgd(SgdMethod):
    """Sparse aggregation: workers take local steps and sum their gradients; every T steps the sums are exchanged.

    T times:  x_i ← x_i − γ g_i(x_i);  G_i ← G_i + g_i
    then:     x' ← x' − γ_p Σ_i G_i;  x_i ← x';  G_i ← 0

    With γ_p = γ / P and plain SGD this is the average of the weights.
    """

    name = "sasgd"
    staleness_kind = StalenessKind.LOCAL_AGE
    source = "Cong, Bhardwaj, Feng, ICPP'17 (SASGD)"
    guarantees = frozenset({Guarantee.DETERMINISTIC, Guarantee.REPLICAS_MEET, Guarantee.BOUNDED_STALENESS})

    ranges: ClassVar[Mapping[str, Range]] = {"global_learning_rate": POSITIVE}

    period: int = 8
    """T, local steps in a round; provenance: ours, the paper's values were not found"""
    global_learning_rate: float | None = None
    """γ_p; None is γ / P, the average of the weights; provenance: ours, the paper's values were not found"""

    def problems(self, nodes: Sequence[Sequence[Rank]]) -> list[str]:
        problems = super().problems(nodes)
        if self.uses_adam:
            problems.append(
                f"optimizer: found {self.optimizer}, expected sgd: a round ends with a step of SGD by the sum of the "
                "gradients, which replaces the local steps; k-avg averages the weights of local steps by Adam"
            )
        return problems

    def bounds(self, workers: int) -> Mapping[Guarantee, float]:
        return {Guarantee.BOUNDED_STALENESS: self.period - 1}

    def longest_period(self, workers: int) -> int:
        return self.period

    def initial_weight(self, updates: int) -> float | None:
        return None  # local steps decay, and end with the round

    def gradient_weight(self, gradient: AppliedGradient) -> float:
        """Returns γ_p: local steps end with the round, and the sum of the gradients has no momentum."""
        return self.learning_rate / gradient.workers if self.global_learning_rate is None else self.global_learning_rate

    def begin(self, me: RankContext, vector: Any) -> SasgdReplica:
        optimizer_state = self.rule(me.layout.layers).init(vector)
        return SasgdReplica(0, Weights(vector, 0), optimizer_state, start=vector, total=0 * vector)

    @program
    def worker(self, me: RankContext, state: SasgdReplica) -> Program[SasgdReplica]:
        rule = self.rule(me.layout.layers)
        learning_rate = (
            self.learning_rate / len(me.workers) if self.global_learning_rate is None else self.global_learning_rate
        )
        while step := (yield from NextStep(state)):
            gradient = yield from gradient_at(state.weights, step.samples)
            state = yield from descend(
                rule, state, gradient.vector, gradient.contribution(), advance=False, also=COMBINE
            )
            state = replace(state, total=state.total + gradient.vector)
            if state.step % self.period == 0:
                total = yield from AllReduce(
                    value=state.total, group=me.workers, key=f"everyone {state.step}", op="sum"
                )
                yield from Charge("update", total.nbytes, traffic=2 * SCALE + COMBINE)
                vector = state.start - learning_rate * total
                version = yield from RecordUpdate(Weights(vector, state.weights.version))
                state = replace(state, weights=Weights(vector, version), start=vector, total=0 * vector)
        return state
