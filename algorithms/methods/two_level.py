"""Two-level synchronization: inside each node first, then between one rank of each node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paceline.algorithms.core.guarantees import Guarantee
from paceline.algorithms.core.lars import Lars
from paceline.algorithms.core.method import AccumulatingMethod, RankContext, Replica, StalenessKind
from paceline.algorithms.core.operations import AllReduce, Broadcast, NextStep, Reduce
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.steps import accumulated_gradient, descend
from paceline.algorithms.core.traffic import SCALE

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
