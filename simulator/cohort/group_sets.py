"""Sets of groups that enter collectives together: all workers, or the workers of each node.

* Ranks of a class may be in different groups, such as those of their nodes. All these groups form a set. A collective
  of a class is one collective of each group of the set.
* Several classes may share the groups of a set: the first worker of each node and the others. If two sets have some of
  their groups in common, the class of one of them is divided, so that sets are either equal or disjoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.algorithms.core.values import Group
from paceline.simulator.cohort.classes import Places, RankClass, Times
from paceline.simulator.cohort.varying import Diverges, NotACohort, VaryingRanks

MOST_NAMED = 1024
"""members whose ranks are listed in a name; a name is stored with each kept collective"""
MOST_CACHED = 1000
"""memberships that are kept; a program that creates groups in every step would fill the memory"""


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
    _names: dict[int, str] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.sizes = np.array([len(group) for group in self.groups])
        self.offsets = np.concatenate([[0], np.cumsum(self.sizes)[:-1]])

    def name(self, group: int) -> str:
        """Returns the name of a group in records, which is shortened if it is very long."""
        if group not in self._names:
            one = self.groups[group]
            short = f"{len(one)} ranks from {one.ranks[0]} to {one.ranks[-1]}"
            self._names[group] = str(one) if len(one) <= MOST_NAMED else short
        return self._names[group]

    @property
    def members(self) -> int:
        """The ranks of all groups together."""
        return int(self.sizes.sum())


@dataclass(eq=False)
class Membership:
    """The groups of the ranks of a class.

    Args:
        of: the class.
        groups: the set.
        group_of: the place of each rank's group in the set.
        place_of: the place of each rank in its group.
    """

    of: RankClass
    groups: GroupSet
    group_of: Places
    place_of: Places
    one: int | None = field(init=False)
    """the group, if it is the same for all ranks"""
    _order: Places | None = field(init=False, default=None)
    _starts: Places | None = field(init=False, default=None)
    touched: Places = field(init=False)
    """the groups with ranks of this class"""

    def __post_init__(self) -> None:
        first = int(self.group_of[0])
        self.one = first if (self.group_of == first).all() else None
        order = np.argsort(self.group_of, kind="stable")
        self.touched, starts = np.unique(self.group_of[order], return_index=True)
        if self.one is None:
            self._order, self._starts = order, starts
            if (order == np.arange(len(order))).all():
                self._order = None

    def latest(self, times_s: Times) -> Times:
        """Returns the latest of the times of the ranks of this class in each of the groups of `touched`."""
        if self.one is not None:
            return np.array([times_s.max()])
        assert self._starts is not None, "with several groups, ranks are sorted by group"
        latest: Times = np.maximum.reduceat(times_s if self._order is None else times_s[self._order], self._starts)
        return latest

    def spread(self, of_groups: NDArray[Any]) -> NDArray[Any]:
        """Returns for each rank the value of its group."""
        return np.full(len(self.group_of), of_groups[self.one]) if self.one is not None else of_groups[self.group_of]

    def rows(self) -> Places:
        """Returns the place of each rank, if all members of all groups are listed group by group."""
        return self.groups.offsets[self.group_of] + self.place_of


class GroupSets:
    """All sets of groups of a run."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, ...], int] = {}
        """the number of each group, by its ranks"""
        self._groups: list[Group] = []
        self._sets: dict[tuple[int, ...], GroupSet] = {}
        """by the numbers of their groups"""
        self._set_of: dict[int, GroupSet] = {}
        self._users: dict[int, list[Membership]] = {}
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
            self._known[key] = group, self._found(own, group)
        return self._known[key][1]

    def _found(self, own: RankClass, group: Group) -> Membership:
        ranks: Any = group.ranks
        if isinstance(ranks, VaryingRanks):
            parts, part_of = ranks.parts, ranks.part_of
        else:
            parts, part_of = (tuple(ranks),), np.zeros(own.count, dtype=np.int64)
        numbers = [self._number(part) for part in parts]
        order = sorted(range(len(parts)), key=numbers.__getitem__)
        key = tuple(numbers[place] for place in order)
        group_of = np.argsort(np.array(order))[part_of]
        groups = self._sets.get(key) or self._new(own, key, group_of)
        membership = Membership(own, groups, group_of, self._places(own, parts, part_of))
        self._users.setdefault(groups.number, []).append(membership)
        return membership

    def _number(self, part: tuple[Any, ...]) -> int:
        number = self._numbers.setdefault(part, len(self._groups))
        if number == len(self._groups):
            self._groups.append(Group(part))
        return number

    def _new(self, own: RankClass, key: tuple[int, ...], group_of: Places) -> GroupSet:
        """Creates a set, unless it has some groups in common with another one: then a class is divided."""
        others = {self._set_of[number].number: self._set_of[number] for number in key if number in self._set_of}
        for other in others.values():
            known = {number for number in key if self._set_of.get(number) is other}
            if len(known) < len(key):
                inside = np.array([number in known for number in key])
                raise Diverges(inside[group_of])
            for user in self._users[other.number]:
                names = [self._numbers[tuple(group.ranks)] for group in other.groups]
                mask = np.array([name in known for name in names])[user.group_of]
                if mask.any() and not mask.all():
                    raise _of(Diverges(mask), user.of)
            raise NotACohort("its groups change during the run")
        groups = GroupSet(len(self._sets), tuple(self._groups[number] for number in key))
        self._sets[key] = groups
        for number in key:
            self._set_of[number] = groups
        return groups

    def _places(self, own: RankClass, parts: Sequence[tuple[int, ...]], part_of: Places) -> Places:
        places = [{rank: place for place, rank in enumerate(part)} for part in parts]
        try:
            pairs = zip(part_of.tolist(), own.ranks.tolist(), strict=True)
            return np.array([places[part][rank] for part, rank in pairs])
        except KeyError as error:
            raise NotACohort(f"rank {error} enters a collective of a group that it is no member of") from error


def _of(diverges: Diverges, own: RankClass) -> Diverges:
    diverges.of = own.number
    return diverges
