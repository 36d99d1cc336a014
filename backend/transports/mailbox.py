"""Messages between the ranks of one host, in memory that they share.

Rationale:

* Invariant: a sender waits only for the receiver's memory, never for its program, and messages of a pair arrive in
  order. Each ordered pair of ranks has a ring (`Ring`) that only these two use; longer messages pass in pieces. So
  a sender that is killed damages only its own ring.
* The program's own thread fetches messages when it receives. If none has arrived, it announces that it sleeps, checks
  once more, and waits at the event `wake`. A sender checks after each write whether the receiver sleeps, and sets the
  event. The fences on both sides order announcement and check, so no wake-up is lost.
* If a ring stays full, the sender sets the event `drain`. A thread of the receiver waits for it and empties the rings.
  So a `Send` completes whatever the receiver's program is doing.
* Rejected: one receiving thread for all messages, which gloo requires. To wake the program's thread after the receiving
  thread takes longer than to copy a small message. Rejected: busy waiting, since ranks often share cores. Rejected: a
  futex in the shared memory, for which Python has no function.
* Nothing depends on a fork: a process that maps the memory and knows the folder of the events can take part.
* Source: announcement and second check are Dekker's pattern, as in the Linux kernel's wait queues; the queue is
  Lamport's for one producer and one consumer ("Specifying concurrent program modules", 1983). docs/communication.md has
  the measurements.
"""

from __future__ import annotations

import mmap
import os
import select
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np

from paceline.algorithms.core.errors import PeerFailed
from paceline.algorithms.core.values import Group, Rank
from paceline.algorithms.runtime.mail import Envelope
from paceline.backend.posix.reserve import OTHERWISE, reserve, shared_file
from paceline.backend.posix.waits import Backoff
from paceline.backend.status.status_board import Lost
from paceline.backend.transports import messages
from paceline.backend.transports.messages import Bytes, ThreadedInbox
from paceline.backend.transports.shared_segment import NOT_RESERVED, PAGE_BYTES, Fence

# * There is one writer and one reader. Each increments its own counter and never writes the other's, so there are no
#   locks, and a process that is killed leaves nothing locked.
# * A counter is written after its bytes, and read before them. On x86-64 other processors see stores in order; on
#   other architectures a fence enforces the order.


RING_BYTES = 2**20
"""default size of a ring; provenance: ours. A longer message passes in pieces while the reader takes them"""
LINE_BYTES = 64
"""a cache line of the processor: the counters lie in different lines"""
COUNTS_BYTES = 2 * LINE_BYTES
"""space of the counters in front of a ring"""
WORD_BYTES = 8
READ = LINE_BYTES // WORD_BYTES
"""the index of the word that counts bytes read; word 0 counts bytes written"""


class Ring:
    """One end of a ring buffer.

    Args:
        memory: shared memory, initially zero.
        at: offset of the ring in the memory, in bytes.
        size: capacity of the ring in bytes; the counters take another `COUNTS_BYTES` in front of it.
    """

    def __init__(self, memory: mmap.mmap, at: int, size: int = RING_BYTES) -> None:
        self._counts = memoryview(memory)[at : at + COUNTS_BYTES].cast("q")
        """bytes written and bytes read; both only increase"""
        self._bytes: Bytes = np.frombuffer(memory, np.uint8, size, at + COUNTS_BYTES)
        self._size, self._fence = size, Fence()

    @property
    def ready(self) -> int:
        """Bytes that can be read."""
        return self._counts[0] - self._counts[READ]

    @property
    def full(self) -> bool:
        return self.ready == self._size

    def write(self, data: Bytes) -> int:
        """Writes as many bytes as fit and returns their number."""
        size = min(self._size - self.ready, len(data))
        self._fence()
        begin = self._counts[0] % self._size
        first = min(size, self._size - begin)
        self._bytes[begin : begin + first] = data[:first]
        self._bytes[: size - first] = data[first:size]
        self._fence()
        self._counts[0] += size
        return size

    def read(self, into: Bytes) -> int:
        """Reads as many bytes as are available and fit, and returns their number."""
        size = min(self.ready, len(into))
        self._fence()
        begin = self._counts[READ] % self._size
        first = min(size, self._size - begin)
        into[:first] = self._bytes[begin : begin + first]
        into[first:size] = self._bytes[: size - first]
        self._fence()
        self._counts[READ] += size
        return size


# * The event is a FIFO, so processes find it by its path, whether they were forked or not, and a sender does not wait
#   for an answer. An event that was set before a thread waits is not lost.
# * The FIFO is deleted with its folder.


MOST_BYTES = 4096
"""bytes per read: however often the event was set, the waiting thread wakes once"""


class FifoSetter:
    """The setting end of an event."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def set(self) -> None:
        """Sets the event; does nothing if the FIFO is full or its waiting end is closed."""
        with suppress(OSError):
            if self._file is None:
                self._file = os.open(self._path, os.O_WRONLY | os.O_NONBLOCK)
            os.write(self._file, b"\0")

    def close(self) -> None:
        """Closes this end."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


class FifoEvent(FifoSetter):
    """The waiting end of an event; creates the FIFO."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        os.mkfifo(path)
        # open for writing too: otherwise a poll would report the end of the file while no setter has it open
        self._file = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self._poll = select.poll()
        self._poll.register(self._file, select.POLLIN)

    def wait(self, seconds: float | None = None) -> None:
        """Waits until the event is set, for at most `seconds`, and clears it."""
        assert self._file is not None, "open since it was made"
        if self._poll.poll(None if seconds is None else seconds * 1e3):
            with suppress(BlockingIOError):  # another thread has cleared it
                os.read(self._file, MOST_BYTES)


PIECE_BYTES = 2**18
"""how much is written before the receiver is woken, so that it reads while the rest is written; chosen by us"""


def mailbox_bytes(members: int, ring_bytes: int = RING_BYTES) -> int:
    """Returns the bytes of a host's messages: a line for each member and a ring for each ordered pair; whole pages.

    A page is allocated when it is first written.

    Args:
        members: the number of ranks of the host.
        ring_bytes: the size of a ring.

    >>> round(mailbox_bytes(4) / 2**20, 2)  # MiB
    16.0
    """
    room = members * LINE_BYTES + members * members * (COUNTS_BYTES + ring_bytes)
    return -(-room // PAGE_BYTES) * PAGE_BYTES


def anonymous(members: int) -> mmap.mmap:
    """Maps this memory without a name, for processes that are forked later."""
    return mmap.mmap(-1, mailbox_bytes(members), flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | NOT_RESERVED)


def in_file(path: Path, members: int) -> mmap.mmap:
    """Maps this memory in a file, which the first process creates, for processes that are not forked.

    Raises:
        RunFailed: the file system has no space for it.
    """
    needed = mailbox_bytes(members)
    with shared_file(path) as file:
        reserve(file.fileno(), path, 0, needed, f"memory for messages of {members} ranks", OTHERWISE)
        return mmap.mmap(file.fileno(), needed)


class Mailbox:
    """One rank's messages to and from the others of its host.

    Args:
        memory: shared by the host's ranks, `mailbox_bytes` long, initially zero.
        host: the host's ranks, in the same order at all of them.
        rank: this rank.
        folder: contains the events.
        inbox: takes the messages that arrive.
        lost: returns the dead rank for which a wait cannot end.
        ring_bytes: size of each pair's ring; the same at all ranks.
    """

    def __init__(
        self,
        memory: mmap.mmap,
        host: Group,
        rank: Rank,
        folder: Path,
        inbox: ThreadedInbox,
        lost: Lost,
        ring_bytes: int = RING_BYTES,
    ) -> None:
        me, members = host.ranks.index(rank), len(host)
        asleep = [memoryview(memory)[place * LINE_BYTES :][:WORD_BYTES].cast("q") for place in range(members)]

        def ring(source: int, to: int) -> Ring:
            at = members * LINE_BYTES + (source * members + to) * (COUNTS_BYTES + ring_bytes)
            return Ring(memory, at, ring_bytes)

        others = [(member, place) for place, member in enumerate(host) if member != rank]
        self._out = {other: Sender(other, ring(me, place), asleep[place], folder, lost) for other, place in others}
        self._in = {other: ring(place, me) for other, place in others}
        self._inbox, self._asleep = inbox, asleep[me]
        self._coming: dict[Rank, messages.Assembly] = {}
        """messages that have arrived in part"""
        self._fetching, self._called, self._fence = threading.Lock(), False, Fence()
        self._wake, self._drain = FifoEvent(_wake_path(folder, rank)), FifoEvent(_drain_path(folder, rank))
        self._closed = False
        inbox.fetcher = self
        self._drainer = threading.Thread(target=self._drain_on_request, daemon=True, name="mailbox")
        self._drainer.start()

    def __contains__(self, rank: Rank) -> bool:
        return rank in self._out

    def send(self, envelope: Envelope) -> None:
        """Hands a message over; the value may be changed afterwards.

        Raises:
            PeerFailed: the ring was full and the receiver has died.
        """
        self._out[envelope.to].send(envelope)

    def close(self) -> None:
        """Ends the thread and closes the events, if the process continues. No rank may send to this one afterwards."""
        self._closed = True
        self._drain.set()
        self._drainer.join()
        for event in (self._wake, self._drain):
            event.close()
        for sender in self._out.values():
            sender.close()

    # --- receiving ------------------------------------------------------------------------------------------------

    def fetch(self, seconds: float) -> None:
        """Moves available messages into the inbox; if there are none, waits up to `seconds` for one."""
        if self._empty(rest=seconds > 0) or not seconds:
            return
        self._asleep[0] = 1
        self._fence()
        if not self._called and not any(ring.ready for ring in self._in.values()):
            self._wake.wait(seconds)
        self._asleep[0], self._called = 0, False
        self._empty()

    def call(self) -> None:
        """Ends a `fetch` that waits or is about to wait."""
        self._called = True
        self._fence()
        if self._asleep[0]:
            self._wake.set()

    def _drain_on_request(self) -> None:
        """Empties the rings when a sender has found one full."""
        while not self._closed:
            self._drain.wait()
            while self._empty():
                pass

    def _empty(self, *, rest: bool = True) -> bool:
        """Reads the rings, and the rest of a message that has begun; returns True if a message is complete."""
        with self._fetching:
            whole = self._pass()
            while rest and not whole and self._coming and self._comes_soon():
                whole = self._pass()
            return whole

    def _pass(self) -> bool:
        """Reads the rings once; returns True if a message is complete."""
        whole = False
        for source, ring in self._in.items():
            left = ring.ready
            while left > 0:
                left -= self._take(source, ring)
                whole |= source not in self._coming
        return whole

    def _comes_soon(self) -> bool:
        """Whether the rest of a message arrives while this thread yields its core."""
        backoff = Backoff()
        while backoff.try_yield():
            if any(self._in[source].ready for source in self._coming):
                return True
        return False

    def _take(self, source: Rank, ring: Ring) -> int:
        """Reads the next piece of a sender's message and returns its size in bytes."""
        if (assembly := self._coming.get(source)) is None:
            assembly = self._coming[source] = messages.Assembly()
        taken = ring.read(assembly.wants)
        assembly.fill(taken)
        if assembly.whole:
            del self._coming[source]
            self._inbox.put(assembly.value)
        return taken


class Sender:
    """The sending side of the pair with one other rank of the host.

    Args:
        to: the other rank.
        ring: the ring that it reads.
        asleep: one word: whether its program sleeps.
        folder: contains its events.
        lost: returns the dead rank for which a wait cannot end.
    """

    def __init__(self, to: Rank, ring: Ring, asleep: memoryview, folder: Path, lost: Lost) -> None:
        self._to, self._ring, self._asleep, self._lost = to, ring, asleep, lost
        self._wake, self._drain = FifoSetter(_wake_path(folder, to)), FifoSetter(_drain_path(folder, to))
        self._fence, self._sending = Fence(), threading.Lock()
        self._torn: PeerFailed | None = None
        """a message was written in part, so that no other message can follow"""

    def send(self, envelope: Envelope) -> None:
        """Writes a message; the lanes of this rank take turns."""
        parts = messages.parts(envelope)
        with self._sending:
            if self._torn is not None:
                raise self._torn
            try:
                for part in parts:
                    self._write(part)
            except PeerFailed as failure:
                self._torn = failure
                raise

    def close(self) -> None:
        """Closes the events."""
        self._wake.close()
        self._drain.close()

    def _write(self, part: messages.Bytes) -> None:
        while len(part):
            if written := self._ring.write(part[:PIECE_BYTES]):
                part = part[written:]
                self._wake_up()
            else:
                self._await_room()

    def _wake_up(self) -> None:
        """Wakes the receiver's program if it sleeps."""
        self._fence()
        if self._asleep[0]:
            self._asleep[0] = 0
            self._wake.set()

    def _await_room(self) -> None:
        """Waits until the receiver has made space, with backoff."""
        backoff = Backoff()
        while self._ring.full:
            if backoff.try_yield():
                continue
            self._drain.set()
            if (dead := self._lost((self._to,))) is not None and self._ring.full:
                raise PeerFailed(f"rank {dead} died", dead)
            backoff.pause()


def _wake_path(folder: Path, rank: Rank) -> Path:
    return folder / f"rank{rank}.wake"


def _drain_path(folder: Path, rank: Rank) -> Path:
    return folder / f"rank{rank}.drain"
