"""A lock between the processes of one host, and between the threads of each."""

from __future__ import annotations

import fcntl
import tempfile
import threading
import time
import weakref
from pathlib import Path
from typing import IO, Self

POLL_S = 0.0002
"""seconds between two attempts of a caller with a timeout"""


class HostLock:
    """A lock on a file, which the kernel releases if its process is killed.

    Such a lock (fcntl) belongs to a process and does not exclude its threads, so they acquire a second lock first.

    Args:
        path: the file; None for one without a name, for this process and those that it forks.

    >>> with HostLock():
    ...     print("alone")
    alone
    """

    def __init__(self, path: Path | None = None) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile() if path is None else path.open("ab")  # noqa: SIM115
        weakref.finalize(self, self._file.close)  # open as long as the lock exists
        self._threads = threading.Lock()

    def acquire(self, timeout: float) -> bool:
        """Acquires the lock; returns False if others have held it for `timeout` seconds."""
        until = time.monotonic() + timeout
        if not self._threads.acquire(timeout=timeout):
            return False
        while not takes(self._file):
            if time.monotonic() > until:
                self._threads.release()
                return False
            time.sleep(POLL_S)
        return True

    def release(self) -> None:
        """Releases the lock."""
        fcntl.lockf(self._file, fcntl.LOCK_UN)
        self._threads.release()

    def __enter__(self) -> Self:
        self._threads.acquire()
        fcntl.lockf(self._file, fcntl.LOCK_EX)
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def takes(file: IO[bytes]) -> bool:
    """Acquires the lock on a file if no other process holds it, until the file is closed; returns whether it could."""
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
