"""The events of a run, which of them happen before which, and the any-order interpreter that records them.

Rules of this file:

* An event is the answer of one operation. Its `Key` is the lane and the choice, if the operation can be answered in
  several ways. Names of lanes, letters and handles are the same in all orders, so events of different runs compare.
* `Marks` are the objects that an event reads and writes: its lane, a cell, a lock, a channel, a handle. Two events
  conflict if one writes an object that the other reads or writes. Events that do not conflict can change places.
* One event happens before another if every order with the same answers has them in this order: the transitive closure
  of conflicts and of causes (a message is sent before it is received). Sets of events are bit masks of their indices.
* A message is delivered immediately before it is received. So a receive from any rank has one choice for each rank with
  a matching message in flight, and deliveries are no events of their own.
* A receive with a timeout can always time out, because a message in flight can be slow.
* The clock of a lane is the number of its own operations, so that equivalent orders give the same answers.
* Steps that several ranks share (`Method.independent`) are granted in any order. Only who is refused matters: a grant
  conflicts with every refusal, and neither conflicts with its own kind.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from paceline.algorithms.core.job import Job
from paceline.algorithms.core.operations import (
    Access,
    Cancel,
    Handle,
    LayerGradients,
    Lock,
    NextStep,
    Op,
    Receive,
    RecordUpdate,
    Send,
    Unlock,
    Wait,
    WaitFor,
)
from paceline.algorithms.core.values import GradientResult, Rank
from paceline.algorithms.runtime.collective_matching import Collective
from paceline.algorithms.runtime.handles import Promise
from paceline.algorithms.runtime.mail import Envelope
from paceline.checking.anyorder import AnyOrder
from paceline.checking.driver import LaneTask, LayerReady
from paceline.checking.moves import Move
from paceline.records.trace import Trace

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
class LaneEvent:
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


def put_in_order(events: Sequence[LaneEvent], start: int) -> None:
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


def closure(events: Sequence[LaneEvent], mask: int) -> int:
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
    options = []
    while mask:
        low = mask & -mask
        options.append(low.bit_length() - 1)
        mask ^= low
    return options


class Option(NamedTuple):
    """One possible next event."""

    marks: Marks
    """known before the answer; a lane that ends with the answer also settles its handle"""
    moves: tuple[Move, ...]
    """deliveries, then the answer"""
    grant: bool = False
    """whether it takes one of the steps that several ranks share"""


Options = Mapping[Key, Option]


class Unrepeated(Exception):
    """An event of an earlier run is not possible in a run that begins in the same way."""


class RunWithEvents(AnyOrder):
    """One run whose events are recorded.

    Args:
        job: the job to run.
        objects: gives objects their bits.
    """

    def __init__(self, job: Job, objects: Objects) -> None:
        self.events: list[LaneEvent] = []
        self.requests: list[Request] = []
        self.ambiguous = False
        """whether a receive found a message that had arrived ahead of one with another tag, see `_sources`"""
        self.objects = objects
        self._ids: dict[LaneTask, LaneId] = {}
        self._born: Counter[tuple[int, str]] = Counter()
        self._open: dict[LaneTask, Request] = {}
        self._asked: dict[LaneTask, int] = {}
        self._met: dict[LaneTask, int] = {}
        self._names: dict[Promise, tuple[LaneId, int]] = {}
        self._letters: dict[Envelope, tuple[LetterName, int]] = {}
        self._sent: Counter[tuple[int, int, str]] = Counter()
        self._newest: LaneId | None = None
        self._moves_left: deque[Move] = deque()
        self._chosen: Key | None = None
        super().__init__(job)
        together = job.method.independent
        self._owners = job.owners if together else ()

    def perform(self, pick: Callable[[Options], Key], prefix: Sequence[Key] = ()) -> Trace:
        """Runs to the end.

        Args:
            pick: selects the next event among the possible ones.
            prefix: the first events, which are not picked.

        Raises:
            Unrepeated: an event of the prefix is not possible.
        """

        def choose(ready: Sequence[Move]) -> Move:
            if not self._moves_left:
                known = prefix[len(self.events)] if len(self.events) < len(prefix) else None
                options = self.options(None if known is None else known.lane)
                if not options and known is None:
                    return ready[0]  # only deliveries are left, and no receive waits for them
                if known is not None and known not in options:
                    raise Unrepeated
                self._chosen = pick(options) if known is None else known
                self._moves_left.extend(options[self._chosen].moves)
            return self._moves_left.popleft()

        return self.run(choose)

    def options(self, only: LaneId | None = None) -> dict[Key, Option]:
        """Returns the possible next events, of all lanes or of one."""
        options: dict[Key, Option] = {}
        for task in self._tasks:
            lane = self._ids[task]
            if only is not None and lane != only:
                continue
            marks = self._present(task)
            if isinstance(task.op, Receive):
                for choice, moves in self._receives(task, task.op):
                    options[Key(lane, choice)] = Option(self.choosing(marks, task.op, lane, choice), moves)
            elif self._can_go(task):
                options[Key(lane)] = Option(marks, (task.going,), self._takes_step(task))
        return options

    def choosing(self, marks: Marks, op: Receive, lane: LaneId, choice: Choice) -> Marks:
        """Returns the marks of a receive with this choice.

        Args:
            marks: those of the request.
            op: the receive.
            lane: its lane.
            choice: the source, or a timeout.
        """
        if choice is None or choice == "time out":
            return marks
        return marks.with_writes(self.objects.bit("take", lane.rank, choice, op.tag))

    # --- what can happen -----------------------------------------------------------------------------------------

    def _receives(self, task: LaneTask, op: Receive) -> list[tuple[Choice, tuple[Move, ...]]]:
        go, rank = task.going, task.me.rank
        if op.source is not None and op.source not in task.me.world:
            return [(None, (go,))]
        if (letter := self._letter(task, op)) is not None:
            self.ambiguous = self.ambiguous or op.source is None or op.timeout_s is not None
            return [(letter.source, (go,))]
        choices: list[tuple[Choice, tuple[Move, ...]]] = []
        for source, to in self._mail.channels():
            tags = [letter.tag for letter in self._mail.in_flight(source, to)]
            if to == rank and op.source in (None, source) and op.tag in tags:
                deliveries = (Move(act="deliver", rank=rank, source=source),) * (tags.index(op.tag) + 1)
                choices.append((source, (*deliveries, go)))
        if op.timeout_s is not None:
            choices.append(("time out", (Move(act="time out", rank=rank, lane=task.name, op=op),)))
        return choices

    # --- what a move reads and writes ----------------------------------------------------------------------------

    def _present(self, task: LaneTask) -> Marks:
        """Returns the marks of the lane's request; only those of a next step change while it waits."""
        return self._marks(task) if isinstance(task.op, NextStep) else self._open[task].marks

    def _marks(self, task: LaneTask) -> Marks:
        bit, node = self.objects.bit, task.me.node
        reads, writes, op = 0, bit("lane", self._ids[task]), task.op
        match op:
            case Send(to, _, tag):
                writes |= bit("send", task.me.rank, to, tag)
            case Access(cell, "read"):
                reads = bit("cell", node, cell)
            case Access(cell):
                writes |= bit("cell", node, cell)
            case Lock(cell) | Unlock(cell):
                writes |= bit("lock", node, cell)
            case RecordUpdate():
                writes |= bit("record", task.me.rank)
            case Wait() | WaitFor():
                for name in self._waits(task, op):
                    reads |= bit("handle", name)
            case Cancel(handle):
                for name in self._waits(task, Wait(handle)):
                    writes |= bit("handle", name) | (bit("lane", name[0]) if name[1] == 0 else 0)
            case NextStep() if self._takes_step(task):
                reads = sum(bit("refused", rank) for rank in self._owners)
            case NextStep() if task.me.rank in self._owners:
                writes |= bit("refused", task.me.rank)
            case _:
                pass
        return Marks(reads, writes)

    def _takes_step(self, task: LaneTask) -> bool:
        """Whether the lane would be granted one of the steps that several ranks share."""
        if not isinstance(task.op, NextStep) or task.me.rank not in self._owners:
            return False
        return self._rule.position(task.op.state.step) < self._rule.end

    def _waits(self, task: LaneTask, op: Wait[Any] | WaitFor[Any]) -> list[tuple[LaneId, int]]:
        handles = op.handles if isinstance(op, WaitFor) else [op.handle]
        entries = dict(self._handles[task.me.rank].items())
        return [self._names[entries[handle]] for handle in handles if handle in entries]

    # --- the record ----------------------------------------------------------------------------------------------

    @property
    def _now(self) -> int:
        """The index of the present event; -1 before the first one."""
        return len(self.events) - 1

    def _drive(self, task: LaneTask) -> None:
        line = (int(task.me.rank), task.line)
        self._ids[task] = self._newest = LaneId(task.me.rank, task.line, self._born[line])
        self._born[line] += 1
        if task.promise is not None:
            self._names[task.promise] = (self._ids[task], 0)
        super()._drive(task)

    def _layers(self, task: LaneTask, op: LayerGradients) -> tuple[Handle[GradientResult], ...]:
        made = super()._layers(task, op)
        assert self._newest is not None, "the backward pass has a lane"
        for number, handle in enumerate(made, 1):
            self._names[self._handles[task.me.rank].promise(handle)] = (self._newest, number)
        return made

    def _advance(self, task: LaneTask, answer: Any = None, failure: BaseException | None = None) -> None:
        self._asked[task] = self._now
        super()._advance(task, answer, failure)
        if task.op is None or task not in self._lanes[task.me.rank]:
            return
        request = Request(self._ids[task], task.op, self._now, self._marks(task))
        if isinstance(task.op, Wait | WaitFor):
            request.waits = tuple(self._waits(task, task.op))
            request.least = task.op.least if isinstance(task.op, WaitFor) else 1
        self._open[task] = request
        self.requests.append(request)

    def _meet(self, task: LaneTask, op: Collective) -> None:
        waiting = [other for other in self._tasks if other.room is not None]
        super()._meet(task, op)
        if task.room is None:
            met = [task, *(other for other in waiting if other.room is None)]
            asked = mask_of([self._asked[other] for other in met])
            for other in met:
                self._met[other] = asked

    def _make(self, move: Move) -> None:
        if move.act == "deliver":
            super()._make(move)
            return
        assert self._chosen is not None, "moves are chosen by `perform`"
        task = next(task for task in self._lanes[move.rank] if self._ids[task] == self._chosen.lane)
        op, request = task.op, self._open[task]
        event = LaneEvent(self._chosen, request, self._present(task), mask_of([request.asked]) | self._met.pop(task, 0))
        event.grant = self._takes_step(task)
        if isinstance(op, Receive):
            event.marks = self.choosing(event.marks, op, self._chosen.lane, self._chosen.choice)
            if move.act == "go" and (letter := self._letter(task, op)) is not None:
                event.took, sent = self._letters[letter]
                event.needs |= 1 << sent
        request.done = len(self.events)
        self.events.append(event)
        try:
            super()._make(move)
        finally:
            self._conclude(event, task, op)

    def _conclude(self, event: LaneEvent, task: LaneTask, op: Op[Any] | None) -> None:
        """Adds what the answer has done."""
        match op:
            case Send(to, _, tag) if (sent := self._mail.in_flight(task.me.rank, to)) and sent[-1] not in self._letters:
                channel = (int(task.me.rank), int(to), tag)
                event.sent = LetterName(task.me.rank, to, tag, self._sent[channel])
                self._letters[sent[-1]] = (event.sent, self._now)
                self._sent[channel] += 1
            case LayerReady(promise):
                event.settles.append(self._names[promise])
            case Cancel():
                event.settles += self._waits(task, Wait(op.handle))
            case _:
                pass
        for name in event.settles:
            event.marks = event.marks.with_writes(self.objects.bit("handle", name))

    def _end(self, task: LaneTask, answer: Any = None, failure: Exception | None = None) -> None:
        if task.promise is not None and self.events:
            self.events[-1].settles.append(self._names[task.promise])
        super()._end(task, answer, failure)

    def _give_up(self, task: LaneTask) -> None:
        self._open[task].cut = self._now
        super()._give_up(task)

    def _read_clock(self, task: LaneTask) -> float:
        lane = self._ids[task]
        now_s = float(sum(event.key.lane == lane for event in self.events))
        return self.recorder.looked(task.me.rank, now_s)


def mask_of(events: Sequence[int]) -> int:
    """Returns the mask of these events, without the beginning of the run.

    >>> mask_of([2, 0, -1])
    5
    """
    mask = 0
    for index in events:
        mask |= 1 << index if index >= 0 else 0
    return mask
