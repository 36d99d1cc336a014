"""A stream of bytes from one process to another, in memory that both have.

Rules of this file:

* One writes, one reads. Each counts its own bytes up and never writes the other's count, so there are no locks, and one
  that is killed in the middle of something leaves nothing locked.
* A count is written after its bytes have been, and read before they are. On x86-64 others see stores in their order;
  elsewhere the fence keeps them so.
"""

from __future__ import annotations

import mmap

import numpy as np

from paceline.backend.posix.memory_fence import Fence
from paceline.backend.transports.serialization import Bytes

RING_BYTES = 2**20
"""of a ring; provenance: ours. What is longer passes in pieces while the reader takes them"""
LINE_BYTES = 64
"""of a processor's cache: no two counts share one"""
COUNTS_BYTES = 2 * LINE_BYTES
"""in front of a ring"""
WORD_BYTES = 8
READ = LINE_BYTES // WORD_BYTES
"""the word that counts what has been read; the first one counts what has been written"""


class Ring:
    """One end of a ring.

    Args:
        memory: shared, and zero at first.
        at: where the ring lies in it.
        size: bytes that may be under way at once; the counts take `COUNTS_BYTES` in front.
    """

    def __init__(self, memory: mmap.mmap, at: int, size: int = RING_BYTES) -> None:
        self._counts = memoryview(memory)[at : at + COUNTS_BYTES].cast("q")
        """both go up for ever"""
        self._bytes: Bytes = np.frombuffer(memory, np.uint8, size, at + COUNTS_BYTES)
        self._size, self._fence = size, Fence()

    @property
    def ready(self) -> int:
        """Bytes that wait to be read."""
        return self._counts[0] - self._counts[READ]

    @property
    def full(self) -> bool:
        return self.ready == self._size

    def write(self, data: Bytes) -> int:
        """Writes as much as there is room for; answers how many bytes."""
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
        """Reads as much as is there and fits; answers how many bytes."""
        size = min(self.ready, len(into))
        self._fence()
        begin = self._counts[READ] % self._size
        first = min(size, self._size - begin)
        into[:first] = self._bytes[begin : begin + first]
        into[first:size] = self._bytes[: size - first]
        self._fence()
        self._counts[READ] += size
        return size
