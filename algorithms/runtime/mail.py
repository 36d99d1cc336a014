"""Messages between ranks: the semantics of `Send` and `Receive`, without a clock and without a transport.

* A message is in flight until it has arrived. Messages of a pair of ranks are delivered in the order of their sends, so
  a message that arrives early waits for the older ones.
* A receive takes the oldest message in the inbox that matches. Waiting receives are served first come, first served. A
  receive that is cancelled puts its message back as the oldest.
* A death fails the receives that it concerns, after the last message from the dead rank: those from this rank, and each
  rank's next receive from any rank, once.
* An interpreter decides when a message arrives (`Mailroom.arrive`, `Inbox.put`) and how a receive waits
  (`PendingReceive.wake`).

Copies messages when they are sent, so that later changes of their vectors have no effect.

A message consists of vectors, numbers, text, and frozen dataclasses, tuples, lists and dicts of these. Immutable values
are not copied, nor is a vector that is unchanged since its last copy: a server that sends the same weights to all
workers makes one copy.
"""

from __future__ import annotations

import copy
from bisect import insort
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any, Generic, TypeVar
from weakref import ref

import numpy as np

from paceline.algorithms.core.values import Group, Message, Null, Rank, parts_of
from paceline.algorithms.runtime.sized import Sized

CONSTANT = frozenset({int, float, complex, bool, str, bytes, type(None), Null, Group})
"""immutable types without vectors"""


class Snapshots:
    """Copies of the messages of one rank.

    >>> from paceline.algorithms.core.values import Weights
    >>> mine, snapshots = Weights(np.zeros(2), version=3), Snapshots()
    >>> sent, again = snapshots.of(mine), snapshots.of(mine)
    >>> mine.vector[:] = 1.0
    >>> sent, sent.vector is again.vector, snapshots.of(mine)
    (Weights(vector=array([0., 0.]), version=3), True, Weights(vector=array([1., 1.]), version=3))
    """

    __slots__ = ("_copy", "_vector")

    def __init__(self) -> None:
        self._vector: Callable[[], Any] = lambda: None
        """weak reference to the last vector that was copied"""
        self._copy: Callable[[], Any] = lambda: None

    def of(self, value: Any) -> Any:
        """Returns a value that later changes do not affect."""
        kind: Any = type(value)
        if kind in CONSTANT:
            return value
        if (copied_and_same := _of_vectors(kind)) is not None:
            return self._of_vector(value, *copied_and_same)
        if kind is Sized:
            return value.with_numbers(self.of(value.numbers))
        if (names := parts_of(kind)) is not None and kind.__dataclass_params__.frozen:
            return self._of_fields(value, kind, names)
        if kind is tuple:
            return tuple([self.of(part) for part in value])
        return copy.deepcopy(value)

    def _of_fields(self, value: Any, kind: type, names: tuple[str, ...]) -> Any:
        made: Any = object.__new__(kind)
        changed = False
        for name in names:
            part = now = getattr(value, name)
            if type(part) not in CONSTANT:
                now = self.of(part)
                changed = changed or now is not part
            object.__setattr__(made, name, now)
        return made if changed else value

    def _of_vector(self, vector: Any, copied: Callable[[Any], Any], same: Callable[[Any, Any], bool]) -> Any:
        if self._vector() is vector and (before := self._copy()) is not None and same(vector, before):
            return before
        now = copied(vector)
        self._vector, self._copy = ref(vector), ref(now)
        return now


@cache
def _of_vectors(kind: type) -> tuple[Callable[[Any], Any], Callable[[Any, Any], bool]] | None:
    """Returns the functions that copy and compare this type of vector; None if it is not a mutable vector."""
    if kind is np.ndarray:
        return np.ndarray.copy, np.array_equal
    if (kind.__module__, kind.__name__) != ("torch", "Tensor"):
        return None
    import torch  # already imported, since the vector is a tensor

    return lambda tensor: tensor.detach().clone(), torch.equal


@dataclass(eq=False, slots=True)
class Envelope:
    """A message on its way."""

    source: Rank
    to: Rank
    tag: str
    value: Any
    sent_s: float
    """when it was sent, on the clock of the run"""
    arrived: bool = False
    """whether it has arrived, though an older message of the same pair may not have"""

    @property
    def message(self) -> Message:
        return Message(self.source, self.value, self.tag)

    def __reduce__(self) -> tuple[Any, ...]:
        return Envelope, (self.source, self.to, self.tag, self.value, self.sent_s)  # the shortest form for transports


E = TypeVar("E", bound=Envelope)


@dataclass(eq=False, slots=True)
class PendingReceive(Generic[E]):
    """A receive that waits."""

    source: Rank | None
    tag: str
    wake: Callable[[], object]
    """called once: it has its message, or it fails"""
    envelope: E | None = None
    """the message that it has received"""
    dead: Rank | None = None
    """the dead rank because of which it fails"""


class Inbox(Generic[E]):
    """The messages that have arrived at one rank, and its receives that wait.

    >>> inbox, woken = Inbox[Envelope](), PendingReceive[Envelope](None, "", lambda: print("woken"))
    >>> inbox.put(Envelope(Rank(1), Rank(0), "other tag", "first", 0.0))
    >>> inbox.wait(woken)
    >>> inbox.put(Envelope(Rank(2), Rank(0), "", "second", 0.0))
    woken
    >>> inbox.withdraw(woken)  # cancelled although it has its message
    >>> [envelope.value for envelope in inbox]
    ['second', 'first']
    """

    __slots__ = ("_messages", "_reported", "_requests")

    def __init__(self) -> None:
        self._messages: list[E] = []
        """the oldest one first"""
        self._requests: list[PendingReceive[E]] = []
        self._reported = set[Rank]()
        """the dead ranks because of which a receive from any rank has failed"""

    def __iter__(self) -> Iterator[E]:
        return iter(self._messages)

    def find(self, source: Rank | None, tag: str) -> E | None:
        """Returns the oldest message with this tag from `source` or, for None, from any rank; None if there is none."""
        for envelope in self._messages:
            if envelope.tag == tag and (source is None or source == envelope.source):
                return envelope
        return None

    def take(self, source: Rank | None, tag: str) -> E | None:
        """Like `find`, and removes the message."""
        if (envelope := self.find(source, tag)) is not None:
            self.remove(envelope)
        return envelope

    def remove(self, envelope: E) -> None:
        """Removes a message that is here."""
        self._messages.remove(envelope)

    def put(self, envelope: E, *, oldest: bool = False) -> None:
        """Gives a message to the first receive that waits for it; keeps it if there is none.

        Args:
            envelope: the message.
            oldest: whether it is put back in front of the others.
        """
        tag, source = envelope.tag, envelope.source
        for request in self._requests:
            if request.tag == tag and (request.source is None or request.source == source):
                self._requests.remove(request)
                request.envelope = envelope
                request.wake()
                return
        self._messages.insert(0 if oldest else len(self._messages), envelope)

    def sort_in(self, envelope: E) -> None:
        """Keeps a message behind those that were sent before, for a transport that hands over several at a time."""
        insort(self._messages, envelope, key=attrgetter("sent_s"))

    def drop(self, source: Rank, until_s: float) -> None:
        """Removes the messages that a rank has sent up to this time."""
        self._messages = [kept for kept in self._messages if kept.source != source or kept.sent_s > until_s]

    # --- receives that wait ---------------------------------------------------------------------------------------

    def wait(self, request: PendingReceive[E]) -> None:
        """Adds a receive, which waits for the messages that no earlier one takes."""
        self._requests.append(request)

    def withdraw(self, request: PendingReceive[E]) -> None:
        """Ends a receive that was cancelled or has timed out; a message that it has received is put back."""
        if request.envelope is not None:
            self.put(request.envelope, oldest=True)
        elif request.dead is None:
            self._requests.remove(request)

    # --- deaths ---------------------------------------------------------------------------------------------------

    def concerned(self, source: Rank | None, ranks: Iterable[Rank]) -> Iterator[Rank]:
        """Yields the ranks whose death fails a receive from `source` or, for None, from any rank."""
        return (rank for rank in ranks if rank == source or (source is None and rank not in self._reported))

    def report(self, source: Rank | None, dead: Rank) -> None:
        """Notes that a receive fails because of a dead rank, so that receives from any rank do so once."""
        if source is None:
            self._reported.add(dead)

    def forget_reports(self) -> None:
        """Lets every death be reported again."""
        self._reported.clear()

    def fail(self, silent: Sequence[Rank]) -> None:
        """Fails the waiting receives that are concerned by ranks that are dead and have nothing in flight."""
        for request in list(self._requests):
            if (dead := next(self.concerned(request.source, silent), None)) is not None:
                self._requests.remove(request)
                self.report(request.source, dead)
                request.dead = dead
                request.wake()


class Mailroom(Generic[E]):
    """All messages of a run whose ranks are in one process: in flight, and then in the inbox of their receiver.

    Args:
        ranks: all ranks.

    >>> room = Mailroom[Envelope]([Rank(0), Rank(1)])
    >>> early, late = (Envelope(Rank(1), Rank(0), "", number, 0.0) for number in (1, 2))
    >>> room.post(early), room.post(late)
    (None, None)
    >>> room.arrive(late)  # ahead of an older message of the pair
    >>> room.inboxes[Rank(0)].find(None, ""), room.channels()
    (None, [(1, 0)])
    >>> room.arrive(early)
    >>> [envelope.value for envelope in room.inboxes[Rank(0)]]
    [1, 2]
    """

    def __init__(self, ranks: Iterable[Rank]) -> None:
        self.inboxes = {rank: Inbox[E]() for rank in ranks}
        self._snapshots = {rank: Snapshots() for rank in self.inboxes}
        self._in_flight: defaultdict[tuple[Rank, Rank], deque[E]] = defaultdict(deque)
        self._lost: list[Rank] = []
        """ranks that are known to be dead"""

    def snapshot(self, source: Rank, value: Any) -> Any:
        """Returns the present value of what a rank sends, which later changes by the rank do not affect."""
        return self._snapshots[source].of(value)

    def post(self, envelope: E) -> None:
        """Puts a message on its way."""
        self._in_flight[envelope.source, envelope.to].append(envelope)

    def arrive(self, envelope: E) -> None:
        """Delivers a message that has arrived, and those that wait for it, unless an older one is still in flight."""
        source, to = envelope.source, envelope.to
        envelope.arrived = True
        queue, inbox = self._in_flight[source, to], self.inboxes[to]
        while queue and queue[0].arrived:
            inbox.put(queue.popleft())
        if source in self._lost:
            inbox.fail(self._silent(to))

    def deliver(self, source: Rank, to: Rank) -> None:
        """Lets the oldest message in flight between two ranks arrive."""
        self.arrive(self._in_flight[source, to][0])

    def channels(self) -> list[tuple[Rank, Rank]]:
        """Lists the (source, receiver) pairs that have messages in flight, in the order of receivers."""
        return sorted((pair for pair, queue in self._in_flight.items() if queue), key=lambda pair: (pair[1], pair[0]))

    def in_flight(self, source: Rank, to: Rank) -> tuple[E, ...]:
        """Returns the messages in flight between two ranks, the oldest one first."""
        return tuple(self._in_flight.get((source, to), ()))

    def unread(self) -> Iterator[E]:
        """Yields the messages that were sent and not received."""
        for queue in self._in_flight.values():
            yield from queue
        for inbox in self.inboxes.values():
            yield from inbox

    # --- deaths ---------------------------------------------------------------------------------------------------

    def lose(self, rank: Rank) -> None:
        """Notes a death; receives that wait for the dead rank fail after its last message."""
        self._lost.append(rank)
        for to, inbox in self.inboxes.items():
            inbox.fail(self._silent(to))

    def wait(self, to: Rank, request: PendingReceive[E]) -> None:
        """Lets a receive wait at its rank, unless it fails at once because of a dead rank."""
        inbox, source = self.inboxes[to], request.source
        request.dead = self.failed_peer(to, source)
        if request.dead is None:
            inbox.wait(request)
        else:
            inbox.report(source, request.dead)

    def failed_peer(self, to: Rank, source: Rank | None) -> Rank | None:
        """Returns the dead rank because of which a receive would fail now; None if it would not.

        Args:
            to: the receiver.
            source: the rank from which it receives; None: any rank.
        """
        return next(self.inboxes[to].concerned(source, self._silent(to)), None) if self._lost else None

    def _silent(self, to: Rank) -> list[Rank]:
        """Returns the dead ranks from which no message to a rank is in flight."""
        return [dead for dead in self._lost if not self._in_flight.get((dead, to))]
