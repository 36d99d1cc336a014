"""Where ranks meet for collectives: matching by key, the check of their order, and the arithmetic.

Shared by the interpreters that hold all ranks in one process. Reductions go in rank order, so that a sum depends on
the values alone and not on who came first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    """One allreduce_algorithm: who has come, with what."""

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
    """The rooms of one group and stream in their order, and how many of them each member has entered."""

    rooms: list[Room] = field(default_factory=list)
    positions: dict[Rank, int] = field(default_factory=dict)


class Meetings:
    """All collectives of a run. Members of a group must enter the same ones in the same order, lane by lane."""

    def __init__(self) -> None:
        self._visits: dict[tuple[Group, str], Visits] = {}

    def enter(self, rank: Rank, op: Collective, place: Callable[[], str], stream: str = "") -> Room:
        """Brings `rank` into its next room of this group.

        Args:
            rank: who enters.
            op: the collective.
            place: answers the line at which the rank's program stands; asked only for messages.
            stream: names the lane. Each lane has an order of its own: the order in which lanes interleave may differ
                from rank to rank.

        Raises:
            InvalidOperation: the rank or the root is no member of the group.
            ProgramError: the others entered another collective there.
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
            rooms[position] = Room(room.kind, room.group, room.key, room.first, room.place)  # forget the payloads
        return room


def check_collective(op: Collective, rank: Rank) -> None:
    """Refuses a rank or a root that is no member of the group, and an unknown reduction."""
    words = f"enters {type(op).__name__} {op.key!r} over {op.group}"
    if rank not in op.group:
        raise InvalidOperation(f"{words}, but is no member of {op.group}")
    if isinstance(op, Reduce | Broadcast) and op.root not in op.group:
        raise InvalidOperation(f"{words}, whose root, rank {op.root}, is no member of {op.group}")
    if isinstance(op, AllReduce | Reduce) and op.op not in ("sum", "mean"):
        raise InvalidOperation(f"{words} with {op.op!r}; reductions are sum and mean")


def signature(op: Collective) -> str:
    """What members must agree on, in words.

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
    """An operation in a few words, for messages: no payloads."""
    if isinstance(op, COLLECTIVES):
        return f"{signature(op)} over {op.group}"
    fields = [
        f"{name}={value!r}"
        for name in getattr(op, "__slots__", ())
        if (value := getattr(op, name)) is None or isinstance(value, str | int | float)
    ]
    return f"{type(op).__name__}({', '.join(fields)})"


def outcome(room: Room) -> Mapping[Rank, Any]:
    """What every member is answered, once all have come."""
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
    """Bytes that one member sends: a ring for all-reduce and all-gather, from or to the root for the rest.

    torch.distributed does not say what it sent; so every kind of run counts by the same closed forms.

    >>> import numpy as np
    >>> sent_bytes(AllReduce(value=np.zeros(100), group=Group((Rank(0), Rank(1))), key=""), Rank(0))
    800
    """
    members = len(op.group)
    match op:
        case AllReduce(value=value):
            return 2 * (members - 1) * value.nbytes // members
        case AllGather(value=value):
            return (members - 1) * value.nbytes
        case Reduce(value=value, root=root):
            return 0 if rank == root else value.nbytes
        case Broadcast(value=value, root=root):
            return (members - 1) * value.nbytes if rank == root else 0
        case _:
            return 0


def given(spent: Any, result: Any) -> Any:
    """The result in the memory that a member gave away for it, and so its own; one of NumPy's is shared by all.

    A program can write into a tensor alone, by what `arrays.less` takes as its `out`.
    """
    return spent.copy_(result) if hasattr(spent, "copy_") else result
