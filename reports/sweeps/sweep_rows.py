"""The rows of a sweep that still runs: one JSON line for each run, written as soon as it has ended.

Each line is one `write`, so that whatever ends the sweep, SIGKILL too, leaves whole lines. A disk that has room for a
part of a line takes that part: it is cut off again.
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
"""the file in a sweep's folder, until its table is written"""


class Rows:
    """The file, and how many runs it has."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / ROWS
        self.ended = self.succeeded = 0
        self._file = self.path.open("ab", buffering=0)

    def add(self, entry: Entry) -> None:
        """Appends a run that has ended, or failed."""
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
    """The rows in this folder, for the block; they are removed where it ends well, since the table has them."""
    rows = Rows(folder)
    try:
        yield rows
        rows.path.unlink()
    finally:
        rows.close()
