"""Writes one rank's record to disk in pieces, so that a killed rank loses at most half a second of it."""

from __future__ import annotations

import copyreg
import io
import os
import pickle
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from paceline.algorithms.core.values import Rank
from paceline.algorithms.runtime.handles import Outcome
from paceline.algorithms.runtime.weights_owner import LayerUpdate, Update
from paceline.backend.posix.reserve import FULL, no_room, size
from paceline.records.machine_speed import SpeedSample
from paceline.records.recorder import SpanWriter
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
    "speed",
    "device",
    "transports",
    "warning",
    "error",
]


class Heard(NamedTuple):
    """A completed receive."""

    turn: int
    """its position among the receives of its rank, since lanes may record theirs in another order"""
    source: Rank | None
    lane: str


ROWS: dict[Kind, Any] = {"span": Span, "update": Update, "layer": LayerUpdate, "heard": Heard, "speed": SpeedSample}
"""frequent entries, written as plain tuples, which takes a fifth of the time"""


class FileRecorder(SpanWriter):
    """The recorder of a real rank: collects entries in memory and appends them to a file regularly.

    What a program does is recorded by the methods of `records.recorder.Recorder`; `add` takes what only a process
    knows, such as its error.
    """

    def __init__(self, rank: Rank, path: Path) -> None:
        self.rank, self.path = rank, path
        self._keep_span = partial(self.add, "span")
        self._file = path.open("ab", buffering=0)
        self._whole = path.stat().st_size
        """bytes of complete pieces in the file"""
        self._entries: deque[tuple[Kind, Any]] = deque()  # lanes and a reader add to it while it is being emptied
        self._flushed_s = 0.0
        self._flushing = threading.Lock()

    def add(self, kind: Kind, value: Span | Update | LayerUpdate | Snapshot | Any) -> None:
        self._entries.append((kind, value))

    def update(self, updates: Sequence[Update], layers: Sequence[LayerUpdate] = ()) -> None:
        for landed in layers:
            self.add("layer", landed)
        for row in updates:
            self.add("update", row)

    def evaluation(self, shot: Snapshot) -> None:
        self.add("snapshot", shot)

    def heard(self, receiver: Rank, source: Rank | None, lane: str, *, turn: int) -> None:
        self.add("heard", Heard(turn, source, lane))

    def looked(self, rank: Rank, now_s: float) -> float:
        self.add("now", now_s)
        return now_s

    def outcome(self, rank: Rank, lane: str, outcome: Outcome) -> None:
        self.add("outcome", (lane, outcome))

    def breathe(self, now_s: float) -> None:
        """Writes the entries if `FLUSH_S` has passed since the last time; called at each `NextStep` of a program."""
        if now_s - self._flushed_s > FLUSH_S:
            self.flush()
            self._flushed_s = now_s

    def flush(self) -> None:
        """Appends all entries as one piece."""
        with self._flushing:  # if a rank started by a launcher hangs, another thread of its process flushes
            taken = (self._entries.popleft() for _ in range(len(self._entries)))
            if entries := [(kind, tuple(value) if kind in ROWS else value) for kind, value in taken]:
                pickled = io.BytesIO()
                pickler = pickle.Pickler(pickled, protocol=5)
                pickler.dispatch_table = TABLE
                pickler.dump(entries)
                self._append(pickled.getbuffer())

    def _append(self, piece: memoryview) -> None:
        """Appends a whole piece or nothing: entries after a partial piece could not be read."""
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
        """Writes the remaining entries and closes the file."""
        self.flush()
        self._file.close()


def _in_memory(tensor: torch.Tensor) -> Any:
    """Pickles a tensor from host memory: the reader of the record may not have its device."""
    return tensor.detach().cpu().__reduce_ex__(5)


TABLE: dict[type, Callable[[Any], Any]] = {**copyreg.dispatch_table, torch.Tensor: _in_memory}
"""how values are pickled"""


class Tail:
    """Reads what a rank has written, piece by piece, also during the run."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0

    def read(self) -> Iterator[tuple[Kind, Any]]:
        """Yields all entries since the last call; skips a piece that is not complete, for example after a kill."""
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
    """Yields the entries of a piece as they were added."""
    for kind, value in piece:
        yield kind, ROWS[kind]._make(value) if kind in ROWS else value
