"""The memory layout of the status board: one row for each rank, and the fields that belong to the whole run.

Every number is aligned, because other processes read it while it is written: a number that crosses a cache line could
be seen half written.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path
from typing import Any, cast

import numpy as np

from paceline.backend.posix.reserve import reserve, shared_file
from paceline.backend.status.progress_counters import FIELDS

BUCKETS, SLOTS, TEXT = 8, 64, 240
LOSS_TEXT = 8 * TEXT
"""bytes of the message why a rank is lost, including what the other ranks waited for"""
VOTES = 64
"""how many of a rank's last votes others can still read; no rank is further ahead of another one"""
VOTE = np.dtype([("name", "u8"), ("position", "i8"), ("vote", "u1")], align=True)
ENTRY = np.dtype([("turn", "u8"), ("stream", "u8"), ("position", "i8"), ("text", f"S{TEXT}")], align=True)
ROW = np.dtype(
    [
        ("state", "u1"),
        ("progress", "i8"),
        ("step", "i8"),
        ("busy", "i4"),
        ("granted", "i8"),
        ("sums", "f8", (len(FIELDS),)),
        ("text", f"S{TEXT}"),
        ("dead", "?"),
        ("quiet_s", "f8"),
        ("stopped", "?"),
        ("vote_count", "i8"),
        ("votes", VOTE, (VOTES,)),
        ("collectives", ENTRY, (BUCKETS, SLOTS)),
    ],
    align=True,
)
COMMON = np.dtype(
    [
        ("stop_at", "i8"),
        ("leased", "i8"),
        ("lost", "i8"),
        ("lost_at", "i8"),
        ("losses", "i8"),
        ("start_s", "f8"),
        ("evaluations", "i8"),
        ("loss", "f8"),
        ("accuracy", "f8"),
        ("stop_reason", "S16"),
        ("run_state", "u1"),
        ("loss_text", f"S{LOSS_TEXT}"),
    ],
    align=True,
)


def integer(record: Any, field: str) -> memoryview[int]:
    """Returns an integer or truth value of an array with one record as a memoryview with one item."""
    return memoryview(record[field])


def real(record: Any, field: str) -> memoryview[float]:
    """Returns a real number of an array with one record as a memoryview with one item."""
    view: Any = memoryview(record[field])
    return cast("memoryview[float]", view)


def mapped(ranks: int, folder: Path | None) -> tuple[mmap.mmap, bool]:
    """Maps the memory of a board.

    Args:
        ranks: the number of rows.
        folder: the run's folder, in which the board is a file; None for memory without a name.

    Returns:
        The memory, and whether it is new.

    Raises:
        RunFailed: the file system has no space for it.
    """
    size, path = ranks * ROW.itemsize + COMMON.itemsize, (folder or Path(tempfile.gettempdir())) / "board"
    with tempfile.TemporaryFile() if folder is None else shared_file(path) as file:
        new = os.fstat(file.fileno()).st_size == 0
        reserve(file.fileno(), path, 0, size, f"the board of {ranks} ranks")
        return mmap.mmap(file.fileno(), size), new
