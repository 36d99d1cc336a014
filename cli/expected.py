"""Estimates how long the rest of a command takes, from its progress so far.

Rules of this file:

* A run's own progress tells its rate. Costs of methods differ by orders of magnitude, so a run tells nothing of one of
  another kind: before every kind has been timed, the rest of the command is not estimated.
* Nothing is said before a few per cent of a run are done: the first steps compile code, fill caches and choose
  collectives. After that, the latest half of what is done counts, so that a slow start is forgotten.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import NamedTuple

SURE_S = 3.0
"""seconds of progress from which its rate is used"""
SURE_SHARE = 0.03
"""the part of a run from which its rate is used"""
LONG_S = 30.0
"""seconds of expected duration from which it is printed"""
MOST = 256
"""reports that are kept; with more, every other one is dropped"""


class Pace:
    """The remaining time of one run, from its progress.

    Args:
        clock: returns seconds of real time.

    >>> times = iter([0.0, 10.0, 20.0, 30.0])  # the first 10 s bring 2 %, the others 10 % each
    >>> pace = Pace(lambda: next(times))
    >>> [found and round(found) for found in map(pace.left_s, (0.0, 0.02, 0.12, 0.22))]
    [None, None, 88, 78]
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._reports: list[tuple[float, float]] = []
        """time and completed part, of the first report and of some later ones"""

    def left_s(self, done: float) -> float | None:
        """Records a report; returns the remaining seconds, None if there is no estimate yet.

        left = (1 − done) · (now − t) / (done − done at t), where t is when half of it was done

        Args:
            done: the completed part of the run, 0 … 1.
        """
        now_s, reports = self._clock(), self._reports
        if not reports:
            reports.append((now_s, done))
            return None
        first_s, first = reports[0]
        half = bisect_right(reports, (first + done) / 2, key=itemgetter(1))
        began_s, before = reports[max(0, half - 1)]
        reports.append((now_s, done))
        if len(reports) > MOST:
            del reports[1::2]
        if now_s - first_s < SURE_S or done - first < SURE_SHARE or done <= before:
            return None
        return max(0.0, 1 - done) * (now_s - began_s) / (done - before)


class Left(NamedTuple):
    """What is left of several runs."""

    seconds: float
    """of the current run, and of later ones of kinds that have been timed"""
    untimed: int
    """number of later runs of other kinds"""


class Expected:
    """Estimates the remaining time of consecutive runs.

    Args:
        kinds: the kind of each run, such as its algorithm; runs of one kind take about as long.
        clock: returns seconds of real time.
    """

    def __init__(self, kinds: Sequence[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._kinds, self._clock = kinds, clock
        self._started_s = self._began_s = clock()
        self._ended: dict[str, list[float]] = {}
        """seconds of the completed runs of each kind"""
        self._count = 0
        """number of completed runs"""
        self._pace = Pace(clock)

    def ended(self) -> None:
        """Records the end of a run."""
        now_s = self._clock()
        self._ended.setdefault(self._kinds[self._count], []).append(now_s - self._began_s)
        self._count, self._began_s, self._pace = self._count + 1, now_s, Pace(self._clock)

    def left(self, done: float) -> Left | None:
        """Returns what is left; None if there is no estimate of the current run yet.

        Args:
            done: the completed part of all runs, in which all runs have the same weight.
        """
        if self._count == len(self._kinds):
            return Left(0.0, 0)
        own_s = self._pace.left_s(min(1.0, done * len(self._kinds) - self._count))
        known = {kind: sum(found) / len(found) for kind, found in self._ended.items()}
        kind, taken_s = self._kinds[self._count], self._clock() - self._began_s
        if own_s is None and kind in known:
            own_s = max(0.0, known[kind] - taken_s)
        if own_s is None:
            return None
        known.setdefault(kind, taken_s + own_s)
        later = self._kinds[self._count + 1 :]
        timed = [known[one] for one in later if one in known]
        return Left(own_s + sum(timed), len(later) - len(timed))

    def total_s(self, left: Left) -> float:
        """Returns the seconds from the start to the end of all that has been timed, if so much is left."""
        return self._clock() - self._started_s + left.seconds
