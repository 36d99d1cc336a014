"""A lock among the processes of one host that is free again when its holder dies."""

from __future__ import annotations

import fcntl
import os
import tempfile
import threading
import weakref
from types import TracebackType


class FileLock:
    """Made before the fork; held by one thread of one process at a time. A semaphore would stay taken by the dead.

    >>> lock = FileLock()
    >>> with lock:
    ...     pass
    """

    def __init__(self) -> None:
        with tempfile.TemporaryFile() as file:  # it has no name
            self._file = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._file)
        self._lanes = threading.Lock()
        """file locks are of a process: its threads pass each other"""

    def __enter__(self) -> None:
        self._lanes.acquire()
        fcntl.lockf(self._file, fcntl.LOCK_EX)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        fcntl.lockf(self._file, fcntl.LOCK_UN)
        self._lanes.release()
