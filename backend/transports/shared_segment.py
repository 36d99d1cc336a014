"""Memory that the ranks of one node share.

Rules of this file:

* For ranks that are forked the memory has no name: an anonymous mapping of the launcher's, inherited through the fork.
  So nothing is to be removed after a run, however its processes end. Ranks that others started map a file of the run's
  folder in the host's memory.
* It is divided into channels, one for each group of ranks and stream of collectives. In a file, a channel's room is
  reserved when a rank claims it, since writing without room would end the process; a channel that nobody claims costs
  nothing. Without a name, a page takes room once it is written.
* Who comes first to a group and stream decides whether they have a channel; the decision stands in a table, so that all
  members find the same. A channel is given back when every member has left, and then serves others.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from paceline.algorithms.core.errors import RunFailed
from paceline.algorithms.core.values import Group
from paceline.backend.posix.host_lock import HostLock
from paceline.backend.posix.reserve import OTHERWISE, reserve, shared_file

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
        self._path = None if folder is None else folder / f"node{node.ranks[0]}.segment"
        self._reserved = set[int]()
        """the channels whose room this process has seen to"""
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
        """Whether all of a group are of this node."""
        return all(rank in self.node for rank in group)

    def begins(self, channel: int) -> int:
        """Where a channel lies in the memory."""
        return self._ahead + channel * self._each

    def claim(self, group: Group, stream: str) -> int | None:
        """The channel of a group and stream, the same for all members; None where there was none left for them.

        Raises:
            RunFailed: more of them are in use than the table has room for, or the file system has no room for a
                channel.
        """
        name = _name(group, stream)
        with self._lock:
            table = self._table
            if not len(found := np.flatnonzero(table["name"] == name)):
                if not len(found := np.flatnonzero(table["name"] == b"")):
                    raise RunFailed(f"more than {ROWS} groups and streams of collectives are in use on one node")
                used = set(table["channel"][table["name"] != b""].tolist())
                free = (channel for channel in range(self._channels) if channel not in used)
                table[found[0]] = name, next(free, -1), 0
            channel = int(table["channel"][found[0]])
        if channel < 0:
            return None
        self._reserve(channel)
        return channel

    def _reserve(self, channel: int) -> None:
        """Takes the room of a channel; to do so in every process does no harm."""
        if self._path is None or channel in self._reserved:
            return
        with shared_file(self._path) as file:
            what = f"shared memory of {len(self.node)} ranks"
            reserve(file.fileno(), self._path, self.begins(channel), self._each, what, OTHERWISE)
        self._reserved.add(channel)

    def leave(self, group: Group, stream: str) -> None:
        """A member will not come again; with the last one's leaving the channel is free."""
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
    """Whether the folder's file system has room for all channels of a node's memory; otherwise gloo is used."""
    free = os.statvfs(folder)
    return free.f_bavail * free.f_frsize >= CHANNELS * channel_bytes(len(node))


def _name(group: Group, stream: str) -> bytes:
    """Sixteen letters that stand for a group and stream."""
    return hashlib.blake2b(f"{group}{stream}".encode(), digest_size=8).hexdigest().encode()
