"""Matches the collectives of the classes, in program order, and settles those that all members have entered."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.algorithms.core.operations import AllGather, AllReduce, Barrier, Broadcast, Reduce
from paceline.algorithms.core.values import Null
from paceline.algorithms.runtime.collective_matching import Collective
from paceline.simulator.cohort.classes import Places, RankClass, TimedPromise, Times
from paceline.simulator.cohort.group_sets import GroupSet, GroupSets, Membership
from paceline.simulator.cohort.prices import Entered, Prices
from paceline.simulator.cohort.stacked import Stacked, rows_of
from paceline.simulator.cohort.varying import Diverges, NotACohort, of_ranks

# Sums are computed in the order of the ranks of a group, as by the other interpreters, so they have the same bits.


Rows = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Contribution:
    """What the ranks of a class bring to a collective."""

    membership: Membership
    op: Collective
    roots: Places | None
    """the place of the root in each group of `membership.touched`; None without roots"""

    @property
    def value(self) -> Any:
        return getattr(self.op, "value", None)


def answers(groups: GroupSet, parts: Sequence[Contribution], roots: Places | None) -> list[Any]:
    """Returns the answer of each class.

    Args:
        groups: the groups of the collective.
        parts: the contributions of all classes.
        roots: the place of the root in each group; None without roots.
    """
    op = parts[0].op
    if isinstance(op, Barrier):
        return [None] * len(parts)
    if isinstance(op, AllGather):
        return _gathered(groups, parts)
    if isinstance(op, Broadcast):
        assert roots is not None, "a broadcast has a root"
        result = _of_roots(groups, parts, roots)
    else:
        result = _reduced(groups, parts, op)
    found: list[Any] = []
    for part in parts:
        here = part.membership
        if isinstance(op, Reduce) and not _at_roots(part, roots):
            found.append(None)
        elif isinstance(result, np.ndarray):
            found.append(result[here.one] if here.one is not None else Stacked(result[here.group_of]))
        else:
            found.append(result)
    return found


def _at_roots(part: Contribution, roots: Places | None) -> bool:
    """Returns whether the ranks of a class are the roots; a class has either only roots or none."""
    assert roots is not None, "a reduction has a root"
    here = part.membership
    return bool(here.place_of[0] == roots[here.group_of[0]])


def _reduced(groups: GroupSet, parts: Sequence[Contribution], op: AllReduce | Reduce) -> Any:
    """Returns the sum or mean of each group as a row; a vector without numbers if the values have none."""
    if all(isinstance(part.value, Null) for part in parts):
        return parts[0].value
    total = sums(groups, listed(groups, parts))
    return total / groups.sizes[:, np.newaxis] if op.op == "mean" else total


def listed(groups: GroupSet, parts: Sequence[Contribution]) -> Rows:
    """Returns the values of all members of all groups, group by group."""
    for part in parts:
        if not isinstance(part.value, Stacked | np.ndarray):
            raise NotACohort(f"it has vectors of the type {type(part.value).__name__}")
    only = parts[0]
    places = only.membership.rows()
    rows = rows_of(only.value, len(places))
    if len(parts) == 1 and (places == np.arange(groups.members)).all():
        return np.asarray(rows)
    whole = np.empty((groups.members, rows.shape[1]), dtype=rows.dtype)
    for part in parts:
        places = part.membership.rows()
        whole[places] = rows_of(part.value, len(places))
    return whole


def sums(groups: GroupSet, rows: Rows) -> Rows:
    """Returns the sum of each group, added in the order of its ranks.

    Args:
        groups: the groups.
        rows: the values of all members, group by group.
    """
    if len(groups.groups) == 1 and rows.shape[1] > 1:
        whole: Rows = np.add.reduce(rows, axis=0)[np.newaxis]  # NumPy adds rows one after the other
        return whole
    found = np.empty((len(groups.groups), rows.shape[1]), dtype=rows.dtype)
    for size in np.unique(groups.sizes).tolist():
        chosen = np.flatnonzero(groups.sizes == size)
        at = groups.offsets[chosen]
        total = rows[at]
        for place in range(1, size):
            total = total + rows[at + place]
        found[chosen] = total
    return found


def _of_roots(groups: GroupSet, parts: Sequence[Contribution], roots: Places) -> Any:
    """Returns the value of each group's root as a row."""
    if all(isinstance(part.value, Null) for part in parts):
        return parts[0].value
    return listed(groups, parts)[groups.offsets + roots]


def _gathered(groups: GroupSet, parts: Sequence[Contribution]) -> list[Any]:
    """Returns the tuple of all members' values for each class."""
    size = int(groups.sizes[0])
    if (groups.sizes != size).any():
        raise NotACohort("it gathers values in groups of different sizes")
    if len(parts) == 1 and isinstance(parts[0].value, Null):
        return [(parts[0].value,) * size]
    rows = listed(groups, parts)
    found: list[Any] = []
    for part in parts:
        here = part.membership
        if here.one is not None:
            first = int(groups.offsets[here.one])
            found.append(tuple(rows[first + place] for place in range(size)))
        else:
            at = groups.offsets[here.group_of]
            found.append(tuple(Stacked(rows[at + place]) for place in range(size)))
    return found


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
