"""Waiting for another process without keeping it, or anybody else, from work."""

from __future__ import annotations

import ctypes
import time

YIELD_S = 2e-4
"""for so long a wait gives its core to whoever wants it, and looks again"""
PAUSE_S, LONGER, LONGEST_S = 2e-5, 1.5, 2e-4
"""after that it pauses: the first pause, by how much each is longer than the last, and the longest"""
give_way = getattr(ctypes.CDLL(None), "sched_yield", lambda: time.sleep(0))
"""gives the core to whoever wants it, and, unlike `os.sched_yield`, the interpreter to other threads of this process"""


class Patience:
    """One wait.

    Args:
        longest_s: of a pause.

    >>> patience = Patience()
    >>> while patience.gives_way():
    ...     pass
    >>> patience.pause()
    """

    __slots__ = ("_longest_s", "_pause_s", "_until")

    def __init__(self, longest_s: float = LONGEST_S) -> None:
        self._until, self._pause_s, self._longest_s = time.monotonic() + YIELD_S, PAUSE_S, longest_s

    def gives_way(self) -> bool:
        """Gives the core away and says so, while the wait is young."""
        if time.monotonic() >= self._until:
            return False
        give_way()
        return True

    def pause(self) -> None:
        """Sleeps, the longer the longer the wait is."""
        time.sleep(self._pause_s)
        self._pause_s = min(self._pause_s * LONGER, self._longest_s)
