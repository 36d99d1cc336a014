"""The messages of gloo's collectives: a program for each member, with sends and receives by rendezvous.

* A receive is announced to its sender. A send waits for this announcement; then it is done at once for the sender,
  because the socket buffers it. A send is announced to its receiver, too, but collectives do not wait for that.
* A process group has two threads, so each member executes at most two of its collectives at a time.
* Members enter one by one and leave one by one.

The programs follow gloo's (v0.5, `allreduce.cc`, `reduce.cc`, `broadcast.cc`, `allgather.cc`, `barrier.cc`):

| collective | messages |
|---|---|
| all-reduce | around a ring, from rank r to r − 1: a reduce-scatter, then an all-gather |
| reduce | the same reduce-scatter, then each member's share straight to the root |
| broadcast | down a binomial tree that begins with neighbours; a member sends to all its children at once |
| all-gather | around a ring, from rank r to r + 1 |
| barrier | dissemination: in round k a word to the rank 2^k after it |

In rings, a member's share is sent in segments, two of them in flight at a time: while one is being sent, the next is
announced.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import simpy

from paceline.algorithms.core.operations import AllGather, AllReduce, Barrier, Broadcast, Reduce
from paceline.algorithms.core.values import Group, Rank
from paceline.algorithms.runtime.collective_matching import Collective
from paceline.simulator.kernel.lanes import Steps
from paceline.simulator.kernel.simpy_events import happen
from paceline.topologies.catalogue.libraries import GLOO_SEGMENT_BYTES

WORD_BYTES = 48
"""bytes of an announcement, and of the header of every message"""
THREADS = 2
"""threads of a process group: the number of its collectives that a member executes at a time"""
Carry = Callable[[Rank, Rank, int, Callable[[], None]], None]
"""moves bytes from one rank to another, and calls back when they have arrived"""


class Pairs:
    """The sends and receives of one collective, by the places of its members.

    Args:
        env: the clock.
        members: the ranks.
        carry: moves bytes from rank to rank.
    """

    def __init__(self, env: simpy.Environment, members: Group, carry: Carry) -> None:
        self._env, self._members, self._carry = env, members, carry
        self._receiving: dict[tuple[int, int], deque[simpy.Event]] = defaultdict(deque)
        """receives that wait for their bytes, by sender and receiver"""
        self._announced: dict[tuple[int, int], int] = defaultdict(int)
        """number of announced receives that the sender has not answered"""
        self._sending: dict[tuple[int, int], deque[tuple[int, simpy.Event]]] = defaultdict(deque)
        """sends that wait for an announcement"""

    def receive(self, source: int, to: int) -> simpy.Event:
        """Announces a receive; returns an event for the arrival of the bytes."""
        event = self._env.event()
        self._receiving[source, to].append(event)
        self._move(to, source, WORD_BYTES, lambda: self._announce((source, to)))
        return event

    def send(self, source: int, to: int, nbytes: int) -> simpy.Event:
        """Sends bytes; returns an event for the time when the network has taken them.

        Args:
            source: the sender's place.
            to: the receiver's place.
            nbytes: the bytes.
        """
        event, pair = self._env.event(), (source, to)
        self._move(source, to, WORD_BYTES, lambda: None)
        self._sending[pair].append((nbytes, event))
        self._answer(pair)
        return event

    def _announce(self, pair: tuple[int, int]) -> None:
        self._announced[pair] += 1
        self._answer(pair)

    def _answer(self, pair: tuple[int, int]) -> None:
        """Sends the messages whose receives have been announced."""
        while self._announced[pair] and self._sending[pair]:
            self._announced[pair] -= 1
            nbytes, sent = self._sending[pair].popleft()
            self._move(*pair, WORD_BYTES + nbytes, lambda: happen(self._receiving[pair].popleft()))
            sent.succeed()

    def _move(self, source: int, to: int, nbytes: int, then: Callable[[], None]) -> None:
        self._carry(self._members.ranks[source], self._members.ranks[to], nbytes, then)


@dataclass(frozen=True, slots=True)
class Segments:
    """The segments of a value in a ring: each of p members has a share of `each` segments of `size` bytes.

    >>> Segments.of(100_000, p=4, item_bytes=4), Segments.of(100_000_000, p=4, item_bytes=4).each
    (Segments(nbytes=100000, size=12500, each=2), 24)
    """

    nbytes: int
    size: int
    each: int
    """number of segments of a member's share"""

    @classmethod
    def of(cls, nbytes: int, p: int, item_bytes: int) -> Segments:
        """Cuts a value into at least two segments for each member, each of whole numbers.

        Args:
            nbytes: bytes of the value.
            p: number of members.
            item_bytes: bytes of one number.
        """
        size = min(-(-nbytes // (2 * p)), GLOO_SEGMENT_BYTES // item_bytes * item_bytes)
        size = -(-size // item_bytes) * item_bytes
        return cls(nbytes, size, -(-max(-(-nbytes // size), 2 * p) // p))

    def length(self, number: int, p: int) -> int:
        """Returns the bytes of a segment, which may be shorter, or empty, at the end.

        Args:
            number: the number of the segment.
            p: number of members.
        """
        return min(max(self.nbytes - number % (p * self.each) * self.size, 0), self.size)

    def share(self, place: int) -> int:
        """Returns the bytes of a member's share."""
        return min(max(self.nbytes - place * self.each * self.size, 0), self.each * self.size)


@dataclass(frozen=True, slots=True)
class GlooMember:
    """One rank's part in a collective of p members."""

    pairs: Pairs
    place: int
    p: int

    def around(self, step: int, sizes: Iterator[tuple[int, int]]) -> Steps:
        """Exchanges messages with the two neighbours of a ring, with two exchanges in flight at a time.

        Args:
            step: the distance of the neighbour to send to: 1 or −1.
            sizes: the bytes to send and to receive in each exchange.
        """
        to, source = (self.place + step) % self.p, (self.place - step) % self.p
        under_way = deque[list[simpy.Event]]()
        for sent, received in sizes:
            if len(under_way) == 2:
                yield from under_way.popleft()
            waits = [self.pairs.receive(source, self.place)] if received else []
            under_way.append([*waits, self.pairs.send(self.place, to, sent)] if sent else waits)
        for waits in under_way:
            yield from waits

    def reduce_scatter(self, segments: Segments, turns: int) -> Steps:
        """Reduces segments around the ring, so that each member has its share of the sum.

        Args:
            segments: the cut of the value.
            turns: number of segments that each member sends to the rank before it.
        """
        return self._segments(segments, (self.place + 1) * segments.each, turns)

    def _segments(self, segments: Segments, first: int, turns: int) -> Steps:
        """Sends segments from `first` on to the rank before, and receives the next ones from the rank after."""
        lengths = ((first + turn, first + segments.each + turn) for turn in range(turns))
        return self.around(-1, ((segments.length(a, self.p), segments.length(b, self.p)) for a, b in lengths))

    def all_reduce(self, segments: Segments) -> Steps:
        turns = (self.p - 1) * segments.each
        yield from self.reduce_scatter(segments, turns)
        yield from self._segments(segments, self.place * segments.each, turns)

    def reduce(self, segments: Segments, root: int) -> Steps:
        yield from self.reduce_scatter(segments, self.p * segments.each - 2)
        if self.place != root:
            if nbytes := segments.share(self.place):
                yield self.pairs.send(self.place, root, nbytes)
            return
        others = [other for other in range(self.p) if other != root and segments.share(other)]
        yield from [self.pairs.receive(other, root) for other in others]

    def broadcast(self, nbytes: int, root: int) -> Steps:
        at, sends = (self.place - root) % self.p, list[simpy.Event]()
        for bit in range((self.p - 1).bit_length()):
            other = at ^ (1 << bit)
            if at >> (bit + 1) or other >= self.p:
                continue
            peer = (other + root) % self.p
            if at & (1 << bit):
                yield self.pairs.receive(peer, self.place)
            else:
                sends.append(self.pairs.send(self.place, peer, nbytes))
        yield from sends

    def all_gather(self, nbytes: int) -> Steps:
        """Gathers values of `nbytes` bytes."""
        halves = [nbytes // 2, nbytes - nbytes // 2]
        yield from self.around(+1, ((half, half) for _ in range(self.p - 1) for half in halves))

    def barrier(self) -> Steps:
        for k in range((self.p - 1).bit_length()):
            far = 2**k
            coming = self.pairs.receive((self.place - far) % self.p, self.place)
            yield from (coming, self.pairs.send(self.place, (self.place + far) % self.p, 0))

    def program(self, op: Collective) -> Iterable[simpy.Event]:
        """Returns the member's program for an operation; it is empty for a value without bytes."""
        if not isinstance(op, Barrier) and not op.value.nbytes:
            return iter(())
        match op:
            case Barrier():
                return self.barrier()
            case AllGather():
                return self.all_gather(op.value.nbytes)
            case Broadcast():
                return self.broadcast(op.value.nbytes, op.group.ranks.index(op.root))
            case AllReduce():
                return self.all_reduce(_segments_of(op.value, self.p))
            case Reduce():
                return self.reduce(_segments_of(op.value, self.p), op.group.ranks.index(op.root))


def _segments_of(value: Any, p: int) -> Segments:
    nbytes = int(value.nbytes)
    return Segments.of(nbytes, p, int(getattr(value, "itemsize", 0) or getattr(value, "item_bytes", 1)))


class ProcessGroups:
    """All collectives of a run.

    Args:
        env: the clock.
        carry: moves bytes from rank to rank.
        start_s: seconds that a program needs to start a collective, before it can start another.
    """

    def __init__(self, env: simpy.Environment, carry: Carry, start_s: float = 0.0) -> None:
        self._env, self._carry, self._start_s = env, carry, start_s
        self._started_s: dict[Rank, float] = {}
        """when the program of each rank may start another collective"""
        self._entered: dict[tuple[Rank, Group, str], Iterator[int]] = defaultdict(count)
        self._threads: dict[tuple[Rank, Group, str], simpy.Resource] = {}
        self._under_way: dict[tuple[Group, str, int], tuple[Pairs, set[Rank]]] = {}
        """the messages of each collective, and the members that have not left it"""

    def enter(self, rank: Rank, op: Collective, stream: str) -> simpy.Event:
        """Lets a member enter the next collective of its group and stream.

        Args:
            rank: the member.
            op: the operation.
            stream: the stream.

        Returns:
            An event for the time when the member may leave.
        """
        entry = rank, op.group, stream
        number = next(self._entered[entry])
        if entry not in self._threads:
            self._threads[entry] = simpy.Resource(self._env, THREADS)
        now = self._env.now
        begins_s = max(now, self._started_s.get(rank, now))
        self._started_s[rank] = begins_s + self._start_s
        return self._env.process(self._performed(rank, op, stream, number, begins_s - now))

    def _performed(self, rank: Rank, op: Collective, stream: str, number: int, wait_s: float) -> Steps:
        key = op.group, stream, number
        if wait_s:
            yield self._env.timeout(wait_s)
        with self._threads[rank, op.group, stream].request() as turn:
            yield turn
            pairs, inside = self._under_way.setdefault(
                key, (Pairs(self._env, op.group, self._carry), set(op.group.ranks))
            )
            yield from GlooMember(pairs, op.group.ranks.index(rank), len(op.group)).program(op)
            inside.remove(rank)
            if not inside:
                del self._under_way[key]
