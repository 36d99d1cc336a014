"""Matches the collectives of the classes, in program order, and settles those that all members have entered."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from paceline.algorithms.core.operations import AllGather, AllReduce, Barrier, Broadcast, Reduce
from paceline.algorithms.runtime.collective_matching import Collective
from paceline.simulator.cohort.classes import Places, RankClass, Times
from paceline.simulator.cohort.group_sets import GroupSet, GroupSets, Membership
from paceline.simulator.cohort.prices import Entered, Prices
from paceline.simulator.cohort.promises import TimedPromise
from paceline.simulator.cohort.reductions import Contribution, answers
from paceline.simulator.cohort.unsuitable import Diverges, NotACohort
from paceline.simulator.cohort.varying import of_ranks


@dataclass(eq=False, slots=True)
class Room:
    """A collective of each group of a set, with what has entered."""

    signature: tuple[Any, ...]
    parts: list[Contribution] = field(default_factory=list)
    promises: list[TimedPromise] = field(default_factory=list)
    entries_s: list[Times] = field(default_factory=list)
    members: int = 0


class Rooms:
    """All collectives of a run.

    Args:
        sets: the sets of groups.
        prices: the time that collectives take.
        lasts: whether last entries are recorded.
    """

    def __init__(self, sets: GroupSets, prices: Prices, *, lasts: bool) -> None:
        self._sets, self._prices, self._lasts = sets, prices, lasts
        self._positions: defaultdict[tuple[int, int, str], int] = defaultdict(int)
        """how many collectives each class has entered, by set and stream"""
        self._open: dict[tuple[int, str, int], Room] = {}

    def enter(self, own: RankClass, op: Collective, stream: str, now_s: Times, promise: TimedPromise) -> Membership:
        """Lets a class enter its next collective.

        Args:
            own: the class.
            op: the operation of its program.
            stream: the program in whose order it is counted.
            now_s: when each rank enters.
            promise: settled when all members have entered.

        Returns:
            The groups of the ranks.
        """
        here = self._sets.membership(own, op.group)
        roots = _roots(here, op)
        _check(op)
        turn = self._positions[own.number, here.groups.number, stream]
        self._positions[own.number, here.groups.number, stream] += 1
        key, signature = (here.groups.number, stream, turn), _signature(op)
        room = self._open.setdefault(key, Room(signature))
        if room.signature != signature:
            raise NotACohort("its ranks enter different collectives")
        room.parts.append(Contribution(here, op, roots))
        room.promises.append(promise)
        room.entries_s.append(now_s)
        room.members += own.count
        if room.members == here.groups.members:
            del self._open[key]
            self._settle(room, here.groups, stream)
        return here

    @property
    def waiting(self) -> bool:
        """Whether members of a collective have not entered."""
        return bool(self._open)

    def _settle(self, room: Room, groups: GroupSet, stream: str) -> None:
        last_s = np.full(len(groups.groups), -np.inf)
        roots: Places | None = None
        for part, entries_s in zip(room.parts, room.entries_s, strict=True):
            here = part.membership
            last_s[here.touched] = np.maximum(last_s[here.touched], here.latest(entries_s))
            if part.roots is not None:
                roots = np.zeros(len(groups.groups), dtype=np.int64) if roots is None else roots
                roots[here.touched] = part.roots
        if roots is not None and any(
            (roots[part.membership.touched] != part.roots).any() for part in room.parts if part.roots is not None
        ):
            raise NotACohort("its ranks enter collectives with different roots")
        first = room.parts[0].op
        ends_s = self._prices.ends_s(
            Entered(groups, type(first).__name__, _payload(groups, room), roots, stream), last_s
        )
        found = answers(groups, room.parts, roots)
        for part, promise, answer in zip(room.parts, room.promises, found, strict=True):
            if self._lasts:
                promise.last_s = part.membership.spread(last_s)
            promise.end_at(part.membership.spread(ends_s), answer)


def _check(op: Collective) -> None:
    """Refuses an unknown reduction; ranks and roots that are no members are found when their places are looked up."""
    if isinstance(op, AllReduce | Reduce) and op.op not in ("sum", "mean"):
        raise NotACohort("it requests an unknown reduction")


def _signature(op: Collective) -> tuple[Any, ...]:
    """Returns the properties on which all members must agree, the root apart."""
    size = None if isinstance(op, AllGather | Barrier) else op.value.nbytes
    return type(op), str(op.key), getattr(op, "op", None), size


def _roots(here: Membership, op: Collective) -> Places | None:
    """Returns the place of the root in each group of `touched`, and divides classes that have roots and others."""
    if not isinstance(op, Reduce | Broadcast):
        return None
    roots = of_ranks(op.root, len(here.group_of))
    if isinstance(op, Reduce):
        mine = roots == here.of.ranks
        if mine.any() and not mine.all():
            raise Diverges(mine)
    found = []
    _, firsts = np.unique(here.group_of, return_index=True)
    for group, at in zip(here.touched.tolist(), firsts.tolist(), strict=True):
        found.append(here.groups.groups[group].ranks.index(roots[at].item()))
    places = np.array(found)
    whole = np.zeros(len(here.groups.groups), dtype=np.int64)
    whole[here.touched] = roots[firsts]
    if (whole[here.group_of] != roots).any():
        raise NotACohort("its ranks enter collectives with different roots")
    return places


def _payload(groups: GroupSet, room: Room) -> int:
    """Returns the n of the closed forms: the bytes of one value, or for an all-gather of the gathered result."""
    op = room.parts[0].op
    if isinstance(op, Barrier):
        return 0
    if not isinstance(op, AllGather):
        return int(op.value.nbytes)
    if len(groups.groups) == 1:
        return sum(part.value.nbytes * len(part.membership.group_of) for part in room.parts)
    sizes = {part.value.nbytes for part in room.parts}
    if len(sizes) > 1 or (groups.sizes != groups.sizes[0]).any():
        raise NotACohort("it gathers values of different sizes in several groups")
    return int(sizes.pop()) * int(groups.sizes[0])
