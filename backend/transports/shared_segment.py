"""Memory that the ranks of one node share.

Rules of this file:

* For forked ranks the memory has no name: it is an anonymous mapping of the launcher, inherited by the fork. So nothing
  has to be removed after a run, however its processes end. Ranks that another launcher started map a file of the run's
  folder in the host's memory file system.
* It is divided into channels, one for each group of ranks and stream of collectives. In a file, the space of a channel
  is reserved when a rank claims it, since writing without space would kill the process; an unused channel costs
  nothing. In an anonymous mapping, a page is allocated when it is first written.
* The first member of a group and stream decides whether they have a channel, and writes the decision to a table, so
  that all members find the same. A channel is released when every member has left it, and can then be reused.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np

from paceline.algorithms.core.errors import RunFailed
from paceline.algorithms.core.values import Group
from paceline.backend.posix.processes import HostLock
from paceline.backend.posix.reserve import OTHERWISE, reserve, shared_file
from paceline.topologies.catalogue.host_memory import PIECE_BYTES

BUFFERS = 2
"""pieces of each member: one is written while the previous one may still be read"""
LINE_BYTES = 64
"""a cache line of the processor; also the space in front of a piece for its form"""
CHANNELS = 16
"""channels of a node; a group that finds none free uses gloo"""
ROWS = 1024
"""how many groups and streams may be in use at once"""
NOT_RESERVED = 0x4000 if sys.platform == "linux" else 0
"""MAP_NORESERVE of Linux, which Python's mmap does not define: no swap is reserved for pages that may never be used"""

PAGE_BYTES = mmap.PAGESIZE


def channel_bytes(members: int, piece_bytes: int = PIECE_BYTES) -> int:
    """Returns the bytes of a channel: a line for each member's counter, and two pieces with a line each; whole pages.

    Args:
        members: the number of ranks of the node.
        piece_bytes: bytes of each member's piece.

    >>> channel_bytes(2) // 2**20  # MiB
    16
    """
    room = members * (LINE_BYTES + BUFFERS * (LINE_BYTES + piece_bytes))
    return -(-room // PAGE_BYTES) * PAGE_BYTES


class Segment:
    """The shared memory of one node.

    Args:
        node: the node's ranks.
        channels: how many groups and streams may use it at once.
        piece_bytes: bytes of a value in the memory at once, of each member; whole lines.
        folder: the run's folder on this host, for ranks that map a file; None for forked ranks.
    """

    def __init__(
        self, node: Group, channels: int = CHANNELS, piece_bytes: int = PIECE_BYTES, folder: Path | None = None
    ) -> None:
        self.node, self.piece_bytes, self._channels = node, piece_bytes, channels
        self._each = channel_bytes(len(node), piece_bytes)
        row = np.dtype([("name", "S16"), ("channel", "i8"), ("left", "i8")])
        self._ahead = -(-ROWS * row.itemsize // PAGE_BYTES) * PAGE_BYTES
        room, shared = self._ahead + channels * self._each, mmap.MAP_SHARED | NOT_RESERVED
        self._path = None if folder is None else folder / f"node{node.ranks[0]}.segment"
        self._reserved = set[int]()
        """channels whose space this process has reserved"""
        if self._path is None:
            self.memory = mmap.mmap(-1, room, flags=shared | mmap.MAP_ANONYMOUS)
            self._lock = HostLock()
        else:
            with shared_file(self._path) as file:
                file.truncate(room)
                reserve(file.fileno(), self._path, 0, self._ahead, "the table of shared memory", OTHERWISE)
                self.memory = mmap.mmap(file.fileno(), room, flags=shared)
            self._lock = HostLock(self._path.with_suffix(".lock"))
        self._table: Any = np.frombuffer(self.memory, dtype=row, count=ROWS)

    def holds(self, group: Group) -> bool:
        """Whether all ranks of a group are on this node."""
        return all(rank in self.node for rank in group)

    def begins(self, channel: int) -> int:
        """Returns the offset of a channel in the memory."""
        return self._ahead + channel * self._each

    def claim(self, group: Group, stream: str) -> int | None:
        """Returns the channel of a group and stream, the same at all members; None if there was none free for them.

        Raises:
            RunFailed: the table is full, or the file system has no space for a channel.
        """
        name = _name(group, stream)
        with self._lock:
            table = self._table
            if not len(rows := np.flatnonzero(table["name"] == name)):
                if not len(rows := np.flatnonzero(table["name"] == b"")):
                    raise RunFailed(f"more than {ROWS} groups and streams of collectives are in use on one node")
                used = set(table["channel"][table["name"] != b""].tolist())
                free = (channel for channel in range(self._channels) if channel not in used)
                table[rows[0]] = name, next(free, -1), 0
            channel = int(table["channel"][rows[0]])
        if channel < 0:
            return None
        self._reserve(channel)
        return channel

    def _reserve(self, channel: int) -> None:
        """Reserves the space of a channel; it may be repeated in every process."""
        if self._path is None or channel in self._reserved:
            return
        with shared_file(self._path) as file:
            what = f"shared memory of {len(self.node)} ranks"
            reserve(file.fileno(), self._path, self.begins(channel), self._each, what, OTHERWISE)
        self._reserved.add(channel)

    def leave(self, group: Group, stream: str) -> None:
        """Removes a member from the channel, which is free after the last one has left."""
        with self._lock:
            (row,) = np.flatnonzero(self._table["name"] == _name(group, stream))
            self._table["left"][row] += 1
            if self._table["left"][row] < len(group):
                return
            if (channel := int(self._table["channel"][row])) >= 0:
                counters = len(group) * LINE_BYTES
                self.memory[self.begins(channel) : self.begins(channel) + counters] = bytes(counters)
            self._table[row] = b"", 0, 0


def fits(folder: Path, node: Group) -> bool:
    """Whether the folder's file system has space for all channels of a node; otherwise gloo is used."""
    free = os.statvfs(folder)
    return free.f_bavail * free.f_frsize >= CHANNELS * channel_bytes(len(node))


def _name(group: Group, stream: str) -> bytes:
    """Returns sixteen characters that identify a group and stream."""
    return hashlib.blake2b(f"{group}{stream}".encode(), digest_size=8).hexdigest().encode()


class Fence:
    """Orders stores and reads before the call before those after it.

    The call acquires and releases a lock twice: a release comes before the next acquisition. On x86-64 an acquisition
    is a full barrier.

    >>> Fence()()
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __call__(self) -> None:
        lock = self._lock
        lock.acquire()
        lock.release()
        lock.acquire()
        lock.release()
