"""Writes one rank's record to disk in pieces, so that a killed rank loses half a second of it at most."""

from __future__ import annotations

import copyreg
import io
import os
import pickle
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from paceline.algorithms.core.values import Rank
from paceline.algorithms.runtime.update_log import LayerUpdate, Update
from paceline.backend.posix.reserve import FULL, no_room, size
from paceline.records.trace import Snapshot, Span

EXIT_FAILED = 3
"""the exit status of a rank that has recorded its error"""
FLUSH_S = 0.5
Kind = Literal[
    "span",
    "update",
    "layer",
    "snapshot",
    "heard",
    "outcome",
    "now",
    "adds",
    "reads",
    "state",
    "weights",
    "end",
    "late",
    "device",
    "warning",
    "error",
]


class Heard(NamedTuple):
    """A receive that has ended."""

    turn: int
    """its place among those of its rank: lanes may write theirs down in another order"""
    source: Rank | None
    lane: str


ROWS: dict[Kind, Any] = {"span": Span, "update": Update, "layer": LayerUpdate, "heard": Heard}
"""frequent entries, which are written as plain tuples: that takes a fifth of the time"""


class Recorder:
    """Collects entries in memory and appends them to a file now and then."""

    def __init__(self, rank: Rank, path: Path) -> None:
        self.rank, self.path = rank, path
        self._file = path.open("ab", buffering=0)
        self._whole = path.stat().st_size
        """bytes of whole pieces in the file"""
        self._entries: deque[tuple[Kind, Any]] = deque()  # lanes and a reader add to it while it is emptied
        self._flushed_s = 0.0
        self._flushing = threading.Lock()

    def add(self, kind: Kind, value: Span | Update | LayerUpdate | Snapshot | Any) -> None:
        self._entries.append((kind, value))

    def breathe(self, now_s: float) -> None:
        """Writes the entries if `FLUSH_S` has passed since the last time; called when a program passes `NextStep`."""
        if now_s - self._flushed_s > FLUSH_S:
            self.flush()
            self._flushed_s = now_s

    def flush(self) -> None:
        """Appends all entries as one piece."""
        with self._flushing:  # a joined rank that hangs is flushed by another thread of its process
            taken = (self._entries.popleft() for _ in range(len(self._entries)))
            if entries := [(kind, tuple(value) if kind in ROWS else value) for kind, value in taken]:
                pickled = io.BytesIO()
                pickler = pickle.Pickler(pickled, protocol=5)
                pickler.dispatch_table = TABLE
                pickler.dump(entries)
                self._append(pickled.getbuffer())

    def _append(self, piece: memoryview) -> None:
        """Appends a whole piece or nothing: entries after half a piece could not be read."""
        left = piece
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            os.ftruncate(self._file.fileno(), self._whole)
            if error.errno in FULL:
                raise no_room(self.path.parent, f"the record of rank {self.rank} needs {size(len(piece))}") from error
            raise
        self._whole += len(piece)

    def close(self) -> None:
        """Writes the remaining entries, and closes the file."""
        self.flush()
        self._file.close()


def _in_memory(tensor: torch.Tensor) -> Any:
    """Writes a tensor from the host's memory: the reader of the record may have no such device."""
    return tensor.detach().cpu().__reduce_ex__(5)


TABLE: dict[type, Callable[[Any], Any]] = {**copyreg.dispatch_table, torch.Tensor: _in_memory}
"""how values are pickled"""


class Tail:
    """Reads what a rank has written, piece by piece, also while it is still writing."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0

    def read(self) -> Iterator[tuple[Kind, Any]]:
        """All entries since the last call; a piece that is not whole, or never will be after a kill, is left."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._at)
            while True:
                try:
                    piece = pickle.load(file)
                except (EOFError, pickle.UnpicklingError):
                    return
                self._at = file.tell()
                yield from entries_in(piece)


def entries_in(piece: Any) -> Iterator[tuple[Kind, Any]]:
    """The entries of a piece, as they were added."""
    for kind, value in piece:
        yield kind, ROWS[kind]._make(value) if kind in ROWS else value
