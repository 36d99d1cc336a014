"""Matches the collectives of all ranks, checks their order, and computes the results.

Used by the interpreters that run all ranks in one process. Reductions are computed in rank order, so that a sum does
not depend on the order of arrival.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import Any, assert_never

from paceline.algorithms.core.operations import (
    AllGather,
    AllReduce,
    Barrier,
    Broadcast,
    Op,
    Reduce,
)
from paceline.algorithms.core.values import Group, Rank
from paceline.algorithms.runtime.program_errors import InvalidOperation, mismatch

Collective = AllReduce | Reduce | Broadcast | AllGather | Barrier
COLLECTIVES = (AllReduce, Reduce, Broadcast, AllGather, Barrier)


@dataclass(slots=True)
class Room:
    """One collective: the members that have arrived, with their operations."""

    kind: str
    group: Group
    key: str
    first: Rank
    place: str
    came: dict[Rank, Collective] = field(default_factory=dict)

    @property
    def full(self) -> bool:
        return len(self.came) == len(self.group)

    @property
    def missing(self) -> list[Rank]:
        return [rank for rank in self.group if rank not in self.came]


@dataclass(slots=True)
class Visits:
    """The collectives of one group and stream in order, and the number that each member has entered."""

    rooms: list[Room] = field(default_factory=list)
    positions: dict[Rank, int] = field(default_factory=dict)


class Meetings:
    """All collectives of a run. On each lane, members of a group must enter the same ones in the same order."""

    def __init__(self) -> None:
        self._visits: dict[tuple[Group, str], Visits] = {}

    def enter(self, rank: Rank, op: Collective, place: Callable[[], str], stream: str = "") -> Room:
        """Enters the next collective of a rank in this group.

        Args:
            rank: the rank that enters.
            op: the collective.
            place: returns the current line of the rank's program; called only for messages.
            stream: the lane. Each lane has its own order, because lanes may interleave differently on each rank.

        Returns:
            The collective; it is full once all members have arrived.

        Raises:
            InvalidOperation: the rank or the root is no member of the group.
            ProgramError: the others entered a different collective at this position.
        """
        if (visits := self._visits.get((op.group, stream))) is None:
            visits = self._visits[op.group, stream] = Visits()
        rooms, position, words = visits.rooms, visits.positions.get(rank, 0), signature(op)
        if position == len(rooms) or rank not in op.group:
            check_collective(op, rank)
            rooms.append(Room(words, op.group, op.key, rank, place()))
        room = rooms[position]
        if room.kind != words:
            raise mismatch(rank, place(), words, room.first, room.place, room.kind)
        visits.positions[rank] = position + 1
        room.came[rank] = op
        if room.full:
            rooms[position] = Room(room.kind, room.group, room.key, room.first, room.place)  # releases the payloads
        return room

    def open(self) -> Iterator[Room]:
        """Yields the collectives that some members have not entered."""
        for visits in self._visits.values():
            yield from (room for room in visits.rooms if room.came)


def check_collective(op: Collective, rank: Rank) -> None:
    """Checks that the rank and the root are members of the group and that the reduction is known.

    Args:
        op: the collective.
        rank: the rank that enters it.

    Raises:
        InvalidOperation: the check fails.
    """
    words = f"enters {type(op).__name__} {op.key!r} over {op.group}"
    if rank not in op.group:
        raise InvalidOperation(f"{words}, but is no member of {op.group}")
    if isinstance(op, Reduce | Broadcast) and op.root not in op.group:
        raise InvalidOperation(f"{words}, whose root, rank {op.root}, is no member of {op.group}")
    if isinstance(op, AllReduce | Reduce) and op.op not in ("sum", "mean"):
        raise InvalidOperation(f"{words} with {op.op!r}; reductions are sum and mean")


def signature(op: Collective) -> str:
    """Describes the properties of a collective on which all members must agree.

    >>> import numpy as np
    >>> signature(AllReduce(value=np.zeros(2), group=Group((Rank(0), Rank(1))), key="gradient 3"))
    "AllReduce 'gradient 3' mean of 16 bytes"
    """
    words = f"{type(op).__name__} {op.key!r}"
    match op:
        case AllReduce():
            return f"{words} {op.op} of {op.value.nbytes} bytes"
        case Reduce():
            return f"{words} {op.op} to rank {op.root} of {op.value.nbytes} bytes"
        case Broadcast():
            return f"{words} from rank {op.root} of {op.value.nbytes} bytes"
        case AllGather() | Barrier():
            return words
        case _:
            assert_never(op)


def describe(op: Op[Any]) -> str:
    """Describes an operation for messages, without payloads."""
    if isinstance(op, COLLECTIVES):
        return f"{signature(op)} over {op.group}"
    fields = [
        f"{name}={value!r}"
        for name in getattr(op, "__slots__", ())
        if (value := getattr(op, name)) is None or isinstance(value, str | int | float)
    ]
    return f"{type(op).__name__}({', '.join(fields)})"


def outcome(room: Room) -> Mapping[Rank, Any]:
    """Computes the answer of every member of a collective that is full."""
    ops = [room.came[rank] for rank in room.group]
    first = ops[0]
    match first:
        case AllReduce() | Reduce():
            total: Any = reduce(add, (op.value for op in ops))  # type: ignore[union-attr]
            result = total / len(ops) if first.op == "mean" else total
            if isinstance(first, AllReduce) and first.donate:
                return {rank: given(room.came[rank].value, result) for rank in room.group}  # type: ignore[union-attr]
            return {rank: result if isinstance(first, AllReduce) or rank == first.root else None for rank in room.group}
        case Broadcast():
            return dict.fromkeys(room.group, room.came[first.root].value)  # type: ignore[union-attr]
        case AllGather():
            return dict.fromkeys(room.group, tuple(op.value for op in ops))  # type: ignore[union-attr]
        case Barrier():
            return dict.fromkeys(room.group)
        case _:
            assert_never(first)


def sent_bytes(op: Collective, rank: Rank) -> int:
    """Returns the bytes that one member sends: a ring for all-reduce and all-gather, else from or to the root.

    torch.distributed does not report what it sends, so all interpreters count by the same closed forms.

    Args:
        op: the collective.
        rank: the member.

    >>> import numpy as np
    >>> sent_bytes(AllReduce(value=np.zeros(100), group=Group((Rank(0), Rank(1))), key=""), Rank(0))
    800
    """
    return int(bytes_of_member(op, len(op.group), getattr(op, "root", None) == rank))


def bytes_of_member(op: Collective, members: Any, at_root: Any) -> Any:
    """Returns the bytes that a member sends, or that each of several members sends.

    Args:
        op: the collective.
        members: the size of its group, or of the group of each member.
        at_root: whether it is the root, or whether each of them is.

    >>> import numpy as np
    >>> op = Reduce(value=np.zeros(100), group=Group((Rank(0), Rank(1))), root=Rank(1), key="")
    >>> bytes_of_member(op, 2, np.array([False, True])).tolist()
    [800, 0]
    """
    match op:
        case AllReduce(value=value):
            return 2 * (members - 1) * value.nbytes // members
        case AllGather(value=value):
            return (members - 1) * value.nbytes
        case Reduce(value=value):
            return (1 - at_root) * value.nbytes
        case Broadcast(value=value):
            return at_root * (members - 1) * value.nbytes
        case _:
            return 0


def given(spent: Any, result: Any) -> Any:
    """Copies the result of a donating all-reduce into the buffer of one member's value.

    Each member gets its own tensor, because `arrays.less` may overwrite it with the new weights. NumPy arrays are never
    overwritten, so all members share one.
    """
    return spent.copy_(result) if hasattr(spent, "copy_") else result
