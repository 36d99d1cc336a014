"""A memory fence: orders a thread's stores and reads as other processes see them."""

from __future__ import annotations

import threading


class Fence:
    """Orders stores and reads before the call before those after it.

    The call acquires and releases a lock twice: a release comes before the next acquisition. On x86-64 an acquisition
    is a full barrier.

    >>> Fence()()
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __call__(self) -> None:
        lock = self._lock
        lock.acquire()
        lock.release()
        lock.acquire()
        lock.release()
