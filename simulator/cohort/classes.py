"""Classes of ranks, each of which runs one program for all its ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.algorithms.core.method import RankContext
from paceline.algorithms.core.program import Branches
from paceline.algorithms.core.values import Group, Rank
from paceline.algorithms.runtime.handles import HandleTable, Promise
from paceline.algorithms.runtime.update_log import UpdateLog
from paceline.simulator.cohort.varying import NotACohort, Ranks, Varying, ranks_of, vary

# Which number is free depends on when operations end, so names may differ between the ranks of a class.


Times = NDArray[np.float64]


class LaneNames:
    """The lanes in use at the ranks of a class."""

    def __init__(self) -> None:
        self._begun_s: list[Times] = []
        """when each number was taken last"""
        self._users: list[list[tuple[TimedPromise, NDArray[np.bool_] | None]]] = []
        """what uses each number, with the ranks at which it does; None: all"""

    def take(self, now_s: Times, promise: TimedPromise, starter: object) -> Any:
        """Returns the name of a new lane: a text, or an array of numbers if it differs between ranks.

        Args:
            now_s: the time at each rank.
            promise: ends when the lane is not used any more.
            starter: the task that begins something in it.
        """
        left = np.ones(len(now_s), dtype=bool)
        names = np.zeros(len(now_s), dtype=np.int64)
        number = 0
        while left.any():
            if number == len(self._users):
                self._users.append([])
                self._begun_s.append(np.full(len(now_s), -np.inf))
            free = left & self._free(number, now_s, starter)
            if free.any():
                everywhere = bool(free.all())
                self._users[number].append((promise, None if everywhere else free))
                self._begun_s[number] = np.where(free, now_s, self._begun_s[number])
                names[free] = number + 1
                left &= ~free
                if everywhere:
                    return str(number + 1)
            number += 1
        return names

    def _free(self, number: int, now_s: Times, starter: object) -> NDArray[np.bool_]:
        """Returns at which ranks a number is free; forgets what has ended at all ranks."""
        free, kept = np.ones(len(now_s), dtype=bool), []
        first_s, last_s = now_s.min(), now_s.max()
        for promise, ranks in self._users[number]:
            earliest_s, latest_s = promise.limits_s
            if latest_s < first_s:
                continue
            if ranks is None and earliest_s > last_s:  # the usual case, without arrays
                return np.zeros(len(now_s), dtype=bool)
            if promise.ends_s is None:
                if promise.settled:
                    raise NotACohort("it cancels operations")
                busy = np.ones(len(now_s), dtype=bool)
            else:
                busy = promise.ends_s > now_s
                same = promise.ends_s == now_s
                if same.any() and promise.waiter is not starter:  # else it has given its lane back
                    if promise.waiter is not None or (same & (self._begun_s[number] < now_s)).any():
                        raise NotACohort("an operation begins at the instant at which another one of its rank ends")
                    busy |= same
            if ranks is not None:
                busy &= ranks
            if busy.any():
                kept.append((promise, ranks))
                free &= ~busy
        self._users[number] = kept
        return free


@dataclass(eq=False, slots=True)
class TimedPromise(Promise):
    """The outcome of something that a class has started."""

    ends_s: NDArray[np.float64] | None = None
    """when it ended at each rank; None before it has settled"""
    last_s: NDArray[np.float64] | None = None
    """for a collective: when the last member of each rank's group entered, if that is recorded"""
    waiter: object = None
    """the task that has waited for it last"""
    limits_s: tuple[float, float] = (-math.inf, math.inf)
    """its first and its last end at all ranks"""

    def end_at(self, ends_s: NDArray[np.float64], answer: Any = None) -> None:
        """Settles it.

        Args:
            ends_s: when it ended at each rank.
            answer: its answer.
        """
        self.ends_s = ends_s
        self.limits_s = float(ends_s.min()), float(ends_s.max())
        self.end(answer)


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
