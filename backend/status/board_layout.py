"""How the board lies in memory: a row for each rank, and what they have in common.

Rules of this file: every number is aligned, since others read it while it is written: one that lay across two lines of
a cache could be seen half written.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path

import numpy as np

from paceline.backend.posix.reserve import reserve, shared_file
from paceline.backend.status.progress_counters import FIELDS

BUCKETS, SLOTS, TEXT = 8, 64, 240
WHY = 8 * TEXT
"""room for why a rank is lost, with what the others waited for"""
MARKS = 64
"""the last ones of a rank that others can still read; nobody is further ahead of another one"""
MARK = np.dtype([("name", "u8"), ("position", "i8"), ("mark", "u1")], align=True)
ENTRY = np.dtype([("turn", "u8"), ("stream", "u8"), ("position", "i8"), ("text", f"S{TEXT}")], align=True)
ROW = np.dtype(
    [
        ("doing", "u1"),
        ("moves", "i8"),
        ("step", "i8"),
        ("busy", "i4"),
        ("granted", "i8"),
        ("sums", "f8", (len(FIELDS),)),
        ("text", f"S{TEXT}"),
        ("dead", "?"),
        ("quiet_s", "f8"),
        ("stopped", "?"),
        ("marked", "i8"),
        ("marks", MARK, (MARKS,)),
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
        ("why", "S16"),
        ("over", "u1"),
        ("text", f"S{WHY}"),
    ],
    align=True,
)


def mapped(ranks: int, folder: Path | None) -> tuple[mmap.mmap, bool]:
    """The memory of a board, and whether it is new: in the folder of a run, or without a name.

    Raises:
        RunFailed: the file system has no room for it.
    """
    room, path = ranks * ROW.itemsize + COMMON.itemsize, (folder or Path(tempfile.gettempdir())) / "board"
    with tempfile.TemporaryFile() if folder is None else shared_file(path) as file:
        new = os.fstat(file.fileno()).st_size == 0
        reserve(file.fileno(), path, 0, room, f"the board of {ranks} ranks")
        return mmap.mmap(file.fileno(), room), new
