"""NoLoCo: rounds of local steps like DiLoCo's, whose outer step averages over a random pair instead of all workers.

The pairs of a round are a pure function of the method's seed, the round and the number of workers, so that peers need
no agreement. Both workers of a pair use the same two means. The terms that pull their slow weights together cancel in
the sum, so a round without gradients does not change the mean of all weights. A worker whose peer has died, and the one
that is left over if the number of workers is odd, is a group of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from paceline.algorithms.core.errors import PeerFailed
from paceline.algorithms.core.guarantees import Guarantee
from paceline.algorithms.core.method import RankContext
from paceline.algorithms.core.operations import Charge, NextStep, Receive, RecordUpdate, Send
from paceline.algorithms.core.option_groups import NOT_NEGATIVE, Range
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.steps import local_step
from paceline.algorithms.core.traffic import COMBINE, SCALE
from paceline.algorithms.core.values import Rank, Weights
from paceline.algorithms.methods.gossip import HALFWAY, halfway, order_of
from paceline.algorithms.methods.outer import NesterovRounds, Outer
from paceline.algorithms.methods.survivors import survives, without

PAIR_STEP = COMBINE + (2 * SCALE + COMBINE) + (SCALE + 2 * COMBINE) + COMBINE
"""memory traffic of a round's change, the velocity, the term that pulls slow weights together, and the sum"""


@dataclass(frozen=True, slots=True)
class RoundChange:
    """What a worker sends to its peer at the end of a round."""

    start: Any
    """its slow weights: those with which the round began"""
    change: Any
    """the slow weights minus the weights at the end of the round"""


@dataclass(frozen=True, kw_only=True)
class NoLoCo(NesterovRounds):
    """Rounds of local steps; the outer step uses the mean of a random pair and pulls its slow weights together.

    H times:  x_i ← one step of the inner optimizer
    then:     Δ = ½ (Δ_i + Δ_j) with Δ_i = x'_i − x_i;  y = ½ (x'_i + x'_j)
              V_i ← M V_i − R Δ − G (x'_i − y);  x'_i ← x'_i + V_i;  x_i ← x'_i

    j is the worker's peer of the round. Each worker has its own slow weights x', which differ between workers, and its
    own velocity V, which is not exchanged. A worker without a peer has Δ = Δ_i and y = x'_i.
    """

    name = "noloco"
    source = (
        "Kolehmainen et al. 2025, 'NoLoCo: No-all-reduce Low Communication Training Method for Large Models', arXiv "
        "2506.10911; the rule is that of the authors' code, sparse_optimizer_c.py of gensyn-ai/noloco"
    )
    guarantees = frozenset(
        {
            Guarantee.DETERMINISTIC,
            Guarantee.BOUNDED_STALENESS,
            Guarantee.CONSERVES_MEAN,
            Guarantee.SURVIVES_WORKERS,
        }
    )

    ranges: ClassVar[Mapping[str, Range]] = {"pull": NOT_NEGATIVE}

    outer_learning_rate: float = 0.7
    """R; provenance: the authors' code and configurations"""
    outer_momentum: float = 0.5
    """M; provenance: the authors' configurations of NoLoCo; the default of their class is 0.9"""
    pull: float | None = None
    """G; None: the outer learning rate; provenance: the authors' code, where both are one number"""
    weight_decay: float | None = 0.0
    """the inner optimizer's decay; None is its own default; provenance: the authors' code has Adam without decay"""
    seed: int = 0
    """seed of the random pairs, the same on all workers; provenance: ours, independent of the run's seed, so that runs
    with several seeds differ only in their data"""

    def problems(self, nodes: Sequence[Sequence[Rank]]) -> list[str]:
        problems = super().problems(nodes)
        if sum(map(len, nodes)) < 2:
            problems.append("name: found 1 worker, expected 2 or more, since a worker averages with another")
        return problems

    def bounds(self, workers: int) -> Mapping[Guarantee, float]:
        return {Guarantee.BOUNDED_STALENESS: self.period - 1, **survives(workers - 1)}

    def peer(self, me: RankContext, number: int) -> Rank | None:
        """Returns the worker's peer in a round; None if it is the one that is left over.

        Args:
            me: the worker.
            number: of the round, from 0.
        """
        ranks = me.workers.ranks
        order = order_of(self.seed, number, len(ranks))
        place = order.index(ranks.index(me.rank)) ^ 1
        return ranks[order[place]] if place < len(order) else None

    @program
    def worker(self, me: RankContext, state: Outer) -> Program[Outer]:
        rule, living = self.rule(me.layout.layers), frozenset(me.workers)
        while step := (yield from NextStep(state)):
            state = yield from local_step(rule, state, step.samples)
            if state.step % self.period == 0:
                state, living = yield from self.pair_step(me, state, living)
        return state

    @program
    def pair_step(
        self, me: RankContext, state: Outer, living: frozenset[Rank]
    ) -> Program[tuple[Outer, frozenset[Rank]]]:
        """Ends a round: exchanges it with the peer, if there is one, and takes the outer step.

        Args:
            me: the worker.
            state: its state after the last local step of the round.
            living: the living workers, as far as this one knows.

        Returns:
            The state after the outer step, and the living workers.
        """
        own = mean = RoundChange(state.start, state.start - state.weights.vector)
        peer, traffic = self.peer(me, state.step // self.period - 1), PAIR_STEP
        if peer is not None and peer in living:
            yield from Send(peer, own)
            try:
                mean = halfway(own, (yield from Receive(peer)).value)
                traffic = traffic + 2 * HALFWAY
            except PeerFailed as failure:
                living = without(living, failure)
        yield from Charge("update", own.change.nbytes, traffic=traffic)
        velocity, vector = self.after_pair(state, mean)
        version = yield from RecordUpdate(Weights(vector, state.weights.version))
        return replace(state, weights=Weights(vector, version), start=vector, velocity=velocity), living

    def after_pair(self, state: Outer, mean: RoundChange) -> tuple[Any, Any]:
        """Returns the velocity and the slow weights after the outer step.

        Args:
            state: the state before.
            mean: of the group.
        """
        pull = self.outer_learning_rate if self.pull is None else self.pull
        velocity = self.outer_momentum * state.velocity - self.outer_learning_rate * mean.change
        velocity = velocity - pull * (state.start - mean.start)
        return velocity, state.start + velocity
