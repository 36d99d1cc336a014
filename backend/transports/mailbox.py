"""Messages between the ranks of one host, in memory that they share.

Rules of this file:

* Each ordered pair of ranks has a ring; messages follow each other in it as `wire` writes them, and those that are
  longer than the ring pass in pieces. So a pair's order holds, and a killed sender spoils its own ring alone.
* What is in the rings is fetched by the program's own thread when it asks for a message. It sleeps where nothing comes:
  it says so, looks once more, and waits at its bell. Whoever has written looks whether it sleeps, and rings. So nobody
  spins, and who is awake costs no system call.
* A sender that finds no room for a while rings a second bell, at which a thread of the receiver's waits that empties
  the rings. So a `Send` waits for that thread, and never for the receiver's program.
* Nothing here depends on a fork: a process that maps the memory and knows the folder with the bells takes part.
"""

from __future__ import annotations

import mmap
import threading
from pathlib import Path

from paceline.algorithms.core.errors import PeerFailed
from paceline.algorithms.core.values import Group, Rank
from paceline.backend.posix.backoff import Patience
from paceline.backend.posix.fifo_event import Bell, Rope
from paceline.backend.posix.memory_fence import Fence
from paceline.backend.posix.reserve import OTHERWISE, reserve, shared_file
from paceline.backend.status.status_board import Lost
from paceline.backend.transports import serialization
from paceline.backend.transports.byte_ring import COUNTS_BYTES, LINE_BYTES, RING_BYTES, WORD_BYTES, Ring
from paceline.backend.transports.inbox import Envelope, Inbox
from paceline.backend.transports.shared_segment import NOT_RESERVED, PAGE_BYTES

PIECE_BYTES = 2**18
"""written before the receiver is told, so that it takes the first while the next is written; provenance: ours"""


def mailbox_bytes(members: int, ring_bytes: int = RING_BYTES) -> int:
    """The memory of a host's messages: a line for each member, and a ring for each ordered pair; whole pages.

    A page takes room once it is written.

    >>> round(mailbox_bytes(4) / 2**20, 2)  # MiB
    16.0
    """
    room = members * LINE_BYTES + members * members * (COUNTS_BYTES + ring_bytes)
    return -(-room // PAGE_BYTES) * PAGE_BYTES


def anonymous(members: int) -> mmap.mmap:
    """Such memory without a name, for processes that are forked later."""
    return mmap.mmap(-1, mailbox_bytes(members), flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | NOT_RESERVED)


def in_file(path: Path, members: int) -> mmap.mmap:
    """Such memory in a file, for processes that nobody has forked; whoever comes first makes it, the others find it.

    Raises:
        RunFailed: the file system has no room for it.
    """
    needed = mailbox_bytes(members)
    with shared_file(path) as file:
        reserve(file.fileno(), path, 0, needed, f"memory for messages of {members} ranks", OTHERWISE)
        return mmap.mmap(file.fileno(), needed)


class Mailbox:
    """One rank's messages to and from the others of its host.

    Args:
        memory: shared by the host's ranks, of `mailbox_bytes`, and zero at first.
        host: all of them, in the same order for everyone.
        rank: this one.
        folder: where all of them find each other's bells.
        inbox: takes what comes.
        lost: names the dead rank that a wait is in vain for.
        ring_bytes: of each pair's ring; the same for everyone.
    """

    def __init__(
        self,
        memory: mmap.mmap,
        host: Group,
        rank: Rank,
        folder: Path,
        inbox: Inbox,
        lost: Lost,
        ring_bytes: int = RING_BYTES,
    ) -> None:
        me, members = host.ranks.index(rank), len(host)
        asleep = [memoryview(memory)[place * LINE_BYTES :][:WORD_BYTES].cast("q") for place in range(members)]

        def ring(source: int, to: int) -> Ring:
            at = members * LINE_BYTES + (source * members + to) * (COUNTS_BYTES + ring_bytes)
            return Ring(memory, at, ring_bytes)

        others = [(one, place) for place, one in enumerate(host) if one != rank]
        self._out = {one: Way(one, ring(me, place), asleep[place], folder, lost) for one, place in others}
        self._in = {one: ring(place, me) for one, place in others}
        self._inbox, self._asleep = inbox, asleep[me]
        self._coming: dict[Rank, serialization.Assembly] = {}
        """messages of which a part is here"""
        self._fetching, self._called, self._fence = threading.Lock(), False, Fence()
        self._bell, self._alarm = Bell(_bell(folder, rank)), Bell(_alarm(folder, rank))
        self._closed = False
        inbox.fetcher = self
        self._reliever = threading.Thread(target=self._relieve, daemon=True, name="mailbox")
        self._reliever.start()

    def __contains__(self, rank: Rank) -> bool:
        return rank in self._out

    def send(self, to: Rank, envelope: Envelope) -> None:
        """Hands a message over; the value may be changed afterwards.

        Raises:
            PeerFailed: there was no room for it, and the receiver has died.
        """
        self._out[to].send(envelope)

    def close(self) -> None:
        """Ends its thread and lets go of the bells, where this process goes on; nobody sends here any more."""
        self._closed = True
        self._alarm.pull()
        self._reliever.join()
        for bell in (self._bell, self._alarm):
            bell.close()
        for way in self._out.values():
            way.close()

    # --- receiving ------------------------------------------------------------------------------------------------

    def fetch(self, seconds: float) -> None:
        """Puts what is there into the inbox; waits so long for something if nothing is."""
        if self._empty(rest=seconds > 0) or not seconds:
            return
        self._asleep[0] = 1
        self._fence()
        if not self._called and not any(ring.ready for ring in self._in.values()):
            self._bell.wait(seconds)
        self._asleep[0], self._called = 0, False
        self._empty()

    def call(self) -> None:
        """Ends a `fetch` that waits, or keeps the one that is about to from waiting."""
        self._called = True
        self._fence()
        if self._asleep[0]:
            self._bell.pull()

    def _relieve(self) -> None:
        """Empties the rings when a sender has found no room in one."""
        while not self._closed:
            self._alarm.wait()
            while self._empty():
                pass

    def _empty(self, *, rest: bool = True) -> bool:
        """Takes what is in the rings, and the rest of a message whose beginning is; True if one has become whole."""
        with self._fetching:
            whole = self._pass()
            while rest and not whole and self._coming and self._comes_soon():
                whole = self._pass()
            return whole

    def _pass(self) -> bool:
        """Takes what is in the rings now; True if a message has become whole."""
        whole = False
        for source, ring in self._in.items():
            left = ring.ready
            while left > 0:
                left -= self._take(source, ring)
                whole |= source not in self._coming
        return whole

    def _comes_soon(self) -> bool:
        """Whether the rest of a message comes while this thread gives its core away and looks again."""
        patience = Patience()
        while patience.gives_way():
            if any(self._in[source].ready for source in self._coming):
                return True
        return False

    def _take(self, source: Rank, ring: Ring) -> int:
        """Takes the next piece of a sender's message; answers how many bytes."""
        if (assembly := self._coming.get(source)) is None:
            assembly = self._coming[source] = serialization.Assembly()
        taken = ring.read(assembly.wants)
        assembly.fill(taken)
        if assembly.whole:
            del self._coming[source]
            self._inbox.put(assembly.value)
        return taken


class Way:
    """To another rank of the host.

    Args:
        to: that rank.
        ring: what it reads from.
        asleep: one word: whether its program sleeps.
        folder: where its bells are.
        lost: names the dead rank that a wait is in vain for.
    """

    def __init__(self, to: Rank, ring: Ring, asleep: memoryview, folder: Path, lost: Lost) -> None:
        self._to, self._ring, self._asleep, self._lost = to, ring, asleep, lost
        self._bell, self._alarm = Rope(_bell(folder, to)), Rope(_alarm(folder, to))
        self._fence, self._sending = Fence(), threading.Lock()
        self._torn: PeerFailed | None = None
        """a message has gone in part: nothing can follow it"""

    def send(self, envelope: Envelope) -> None:
        """Writes a message; the lanes of this rank do so one after the other."""
        parts = serialization.parts(envelope)
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
        """Lets go of the bells."""
        self._bell.close()
        self._alarm.close()

    def _write(self, part: serialization.Bytes) -> None:
        while len(part):
            if written := self._ring.write(part[:PIECE_BYTES]):
                part = part[written:]
                self._wake()
            else:
                self._await_room()

    def _wake(self) -> None:
        """Rings if the receiver's program sleeps."""
        self._fence()
        if self._asleep[0]:
            self._asleep[0] = 0
            self._bell.pull()

    def _await_room(self) -> None:
        """Waits until the receiver has read, without keeping anybody from work."""
        patience = Patience()
        while self._ring.full:
            if patience.gives_way():
                continue
            self._alarm.pull()
            if (dead := self._lost((self._to,))) is not None and self._ring.full:
                raise PeerFailed(f"rank {dead} died", dead)
            patience.pause()


def _bell(folder: Path, rank: Rank) -> Path:
    return folder / f"rank{rank}.bell"


def _alarm(folder: Path, rank: Rank) -> Path:
    return folder / f"rank{rank}.alarm"
