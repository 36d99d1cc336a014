"""Lists that stand in a `Trace` for its lists of spans and updates: they count every record and keep some of them.

* Interpreters call `append` and `extend` as for plain lists. Programs that read a trace see the records that were kept.
* A `Reservoir` draws the updates that are kept: by Algorithm L, every one of n updates is in the sample of size k with
  probability k/n, and the number of updates until the next replacement is drawn at once.
* An interpreter that computes with one array element for each rank calls the functions at the end of this file. It
  calls `add_gradients` before the updates that use the gradients, so that the ages of these are known.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

import numpy as np

from paceline.algorithms.core.job import Job
from paceline.algorithms.core.values import Rank
from paceline.algorithms.runtime.update_log import LayerUpdate, Update
from paceline.records.counters import Counters, GradientCounters
from paceline.records.faults import Slowed
from paceline.records.keeping import Keeping
from paceline.records.trace import Activity, Span, Trace
from paceline.records.value_counts import Floats, Integers, places, view


class Reservoir:
    """Chooses the items to keep; the items themselves are kept by its user.

    Source: FOUND Li, "Reservoir-sampling algorithms of time complexity O(n(1 + log(N/n)))", ACM TOMS 20(4), 1994.

    Args:
        size: the number of items kept, at least 0.
        seed: the seed; equal seeds choose the same places of the stream.

    >>> reservoir = Reservoir(2, seed=1)
    >>> [reservoir.offer() for _ in range(3)][:2]
    [0, 1]
    >>> reservoir.seen
    3
    """

    __slots__ = ("_next", "_random", "_share", "seen", "size")

    def __init__(self, size: int, seed: int | str) -> None:
        self.size, self.seen = size, 0
        self._random = random.Random(f"reservoir {seed}")
        self._share = 1.0
        """the W of the paper: distributed as the largest of `size` random numbers of all items seen"""
        self._next = math.inf if size == 0 else 0
        """the number of the next item that is kept"""

    def offer(self) -> int | None:
        """Returns the place in the sample of the next item; None if it is not kept."""
        number = self.seen
        self.seen = number + 1
        return self._place(number) if number >= self._next else None

    def offer_many(self, count: int) -> Iterator[tuple[int, int]]:
        """Yields (number among these, place in the sample) of the items that are kept, of many items.

        The choice is that of as many calls of `offer`.

        Args:
            count: number of items.
        """
        first, self.seen = self.seen, self.seen + count
        while self._next < self.seen:
            number = int(self._next)
            yield number - first, self._place(number)

    def _place(self, number: int) -> int:
        if number < self.size - 1:
            self._next = number + 1
            return number
        place = number if number < self.size else self._random.randrange(self.size)
        self._share *= math.exp(math.log(1.0 - self._random.random()) / self.size)
        skipped = math.floor(math.log(1.0 - self._random.random()) / math.log1p(-self._share)) if self._share < 1 else 0
        self._next = number + skipped + 1
        return place


R = TypeVar("R", Update, LayerUpdate)


class SampledRows(list[R], Generic[R]):
    """Rows of the update log that were drawn at random, each with the age of its gradient.

    Args:
        size: the number of rows kept.
        seed: the seed of the reservoir.
        gradients: the counts of gradients, which know when the last ones began.
    """

    def __init__(self, size: int, seed: str, gradients: GradientCounters) -> None:
        super().__init__()
        self.reservoir = Reservoir(size, seed)
        self.ages_s: list[float | None] = []
        """for each row: seconds since its gradient began; None if that is not known"""
        self.awaited: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        """the places of rows whose gradients have not been recorded, by rank and step"""
        self._gradients = gradients

    def keep(self, place: int, row: R) -> None:
        """Keeps a row that was drawn.

        Args:
            place: its place in the sample.
            row: the row.
        """
        begun_s = self._gradients.begun_s(row.rank, row.step)
        age_s = None if begun_s is None else max(0.0, row.time_s - begun_s)
        if place == len(self):
            list.append(self, row)
            self.ages_s.append(age_s)
        else:
            self[place], self.ages_s[place] = row, age_s
        if begun_s is None:
            self.awaited[row.rank, row.step].append(place)

    def began(self, rank: int, step: int, start_s: float | None = None) -> None:
        """Computes the ages of rows whose gradient is recorded after the update, as in a concurrent exchange.

        Args:
            rank: the gradient's rank.
            step: its step.
            start_s: when it began; None: as the counters of gradients know it.
        """
        begun_s = self._gradients.begun_s(rank, step) if start_s is None else start_s
        for place in self.awaited.pop((rank, step), ()):
            row = self[place]
            if (row.rank, row.step) == (rank, step) and begun_s is not None:  # else the row has been replaced
                self.ages_s[place] = max(0.0, row.time_s - begun_s)


class SampledUpdates(SampledRows[Update]):
    """A sample of the updates; all are counted.

    Args:
        keeping: what is kept.
        counters: the counts of the run.
    """

    def __init__(self, keeping: Keeping, counters: Counters) -> None:
        super().__init__(keeping.updates or 0, f"updates {keeping.seed}", counters.gradients)
        self._counters = counters

    def append(self, row: Update, /) -> None:
        """Counts an update, and keeps it if it is drawn."""
        self._counters.updates.add(row)
        if (place := self.reservoir.offer()) is not None:
            self.keep(place, row)

    def extend(self, rows: Iterable[Update], /) -> None:
        """Counts updates, and keeps those that are drawn."""
        for row in rows:
            self.append(row)


class SampledLayers(SampledRows[LayerUpdate]):
    """A sample of the updates of layers; all are counted.

    Args:
        keeping: what is kept.
        counters: the counts of the run.
    """

    def __init__(self, keeping: Keeping, counters: Counters) -> None:
        super().__init__(keeping.updates or 0, f"layers {keeping.seed}", counters.gradients)
        self._counters = counters

    def append(self, row: LayerUpdate, /) -> None:
        """Counts an update of a layer, and keeps it if it is drawn."""
        self._counters.updates.add_layer(row)
        if (place := self.reservoir.offer()) is not None:
            self.keep(place, row)

    def extend(self, rows: Iterable[LayerUpdate], /) -> None:
        """Counts updates of layers, and keeps those that are drawn."""
        for row in rows:
            self.append(row)


class KeptSpans(list[Span]):
    """The spans of the kept ranks; the spans of all ranks are counted.

    Args:
        keeping: what is kept.
        counters: the counts of the run.
        samples: the samples whose rows may wait for the record of their gradient.
    """

    def __init__(
        self, keeping: Keeping, counters: Counters, samples: tuple[SampledRows[Update], SampledRows[LayerUpdate]]
    ) -> None:
        super().__init__()
        assert keeping.ranks is not None, "full records are not sampled"
        self._kept, self._counters, self._samples = keeping.ranks, counters, samples

    def append(self, span: Span, /) -> None:
        """Counts a span, and keeps it if its rank is kept."""
        self._counters.add_span(span)
        if span.activity == "compute":
            for rows in self._samples:
                if rows.awaited:
                    rows.began(span.rank, span.step)
        if span.rank in self._kept:
            super().append(span)

    def extend(self, spans: Iterable[Span], /) -> None:
        """Counts spans, and keeps those of kept ranks."""
        for span in spans:
            self.append(span)


def new_trace(job: Job, keeping: Keeping, slowed: Slowed | None = None) -> Trace:
    """Returns the empty record of a run that begins.

    Args:
        job: the run's job.
        keeping: what is kept.
        slowed: the seconds that slowdowns added to work, for a run with slowdowns or crashes.
    """
    if keeping.whole:
        return Trace()
    counters = Counters.of(job, slowed)
    updates, layers = SampledUpdates(keeping, counters), SampledLayers(keeping, counters)
    spans = KeptSpans(keeping, counters, (updates, layers))
    return Trace(spans, updates, layers, keeping=keeping, counters=counters)


def kept_of(ranks: Integers, kept: frozenset[Rank]) -> Integers:
    """Returns the places of the kept ranks.

    Args:
        ranks: some ranks.
        kept: all ranks whose spans are kept.
    """
    return np.flatnonzero(np.isin(ranks, np.fromiter(kept, dtype=np.int64, count=len(kept))))


def count_spans(
    counters: Counters,
    ranks: Integers,
    activity: Activity,
    starts_s: Floats,
    ends_s: Floats,
    nbytes: int | Integers,
    ready_s: Floats | None,
) -> None:
    """Does for many spans what `Counters.add_span` does for one, without the gradients.

    Args:
        counters: the counts of the run.
        ranks: the rank of each span; a rank occurs once.
        activity: the activity of all.
        starts_s: the start of each.
        ends_s: the end of each.
        nbytes: the bytes, of all or of each.
        ready_s: for receives, when each message was sent; for collectives, when the last member entered.
    """
    counters.spans[activity] += len(ranks)
    at = places(ranks)
    if activity in ("collective", "receive"):
        turn_s = starts_s if ready_s is None else np.clip(ready_s, starts_s, ends_s)
        view(counters.seconds["communication"])[at] += ends_s - turn_s
        view(counters.seconds["wait"])[at] += turn_s - starts_s
    else:
        view(counters.seconds["communication" if activity == "send" else activity])[at] += ends_s - starts_s
    if activity not in ("receive", "copy"):
        counters.bytes_sent += nbytes * len(ranks) if isinstance(nbytes, int) else int(nbytes.sum())
    if activity != "copy" and len(ranks):
        counters.last_end_s = max(counters.last_end_s, float(ends_s.max()))
        ended_s = view(counters.ended_s)
        ended_s[at] = np.maximum(ended_s[at], ends_s)
    if counters.slowed is not None and activity in ("compute", "redo"):
        each = zip(ranks.tolist(), starts_s.tolist(), ends_s.tolist(), strict=True)
        counters.slowed_s += sum(counters.slowed(Rank(rank), start_s, end_s) for rank, start_s, end_s in each)


def add_gradients(trace: Trace, step: int | Integers, starts_s: Floats, ends_s: Floats) -> None:
    """Counts the next gradient of every worker; without effect if all records are kept.

    Args:
        trace: the record of the run.
        step: the step, of all workers or of each.
        starts_s: the start of each worker's gradient (of its first layer), by rank.
        ends_s: its end (of its last layer), by rank.
    """
    if trace.counters is not None:
        trace.counters.gradients.add_all(step, starts_s, ends_s)


def add_updates(
    trace: Trace,
    times_s: Floats,
    ranks: Integers,
    steps: Integers,
    versions_read: Integers,
    versions_applied: Integers,
    staleness: Integers,
    samples: Integers,
) -> None:
    """Adds inputs of updates.

    Args:
        trace: the record of the run.
        times_s: the time of each.
        ranks: the rank that computed it.
        steps: the step at which it was computed.
        versions_read: the version from which it was computed.
        versions_applied: the version that the update replaced.
        staleness: its staleness.
        samples: its samples.
    """
    columns = (times_s, ranks, steps, versions_read, versions_applied, staleness, samples)
    if trace.counters is None or not isinstance(trace.updates, SampledUpdates):
        trace.updates.extend(map(Update._make, zip(*(column.tolist() for column in columns), strict=True)))
        return
    total = int(samples.sum())
    trace.counters.updates.add_arrays(times_s, ranks, steps, versions_applied, staleness, total)
    if drawn := list(trace.updates.reservoir.offer_many(len(times_s))):
        numbers = np.array([number for number, _ in drawn])
        rows = zip(*(column[numbers].tolist() for column in columns), strict=True)
        for (_, place), row in zip(drawn, rows, strict=True):
            trace.updates.keep(place, Update._make(row))
