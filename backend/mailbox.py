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
import os
import threading
import time
from collections import defaultdict
from pathlib import Path

from paceline.algorithms.errors import PeerFailed
from paceline.algorithms.values import Group, Rank
from paceline.backend import wire
from paceline.backend.bell import Bell, Rope
from paceline.backend.board import Lost
from paceline.backend.inbox import Envelope, Inbox
from paceline.backend.ring import LINE_BYTES, ROOM_BYTES, WORD_BYTES, Fence, Ring
from paceline.backend.segment import NOT_RESERVED, PAGE_BYTES

PIECE_BYTES = 2**18
"""written before the receiver is told, so that it takes the first while the next is written; provenance: ours"""
YIELD_S = 2e-4
"""for so long a thread that waits in the middle of a message gives its core away and looks again"""
PAUSE_S, LONGER, LONGEST_S = 2e-5, 1.5, 2e-4
"""after that it pauses: the first pause, by how much each is longer than the last, and the longest"""


def mailbox_bytes(members: int) -> int:
    """The memory of a host's messages: a line for each member, and a ring for each ordered pair; whole pages.

    A page takes room once it is written.

    >>> mailbox_bytes(4) / 2**20  # MiB
    16.00390625
    """
    room = members * LINE_BYTES + members * members * ROOM_BYTES
    return -(-room // PAGE_BYTES) * PAGE_BYTES


def anonymous(members: int) -> mmap.mmap:
    """Such memory without a name, for processes that are forked later."""
    return mmap.mmap(-1, mailbox_bytes(members), flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | NOT_RESERVED)


def in_file(path: Path, members: int) -> mmap.mmap:
    """Such memory in a file, for processes that nobody has forked; whoever comes first makes it, the others find it."""
    with path.open("ab+") as file:
        os.posix_fallocate(file.fileno(), 0, mailbox_bytes(members))  # too small a disk is told now, not by SIGBUS
        return mmap.mmap(file.fileno(), mailbox_bytes(members))


class Mailbox:
    """One rank's messages to and from the others of its host.

    Args:
        memory: shared by the host's ranks, of `mailbox_bytes`, and zero at first.
        host: all of them, in the same order for everyone.
        rank: this one.
        folder: where all of them find each other's bells.
        inbox: takes what comes.
        lost: names the dead rank that a wait is in vain for.
    """

    def __init__(self, memory: mmap.mmap, host: Group, rank: Rank, folder: Path, inbox: Inbox, lost: Lost) -> None:
        me, members, lines = host.ranks.index(rank), len(host), len(host) * LINE_BYTES
        self._rank, self._folder, self._inbox, self._lost = rank, folder, inbox, lost
        self._asleep = memoryview(memory)[:lines].cast("q")
        """of each member's line the first word: whether its program sleeps"""
        self._line = me * LINE_BYTES // WORD_BYTES
        self._lines = {one: place * LINE_BYTES // WORD_BYTES for place, one in enumerate(host)}
        others = [(one, place) for place, one in enumerate(host) if one != rank]
        self._out = {one: Ring(memory, lines + (me * members + place) * ROOM_BYTES) for one, place in others}
        self._in = {one: Ring(memory, lines + (place * members + me) * ROOM_BYTES) for one, place in others}
        self._coming: dict[Rank, wire.Assembly] = {}
        """messages of which a part is here"""
        self._sending: dict[Rank, threading.Lock] = defaultdict(threading.Lock)
        self._torn: dict[Rank, PeerFailed] = {}
        """to whom a message has gone in part: nothing can follow it"""
        self._fence, self._fetching, self._called = Fence(), threading.Lock(), False
        self._bell, self._alarm = Bell(_bell(folder, rank)), Bell(_alarm(folder, rank))
        self._others = {one: (Rope(_bell(folder, one)), Rope(_alarm(folder, one))) for one in self._out}
        inbox.fetcher = self
        threading.Thread(target=self._relieve, daemon=True, name="mailbox").start()

    def __contains__(self, rank: Rank) -> bool:
        return rank in self._out

    # --- sending --------------------------------------------------------------------------------------------------

    def send(self, to: Rank, envelope: Envelope) -> None:
        """Hands a message over; the value may be changed afterwards.

        Raises:
            PeerFailed: there was no room for it, and the receiver has died.
        """
        parts = wire.parts(envelope)
        with self._sending[to]:  # the lanes of this rank send one after the other
            if to in self._torn:
                raise self._torn[to]
            try:
                for part in parts:
                    self._write(to, part)
            except PeerFailed as failure:
                self._torn[to] = failure
                raise

    def _write(self, to: Rank, part: wire.Bytes) -> None:
        ring = self._out[to]
        while len(part):
            if written := ring.write(part[:PIECE_BYTES]):
                part = part[written:]
                self._wake(to)
            else:
                self._await_room(ring, to)

    def _wake(self, to: Rank) -> None:
        """Rings if the program of a rank sleeps."""
        self._fence()
        if self._asleep[self._lines[to]]:
            self._asleep[self._lines[to]] = 0
            self._others[to][0].pull()

    def _await_room(self, ring: Ring, to: Rank) -> None:
        """Waits until the receiver has read, without keeping anybody from work."""
        yields_until, pause_s = time.monotonic() + YIELD_S, 0.0
        while ring.full:
            if time.monotonic() < yields_until:
                time.sleep(0)
                continue
            if not pause_s:
                self._others[to][1].pull()
            if (dead := self._lost((to,))) is not None and ring.full:
                raise PeerFailed(f"rank {dead} died")
            pause_s = min(max(PAUSE_S, pause_s * LONGER), LONGEST_S)
            time.sleep(pause_s)

    # --- receiving ------------------------------------------------------------------------------------------------

    def fetch(self, seconds: float) -> None:
        """Puts what is there into the inbox; waits so long for something if nothing is."""
        if self._empty() or not seconds:
            return
        self._asleep[self._line] = 1
        self._fence()
        if not self._called and not any(ring.ready for ring in self._in.values()):
            self._bell.wait(seconds)
        self._asleep[self._line], self._called = 0, False
        self._empty()

    def call(self) -> None:
        """Ends a `fetch` that waits, or keeps the one that is about to from waiting."""
        self._called = True
        self._fence()
        if self._asleep[self._line]:
            self._bell.pull()

    def _relieve(self) -> None:
        """Empties the rings when a sender has found no room in one."""
        while True:
            self._alarm.wait()
            self._empty()

    def _empty(self) -> bool:
        """Takes what is in the rings, and the rest of what comes while it does; False if there was nothing."""
        with self._fetching:
            found = False
            while self._pass() or (self._coming and self._comes_soon()):
                found = True
            return found

    def _pass(self) -> bool:
        """Takes what is in the rings now."""
        found = False
        for source, ring in self._in.items():
            while ring.ready:
                found = True
                self._take(source, ring)
        return found

    def _comes_soon(self) -> bool:
        """Whether the rest of a message comes while this thread gives its core away and looks again."""
        until = time.monotonic() + YIELD_S
        while time.monotonic() < until:
            if any(self._in[source].ready for source in self._coming):
                return True
            time.sleep(0)
        return False

    def _take(self, source: Rank, ring: Ring) -> None:
        """Takes the next piece of a sender's message."""
        if (assembly := self._coming.get(source)) is None:
            assembly = self._coming[source] = wire.Assembly()
        assembly.fill(ring.read(assembly.wants))
        if assembly.whole:
            del self._coming[source]
            self._inbox.put(assembly.value)


def _bell(folder: Path, rank: Rank) -> Path:
    return folder / f"rank{rank}.bell"


def _alarm(folder: Path, rank: Rank) -> Path:
    return folder / f"rank{rank}.alarm"
