"""The order of a thread's stores and reads as other processes see them."""

from __future__ import annotations

import threading


class Fence:
    """What a thread has stored or seen before comes before what it stores or reads after.

    A lock taken and released twice: what is before a release comes before the next taking. On x86-64 taking one is a
    full barrier.

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
