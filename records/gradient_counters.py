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
FEW = 8
"""steps up to which each is compared with all times, instead of a binary search for each time; provenance: ours"""


class ClockGaps:
    """How many steps each worker is ahead of the slowest when it ends a step, see `records.staleness.clock_gaps`.

    Args:
        workers: number of workers.
    """

    __slots__ = (
        "_ended",
        "_every",
        "_later_s",
        "_now_s",
        "_passed",
        "_reached",
        "_slowest",
        "_waiting",
        "counts",
        "workers",
    )

    def __init__(self, workers: int) -> None:
        self.workers, self.counts = workers, RankedCounts(workers)
        self._every = np.arange(workers)
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

    def end_rows(self, ranks: Integers, ends_s: Floats) -> None:
        """Counts steps of any workers.

        Args:
            ranks: the worker of each.
            ends_s: when each ended, in ascending order.
        """
        first = int(np.searchsorted(ends_s, self._now_s, side="right"))
        last = max(first, int(np.searchsorted(ends_s, ends_s[-1], side="left")))  # others may end at the last time too
        for place in range(first):
            self.end(int(ranks[place]), float(ends_s[place]))
        if last > first:
            self.flush()
            self._end_between(ranks[first:last], ends_s[first:last])
        for place in range(last, len(ranks)):
            self.end(int(ranks[place]), float(ends_s[place]))

    def _end_between(self, ranks: Integers, ends_s: Floats) -> None:
        """Counts steps that ended at other times than all steps before and after them."""
        ended, order = view(self._ended), np.argsort(ranks, kind="stable")
        begins = np.flatnonzero(np.diff(ranks[order], prepend=-1))
        sizes = np.diff(np.append(begins, len(order)))
        own = np.empty(len(order), dtype=np.int64)
        own[order] = ended[ranks[order]] + 1 + np.arange(len(order)) - np.repeat(begins, sizes)
        ended += np.bincount(ranks, minlength=self.workers)
        passed_s = []
        for value, count in zip(*(part.tolist() for part in np.unique(own, return_counts=True)), strict=True):
            self._reached[value] += count
            if self._reached[value] == self.workers:
                passed_s.append(float(ends_s[np.flatnonzero(own == value)[-1]]))
                del self._reached[value]
        slowest = self._slowest + np.searchsorted(np.array(passed_s), ends_s, side="right")
        self._slowest += len(passed_s)
        self._now_s = float(ends_s[-1])
        self.counts.add_arrays(ranks, own - slowest)

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
        if len(self._later_s) <= FEW:
            gaps = np.full(self.workers, own - self._passed)
            for later_s in self._later_s:
                gaps -= ends_s >= later_s
        else:
            gaps = own - self._passed - np.searchsorted(self._later_s, ends_s, side="right")
        self.counts.add_arrays(self._every, gaps)


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

    __slots__ = (
        "_before",
        "_before_s",
        "_last",
        "_open",
        "_redone_s",
        "between",
        "first_s",
        "gaps",
        "last_s",
        "number",
        "workers",
    )

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
        self._redone_s: dict[tuple[int, int], float] = {}
        """when work that a crash lost was redone before a gradient's own work; grows with the number of crashes"""

    def redo(self, rank: int, step: int, start_s: float) -> None:
        """Notes that a gradient began with work that a crash has lost.

        Args:
            rank: the worker.
            step: the gradient's step.
            start_s: when the lost work began again.
        """
        self._redone_s[rank, step] = min(start_s, self._redone_s.get((rank, step), start_s))

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
        """Counts the next gradient of every worker; nothing if it belongs to the step of the gradient before.

        Args:
            step: the step, of all workers or of each.
            starts_s: the start of the gradient's first span, by rank.
            ends_s: the end of its last span, by rank.
        """
        columns = (self.number, self.last_s, self._last, self._before_s)
        number, last_s, last, before_s = (view(column) for column in columns)
        if number[0] and np.all(last == step):
            return  # a further micro-batch of this step
        if number[0]:
            self.between.add_array(starts_s - last_s)
        else:
            view(self.first_s)[:] = starts_s
        before_s[:], view(self._before)[:] = last_s, last
        last_s[:], last[:] = starts_s, step
        number += 1
        self.gaps.end_all(ends_s)

    def add_ended(self, ranks: Integers, steps: Integers, starts_s: Floats, ends_s: Floats) -> None:
        """Counts gradients of any workers, in the order of their ends; each is one span.

        Args:
            ranks: the worker of each.
            steps: its step.
            starts_s: its start.
            ends_s: its end.
        """
        number, first, last_s, last = view(self.number), view(self.first_s), view(self.last_s), view(self._last)
        order = np.argsort(ranks, kind="stable")
        begins = np.flatnonzero(np.diff(ranks[order], prepend=-1))  # of the rows of each worker
        ends = np.append(begins[1:], len(order)) - 1
        own, starts = ranks[order[begins]], starts_s[order]
        before_s = np.concatenate([[0.0], starts[:-1]])
        before_s[begins] = last_s[own]
        new = np.zeros(len(order), dtype=np.bool_)
        new[begins] = number[own] == 0
        self.between.add_array((starts - before_s)[~new])
        first[own[new[begins]]] = starts[begins[new[begins]]]
        single = begins == ends
        view(self._before)[own] = np.where(single, last[own], steps[order[ends - 1]])
        view(self._before_s)[own] = np.where(single, last_s[own], starts[ends - 1])
        last[own], last_s[own] = steps[order[ends]], starts[ends]
        number += np.bincount(ranks, minlength=self.workers)
        self.gaps.end_rows(ranks, ends_s)

    def begun_s(self, rank: int, step: int) -> float | None:
        """Returns when a gradient began, if it is one of the worker's last two; else None.

        Args:
            rank: the worker.
            step: the gradient's step.
        """
        if rank >= self.workers:
            return None
        found = None
        if self._last[rank] == step:
            found = self.last_s[rank]
        elif self._before[rank] == step:
            found = self._before_s[rank]
        return found if found is None else min(found, self._redone_s.get((rank, step), found))
