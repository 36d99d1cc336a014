"""A bell: what a thread sleeps at until another process rings.

Rules of this file: a bell is a FIFO, so that processes find it by its name, forked or not, and whoever rings needs no
answer. It holds what has been rung until somebody waits. It goes with the folder in which it is.
"""

from __future__ import annotations

import os
import select
from contextlib import suppress
from pathlib import Path

MOST_BYTES = 4096
"""taken at once: however often it has been rung, it wakes once"""


class Rope:
    """The end at which a bell is rung."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def pull(self) -> None:
        """Rings; nothing happens where it has been rung very often already, or where nobody is there any more."""
        with suppress(OSError):
            if self._file is None:
                self._file = os.open(self._path, os.O_WRONLY | os.O_NONBLOCK)
            os.write(self._file, b"\0")

    def close(self) -> None:
        """Lets go of it."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


class Bell(Rope):
    """The end at which it is heard; makes the FIFO."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        os.mkfifo(path)
        self._file = os.open(path, os.O_RDWR | os.O_NONBLOCK)  # never at its end, though nobody else has it open
        self._poll = select.poll()
        self._poll.register(self._file, select.POLLIN)

    def wait(self, seconds: float | None = None) -> None:
        """Until somebody rings, or so long."""
        assert self._file is not None, "open since it was made"
        if self._poll.poll(None if seconds is None else seconds * 1e3):
            with suppress(BlockingIOError):  # another thread was quicker
                os.read(self._file, MOST_BYTES)
