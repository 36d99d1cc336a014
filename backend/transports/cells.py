"""Cells: vectors that the processes and lanes of one host share, in files of the host's memory file system.

Rules of this file:

* An access takes no lock unless the program does: torn reads and lost updates occur as on any shared memory.
* A cell consists of lines of 64 bytes, the size of a cache line. The first number of each line is a probe. Every
  addition adds 1 to it, in the same loop as the other numbers. So the number of additions minus the probe is the number
  of additions that were lost in this line.
* Line 0 is a header: its first number says whether the cell has been written.
"""

from __future__ import annotations

import fcntl
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import torch

from paceline.algorithms.core.operations import Cell
from paceline.backend.posix.reserve import reserve, shared_file

LINE_BYTES = 64
Array = np.ndarray[Any, Any]


def lines_of(numbers: Array) -> Array:
    """Returns whole lines as records of a probe and the numbers after it.

    >>> lines = lines_of(np.arange(16.0))
    >>> lines["probe"], lines["numbers"].dtype.itemsize
    (array([0., 8.]), 56)
    """
    size = numbers.dtype.itemsize
    return numbers.view(np.dtype([("probe", numbers.dtype), ("numbers", np.void, LINE_BYTES - size)]))


@dataclass
class Mapped:
    """A memory-mapped cell.

    Args:
        memory: the whole file, as numbers.
        length: how many numbers the vector has.
        like: converts the numbers to the type of vector that was written.
    """

    memory: Array
    length: int
    like: Callable[[Array], Any]
    _spare: list[Array] = field(default_factory=list)
    """scratch lines for additions, whose probes are 1; as many as lanes have added at the same time"""

    @property
    def per_line(self) -> int:
        """How many numbers of the vector a line holds."""
        return LINE_BYTES // self.memory.itemsize - 1

    @property
    def body(self) -> Array:
        """All lines except the header."""
        return self.memory[self.per_line + 1 :]

    def read(self) -> Any:
        """Returns a copy of the vector without the probes, or None if the cell has not been written."""
        if not self.memory[0]:
            return None
        lines = lines_of(self.body)
        copy = np.empty(len(lines) * self.per_line, self.memory.dtype)
        np.copyto(copy.view(lines["numbers"].dtype), lines["numbers"])
        return self.like(copy[: self.length])

    def add(self, vector: Array) -> None:
        """Adds the vector to the numbers and 1 to every probe, in one loop."""
        lines = self._spare.pop() if self._spare else self._lines()
        self._spread(vector, lines)
        self.body[:] += lines
        self._spare.append(lines)
        self._say_written()

    def swap(self, vector: Array) -> None:
        """Writes the vector between the probes."""
        self._spread(vector, self.body)
        self._say_written()

    def _say_written(self) -> None:
        if not self.memory[0]:  # writing it each time would move the cache line between cores
            self.memory[0] = 1

    def _lines(self) -> Array:
        lines = np.zeros_like(self.body)
        lines_of(lines)["probe"] = 1
        return lines

    def _spread(self, vector: Array, lines: Array) -> None:
        """Copies a vector's numbers into lines, between the probes."""
        full, size = len(vector) // self.per_line, self.memory.itemsize
        numbers = lines_of(lines)["numbers"]
        np.copyto(numbers[:full], vector[: full * self.per_line].view(numbers.dtype))
        rest = vector[full * self.per_line :]
        at = full * LINE_BYTES // size + 1
        lines[at : at + len(rest)] = rest


class SharedCells:
    """The cells of one node, as seen by one rank."""

    def __init__(self, folder: Path) -> None:
        self.adds = Counter[str]()
        """how often this rank has added to each cell"""
        self._folder = folder
        self._mapped: dict[Cell, Mapped] = {}
        self._locks: dict[Cell, tuple[threading.Lock, IO[bytes]]] = {}
        self._own = threading.Lock()

    def access(self, cell: Cell, action: Literal["read", "add", "swap"], value: Any) -> Any:
        """Performs one access and returns the previous value, or None if the cell has not been written yet."""
        if (known := self._map(cell, value)) is None:
            return None
        before = known.read()
        if action == "add":
            with self._own:
                self.adds[cell.name] += 1
            known.add(self._fitting(cell, known, value))
        elif action == "swap":
            known.swap(self._fitting(cell, known, value))
        return before

    def nbytes(self, cell: Cell) -> int:
        """Returns the size of the cell in bytes, 0 before it is first written."""
        known = self._map(cell, None)
        return 0 if known is None else known.length * known.memory.itemsize

    def _fitting(self, cell: Cell, known: Mapped, value: Any) -> Array:
        """Converts the value to the cell's number type; raises `ValueError` if the length differs."""
        vector = np.ascontiguousarray(value, known.memory.dtype)
        if len(vector) != known.length:
            raise ValueError(f"cell {cell.name!r} has {known.length} numbers; found {len(vector)}")
        return vector

    def _map(self, cell: Cell, value: Any) -> Mapped | None:
        """Maps the cell's file, which the first writer creates; returns None before that."""
        if cell in self._mapped:
            return self._mapped[cell]
        path, form = self._folder / f"{cell.name}.cell", self._folder / f"{cell.name}.form"
        if value is None and not form.exists():
            return None
        with (self._folder / "guard").open("wb") as guard:
            fcntl.flock(guard, fcntl.LOCK_EX)  # lockf would let the lanes of one process pass each other
            if not form.exists():
                array = np.asarray(value)
                lines = 1 - (-array.nbytes // (LINE_BYTES - array.itemsize))
                with shared_file(path) as file:  # reserved space is zero
                    reserve(file.fileno(), path, 0, lines * LINE_BYTES, f"the shared vector {cell.name!r}")
                kind = "torch" if isinstance(value, torch.Tensor) else "numpy"
                form.write_text(f"{array.dtype.str} {array.size} {kind}")
            self._mapped.setdefault(cell, mapped(form))
        return self._mapped[cell]

    def lock(self, cell: Cell) -> None:
        """Acquires the cell's lock, first among this process's lanes, then among processes."""
        with self._own:
            if cell not in self._locks:
                self._locks[cell] = threading.Lock(), (self._folder / f"{cell.name}.lock").open("wb")
        lanes, file = self._locks[cell]
        lanes.acquire()
        fcntl.lockf(file, fcntl.LOCK_EX)

    def unlock(self, cell: Cell) -> bool:
        """Releases the lock; returns False if this process does not hold it."""
        if cell not in self._locks or not self._locks[cell][0].locked():
            return False
        lanes, file = self._locks[cell]
        fcntl.lockf(file, fcntl.LOCK_UN)
        lanes.release()
        return True


def mapped(form: Path) -> Mapped:
    """Maps the cell that a form file describes: number type, length and kind of vector."""
    dtype, length, kind = form.read_text().split()
    memory = np.memmap(form.with_suffix(".cell"), dtype=np.dtype(dtype), mode="r+")
    return Mapped(memory.view(np.ndarray), int(length), torch.from_numpy if kind == "torch" else np.asarray)


def landed(folder: Path, cell: str) -> float:
    """Returns how many additions are in a cell: the mean over its lines."""
    return float(lines_of(mapped(folder / f"{cell}.form").body)["probe"].mean(dtype=np.float64))
