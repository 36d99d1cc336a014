"""Periodic and hierarchical averaging: local steps with an average of weights after every few of them.

The moments of an optimizer stay local, or are averaged with the weights, or at periods of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from paceline.algorithms.core import arrays
from paceline.algorithms.core.fast_values import replace
from paceline.algorithms.core.guarantees import AppliedGradient, Guarantee, custom_guarantee
from paceline.algorithms.core.method import Optimizer, RankContext, Replica, SgdMethod, StalenessKind
from paceline.algorithms.core.operations import AllReduce, Charge, NextStep, RecordUpdate
from paceline.algorithms.core.option_groups import POSITIVE, STEPS, Range
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.rules import Moments, OptimizerState
from paceline.algorithms.core.steps import average_weights, descend, gradient_at, local_step, mean_of
from paceline.algorithms.core.traffic import COMBINE, SCALE
from paceline.algorithms.core.values import Group, Rank, Weights


@dataclass(frozen=True, kw_only=True)
class Averaging(SgdMethod):
    """Base of methods that average weights.

    The learning rate is that of one worker, since weights are averaged and gradients are not summed.
    """

    staleness_kind = StalenessKind.LOCAL_AGE

    @program
    def average(self, state: Replica, group: Group, key: str) -> Program[Replica]:
        """Averages weights over a group.

        Args:
            state: as `local_step` returned it; the buffer of its weights is reused, see `average_weights`.
            group: the ranks that take part.
            key: the name of the all-reduce.
        """
        return (yield from average_weights(state, group, key))

    @program
    def average_all(self, me: RankContext, state: Replica) -> Program[Replica]:
        """Averages the weights after a local step over all workers, and records the result, which is evaluated."""
        state = yield from self.average(state, me.workers, f"everyone {state.step}")
        version = yield from RecordUpdate(state.weights)
        return replace(state, weights=Weights(state.weights.vector, version))


@dataclass(frozen=True, kw_only=True)
class AveragingWithMomentum(Averaging):
    """Base of methods that average the optimizer state together with the weights, if wanted."""

    average_momentum: bool = False
    """whether the optimizer state is averaged with the weights; provenance: torch's averagers leave it local"""

    @program
    def average(self, state: Replica, group: Group, key: str) -> Program[Replica]:
        """Averages weights, and with `average_momentum` the optimizer state; arguments as in `Averaging`."""
        state = yield from super().average(state, group, key)
        if self.average_momentum:
            memory = yield from mean_of(state.optimizer_state, group, f"momentum of {key}")
            state = replace(state, optimizer_state=memory)
        return state


@dataclass(frozen=True, kw_only=True)
class HbsSgd(AveragingWithMomentum):
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
class KAvg(AveragingWithMomentum):
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


def moments_of(memory: OptimizerState) -> dict[str, Any]:
    """Returns the vectors that an optimizer remembers: the moments of Adam, the velocity of a momentum, or nothing."""
    for link in memory.links:
        if isinstance(link, Moments):
            return {"first": link.first, "second": link.second}
        if link is not None:
            return {"first": link}
    return {}


def with_moments(memory: OptimizerState, moments: Mapping[str, Any]) -> OptimizerState:
    """Returns the memory of an optimizer with other vectors; the reverse of `moments_of`."""
    links = (
        Moments(**moments) if isinstance(link, Moments) else link if link is None else moments["first"]
        for link in memory.links
    )
    return replace(memory, links=tuple(links))


@custom_guarantee("moments-meet", "all workers hold the same moment after every average of it over all of them")
def moments_meet(job: Any, trace: Any) -> Any:
    """Yields a sentence for each worker whose moment differs from the first worker's, if the run ends with its average.

    A run that ends between two averages says nothing, as with `replicas-meet`.
    """
    first = trace.states[job.team[0].rank]
    for name, period in job.method.moment_periods.items():
        if first.step == 0 or first.step % period:
            continue
        for rank in job.team[0].workers:
            own, others = (moments_of(state.optimizer_state) for state in (trace.states[rank], first))
            if arrays.bits(own[name]) != arrays.bits(others[name]):
                yield f"at the end rank {rank} holds another {name} moment than rank {job.team[0].rank}"


@dataclass(frozen=True, kw_only=True)
class DesLoc(Averaging):
    """Local steps of Adam; weights, first moments and second moments are averaged, each at a period of its own.

    step t, counted from 1:  x_i, m_i, v_i ← one step of Adam
    after it:                m_i ← (1/P) Σ_j m_j, if K_m | t;  v_i ← (1/P) Σ_j v_j, if K_v | t;
                             x_i ← (1/P) Σ_j x_j, if K | t

    With `optimizer: sgd` the velocity of a momentum is averaged as m.
    """

    name = "des-loc"
    source = (
        "Iacob et al. 2025, 'DES-LOC: Desynced Low Communication Adaptive Optimizers', arXiv 2505.22549; the rule is "
        "that of the authors' code, DESLoc in local_sgd.py of Iacob-Alexandru-Andrei/torchft"
    )
    guarantees = HbsSgd.guarantees | {moments_meet}

    ranges: ClassVar[Mapping[str, Range]] = {"first_moment_period": STEPS, "second_moment_period": STEPS}

    rate_of_adam: ClassVar[float | None] = None

    learning_rate: float = 0.01
    """η; provenance: ours, the best of 0.003, 0.01 and 0.03 on the digits; Adam's steps are as long as it says"""
    optimizer: Optimizer = "adam"
    """the rule of the local steps; provenance: the source has Adam, and SGD with momentum"""
    period: int = 4
    """K, steps between averages of the weights; provenance: ours, the source's are larger, of far more steps"""
    first_moment_period: int | None = None
    """K_m, steps between averages of the first moments; None: 3 K; provenance: the source recommends 3 K"""
    second_moment_period: int | None = None
    """K_v, steps between averages of the second moments; None: 6 K; provenance: the source recommends 6 K"""

    @property
    def moment_periods(self) -> Mapping[str, int]:
        """The steps between averages of each moment that the optimizer has."""
        first, second = self.first_moment_period, self.second_moment_period
        periods = {}
        if self.uses_adam or self.momentum:
            periods["first"] = 3 * self.period if first is None else first
        if self.uses_adam:
            periods["second"] = 6 * self.period if second is None else second
        return periods

    def bounds(self, workers: int) -> Mapping[Guarantee, float]:
        return {Guarantee.BOUNDED_STALENESS: self.period - 1}

    def longest_period(self, workers: int) -> int:
        return max([self.period, *self.moment_periods.values()])

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        rule = self.rule(me.layout.layers)
        while step := (yield from NextStep(state)):
            state = yield from local_step(rule, state, step.samples)
            state = yield from self.average_moments(me, state)
            if state.step % self.period == 0:
                state = yield from self.average_all(me, state)
        return state

    @program
    def average_moments(self, me: RankContext, state: Replica) -> Program[Replica]:
        """Averages those moments over all workers whose period ends with this step."""
        due = [name for name, period in self.moment_periods.items() if state.step % period == 0]
        if not due:
            return state
        moments = moments_of(state.optimizer_state)
        for name in due:
            moments[name] = yield from mean_of(moments[name], me.workers, f"{name} moment {state.step}")
        return replace(state, optimizer_state=with_moments(state.optimizer_state, moments))


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
