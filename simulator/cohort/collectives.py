"""Collectives of classes: who meets whom, in program order, when the collectives end, and what they return.

* Ranks of a class may be in different groups, such as those of their nodes. All these groups form a set. A collective
  of a class is one collective of each group of the set.
* Several classes may share the groups of a set: the first worker of each node and the others. If two sets have some of
  their groups in common, the class of one of them is divided, so that sets are either equal or disjoint.
* Sums are computed in the order of the ranks of a group, as by the other interpreters, so they have the same bits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from paceline.algorithms.core.operations import AllGather, Barrier, Broadcast, Reduce
from paceline.algorithms.core.values import Group, Null
from paceline.algorithms.runtime.collective_matching import Collective, bytes_of_member
from paceline.simulator.cohort.classes import CohortTask, RankClass, TimedPromise
from paceline.simulator.cohort.prices import Prices
from paceline.simulator.cohort.values import (
    Diverges,
    NotACohort,
    Places,
    Stacked,
    Times,
    Varying,
    VaryingRanks,
    of_ranks,
    rows_of,
)

MOST_NAMED = 1024
"""members whose ranks are listed in a name; a name is stored with each kept collective"""
MOST_CACHED = 1000
"""memberships that are kept; a program that creates groups in every step would fill the memory"""


class ClassPart(Protocol):
    """What a class contributes to something that several classes do together."""

    @property
    def own(self) -> RankClass: ...


P = TypeVar("P", bound=ClassPart)


class Turns(Generic[P]):
    """Brings together what all classes do as their n-th of a kind."""

    def __init__(self) -> None:
        self._done: defaultdict[tuple[int, Hashable], int] = defaultdict(int)
        self._open: dict[tuple[int, Hashable], list[P]] = {}

    def add(self, part: P, kind: Hashable, members: int) -> list[P] | None:
        """Adds what a class does next; returns the parts of all classes if it was the last one.

        Args:
            part: what the class contributes.
            kind: equal for what is done together.
            members: the ranks that do it.
        """
        turn = self._done[part.own.number, kind]
        self._done[part.own.number, kind] += 1
        parts = self._open.setdefault((turn, kind), [])
        parts.append(part)
        return self._open.pop((turn, kind)) if sum(entered.own.count for entered in parts) == members else None

    @property
    def waiting(self) -> bool:
        """Whether some classes have not done what others have."""
        return bool(self._open)


# --- groups -----------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class GroupSet:
    """Groups without common ranks.

    Args:
        number: of the set.
        groups: the groups.
    """

    number: int
    groups: tuple[Group, ...]
    sizes: Places = field(init=False)
    offsets: Places = field(init=False)
    """the place of each group's first member, if all members are listed group by group"""
    members: Places = field(init=False)
    """the ranks of all groups, group by group"""
    users: list[Membership] = field(init=False, default_factory=list)
    _names: dict[int, str] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.sizes = np.array([len(group) for group in self.groups])
        self.offsets = np.concatenate([[0], np.cumsum(self.sizes)[:-1]])
        self.members = np.array([rank for group in self.groups for rank in group.ranks])

    def name(self, group: int) -> str:
        """Returns the name of a group in records, which is shortened if it is very long."""
        if group not in self._names:
            members = self.groups[group]
            short = f"{len(members)} ranks from {members.ranks[0]} to {members.ranks[-1]}"
            self._names[group] = str(members) if len(members) <= MOST_NAMED else short
        return self._names[group]


@dataclass(eq=False, slots=True)
class Membership:
    """The groups of the ranks of a class.

    Args:
        own: the class.
        groups: the set.
        group_of: the place of each rank's group in the set.
        rows: the place of each rank, if all members of all groups are listed group by group.
    """

    own: RankClass
    groups: GroupSet
    group_of: Places
    rows: Places
    single: int | None = field(init=False)
    """the group, if it is the same for all ranks"""

    def __post_init__(self) -> None:
        first = int(self.group_of[0])
        self.single = first if (self.group_of == first).all() else None

    def spread(self, of_groups: NDArray[Any]) -> NDArray[Any]:
        """Returns for each rank the value of its group."""
        return of_groups[self.group_of] if self.single is None else np.full(len(self.group_of), of_groups[self.single])

    def within(self, of_groups: NDArray[Any]) -> Any:
        """Returns the row of each rank's group: one vector if it is the same for all ranks."""
        return Stacked(of_groups[self.group_of]) if self.single is None else of_groups[self.single]


class GroupSets:
    """All sets of groups of a run."""

    def __init__(self) -> None:
        self._set_of: dict[tuple[int, ...], GroupSet] = {}
        """the set of each group, by its ranks"""
        self._count = 0
        self._known: dict[tuple[int, int], tuple[Group, Membership]] = {}

    def membership(self, own: RankClass, group: Group) -> Membership:
        """Returns the groups of the ranks of a class.

        Args:
            own: the class.
            group: the group of an operation of its program.
        """
        key = own.number, id(group)
        if key not in self._known:
            if len(self._known) >= MOST_CACHED:
                self._known.clear()
            self._known[key] = group, self._new(own, group)
        return self._known[key][1]

    def _new(self, own: RankClass, group: Group) -> Membership:
        ranks: Any = group.ranks
        if not isinstance(ranks, VaryingRanks):
            ranks = VaryingRanks((tuple(ranks),), np.zeros(own.count, dtype=np.int64))
        parts = ranks.parts
        order = sorted(range(len(parts)), key=parts.__getitem__)
        group_of = np.argsort(order)[ranks.part_of]
        groups = self._set(own, tuple([parts[place] for place in order]), group_of)
        places = of_ranks(ranks.index(Varying(own.ranks)), own.count)
        made = Membership(own, groups, group_of, groups.offsets[group_of] + places)
        groups.users.append(made)
        return made

    def _set(self, own: RankClass, parts: tuple[tuple[int, ...], ...], group_of: Places) -> GroupSet:
        """Returns the set of some groups; if only some of them are in another set, a class is divided."""
        known = {id(groups): groups for part in parts if (groups := self._set_of.get(part)) is not None}
        for groups in known.values():
            before = [tuple(group.ranks) for group in groups.groups]
            if len(common := set(before).intersection(parts)) == len(before) == len(parts):
                return groups
            users = [(own, group_of, parts), *[(user.own, user.group_of, before) for user in groups.users]]
            for user, at, names in users:
                inside = np.array([name in common for name in names])[at]
                if inside.any() and not inside.all():
                    raise Diverges(inside, user.number)
            raise NotACohort("its groups change during the run")
        made: Any = tuple(map(Group, parts))  # type: ignore[arg-type]  # ranks are integers
        self._count += 1
        self._set_of |= dict.fromkeys(parts, groups := GroupSet(self._count, made))
        return groups


# --- collectives ------------------------------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class EnteredClass:
    """A class that has entered a collective.

    Args:
        own: the class.
        op: the operation of its program.
        here: the groups of its ranks.
        roots: the root of each rank's group; None for collectives without roots.
        entered_s: when each rank has entered.
        promise: settled when all members have entered.
    """

    own: RankClass
    op: Collective
    here: Membership
    roots: Places | None
    entered_s: Times
    promise: TimedPromise
    last_s: Times | None = None
    """when the last member of each rank's group has entered"""

    @property
    def value(self) -> Any:
        return getattr(self.op, "value", None)

    @property
    def at_root(self) -> Any:
        """Whether each rank is the root of its group; False without roots."""
        return self.roots is not None and self.roots == self.own.ranks

    def sent_bytes(self) -> Any:
        """Returns the bytes that each rank sends: a number if it follows from the operation for all."""
        sizes = self.here.groups.sizes
        members = int(sizes[0]) if (sizes == sizes[0]).all() else sizes[self.here.group_of]
        return bytes_of_member(self.op, members, self.at_root)

    def key(self, stream: str) -> Any:
        """Returns the name of the collective in the record, or a function that returns those of some ranks."""

        def name(group: int) -> str:
            return f"{type(self.op).__name__} {self.op.key} over {here.groups.name(group)}{stream}"

        here = self.here
        return (
            (lambda places: list(map(name, here.group_of[places].tolist())))
            if here.single is None
            else name(here.single)
        )


class CohortCollectives:
    """All collectives of a run.

    Args:
        prices: the time that collectives take.
    """

    def __init__(self, prices: Prices) -> None:
        self._sets, self._prices = GroupSets(), prices
        self._turns: Turns[EnteredClass] = Turns()

    @property
    def waiting(self) -> bool:
        """Whether members of a collective have not entered."""
        return self._turns.waiting

    def enter(self, task: CohortTask, op: Collective) -> EnteredClass:
        """Lets a class enter its next collective.

        Args:
            task: the task that enters it.
            op: the operation of its program.
        """
        if getattr(op, "op", "sum") not in ("sum", "mean"):
            raise NotACohort("it requests an unknown reduction")
        own, here = task.own, self._sets.membership(task.own, op.group)
        roots = of_ranks(op.root, own.count) if isinstance(op, Reduce | Broadcast) else None
        entry = EnteredClass(own, op, here, roots, task.now_s, TimedPromise())
        if isinstance(op, Reduce) and entry.at_root.any() and not entry.at_root.all():
            raise Diverges(entry.at_root)  # only roots receive the result
        if entries := self._turns.add(entry, (here.groups.number, task.stream), len(here.groups.members)):
            self._settle(here.groups, entries, task.stream)
        return entry

    def _settle(self, groups: GroupSet, entries: Sequence[EnteredClass], stream: str) -> None:
        if len({_signature(entry.op) for entry in entries}) > 1:
            raise NotACohort("its ranks enter different collectives")
        last_s = np.full(len(groups.groups), -np.inf)
        for entry in entries:
            if (single := entry.here.single) is not None:
                last_s[single] = max(last_s[single], entry.entered_s.max())
            else:
                np.maximum.at(last_s, entry.here.group_of, entry.entered_s)
        at = _roots(groups, entries)
        kind: Any = type(entries[0].op).__name__
        places = None if at is None else at - groups.offsets
        ends_s = self._prices.ends_s(groups, kind, _payload(groups, entries), places, stream, last_s)
        for entry, answer in zip(entries, answers(groups, entries, at), strict=True):
            entry.last_s = entry.here.spread(last_s)
            entry.promise.end_at(entry.here.spread(ends_s), answer)


def _signature(op: Collective) -> tuple[Any, ...]:
    """Returns the properties on which all members must agree, the root apart."""
    size = None if isinstance(op, AllGather | Barrier) else op.value.nbytes
    return type(op), str(op.key), getattr(op, "op", None), size


def _roots(groups: GroupSet, entries: Sequence[EnteredClass]) -> Places | None:
    """Returns the place of each group's root, if all members are listed group by group; None without roots."""
    if entries[0].roots is None:
        return None
    roots: Any = np.empty(len(groups.groups), dtype=np.int64)
    for entry in entries:
        roots[entry.here.group_of] = entry.roots
    if any((roots[entry.here.group_of] != entry.roots).any() for entry in entries):
        raise NotACohort("its ranks enter collectives with different roots")
    at = np.flatnonzero(groups.members == np.repeat(roots, groups.sizes))
    if len(at) < len(roots):
        raise NotACohort("the root of a collective is no member of its group")
    return at


def _payload(groups: GroupSet, entries: Sequence[EnteredClass]) -> int:
    """Returns the n of the closed forms: the bytes of one value, or for an all-gather of the gathered result."""
    op = entries[0].op
    if not isinstance(op, AllGather):
        return 0 if isinstance(op, Barrier) else int(op.value.nbytes)
    gathered = np.zeros(len(groups.groups), dtype=np.int64)
    for entry in entries:
        gathered += np.bincount(entry.here.group_of, minlength=len(gathered)) * entry.op.value.nbytes  # type: ignore[union-attr]
    if (gathered != gathered[0]).any():
        raise NotACohort("it gathers values of different sizes in several groups")
    return int(gathered[0])


def answers(groups: GroupSet, entries: Sequence[EnteredClass], roots: Places | None) -> list[Any]:
    """Returns the answer of each class.

    Args:
        groups: the groups of the collective.
        entries: the classes that have entered it.
        roots: the place of each group's root, if all members are listed group by group; None without roots.
    """
    op: Any = entries[0].op
    if isinstance(op, Barrier):
        return [None] * len(entries)
    gathers, size = isinstance(op, AllGather), int(groups.sizes[0])
    if gathers and (groups.sizes != size).any():
        raise NotACohort("it gathers values in groups of different sizes")
    of_groups: list[NDArray[Any]]
    if all(isinstance(entry.value, Null) for entry in entries) and (len(entries) == 1 or not gathers):
        results = [[op.value] * (size if gathers else 1)] * len(entries)
    else:
        rows = listed(groups, entries)
        if gathers:
            of_groups = [rows[groups.offsets + place] for place in range(size)]
        elif isinstance(op, Broadcast):
            of_groups = [rows[roots]]
        else:
            total = sums(groups, rows)
            of_groups = [total / groups.sizes[:, np.newaxis] if op.op == "mean" else total]
        results = [[entry.here.within(part) for part in of_groups] for entry in entries]
    if gathers:
        return list(map(tuple, results))
    received = [not isinstance(op, Reduce) or entry.at_root[0] for entry in entries]  # a class has only roots, or none
    return [result if own else None for (result,), own in zip(results, received, strict=True)]


def listed(groups: GroupSet, entries: Sequence[EnteredClass]) -> NDArray[Any]:
    """Returns the values of all members of all groups, group by group."""
    values = [entry.value for entry in entries]
    for value in values:
        if not isinstance(value, Stacked | np.ndarray):
            raise NotACohort(f"it has vectors of the type {type(value).__name__}")
    whole = np.empty((len(groups.members), len(values[0])), dtype=values[0].dtype)
    for entry, value in zip(entries, values, strict=True):
        whole[entry.here.rows] = rows_of(value, entry.own.count)
    return whole


def sums(groups: GroupSet, rows: NDArray[Any]) -> NDArray[Any]:
    """Returns the sum of each group, added in the order of its ranks.

    Args:
        groups: the groups.
        rows: the values of all members, group by group.
    """
    width = rows.shape[1]
    wide = rows if width > 1 else np.repeat(rows, 2, axis=1)  # NumPy adds rows of several numbers one after the other
    totals = np.empty((len(groups.groups), wide.shape[1]), dtype=rows.dtype)
    for size in np.unique(groups.sizes).tolist():
        chosen = np.flatnonzero(groups.sizes == size)
        totals[chosen] = np.add.reduce(wide[groups.offsets[chosen, np.newaxis] + np.arange(size)], axis=1)
    return totals[:, :width]
