"""The answers of collectives, computed for all members of all groups of a set at once.

Sums are computed in the order of the ranks of a group, as by the other interpreters, so they have the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.algorithms.core.operations import AllGather, AllReduce, Barrier, Broadcast, Reduce
from paceline.algorithms.core.values import Null
from paceline.algorithms.runtime.collective_matching import Collective
from paceline.simulator.cohort.classes import Places
from paceline.simulator.cohort.group_sets import GroupSet, Membership
from paceline.simulator.cohort.stacked import Stacked, rows_of
from paceline.simulator.cohort.unsuitable import NotACohort

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
