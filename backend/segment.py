"""Memory that the ranks of one node share.

Rules of this file:

* For ranks that are forked the memory has no name: an anonymous mapping of the launcher's, inherited through the fork.
  So nothing is to be removed after a run, however its processes end. Ranks that others started map a file of the run's
  folder in the host's memory.
* It is divided into channels, one for each group of ranks and stream of collectives. A page takes room once it is
  written; what is never used costs nothing.
* Who comes first to a group and stream decides whether they have a channel; the decision stands in a table, so that all
  members find the same. A channel is given back when every member has left, and then serves others.
"""

from __future__ import annotations

import hashlib
import mmap
import multiprocessing
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from paceline.algorithms.errors import PeerFailed, RunFailed
from paceline.algorithms.values import Group
from paceline.backend.board import Lost
from paceline.backend.hostlock import HostLock
from paceline.backend.inbox import LOOK_S

PIECE_BYTES = 2**22
"""of a value that is in the memory at once; provenance: ours. Of 0.8 and 8 MB by 2 and 4 ranks, 1 MiB and more were
equally quick on an idle machine; where other programs wanted the cores, every turn of waiting told, and 8 MB took up to
twice as long in pieces of 1 MiB"""
BUFFERS = 2
"""pieces of each member: one is written while the one before may still be read"""
LINE_BYTES = 64
"""of a processor's cache; also the room in front of a piece for what it is"""
CHANNELS = 16
"""of a node; who finds none left goes by gloo"""
ROWS = 1024
"""groups and streams that may be in use at once"""
NOT_RESERVED = 0x4000 if sys.platform == "linux" else 0
"""MAP_NORESERVE of Linux, which Python's mmap does not name: no swap is set aside for what may never be used"""

PAGE_BYTES = mmap.PAGESIZE


def channel_bytes(members: int, piece_bytes: int = PIECE_BYTES) -> int:
    """A channel's room: for each member a line for its counter, and two pieces with a line in front; whole pages.

    >>> channel_bytes(2) // 2**20  # MiB
    16
    """
    room = members * (LINE_BYTES + BUFFERS * (LINE_BYTES + piece_bytes))
    return -(-room // PAGE_BYTES) * PAGE_BYTES


class Segment:
    """The memory of one node.

    Args:
        node: its ranks.
        channels: how many groups and streams may use it at once.
        piece_bytes: of a value that is in the memory at once, from each member; whole lines.
        folder: of the run on this host, for ranks that map the memory; None for those that are forked.
    """

    def __init__(
        self, node: Group, channels: int = CHANNELS, piece_bytes: int = PIECE_BYTES, folder: Path | None = None
    ) -> None:
        self.node, self.piece_bytes, self._channels = node, piece_bytes, channels
        self._each = channel_bytes(len(node), piece_bytes)
        row = np.dtype([("name", "S16"), ("channel", "i8"), ("left", "i8")])
        self._ahead = -(-ROWS * row.itemsize // PAGE_BYTES) * PAGE_BYTES
        room, shared = self._ahead + channels * self._each, mmap.MAP_SHARED | NOT_RESERVED
        self._lock: Any
        if folder is None:
            self.memory = mmap.mmap(-1, room, flags=shared | mmap.MAP_ANONYMOUS)
            self._lock = multiprocessing.get_context("fork").Lock()
        else:
            name = f"node{node.ranks[0]}"
            with (folder / f"{name}.segment").open("a+b") as file:
                file.truncate(room)
                self.memory = mmap.mmap(file.fileno(), room, flags=shared)
            self._lock = HostLock(folder / f"{name}.lock")
        self._table: Any = np.frombuffer(self.memory, dtype=row, count=ROWS)

    def holds(self, group: Group) -> bool:
        """Whether all of a group are of this node."""
        return all(rank in self.node for rank in group)

    def begins(self, channel: int) -> int:
        """Where a channel lies in the memory."""
        return self._ahead + channel * self._each

    def claim(self, group: Group, stream: str, lost: Lost) -> int | None:
        """The channel of a group and stream, the same for all members; None where there was none left for them.

        Raises:
            RunFailed: more of them are in use than the table has room for.
        """
        name = _name(group, stream)
        with self._locked(group, lost):
            table = self._table
            if not len(found := np.flatnonzero(table["name"] == name)):
                if not len(found := np.flatnonzero(table["name"] == b"")):
                    raise RunFailed(f"more than {ROWS} groups and streams of collectives are in use on one node")
                used = set(table["channel"][table["name"] != b""].tolist())
                free = (channel for channel in range(self._channels) if channel not in used)
                table[found[0]] = name, next(free, -1), 0
            channel = int(table["channel"][found[0]])
        return None if channel < 0 else channel

    def leave(self, group: Group, stream: str, lost: Lost) -> None:
        """A member will not come again; with the last one's leaving the channel is free."""
        with self._locked(group, lost):
            (row,) = np.flatnonzero(self._table["name"] == _name(group, stream))
            self._table["left"][row] += 1
            if self._table["left"][row] < len(group):
                return
            if (channel := int(self._table["channel"][row])) >= 0:
                counters = len(group) * LINE_BYTES
                self.memory[self.begins(channel) : self.begins(channel) + counters] = bytes(counters)
            self._table[row] = b"", 0, 0

    @contextmanager
    def _locked(self, group: Group, lost: Lost) -> Iterator[None]:
        """A rank that is killed may leave the table locked, so nobody waits for it for ever."""
        while not self._lock.acquire(timeout=LOOK_S):
            if (dead := lost(group)) is not None:
                raise PeerFailed(f"rank {dead} died")
        try:
            yield
        finally:
            self._lock.release()


def fits(folder: Path, node: Group) -> bool:
    """Whether the folder's file system has room for a node's memory: one that is full ends who writes to it."""
    free = os.statvfs(folder)
    return free.f_bavail * free.f_frsize >= CHANNELS * channel_bytes(len(node))


def _name(group: Group, stream: str) -> bytes:
    """Sixteen letters that stand for a group and stream."""
    return hashlib.blake2b(f"{group}{stream}".encode(), digest_size=8).hexdigest().encode()
