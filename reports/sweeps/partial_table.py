"""The table of a sweep that still runs, and the folder that an interrupted sweep leaves to be continued.

Rules of this file:

* The table of the runs that have ended is rewritten from time to time, under a temporary name that is then renamed: a
  reader sees a complete table. Speed-ups in it are those over the smallest cluster so far.
* The folder of an unfinished sweep has a file with the checksum of its runs, which the sweep locks. The same sweep
  continues in this folder if no other process has the lock. The lock of a killed process ends with the process.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from paceline.algorithms.core.checksums import checksum
from paceline.algorithms.core.files import replacing
from paceline.records.store import NumberedFolder, numbered_folder
from paceline.reports.sweeps.sweep import Entry, assemble, keys_of
from paceline.reports.sweeps.sweep_table import tabulate
from paceline.scenarios.resolution.grid import Point

PARTIAL = "sweep-partial.csv"
"""the table in the sweep's folder until the sweep has ended"""
IDENTITY = "sweep-runs.txt"
"""the file in the sweep's folder with the checksum of its runs, until the sweep has ended"""
INTERVAL_S = 5.0
"""least seconds between two versions of the table"""
LARGEST_SHARE = 0.05
"""largest part of the time that is spent on the table: of 100,000 runs, writing it takes seconds"""


class PartialTable:
    """Writes the table of the runs that have ended.

    Args:
        folder: the folder of the sweep.
        points: the points of the grid.
        clock: returns seconds of real time.
    """

    def __init__(self, folder: Path, points: Sequence[Point], clock: Callable[[], float] = time.monotonic) -> None:
        self.path = folder / PARTIAL
        self._points, self._clock = points, clock
        self._entries: dict[int, Entry] = {}
        self._next_s = clock() + INTERVAL_S
        self._written = 0

    @property
    def ended(self) -> int:
        """Number of runs that have ended."""
        return len(self._entries)

    @property
    def succeeded(self) -> int:
        """Number of runs that have succeeded."""
        return sum(not entry.error for entry in self._entries.values())

    def add(self, entry: Entry) -> None:
        """Adds a run that has ended; rewrites the table if the last version is old enough.

        Args:
            entry: the run.
        """
        self._entries[entry.number] = entry
        began_s = self._clock()
        if began_s >= self._next_s:
            self.write()
            now_s = self._clock()
            self._next_s = now_s + max(INTERVAL_S, (now_s - began_s) / LARGEST_SHARE)

    def write(self) -> None:
        """Writes the table; nothing before a run has succeeded, or if no run has ended since the last version."""
        if not self.succeeded or self._written == len(self._entries):
            return
        ended = [self._entries[number] for number in sorted(self._entries)]
        with replacing(self.path) as building:
            tabulate(assemble(self._points, ended)).whole.to_csv(building, index=False)
        self._written = len(self._entries)

    def remove(self) -> None:
        """Removes the table, since the complete one exists."""
        self.path.unlink(missing_ok=True)
        for abandoned in self.path.parent.glob(f".{self.path.stem}-*"):  # of processes that were killed
            abandoned.unlink(missing_ok=True)


@contextmanager
def sweep_folder(out: Path, stem: str, points: Sequence[Point]) -> Iterator[NumberedFolder]:
    """Yields the folder of a sweep: that of the same sweep if it was interrupted, else a new one.

    Args:
        out: the parent folder.
        stem: the name of the folder without its number.
        points: the points of the grid.
    """
    identity = checksum("\n".join(keys_of(points)).encode())
    held = _claimed(out, stem, identity)
    with numbered_folder(out, stem, building=None if held is None else held[0]) as folder:
        handle = _claim(folder.building / IDENTITY, identity) if held is None else held[1]
        try:
            yield folder
            (folder.building / IDENTITY).unlink(missing_ok=True)
        finally:
            os.close(handle)


def _claimed(out: Path, stem: str, identity: str) -> tuple[Path, int] | None:
    """Returns the folder of the same sweep that no process uses, and its lock; None if there is none."""
    for path in sorted(out.glob(f"{stem}-unfinished-*/{IDENTITY}")):
        try:
            if path.read_text(encoding="utf-8").strip() != identity:
                continue
            handle = os.open(path, os.O_RDWR)
        except OSError:  # it has ended since
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held = path.stat().st_ino == os.fstat(handle).st_ino
        except OSError:  # another process uses it, or has ended it
            held = False
        if not held:
            os.close(handle)
            continue
        for half in path.parent.glob("*/.*"):  # records that were being written when the process was killed
            shutil.rmtree(half, ignore_errors=True)
        return path.parent, handle
    return None


def _claim(path: Path, identity: str) -> int:
    handle = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(handle, fcntl.LOCK_EX)
    os.write(handle, f"{identity}\n".encode())
    return handle
