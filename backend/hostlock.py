"""A lock among the processes of one host, and among the threads of each."""

from __future__ import annotations

import fcntl
import os
import threading
import time
import weakref
from pathlib import Path
from typing import Self

LOOK_S = 0.001
"""how often somebody who waits for it, and not for ever, looks"""


class HostLock:
    """A lock that a killed process does not keep: the kernel holds it, on a file, and takes it back.

    Such a lock belongs to a process, whose threads would all pass; so they have another one among themselves.

    Args:
        path: the file; whoever opens the same has the same lock.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        weakref.finalize(self, os.close, self._file)
        self._threads = threading.Lock()

    def acquire(self, timeout: float | None = None) -> bool:
        """Waits for it, for so many seconds at most; whether it is ours."""
        until = None if timeout is None else time.monotonic() + timeout
        if not self._threads.acquire(timeout=-1 if timeout is None else timeout):
            return False
        while True:
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX if until is None else fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                if until is not None and time.monotonic() < until:
                    time.sleep(LOOK_S)
                    continue
                self._threads.release()
                return False
            return True

    def release(self) -> None:
        """Gives it back."""
        fcntl.lockf(self._file, fcntl.LOCK_UN)
        self._threads.release()

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
