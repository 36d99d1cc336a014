"""Cells: vectors shared by the processes and lanes of one host, in files of the host's memory file system.

No access takes a lock unless the program does: torn reads and lost updates are as real as on any shared memory.
"""

from __future__ import annotations

import fcntl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import torch

from paceline.algorithms.operations import Cell


class Cells:
    """The cells of one node, as seen by one rank."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._mapped: dict[Cell, tuple[np.ndarray[Any, Any], Callable[[np.ndarray[Any, Any]], Any]]] = {}
        self._locks: dict[Cell, tuple[threading.Lock, IO[bytes]]] = {}
        self._own = threading.Lock()

    def access(self, cell: Cell, action: Literal["read", "add", "swap"], value: Any) -> Any:
        """The value before; None if nobody has written the cell yet."""
        if (known := self._map(cell, value)) is None:
            return None
        shared, like = known
        before = like(shared[1:].copy()) if shared[0] else None
        if action == "add":
            shared[1:] += np.asarray(value)
        elif action == "swap":
            shared[1:] = np.asarray(value)
        if action != "read":
            shared[0] = 1
        return before

    def _map(self, cell: Cell, value: Any) -> tuple[np.ndarray[Any, Any], Callable[[np.ndarray[Any, Any]], Any]] | None:
        """Maps the cell's file, made by the first writer: a flag "written", then the numbers; None before that."""
        if cell in self._mapped:
            return self._mapped[cell]
        path, form = self._folder / f"{cell.name}.cell", self._folder / f"{cell.name}.form"
        if value is None and not form.exists():
            return None
        with (self._folder / "guard").open("wb") as guard:
            fcntl.flock(guard, fcntl.LOCK_EX)  # lockf would let the lanes of one process pass each other
            if not form.exists():
                array = np.asarray(value)
                np.zeros(array.size + 1, array.dtype).tofile(path)
                form.write_text(f"{array.dtype.str} {'torch' if isinstance(value, torch.Tensor) else 'numpy'}")
        dtype, kind = form.read_text().split()
        shared = np.memmap(path, dtype=np.dtype(dtype), mode="r+")
        self._mapped[cell] = shared, (torch.from_numpy if kind == "torch" else np.asarray)
        return self._mapped[cell]

    def lock(self, cell: Cell) -> None:
        """Waits for the cell's lock: among this process's lanes first, then among processes."""
        with self._own:
            if cell not in self._locks:
                self._locks[cell] = threading.Lock(), (self._folder / f"{cell.name}.lock").open("wb")
        lanes, file = self._locks[cell]
        lanes.acquire()
        fcntl.lockf(file, fcntl.LOCK_EX)

    def unlock(self, cell: Cell) -> bool:
        """Gives the lock back; False if nobody in this process holds it."""
        if cell not in self._locks or not self._locks[cell][0].locked():
            return False
        lanes, file = self._locks[cell]
        fcntl.lockf(file, fcntl.LOCK_UN)
        lanes.release()
        return True
