"""Waits for another process with exponential backoff: yields the core first, then sleeps longer each time."""

from __future__ import annotations

import ctypes
import time

YIELD_S = 2e-4
"""how long a wait only yields its core between checks"""
PAUSE_S, LONGER, LONGEST_S = 2e-5, 1.5, 2e-4
"""the sleeps after that: the first, the factor between two, and the longest"""
yield_core = getattr(ctypes.CDLL(None), "sched_yield", lambda: time.sleep(0))
"""yields the core to other threads; unlike `os.sched_yield`, it also releases the interpreter's lock"""


class Backoff:
    """The state of one wait.

    Args:
        longest_s: the longest sleep, in seconds.

    >>> backoff = Backoff()
    >>> while backoff.try_yield():
    ...     pass
    >>> backoff.pause()
    """

    __slots__ = ("_longest_s", "_pause_s", "_until")

    def __init__(self, longest_s: float = LONGEST_S) -> None:
        self._until, self._pause_s, self._longest_s = time.monotonic() + YIELD_S, PAUSE_S, longest_s

    def try_yield(self) -> bool:
        """Yields the core and returns True during the first `YIELD_S` of the wait; then returns False."""
        if time.monotonic() >= self._until:
            return False
        yield_core()
        return True

    def pause(self) -> None:
        """Sleeps, each time longer than before."""
        time.sleep(self._pause_s)
        self._pause_s = min(self._pause_s * LONGER, self._longest_s)
