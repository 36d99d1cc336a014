"""Classes of ranks, each of which runs one program for all its ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.algorithms.core.method import RankContext
from paceline.algorithms.core.program import Branches
from paceline.algorithms.core.values import Group, Rank
from paceline.algorithms.runtime.handles import HandleTable
from paceline.algorithms.runtime.update_log import UpdateLog
from paceline.simulator.cohort.lane_names import LaneNames
from paceline.simulator.cohort.promises import TimedPromise
from paceline.simulator.cohort.varying import Ranks, Varying, ranks_of, vary

Times = NDArray[np.float64]
Places = NDArray[np.int64]


class OneOfClass(Varying):
    """The rank in the handles of a class, which may be a key, because each rank has a table of its own."""

    __slots__ = ()

    def __hash__(self) -> int:  # type: ignore[override]  # of other numbers it raises `Diverges`
        return 0


@dataclass(eq=False)
class RankClass:
    """The ranks of a class, and what all their tasks share.

    Args:
        number: of the class.
        ranks: the ranks in ascending order.
        me: the context of all of them.
        log: their updates; the versions are equal at all ranks.
        handles: what their programs have started.
    """

    number: int
    ranks: Places
    me: RankContext
    log: UpdateLog
    handles: HandleTable[TimedPromise]
    branches: Branches = field(default_factory=Branches)
    names: LaneNames = field(default_factory=LaneNames)
    device: TimedPromise | None = None
    """the last gradient, after which the next one begins"""
    requested_s: Times | None = None
    """when the last gradient was requested"""
    ended_s: Times | None = None
    """when each rank's last gradient ended"""
    advanced_s: Times | None = None
    """when the last update was recorded"""

    @property
    def count(self) -> int:
        return len(self.ranks)

    @property
    def first(self) -> Rank:
        """Returns a rank that stands for all of them."""
        return Rank(int(self.ranks[0]))


def divided(classes: Sequence[Places], number: int, mask: NDArray[np.bool_]) -> list[Places]:
    """Returns the classes with one of them divided.

    Args:
        classes: the ranks of each class.
        number: of the class to divide.
        mask: the part of each of its ranks.

    >>> [ranks.tolist() for ranks in divided([np.arange(4)], 0, np.array([True, False, True, False]))]
    [[0, 2], [1, 3]]
    """
    own = classes[number]
    return [*classes[:number], own[mask], own[~mask], *classes[number + 1 :]]


class Contexts:
    """Creates the contexts of classes of ranks.

    Args:
        team: the contexts of all ranks.
    """

    def __init__(self, team: Sequence[RankContext]) -> None:
        self._team = team
        known: dict[int, Group] = {}

        def shared(group: Group) -> Group:
            return known.setdefault(id(group), Group(Ranks(group.ranks)))

        self._like = [
            replace(
                me,
                workers=shared(me.workers),
                leaders=shared(me.leaders),
                world=shared(me.world),
                batches=Ranks(me.batches),
            )
            for me in {me.role: me for me in reversed(team)}.values()
        ]
        numbers: dict[int, int] = {}
        self._nodes: list[tuple[int, ...]] = []
        self._node_of = np.empty(len(team), dtype=np.int64)
        for place, me in enumerate(team):
            if id(me.node) not in numbers:
                numbers[id(me.node)] = len(self._nodes)
                self._nodes.append(tuple(me.node.ranks))
            self._node_of[place] = numbers[id(me.node)]

    def roles(self) -> list[Places]:
        """Returns the ranks of each role: the classes with which a run begins."""
        roles = np.array([me.role for me in self._team])
        return [np.flatnonzero(roles == like.role) for like in self._like][::-1]

    def of(self, ranks: Places) -> RankContext:
        """Returns the context of a class of ranks of one role."""
        role = self._team[int(ranks[0])].role
        like = next(me for me in self._like if me.role == role)
        node: Any = Group(ranks_of(self._nodes, self._node_of[ranks]))
        before = vary(np.array([self._team[rank].before for rank in ranks.tolist()]))
        return replace(like, rank=vary(ranks), node=node, before=before)
