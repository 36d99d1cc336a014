"""The sequences of events that a run shows to be possible and did not take, and the trees that keep the new ones.

Each sequence begins after a prefix of the run, at some event that it leaves out: it consists of the events after the
prefix that do not depend on the one left out, and of one last event that conflicts with it.

* A later event that conflicts with an earlier one could come first (`_reversed`).
* A receive could have taken a message that was sent or taken by another lane later, or could have timed out
  (`_other_letters`, `_stolen_letters`, `_timeouts`).
* What a cancellation has ended could have happened before (`_cut`).
* A lane that waits for a lock at the end of the run could have had it earlier (`_reversed`).

Source of the wakeup trees: Abdulla, Aronis, Jonsson, Sagonas, "Optimal Dynamic Partial Order Reduction", POPL 2014,
definitions 3.2 to 3.5 and section 5.1; "Source Sets: A Foundation for Optimal Dynamic Partial Order Reduction", JACM
2017.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from paceline.algorithms.core.operations import Lock, NextStep, Receive, Unlock, Wait, WaitFor
from paceline.checking.exhaustive.events import (
    Choice,
    Key,
    LaneEvent,
    LetterName,
    Marks,
    Request,
    RunWithEvents,
    closure,
    indices,
)


class Item(NamedTuple):
    """One event of a sequence."""

    key: Key
    marks: Marks
    grant: bool
    """whether it takes one of the steps that several ranks share"""
    number: int
    """the index of the event in the run; the last item of a sequence is no event of it"""
    before: int
    """the indices of the events that happen before it"""


Sequence = tuple[Item, ...]
PLENTY = 2**62
"""the number of steps left if ranks do not share them"""


@dataclass(slots=True, eq=False)
class Branch:
    """A node of a wakeup tree; its children are in the order of their exploration."""

    key: Key
    marks: Marks
    grant: bool
    following: list[Branch] = field(default_factory=list)


def without(key: Key, marks: Marks, grant: bool, sequence: Sequence, spare: int) -> Sequence | None:
    """Returns what is left of a sequence if this event comes first; None if that would give other orders.

    This is "a weak initial of the sequence" of the paper: the event is one of the sequence, and none of the sequence
    happens before it, or it is none of the sequence and conflicts with none.

    Args:
        key: the event.
        marks: its marks.
        grant: whether it takes a shared step.
        sequence: events that can follow the same prefix.
        spare: the number of shared steps that are left after the sequence.
    """
    passed = 0
    for position, item in enumerate(sequence):
        if item.key.lane == key.lane:
            same = item.key == key and not item.before & passed
            return sequence[:position] + sequence[position + 1 :] if same else None
        passed |= 1 << item.number
    if (grant and spare < 1) or any(marks.conflicts(item.marks) for item in sequence):
        return None
    return sequence


def insert(branches: list[Branch], sequence: Sequence, spare: int) -> bool:
    """Adds a sequence to a wakeup tree, unless the tree leads to all of its orders already.

    Args:
        branches: the children of the tree's root.
        sequence: the events to add.
        spare: the number of shared steps that are left after the sequence.

    Returns:
        Whether it was added.
    """
    while sequence:
        for branch in branches:
            rest = without(branch.key, branch.marks, branch.grant, sequence, spare)
            if rest is not None:
                if not branch.following:
                    return False
                if branch.grant and len(rest) == len(sequence):
                    spare -= 1
                sequence, branches = rest, branch.following
                break
        else:
            for item in sequence:
                branch = Branch(item.key, item.marks, item.grant)
                branches.append(branch)
                branches = branch.following
            return True
    return False


class Reversal(NamedTuple):
    """A possible continuation after the first `at` events of the run."""

    at: int
    sequence: Sequence


class Races:
    """The reversals of one run.

    Args:
        run: the run, at its end; its events have their `before`.
        start: the index of the first event that is not in an earlier run; reversals of earlier events are known.
    """

    def __init__(self, run: RunWithEvents, start: int) -> None:
        self.run, self.events, self.start = run, run.events, start
        self._sent = {event.sent: index for index, event in enumerate(self.events) if event.sent is not None}
        self._took = {event.took: index for index, event in enumerate(self.events) if event.took is not None}
        self._receives = [(request, request.op) for request in run.requests if isinstance(request.op, Receive)]

    def all(self) -> Iterator[Reversal]:
        """Yields all reversals."""
        for index in range(self.start, len(self.events)):
            yield from self._reversed(index, self.events[index].request, self.events[index])
        for request in self.run.requests:
            if request.done is None and request.cut is None and isinstance(request.op, Lock):
                yield from self._reversed(len(self.events), request, None)
            if request.cut is not None and not isinstance(request.op, Receive):
                yield from self._cut(request, request.cut)
        for request, op in self._receives:
            yield from self._timeouts(request, op)
            yield from self._other_letters(request, op)
            yield from self._stolen_letters(request, op)

    # --- the kinds of reversals ----------------------------------------------------------------------------------

    def _reversed(self, index: int, request: Request, event: LaneEvent | None) -> Iterator[Reversal]:
        """Yields the runs in which a request is answered before an earlier event that conflicts with it."""
        marks = request.marks if event is None else event.marks
        causes = closure(self.events, _needs(request) if event is None else event.needs)
        choice, took = (None, None) if event is None else (event.key.choice, event.took)
        for earlier in range(min(index, len(self.events)) - 1, -1, -1):
            other = self.events[earlier]
            if other.key.lane == request.lane or causes >> earlier & 1 or not other.marks.conflicts(marks):
                continue
            middle = self._independent(earlier, index)
            done = self._mask(earlier, middle)
            if self._possible(request, done) and (took is None or self._is_next(took, done)):
                yield self._reversal(earlier, middle, request, choice, marks)

    def _cut(self, request: Request, index: int) -> Iterator[Reversal]:
        """Yields the runs in which an operation is answered before its lane is cancelled."""
        if isinstance(request.op, Wait | WaitFor | Lock) or request.needs:
            middle = self._independent(index, len(self.events))
        else:
            middle = []
        done = self._mask(index, middle)
        if max(index, *middle, 0) >= self.start and not request.needs & ~done and self._possible(request, done):
            yield self._reversal(index, middle, request, None, request.marks)

    def _timeouts(self, request: Request, op: Receive) -> Iterator[Reversal]:
        index = request.done if request.done is not None else request.cut
        if op.timeout_s is not None and index is not None and index >= self.start:
            yield self._reversal(index, [], request, "time out", request.marks)

    def _other_letters(self, request: Request, op: Receive) -> Iterator[Reversal]:
        """Yields the runs in which a receive takes another message than it took, or one before it is cancelled."""
        index = request.done if request.done is not None else request.cut
        if index is None:
            return
        for letter, sent in self._sent.items():
            if not _matches(request, op, letter) or max(index, sent) < self.start:
                continue
            if self.events[index].took == letter and request.done is not None:
                continue
            if self.events[sent].before >> index & 1:
                continue
            middle = self._independent(index, sent + 1)
            if self._is_next(letter, self._mask(index, middle)):
                yield self._reversal(index, middle, request, letter.source, request.marks)

    def _stolen_letters(self, request: Request, op: Receive) -> Iterator[Reversal]:
        """Yields the runs in which a receive takes a message that another lane of the rank took."""
        for letter, index in self._took.items():
            if not _matches(request, op, letter) or self.events[index].key.lane == request.lane:
                continue
            if any(end is not None and end <= index for end in (request.done, request.cut)):
                continue
            asked = request.asked
            if max(index, asked) < self.start or asked == index:
                continue
            if asked > index and self.events[asked].before >> index & 1:
                continue
            yield self._reversal(index, self._independent(index, asked + 1), request, letter.source, request.marks)

    # --- sequences -----------------------------------------------------------------------------------------------

    def _independent(self, index: int, end: int) -> list[int]:
        """Returns the events after `index` and before `end` that do not depend on that event."""
        return [number for number in range(index + 1, end) if not self.events[number].before >> index & 1]

    def _mask(self, index: int, middle: list[int]) -> int:
        return (1 << index) - 1 | sum(1 << number for number in middle)

    def _reversal(self, at: int, middle: list[int], request: Request, choice: Choice, marks: Marks) -> Reversal:
        items = [
            Item(event.key, event.marks, event.grant, index, event.before)
            for index, event in ((number, self.events[number]) for number in middle)
        ]
        if isinstance(request.op, Receive):
            marks = self.run.choosing(marks, request.op, request.lane, choice)
        if grant := isinstance(request.op, NextStep) and self.events[at].grant:
            marks = Marks(self.events[at].marks.reads, self.run.objects.bit("lane", request.lane))
        if (request.lane.line, request.lane.number) != ("", 0):  # its new answer may end the lane and settle its handle
            marks = marks.with_writes(self.run.objects.bit("handle", (request.lane, 0)))
        needs = _needs(request)
        if choice is not None and choice != "time out" and isinstance(request.op, Receive):
            needs |= sum(1 << item.number for item in items if self._sends(item.number, request, request.op, choice))
        needs |= sum(1 << item.number for item in items if item.marks.conflicts(marks))
        last = Item(Key(request.lane, choice), marks, grant, len(self.events), closure(self.events, needs))
        return Reversal(at, (*items, last))

    def _sends(self, index: int, request: Request, op: Receive, source: Choice) -> bool:
        sent = self.events[index].sent
        return sent is not None and (sent.source, sent.to, sent.tag) == (source, request.lane.rank, op.tag)

    # --- what is possible after some events ----------------------------------------------------------------------

    def _possible(self, request: Request, done: int) -> bool:
        """Whether a request can be answered after the events in a mask, which include its causes."""
        match request.op:
            case Wait() | WaitFor():
                settled = {name for index in indices(done) for name in self.events[index].settles}
                return sum(name in settled for name in request.waits) >= min(request.least, len(request.waits))
            case Lock():
                return self._is_free(request.marks.writes, done)
            case _:
                return True

    def _is_free(self, writes: int, done: int) -> bool:
        locks = self.run.objects.all("lock")
        for index in reversed(indices(done)):
            event = self.events[index]
            if isinstance(event.request.op, Lock | Unlock) and event.marks.writes & writes & locks:
                return isinstance(event.request.op, Unlock)
        return True

    def _is_next(self, letter: LetterName, done: int) -> bool:
        """Whether a letter is the first of its channel that is not received yet."""
        for number in range(letter.number + 1):
            earlier = letter._replace(number=number)
            if not done >> self._took.get(earlier, len(self.events)) & 1:
                return earlier == letter
        return False


def _needs(request: Request) -> int:
    return (1 << request.asked if request.asked >= 0 else 0) | request.needs


def _matches(request: Request, op: Receive, letter: LetterName) -> bool:
    return letter.to == request.lane.rank and letter.tag == op.tag and op.source in (None, letter.source)
