"""An event between processes: a thread sleeps until another process sets it.

Rules of this file:

* The event is a FIFO, so processes find it by its path, whether they were forked or not, and a sender does not wait for
  an answer. An event that was set before a thread waits is not lost.
* The FIFO is deleted with its folder.
"""

from __future__ import annotations

import os
import select
from contextlib import suppress
from pathlib import Path

MOST_BYTES = 4096
"""bytes per read: however often the event was set, the waiting thread wakes once"""


class FifoSetter:
    """The setting end of an event."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def set(self) -> None:
        """Sets the event; does nothing if the FIFO is full or its waiting end is closed."""
        with suppress(OSError):
            if self._file is None:
                self._file = os.open(self._path, os.O_WRONLY | os.O_NONBLOCK)
            os.write(self._file, b"\0")

    def close(self) -> None:
        """Closes this end."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


class FifoEvent(FifoSetter):
    """The waiting end of an event; creates the FIFO."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        os.mkfifo(path)
        # open for writing too: otherwise a poll would report the end of the file while no setter has it open
        self._file = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self._poll = select.poll()
        self._poll.register(self._file, select.POLLIN)

    def wait(self, seconds: float | None = None) -> None:
        """Waits until the event is set, for at most `seconds`, and clears it."""
        assert self._file is not None, "open since it was made"
        if self._poll.poll(None if seconds is None else seconds * 1e3):
            with suppress(BlockingIOError):  # another thread has cleared it
                os.read(self._file, MOST_BYTES)
