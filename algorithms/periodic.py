"""Periodic and hierarchical averaging: many local steps, averages now and then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from paceline.algorithms.guarantees import Guarantee
from paceline.algorithms.method import Descent, Me, Notion, Replica
from paceline.algorithms.operations import (
    AllReduce,
    Applied,
    Gradient,
    Load,
    Next,
    Work,
)
from paceline.algorithms.program import Program, program
from paceline.algorithms.values import Group, Rank, Weights


@dataclass(frozen=True, kw_only=True)
class HbsSgd(Descent):
    """Hierarchical bulk-synchronous SGD: local steps, an average in the group every K1, of everyone every K2.

    after step t, counted from 1:  x ← mean over all, if K2 | t;  else mean over the group, if K1 | t

    The rate is that of one learner, since weights are averaged, not gradients summed.
    """

    name = "hbs-sgd"
    notion = Notion.LOCAL_AGE
    source = "Cong and Bhardwaj, ICMLA'17, by the rule of Hier-AVG (Zhou and Cong, arXiv 1903.05133)"
    guarantees = frozenset({Guarantee.DETERMINISTIC, Guarantee.REPLICAS_MEET})

    k1: int = 2
    """steps between averages in a group; provenance: ours, the paper's values were not found"""
    k2: int = 8
    """steps between averages of everyone, a multiple of k1; provenance: ours"""
    group: int | Literal["node"] = "node"
    """the workers of a node, or so many consecutive workers"""

    def problems(self, nodes: Sequence[Sequence[Rank]]) -> list[str]:
        found = super().problems(nodes)
        workers = sum(map(len, nodes))
        if self.k1 < 1:
            found.append(f"k1: {self.k1} is no number of steps; give 1 or more")
        elif self.k2 < 1 or self.k2 % self.k1:
            found.append(f"k2: {self.k2} is no multiple of k1 = {self.k1}")
        if self.group != "node" and (self.group < 1 or workers % self.group):
            fitting = ", ".join(str(n) for n in range(1, workers + 1) if workers % n == 0)
            found.append(
                f"group: groups of {self.group} do not divide the {workers} workers; {fitting} would, or 'node'"
            )
        return found

    def group_of(self, me: Me) -> Group:
        """The ranks that this one averages with every K1 steps."""
        if self.group == "node":
            return me.node
        first = me.workers.ranks.index(me.rank) // self.group * self.group
        return Group(me.workers.ranks[first : first + self.group])

    @program
    def worker(self, me: Me, state: Replica) -> Program[Replica]:
        rule, near = self.rule(me.layout.layers), self.group_of(me)
        while step := (yield from Next(state)):
            batch = yield from Load(step.samples)
            gradient = yield from Gradient(state.weights, batch)
            yield from Work("update", gradient.vector.nbytes)
            vector, memory = rule.update(state.weights.vector, gradient.vector, state.memory)
            version = yield from Applied(
                Weights(vector, state.weights.version), [gradient.contribution()], advance=False
            )
            done = step.number + 1
            if done % self.k2 == 0:
                vector = yield from AllReduce(value=vector, group=me.workers, key=f"everyone {done}")
                version = yield from Applied(Weights(vector, version))
            elif done % self.k1 == 0 and len(near) > 1:
                vector = yield from AllReduce(value=vector, group=near, key=f"group {done}")
            state = Replica(done, Weights(vector, version), memory)
        return state
