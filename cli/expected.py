"""How long a simulation of several runs will take: an estimate from what has been simulated so far.

Rules of this file: the run that goes on is expected to keep its rate, and each later run to take as long as the runs so
far did on average. Methods differ in what a step costs, so the estimate gets better with each run that ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable

SURE_S = 3.0
"""seconds of a run before its rate is taken for its own: the first steps fill caches"""
LONG_S = 30.0
"""an expected duration that is worth a line at the start"""


class Expected:
    """The time that runs, one after the other, still need.

    Args:
        runs: how many there are.
        clock: seconds of real time.
    """

    def __init__(self, runs: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._runs, self._clock = runs, clock
        self._began_s = clock()
        self._ended: list[float] = []
        """seconds that each run so far took"""
        self._first: tuple[float, float] | None = None
        """when the run that goes on told its progress first, and its share then; before that it is set up"""

    def ended(self) -> None:
        """A run has ended."""
        now_s = self._clock()
        self._ended.append(now_s - self._began_s)
        self._began_s, self._first = now_s, None

    def left_s(self, done: float) -> float | None:
        """Seconds that all runs together still need; None while nothing can be said.

        Args:
            done: the share of all runs that is done, where each run counts alike.
        """
        now_s, share = self._clock(), min(1.0, done * self._runs - len(self._ended))
        if self._first is None:
            self._first = now_s, share
        first_s, first_share = self._first
        if share > first_share and now_s - first_s >= SURE_S:
            run_s = (first_s - self._began_s) + (now_s - first_s) / (share - first_share)
        elif self._ended:
            run_s = sum(self._ended) / len(self._ended)
        else:
            return None
        known = [*self._ended, run_s]
        later = self._runs - len(known)
        return max(0.0, run_s - (now_s - self._began_s)) + later * sum(known) / len(known)

    def total_s(self, left_s: float) -> float:
        """Seconds from the start to the end, if so many are left."""
        return sum(self._ended) + (self._clock() - self._began_s) + left_s


def duration(seconds: float) -> str:
    """A duration as one says it, with as few digits as an estimate deserves.

    >>> [duration(value) for value in (0.4, 42.0, 89.0, 200.0, 7100.0)]
    ['1 s', '40 s', '90 s', '3 min', '2.0 h']
    """
    if seconds < 10:
        return f"{max(1, round(seconds))} s"
    if seconds < 95:
        return f"{round(seconds, -1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5700 else f"{seconds / 3600:.1f} h"
