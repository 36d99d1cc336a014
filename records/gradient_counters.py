"""Exact counts of the gradients of all workers: number, times between starts, and clock gaps.

A device computes one gradient at a time, so the gradients of a worker begin and end in order, and a span of the same
step as the one before belongs to the same gradient. Only the last two gradients of each worker are remembered.
"""

from __future__ import annotations

from array import array
from collections import Counter

import numpy as np

from paceline.records.value_counts import DurationHistogram, Floats, Integers, RankedCounts, view

NONE = -1
"""the step of a worker before its first gradient"""


class ClockGaps:
    """How many steps each worker is ahead of the slowest when it ends a step, see `records.staleness.clock_gaps`.

    Args:
        workers: number of workers.
    """

    __slots__ = ("_ended", "_later_s", "_now_s", "_passed", "_reached", "_slowest", "_waiting", "counts", "workers")

    def __init__(self, workers: int) -> None:
        self.workers, self.counts = workers, RankedCounts(workers)
        self._ended = array("q", bytes(8 * workers))
        """finished steps of each worker"""
        self._reached: Counter[int] = Counter()
        """for each number of steps that not all workers have finished: how many have"""
        self._slowest = 0
        self._now_s, self._waiting = 0.0, list[tuple[int, int]]()
        """the steps that ended at the present time: (rank, own finished steps)"""
        self._later_s, self._passed = list[float](), 0
        """for whole cohorts: when the slowest worker finished each step after the first `_passed`"""

    def end(self, rank: int, end_s: float) -> None:
        """Counts a step that has ended; the calls are in the order of time.

        Args:
            rank: the worker.
            end_s: when it ended.
        """
        if end_s > self._now_s:
            self.flush()
            self._now_s = end_s
        self._ended[rank] = own = self._ended[rank] + 1
        self._waiting.append((rank, own))
        self._reached[own] += 1

    def flush(self) -> None:
        """Computes the gaps of the steps that ended at the present time, which count together."""
        while self._reached.get(self._slowest + 1) == self.workers:
            self._slowest += 1
            del self._reached[self._slowest]
        for rank, own in self._waiting:
            self.counts.add(rank, own - self._slowest)
        self._waiting.clear()

    def end_all(self, ends_s: Floats) -> None:
        """Counts the next step of every worker.

        Args:
            ends_s: when each worker ended it, by rank.
        """
        own = self._passed + len(self._later_s) + 1
        self._later_s.append(float(ends_s.max()))
        done = int(np.searchsorted(self._later_s, ends_s.min(), side="right"))
        del self._later_s[:done]  # no later step of any worker ends before these
        self._passed += done
        slowest = self._passed + np.searchsorted(self._later_s, ends_s, side="right")
        self.counts.add_arrays(np.arange(self.workers), own - slowest)


class GradientCounters:
    """The gradients of all workers.

    Args:
        workers: number of workers.

    >>> gradients = GradientCounters(1)
    >>> gradients.begin(0, step=0, start_s=0.0), gradients.begin(0, step=1, start_s=0.5)
    (True, True)
    >>> gradients.begin(0, step=1, start_s=0.75)  # a second layer
    False
    >>> gradients.number.tolist(), gradients.between.total_s, gradients.begun_s(0, 1)
    ([2], 0.5, 0.5)
    """

    __slots__ = ("_before", "_before_s", "_last", "_open", "between", "first_s", "gaps", "last_s", "number", "workers")

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.number = array("q", bytes(8 * workers))
        """gradients of each worker"""
        self.first_s, self.last_s = array("d", bytes(8 * workers)), array("d", bytes(8 * workers))
        """the start of each worker's first and last gradient; 0 without one"""
        self._last, self._before = array("q", [NONE]) * workers, array("q", [NONE]) * workers
        self._before_s = array("d", bytes(8 * workers))
        self._open = array("d", [-1.0]) * workers
        """the end of each worker's last span, until its gradient has ended; −1 from then on"""
        self.between = DurationHistogram()
        """seconds between the starts of a worker's successive gradients"""
        self.gaps = ClockGaps(workers)

    def begin(self, rank: int, step: int, start_s: float, end_s: float = 0.0) -> bool:
        """Counts a computing span of a gradient; returns whether it is the gradient's first.

        Args:
            rank: the worker.
            step: the gradient's step.
            start_s: the span's start.
            end_s: the span's end.
        """
        if first := step != self._last[rank]:
            if self.number[rank]:
                self.between.add(start_s - self.last_s[rank])
            else:
                self.first_s[rank] = start_s
            self._before[rank], self._before_s[rank] = self._last[rank], self.last_s[rank]
            self._last[rank], self.last_s[rank] = step, start_s
            self.number[rank] += 1
            self._open[rank] = end_s
        elif self._open[rank] >= 0:  # else the gradient of this step has ended, and another one is computed
            self._open[rank] = end_s
        return first

    def end(self, rank: int) -> None:
        """Notes that a worker's present gradient has ended or was cancelled; the calls are in the order of time.

        Args:
            rank: the worker.
        """
        if rank < self.workers and (end_s := self._open[rank]) >= 0:
            self.gaps.end(rank, end_s)
            self._open[rank] = -1.0

    def add_all(self, step: int | Integers, starts_s: Floats, ends_s: Floats) -> None:
        """Counts the next gradient of every worker.

        Args:
            step: the step, of all workers or of each.
            starts_s: the start of the gradient's first span, by rank.
            ends_s: the end of its last span, by rank.
        """
        number, last_s, last, before_s = map(view, (self.number, self.last_s, self._last, self._before_s))
        if number[0]:
            self.between.add_array(starts_s - last_s)
        else:
            view(self.first_s)[:] = starts_s
        before_s[:], view(self._before)[:] = last_s, last
        last_s[:], last[:] = starts_s, step
        number += 1
        self.gaps.end_all(ends_s)

    def begun_s(self, rank: int, step: int) -> float | None:
        """Returns when a gradient began, if it is one of the worker's last two; else None.

        Args:
            rank: the worker.
            step: the gradient's step.
        """
        if rank >= self.workers:
            return None
        if self._last[rank] == step:
            return self.last_s[rank]
        return self._before_s[rank] if self._before[rank] == step else None
