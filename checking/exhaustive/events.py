"""The events of one run, and which of them happen before which.

Rules of this file:

* An event is the answer of one operation. Its `Key` is the lane and the choice, if the operation can be answered in
  several ways. Names of lanes, letters and handles are the same in all orders, so events of different runs compare.
* `Marks` are the objects that an event reads and writes: its lane, a cell, a lock, a channel, a handle. Two events
  conflict if one writes an object that the other reads or writes. Events that do not conflict can change places.
* One event happens before another if every order with the same answers has them in this order: the transitive closure
  of conflicts and of causes (a message is sent before it is received). Sets of events are bit masks of their indices.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from paceline.algorithms.core.operations import Op
from paceline.algorithms.core.values import Rank

Choice = Rank | Literal["time out"] | None


class LaneId(NamedTuple):
    """A lane, by the same name in every order."""

    rank: Rank
    line: str
    """its name by `Branches`"""
    number: int
    """counts the lanes of this rank and name: the layers of a gradient have the name of the lane that starts them"""


class Key(NamedTuple):
    """The next event of a lane; `choice` is the source of a message, or a timeout."""

    lane: LaneId
    choice: Choice = None


class LetterName(NamedTuple):
    """The `number`-th message with this tag from `source` to `to`."""

    source: Rank
    to: Rank
    tag: str
    number: int


class Marks(NamedTuple):
    """The objects that an event reads and writes, as bits of `Objects`."""

    reads: int
    writes: int

    def conflicts(self, other: Marks) -> bool:
        """Whether the order of the two events matters.

        >>> Marks(reads=1, writes=2).conflicts(Marks(reads=1, writes=4))
        False
        >>> Marks(reads=1, writes=2).conflicts(Marks(reads=2, writes=0))
        True
        """
        return bool(self.writes & (other.reads | other.writes) or self.reads & other.writes)

    def with_writes(self, more: int) -> Marks:
        """Returns the marks with further objects that are written."""
        return Marks(self.reads, self.writes | more)


class Objects:
    """Gives each object a bit, the same one in all runs of an exploration."""

    def __init__(self) -> None:
        self._bits: dict[Hashable, int] = {}
        self._kinds: dict[str, int] = {}

    def bit(self, kind: str, *name: Hashable) -> int:
        """Returns the bit of an object.

        >>> objects = Objects()
        >>> objects.bit("cell", "x"), objects.bit("lock", "x"), objects.bit("cell", "y"), objects.bit("cell", "x")
        (1, 2, 4, 1)
        >>> objects.all("cell")
        5
        """
        if (bit := self._bits.get((kind, *name))) is None:
            bit = self._bits[kind, *name] = 1 << len(self._bits)
            self._kinds[kind] = self.all(kind) | bit
        return bit

    def all(self, kind: str) -> int:
        """Returns the bits of all objects of this kind that have one."""
        return self._kinds.get(kind, 0)


@dataclass(slots=True, eq=False)
class Request:
    """One operation that a lane asked for, whether or not it was answered."""

    lane: LaneId
    op: Op[Any]
    asked: int
    """the index of the event that led to it; -1 if the run began with it"""
    marks: Marks
    """without the choice and the effects of the answer"""
    waits: tuple[Hashable, ...] = ()
    """the handles that it waits for"""
    least: int = 0
    """how many of them must be settled"""
    needs: int = 0
    """further events that must come before its answer: the other members asked for their part of the collective"""
    done: int | None = None
    """the index of its event"""
    cut: int | None = None
    """the index of the event that ended its lane before: a cancellation"""


@dataclass(slots=True, eq=False)
class Event:
    """One answered operation."""

    key: Key
    request: Request
    marks: Marks
    needs: int
    """events without which it could not have happened, apart from conflicts"""
    grant: bool = False
    """whether it was granted one of the steps that several ranks share"""
    settles: list[Hashable] = field(default_factory=list)
    """the handles that it settled"""
    sent: LetterName | None = None
    took: LetterName | None = None
    before: int = 0
    """the events that happen before it"""


def put_in_order(events: Sequence[Event], start: int) -> None:
    """Computes `before` of the events from index `start`.

    Args:
        events: the events of a run.
        start: the index of the first event without `before`.
    """
    for index in range(start, len(events)):
        event = events[index]
        before = closure(events, event.needs)
        for earlier in range(index - 1, -1, -1):
            if not before >> earlier & 1 and events[earlier].marks.conflicts(event.marks):
                before |= 1 << earlier | events[earlier].before
        event.before = before


def closure(events: Sequence[Event], mask: int) -> int:
    """Returns these events and all that happen before them.

    Args:
        events: the events of a run, with `before`.
        mask: some of them.
    """
    whole = mask
    for index in indices(mask):
        whole |= events[index].before
    return whole


def indices(mask: int) -> list[int]:
    """Returns the indices of the bits of a mask, in ascending order.

    >>> indices(0b1101)
    [0, 2, 3]
    """
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found
