"""Waits for another process with exponential backoff: yields the core first, then sleeps longer and longer."""

from __future__ import annotations

import ctypes
import time

YIELD_S = 2e-4
"""for so long a wait yields its core and checks again"""
PAUSE_S, LONGER, LONGEST_S = 2e-5, 1.5, 2e-4
"""after that it sleeps: the first sleep, the factor of each next one, and the longest"""
yield_core = getattr(ctypes.CDLL(None), "sched_yield", lambda: time.sleep(0))
"""lets other threads have the core; unlike `os.sched_yield`, it also releases the interpreter's lock"""


class Backoff:
    """One wait.

    Args:
        longest_s: of a sleep.

    >>> backoff = Backoff()
    >>> while backoff.try_yield():
    ...     pass
    >>> backoff.pause()
    """

    __slots__ = ("_longest_s", "_pause_s", "_until")

    def __init__(self, longest_s: float = LONGEST_S) -> None:
        self._until, self._pause_s, self._longest_s = time.monotonic() + YIELD_S, PAUSE_S, longest_s

    def try_yield(self) -> bool:
        """Yields the core and answers True, during the first `YIELD_S` of the wait."""
        if time.monotonic() >= self._until:
            return False
        yield_core()
        return True

    def pause(self) -> None:
        """Sleeps, each time longer than before."""
        time.sleep(self._pause_s)
        self._pause_s = min(self._pause_s * LONGER, self._longest_s)
