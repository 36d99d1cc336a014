"""A stream of bytes from one process to another, in memory that both share.

Rules of this file:

* There is one writer and one reader. Each increments its own counter and never writes the other's, so there are no
  locks, and a process that is killed leaves nothing locked.
* A counter is written after its bytes, and read before them. On x86-64 other processors see stores in order; on other
  architectures a fence enforces the order.
"""

from __future__ import annotations

import mmap

import numpy as np

from paceline.backend.posix.memory_fence import Fence
from paceline.backend.transports.serialization import Bytes

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
