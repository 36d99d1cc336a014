"""Estimates the duration of a simulation of several runs from the progress so far.

Rules of this file: the current run is expected to keep its rate, and each later run to take as long as the average of
the runs so far. Methods differ in the cost of a step, so the estimate improves with each run that ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable

SURE_S = 3.0
"""seconds of a run before its rate is used: the first steps fill caches"""
LONG_S = 30.0
"""seconds of expected duration from which it is printed at the start"""


class Expected:
    """Estimates the remaining time of consecutive runs.

    Args:
        runs: number of runs.
        clock: returns seconds of real time.
    """

    def __init__(self, runs: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._runs, self._clock = runs, clock
        self._began_s = clock()
        self._ended: list[float] = []
        """seconds of each completed run"""
        self._first: tuple[float, float] | None = None
        """time and fraction of the current run's first progress report; the setup is before it"""

    def ended(self) -> None:
        """Records the end of a run."""
        now_s = self._clock()
        self._ended.append(now_s - self._began_s)
        self._began_s, self._first = now_s, None

    def left_s(self, done: float) -> float | None:
        """Returns the remaining seconds of all runs together; None if there is no estimate yet.

        Args:
            done: the completed fraction of all runs, in which all runs have the same weight.
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
        """Returns the seconds from the start to the end, if `left_s` remain."""
        return sum(self._ended) + (self._clock() - self._began_s) + left_s
