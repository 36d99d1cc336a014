"""The rows of a running sweep: one JSON line for each run, written when it has ended.

Each line is one `write`, so that the file has only complete lines even after SIGKILL. A full disk may store a part of a
line, which is removed again.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.records.document import plain

if TYPE_CHECKING:
    from paceline.reports.sweeps.sweep import Entry

ROWS = "rows.jsonl"
"""the file in the sweep's folder until the table is written"""


class Rows:
    """The file of rows, and the number of runs in it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / ROWS
        self.ended = self.succeeded = 0
        self._file = self.path.open("ab", buffering=0)

    def add(self, entry: Entry) -> None:
        """Appends a run that has succeeded or failed."""
        row = {**entry.answer(), "workers": entry.workers}
        line = (json.dumps(row, default=plain) + "\n").encode()
        whole = self.path.stat().st_size
        if self._file.write(line) < len(line):
            self._file.truncate(whole)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        self.ended += 1
        self.succeeded += not entry.error

    def close(self) -> None:
        self._file.close()


@contextmanager
def rows_in(folder: Path) -> Iterator[Rows]:
    """Opens the rows in this folder for the block; removes them after success, since the table has them."""
    rows = Rows(folder)
    try:
        yield rows
        rows.path.unlink()
    finally:
        rows.close()
