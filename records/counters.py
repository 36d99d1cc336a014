"""Exact counts of a run whose spans and updates are not all kept, for all ranks.

`Counters` counts one span or update at a time, as the event-by-event simulator writes them.
`records.recorder` adds those of many ranks at once. The memory is some numbers for each rank and does not grow
with the length of the run.

* A device computes one gradient at a time, so the gradients of a worker begin and end in order, and a span of the same
  step as the one before belongs to the same gradient. Only the last two gradients of each worker are remembered.
* Replicas that apply an update together count once: `Distinct` counts the versions that updates replaced, without a
  list of all versions, because versions come almost in order.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from paceline.algorithms.core.job import Job
from paceline.algorithms.core.method import StalenessKind
from paceline.algorithms.runtime.weights_owner import LayerUpdate, Update
from paceline.records.faults import Slowed
from paceline.records.value_counts import DurationHistogram, Floats, Integers, RankedCounts, alike, view

if TYPE_CHECKING:
    from paceline.records.trace import Span


NONE = -1
"""the step of a worker before its first gradient"""


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

    def begun_s(self, rank: int, step: int) -> float | None:
        """Returns when a gradient began, if it is one of the worker's last two; else None.

        Args:
            rank: the worker.
            step: the gradient's step.
        """
        if rank >= self.workers:
            return None
        begun_s = None
        if self._last[rank] == step:
            begun_s = self.last_s[rank]
        elif self._before[rank] == step:
            begun_s = self._before_s[rank]
        return begun_s if begun_s is None else min(begun_s, self._redone_s.get((rank, step), begun_s))


class Distinct:
    """Counts distinct integers that come almost in order; it remembers the highest and the numbers left out below it.

    >>> distinct = Distinct()
    >>> [distinct.add(number) for number in (0, 0, 2, 1, 2)]
    [True, False, True, True, False]
    """

    __slots__ = ("_gaps", "_highest", "_lowest", "number")

    def __init__(self) -> None:
        self.number = 0
        self._lowest, self._highest, self._gaps = 0, -1, set[int]()

    def add(self, value: int) -> bool:
        """Adds a number; returns whether it is new.

        Args:
            value: the number.
        """
        if self.number == 0:
            self._lowest = self._highest = value
        elif value > self._highest:
            self._gaps.update(range(self._highest + 1, value))
            self._highest = value
        elif value < self._lowest:
            self._gaps.update(range(value + 1, self._lowest))
            self._lowest = value
        elif value in self._gaps:
            self._gaps.remove(value)
        else:
            return False
        self.number += 1
        return True

    def add_ascending(self, values: Integers) -> NDArray[np.bool_]:
        """Adds numbers in ascending order; returns which are new.

        Args:
            values: the numbers, without repetition.
        """
        new = values > self._highest
        if not new.all():
            new[~new] = [self.add(value) for value in values[~new].tolist()]
        if (later := values[values > self._highest]).size:
            first, last = int(later[0]), int(later[-1])
            if self.number == 0:
                self._lowest, self._highest = first, first - 1
            if last - self._highest > later.size:
                self._gaps.update(np.setdiff1d(np.arange(self._highest + 1, last), later).tolist())
            self._highest = last
            self.number += int(later.size)
        return new


class UpdateProgress:
    """How many updates had been applied at the time of each evaluation.

    An evaluation is of the weights' present or latest earlier state, so only the times of updates since the weights'
    last change are remembered.

    >>> progress = UpdateProgress()
    >>> for time_s in (1.0, 2.0):
    ...     progress.add(time_s)
    >>> progress.mark(1.5)
    >>> progress.mark(2.0)
    >>> progress.add(2.0)
    >>> progress.at([1.5, 2.0])
    [1, 3]
    """

    __slots__ = ("_before", "_marks", "_times_s", "number")

    def __init__(self) -> None:
        self.number = 0
        """updates that count"""
        self._before, self._times_s = 0, list[float]()
        """the number of updates before the weights' last change, and the times of those since"""
        self._marks: list[list[Any]] = []
        """(time of an evaluation, updates until then), in the order of time"""

    def add(self, time_s: float) -> None:
        """Counts an update.

        Args:
            time_s: its time.
        """
        self.number += 1
        times_s = self._times_s
        if times_s and time_s < times_s[-1]:
            times_s.insert(bisect_right(times_s, time_s), time_s)
        else:
            times_s.append(time_s)
        for mark in reversed(self._marks):
            if mark[0] < time_s:
                break
            mark[1] += 1

    def add_ascending(self, times_s: Floats) -> None:
        """Counts many updates.

        Args:
            times_s: their times, in ascending order.
        """
        self.number += len(times_s)
        self._times_s = sorted([*self._times_s, *times_s.tolist()])  # two ascending parts, merged in linear time
        for mark in self._marks[::-1]:
            if len(times_s) and mark[0] < times_s[0]:
                break
            mark[1] += int(np.searchsorted(times_s, mark[0], side="right"))

    def changed(self, time_s: float) -> None:
        """Notes that the weights being learned have changed: no later evaluation is of an earlier time.

        Args:
            time_s: the time of the change.
        """
        if (times_s := self._times_s) and times_s[0] < time_s:
            earlier = bisect_left(times_s, time_s)
            self._before += earlier
            del times_s[:earlier]

    def mark(self, time_s: float) -> None:
        """Notes an evaluation.

        Args:
            time_s: the time of the weights that are evaluated, not before their last change.
        """
        self._marks.append([time_s, self._before + bisect_right(self._times_s, time_s)])

    def at(self, times_s: Iterable[float]) -> list[int]:
        """Returns the number of updates until each of several evaluations.

        Args:
            times_s: the times of the evaluations, which have been marked.

        Raises:
            KeyError: an evaluation was not marked.
        """
        marks: dict[float, int] = dict(self._marks)  # pyright: ignore[reportAssignmentType]
        return [marks[time_s] for time_s in times_s]


class LayerCounts(NamedTuple):
    """The updates of one layer."""

    number: int = 0
    total: int = 0
    """sum of their staleness"""
    most: int = -1


class UpdateCounters:
    """The updates of a run.

    Args:
        ranks: number of ranks, servers included.
        by_step: whether local steps between two versions are separate updates.
        each_counts: whether each input is a separate update.
    """

    def __init__(self, ranks: int, *, by_step: bool = False, each_counts: bool = False) -> None:
        self.staleness = RankedCounts(ranks)
        """of the method's own kind, of all inputs"""
        self.inputs = self.samples = 0
        self.progress = UpdateProgress()
        self.layers: dict[str, LayerCounts] = {}
        """by name, in the order of their first updates"""
        self._by_step, self._each_counts = by_step, each_counts
        self._versions, self._steps = Distinct(), defaultdict[int, Distinct](Distinct)

    def add(self, row: Update) -> None:
        """Counts one input of an update.

        Args:
            row: its row in the log.
        """
        self.inputs += 1
        self.samples += row.samples
        self.staleness.add(row.rank, row.staleness)
        if self._each_counts or self._new(row.version_applied, row.step):
            self.progress.add(row.time_s)

    def _new(self, version: int, step: int) -> bool:
        return self._steps[version].add(step) if self._by_step else self._versions.add(version)

    def add_arrays(
        self, times_s: Floats, ranks: Integers, steps: Integers, versions: Integers, staleness: Integers, samples: int
    ) -> None:
        """Counts many inputs of updates.

        Args:
            times_s: the time of each.
            ranks: the rank that computed it.
            steps: the step at which it was computed.
            versions: the version that the update replaced.
            staleness: its staleness.
            samples: samples of all together.
        """
        self.inputs += len(times_s)
        self.samples += samples
        self.staleness.add_arrays(ranks, staleness)
        if self._each_counts:
            self.progress.add_ascending(np.sort(times_s))
        elif len(times_s):
            self._add_distinct(times_s, steps, versions)

    def _add_distinct(self, times_s: Floats, steps: Integers, versions: Integers) -> None:
        """Counts the updates to which inputs belong, each at the time of its first input."""
        if alike(versions) and (not self._by_step or alike(steps)):  # all inputs belong to one update
            if self._new(int(versions[0]), int(steps[0])):
                self.progress.add(float(times_s.min()))
            return
        order = np.lexsort((times_s, steps, versions) if self._by_step else (times_s, versions))
        repeated = np.diff(versions[order]) == 0
        if self._by_step:
            repeated &= np.diff(steps[order]) == 0
        first = order[np.concatenate([[True], ~repeated])]
        if self._by_step:
            pairs = zip(versions[first].tolist(), steps[first].tolist(), strict=True)
            new = np.array([self._steps[version].add(step) for version, step in pairs], dtype=np.bool_)
        else:
            new = self._versions.add_ascending(versions[first])
        self.progress.add_ascending(np.sort(times_s[first[new]]))

    def add_layer(self, row: LayerUpdate) -> None:
        """Counts one input of the update of a layer.

        Args:
            row: its row in the log.
        """
        number, total, most = self.layers.get(row.layer, LayerCounts())
        self.layers[row.layer] = LayerCounts(number + 1, total + row.staleness, max(most, row.staleness))


class Counters:
    """The counts of a run.

    Args:
        workers: number of workers, ranks 0 … workers − 1.
        ranks: number of ranks, servers included.
        by_step: whether local steps between two versions are separate updates.
        each_counts: whether each input is a separate update.
        slowed: the seconds that slowdowns added to work, for a run with slowdowns or crashes.

    >>> from paceline.algorithms.core.values import Rank
    >>> from paceline.records.trace import Span
    >>> counters = Counters(workers=1, ranks=1)
    >>> counters.add_span(Span(Rank(0), "main", "compute", None, 0, 0.0, 0.5))
    >>> counters.add_span(Span(Rank(0), "main", "collective", None, 0, 0.5, 1.0, bytes=8, ready_s=0.75))
    >>> counters.bytes_sent, {name: sum(seconds) for name, seconds in counters.seconds.items()}
    (8, {'compute': 0.5, 'communication': 0.25, 'wait': 0.25})
    """

    def __init__(
        self,
        workers: int,
        ranks: int,
        *,
        by_step: bool = False,
        each_counts: bool = False,
        slowed: Slowed | None = None,
    ) -> None:
        self.workers, self.ranks = workers, ranks
        self.gradients = GradientCounters(workers)
        self.updates = UpdateCounters(ranks, by_step=by_step, each_counts=each_counts)
        self.spans: defaultdict[str, int] = defaultdict(int)
        """number of spans by their activity, of all ranks"""
        self.seconds: defaultdict[str, array[float]] = defaultdict(lambda: array("d", bytes(8 * ranks)))
        """length of the spans of each rank, by the activity that the table of spans has; lanes are not merged"""
        self.bytes_sent = 0
        self.last_end_s = 0.0
        """the end of the last span that is not a copy"""
        self.ended_s = array("d", bytes(8 * ranks))
        """the same of each rank"""
        self.slowed, self.slowed_s = slowed, 0.0

    @staticmethod
    def of(job: Job, slowed: Slowed | None = None) -> Counters:
        """Returns the counters of a run that begins.

        Args:
            job: the run's job.
            slowed: the seconds that slowdowns added to work, for a run with slowdowns or crashes.
        """
        return Counters(
            job.workers,
            len(job.team),
            by_step=job.method.staleness_kind is StalenessKind.LOCAL_AGE,
            each_counts=job.method.independent,
            slowed=slowed,
        )

    def add_span(self, span: Span) -> None:
        """Counts a span; the spans of a rank's gradients come in the order of time.

        Args:
            span: the span.
        """
        rank, _, activity, _, step, start_s, end_s, size, ready_s, _ = span
        self.spans[activity] += 1
        if activity in ("collective", "receive"):
            turn_s = start_s if ready_s is None else min(max(ready_s, start_s), end_s)
            self.seconds["communication"][rank] += end_s - turn_s
            if turn_s > start_s:
                self.seconds["wait"][rank] += turn_s - start_s
            self.bytes_sent += size if activity == "collective" else 0
        else:
            self.seconds["communication" if activity == "send" else activity][rank] += end_s - start_s
            if activity == "copy":
                return
            self.bytes_sent += size
        if end_s > self.ended_s[rank]:
            self.ended_s[rank] = end_s
            if end_s > self.last_end_s:
                self.last_end_s = end_s
        if activity == "compute" and rank < self.workers:
            self.gradients.begin(rank, step, start_s, end_s)
        elif activity == "redo" and rank < self.workers:
            self.gradients.redo(rank, step, start_s)
        if self.slowed is not None and activity in ("compute", "redo"):
            self.slowed_s += self.slowed(rank, start_s, end_s)
