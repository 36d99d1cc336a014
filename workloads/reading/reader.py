"""Reads records in the order of an `Order`, and counts the requests to the file.

A request is one piece: its records are read by `preadv` into new memory, at an offset, so that readers share no file
position that a forked process could change. A seek is a request that does not begin at the end of the reader's previous
one; the first request is a seek. Pieces of the previous step are not read again, and pieces that a step does not need
are dropped. The records are a function of `Samples` only, independent of earlier requests.
"""

from __future__ import annotations

import errno
import mmap
import os
import threading
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from paceline.algorithms.core.values import Samples
from paceline.workloads.reading.file import RecordFile, Records
from paceline.workloads.reading.orders import Held, Order, Piece, Places

BLOCK = mmap.PAGESIZE
"""alignment of addresses, offsets and lengths for reads that bypass the page cache"""


class Counts(NamedTuple):
    """Counts of a reader's requests; the first fields of `records.trace.Reads`."""

    requests: int = 0
    seeks: int = 0
    """requests that did not begin at the end of the previous one"""
    bytes: int = 0
    """bytes of records"""


class Opened:
    """A record file that is open in this process.

    Args:
        file: the description of the file.
        direct: bypass the page cache (O_DIRECT, whole blocks to aligned memory) if the file system supports it.
    """

    def __init__(self, file: RecordFile, *, direct: bool = False) -> None:
        self.file = file
        self.note: str | None = None
        """the reason why the page cache is used although `direct` was requested"""
        self.direct = direct
        self._open()

    def _open(self) -> None:
        try:
            self._handle = os.open(self.file.path, os.O_RDONLY | os.O_CLOEXEC | (os.O_DIRECT if self.direct else 0))
        except OSError as error:
            if not self.direct or error.errno != errno.EINVAL:
                raise
            self._refuse(error)
            self._open()
        else:
            self._closing = weakref.finalize(self, os.close, self._handle)

    def _refuse(self, error: OSError) -> None:
        self.direct = False
        self.note = f"{self.file.path}: read through the page cache, as the file system refuses O_DIRECT ({error})"

    def read(self, piece: Piece) -> Records:
        """Reads the records of a piece into new memory.

        Raises:
            InputError: the file has been truncated.
        """
        start, size = self.file.offset(piece.first), piece.records * self.file.record_bytes
        if self.direct:
            try:
                return self._directly(start, size)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                self.close()
                self._refuse(error)
                self._open()
        records = np.empty(piece.records, self.file.dtype)
        self._fill(records.view(np.uint8), start, size)
        return records

    def _directly(self, start: int, size: int) -> Records:
        """Reads the blocks that contain these bytes, and returns the bytes."""
        first, last = start // BLOCK * BLOCK, -(-(start + size) // BLOCK) * BLOCK
        memory = np.empty(last - first + BLOCK, np.uint8)
        aligned = memory[-memory.ctypes.data % BLOCK :][: last - first]
        self._fill(aligned, first, start + size - first)
        return aligned[start - first :][:size].view(self.file.dtype)

    def _fill(self, memory: NDArray[np.uint8], start: int, needed: int) -> None:
        """Reads from `start` until the first `needed` bytes are complete."""
        there = 0
        while there < needed:
            try:
                got = os.preadv(self._handle, [memory.data[there:]], start + there)
            except OSError as error:
                wrong = f"{error.strerror}, at offset {start + there:,}"
                raise OSError(error.errno, wrong, str(self.file.path)) from error
            there += got
            if not got or (self.direct and got % BLOCK and there < needed):  # all blocks but the file's last are whole
                raise self.file.cut_off(os.fstat(self._handle).st_size)

    def close(self) -> None:
        """Closes the file."""
        self._closing()


class Reader:
    """One worker's reader.

    Args:
        file: the description of the file.
        order: the order of the samples.
        direct: bypass the page cache, see `Opened`; if that is not possible, `note` has the reason.
        opened: an open file to share; None: the reader opens the file, and `close` closes it.
    """

    def __init__(self, file: RecordFile, order: Order, *, direct: bool = False, opened: Opened | None = None) -> None:
        self.file, self.order = file, order
        self.counts = Counts()
        self._shared, self._opened = opened is not None, opened or Opened(file, direct=direct)
        self._held, self._records, self._next = Held(), dict[Piece, Records](), -1
        self._free = threading.Lock()

    @property
    def note(self) -> str | None:
        """The reason why the page cache is used although `direct` was requested."""
        return self._opened.note

    def records(self, samples: Samples) -> Records:
        """Returns the records of a step, in the order of use.

        Raises:
            InputError: the file has been truncated, or a global batch has more samples than the file.
        """
        with self._free:
            places, pieces = self.order.positions(samples), self.order.pieces(samples)
            try:
                fresh = {piece: self._read(piece) for piece in self._held.fresh(pieces)}
            except BaseException:
                self._forget()
                raise
            self._records = {piece: fresh[piece] if piece in fresh else self._records[piece] for piece in pieces}
            return self._gathered(places)

    def forget(self) -> None:
        """Frees the memory; the next step reads all its pieces again."""
        with self._free:
            self._forget()

    def close(self) -> None:
        """Frees the memory, and closes the file if it is not shared."""
        self.forget()
        if not self._shared:
            self._opened.close()

    def _forget(self) -> None:
        self._held, self._records = Held(), {}

    def _read(self, piece: Piece) -> Records:
        records = self._opened.read(piece)
        self.file.verify(piece.first, records)
        requests, seeks, read = self.counts
        self.counts = Counts(requests + 1, seeks + (piece.first != self._next), read + records.nbytes)
        self._next = piece.first + piece.records
        return records

    def _gathered(self, places: Places) -> Records:
        pieces = list(self._records)
        which, rows = _found(places, pieces)
        chosen = np.empty(len(places), self.file.dtype)
        order = np.argsort(which, kind="stable")
        for wanted in np.split(order, np.flatnonzero(np.diff(which[order])) + 1):
            chosen[wanted] = self._records[pieces[which[wanted[0]]]][rows[wanted]]
        return chosen


def _found(places: Places, pieces: Sequence[Piece]) -> tuple[NDArray[Any], Places]:
    """Returns the piece that contains each position, and the position in it; pieces may overlap.

    >>> _found(np.array([5, 2, 4]), [Piece(4, 2), Piece(2, 2)])
    (array([0, 1, 0]), array([1, 0, 0]))
    """
    sizes = [piece.records for piece in pieces]
    whose = np.repeat(np.arange(len(pieces)), sizes)
    rows = np.concatenate([np.arange(size) for size in sizes])
    held = rows + np.array([piece.first for piece in pieces])[whose]
    by_place = np.argsort(held, kind="stable")
    index = by_place[np.searchsorted(held, places, sorter=by_place)]
    return whose[index], rows[index]
