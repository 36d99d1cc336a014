"""Writes the record of a run: the one interface between all engines and what a run leaves behind.

* An engine reports spans, gradients, updates and evaluations, one at a time or those of many ranks as arrays, and does
  not know which of them are kept. `Recorder` keeps all of them. `SampledRecorder` counts every one in `Counters` and
  keeps the spans of some ranks and a sample of the updates. A real rank's recorder has methods of the same names and
  writes to a file, see `backend.status.recorder`; `SpanWriter` is common to all.
* A `Reservoir` draws the updates that are kept: by Algorithm L, every one of n updates is in the sample of size k with
  probability k/n, and the number of updates until the next replacement is drawn at once.
* Gradients are reported before the updates that use them, so that the ages of these are known.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Any, Generic, TypeVar

import numpy as np

from paceline.algorithms.core.job import Job
from paceline.algorithms.core.values import Rank
from paceline.algorithms.runtime.handles import Outcome
from paceline.algorithms.runtime.weights_owner import LayerUpdate, Update
from paceline.records.counters import Counters, GradientCounters
from paceline.records.faults import Slowed
from paceline.records.keeping import Keeping
from paceline.records.trace import Activity, Snapshot, Span, Trace
from paceline.records.value_counts import Floats, Integers, places, view

new_tuple = tuple.__new__
"""creates a named tuple without the Python function that fills in its defaults, since runs have millions of spans"""


class SpanWriter:
    """Makes the spans of a record; whoever has one says what becomes of them."""

    _keep_span: Callable[[Span], object]

    def span(
        self,
        rank: Rank,
        lane: str,
        activity: Activity,
        layer: str | None,
        step: int,
        start_s: float,
        end_s: float,
        nbytes: int = 0,
        ready_s: float | None = None,
        key: str | None = None,
    ) -> None:
        """Records a span; `Span` describes the arguments. The spans of a rank's gradients come in the order of time."""
        self._keep_span(new_tuple(Span, (rank, lane, activity, layer, step, start_s, end_s, nbytes, ready_s, key)))


class Recorder(SpanWriter):
    """Writes the complete record of a run.

    Args:
        trace: the record, which is empty; None: a new one.

    >>> recorder = Recorder()
    >>> recorder.span(Rank(0), "main", "compute", None, 0, 0.0, 0.5)
    >>> recorder.trace.spans[0].end_s
    0.5
    """

    def __init__(self, trace: Trace | None = None) -> None:
        self.trace = Trace() if trace is None else trace
        self._keep_span = self.trace.spans.append

    @staticmethod
    def of(job: Job, keeping: Keeping, slowed: Slowed | None = None) -> Recorder:
        """Returns the recorder of a run that begins.

        Args:
            job: the run's job.
            keeping: what is kept.
            slowed: the seconds that slowdowns added to work, for a run with slowdowns or crashes.
        """
        return Recorder() if keeping.whole else SampledRecorder(keeping, Counters.of(job, slowed))

    # --- one at a time ------------------------------------------------------------------------------------------

    def gradient(self, rank: Rank) -> None:
        """Notes that a rank's present gradient has ended or was cancelled; the calls are in the order of time."""

    def update(self, updates: Sequence[Update], layers: Sequence[LayerUpdate] = ()) -> None:
        """Records the inputs of an update, or of the update of a layer, as `UpdateLog.book` returns them."""
        self.trace.updates += updates
        self.trace.layers += layers

    def changed(self, time_s: float) -> None:
        """Notes that the weights being learned have changed: no later evaluation is of an earlier time."""

    def evaluation(self, shot: Snapshot) -> None:
        """Records weights that are evaluated, or will be."""
        self.trace.snapshots.append(shot)

    def heard(self, receiver: Rank, source: Rank | None, lane: str) -> None:
        """Records a completed receive, for a replay.

        Args:
            receiver: the receiving rank.
            source: the sender; None if the receive timed out.
            lane: the receiver's lane.
        """
        self.trace.heard.append((receiver, source))
        self.trace.hearers.append(lane)

    def looked(self, rank: Rank, now_s: float) -> float:
        """Records the answer of a rank's `Now`, for a replay, and returns it."""
        self.trace.now_s.setdefault(rank, []).append(now_s)
        return now_s

    def outcome(self, rank: Rank, lane: str, outcome: Outcome) -> None:
        """Records the outcome of a lane's `WaitFor` or `Cancel`, for a replay."""
        self.trace.outcomes.setdefault((rank, lane), []).append(outcome)

    def last_end_s(self) -> float:
        """Returns the end of the last span; a copy that nothing waits for may end after the programs."""
        return max((span.end_s for span in self.trace.spans if span.activity != "copy"), default=0.0)

    # --- those of many ranks at once ------------------------------------------------------------------------------

    def spans(
        self,
        ranks: Integers,
        lanes: str | Integers,
        activity: Activity,
        step: int,
        starts_s: Floats,
        ends_s: Floats,
        *,
        layer: str | None = None,
        nbytes: int | Integers = 0,
        ready_s: Floats | None = None,
        key: str | Callable[[Any], list[str]] | None = None,
    ) -> None:
        """Records a span of each of many ranks.

        Args:
            ranks: the ranks; each occurs once.
            lanes: the lane of all, or the number of each.
            activity: the activity of all.
            step: the step of all.
            starts_s: the start of each.
            ends_s: the end of each.
            layer: the layer of all.
            nbytes: the bytes, of all or of each.
            ready_s: for collectives, when the last member entered; it is known from the other spans if all are kept.
            key: the name of the collective; a function of places among `ranks` if it differs between them.
        """
        kept = self._count_spans(ranks, activity, starts_s, ends_s, nbytes, ready_s)
        if isinstance(kept, slice):
            ready_s = None  # all spans are kept
        elif not len(kept):
            return
        named: Any = repeat(lanes) if isinstance(lanes, str) else lanes[kept].astype(str).tolist()
        sizes: Any = repeat(nbytes) if isinstance(nbytes, int) else nbytes[kept].tolist()
        ready: Any = repeat(None) if ready_s is None else ready_s[kept].tolist()
        keys: Any = key(kept) if callable(key) else repeat(key)
        columns = (ranks[kept].tolist(), named, repeat(activity), repeat(layer), repeat(step))
        rows = zip(*columns, starts_s[kept].tolist(), ends_s[kept].tolist(), sizes, ready, keys)  # noqa: B905  # some have no end
        self.trace.spans.extend(map(Span._make, rows))

    def _count_spans(
        self,
        ranks: Integers,
        activity: Activity,
        starts_s: Floats,
        ends_s: Floats,
        nbytes: int | Integers,
        ready_s: Floats | None,
    ) -> slice | Integers:
        """Returns the places of the ranks whose spans are kept, after counting the spans of all."""
        return slice(None)

    def gradients(self, step: int | Integers, starts_s: Floats, ends_s: Floats) -> None:
        """Notes the next gradient of every worker.

        Args:
            step: the step, of all workers or of each.
            starts_s: the start of each worker's gradient (of its first layer), by rank.
            ends_s: its end (of its last layer), by rank.
        """

    def updates(
        self,
        times_s: Floats,
        ranks: Integers,
        steps: Integers,
        versions_read: Integers,
        versions_applied: Integers,
        staleness: Integers,
        samples: Integers,
    ) -> None:
        """Records many inputs of updates.

        Args:
            times_s: the time of each.
            ranks: the rank that computed it.
            steps: the step at which it was computed.
            versions_read: the version from which it was computed.
            versions_applied: the version that the update replaced.
            staleness: its staleness.
            samples: its samples.
        """
        columns = (times_s, ranks, steps, versions_read, versions_applied, staleness, samples)
        self.trace.updates.extend(map(Update._make, zip(*(column.tolist() for column in columns), strict=True)))

    def close(self) -> None:
        """Ends the record."""


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


class DrawnRows(Generic[R]):
    """Rows of the update log that were drawn at random, each with the age of its gradient.

    Args:
        rows: the rows that are kept.
        ages_s: for each row: seconds since its gradient began; None if that is not known.
        reservoir: draws them.
        gradients: the counts of gradients, which know when the last ones began.
    """

    def __init__(
        self, rows: list[R], ages_s: list[float | None], reservoir: Reservoir, gradients: GradientCounters
    ) -> None:
        self.rows: list[R] = rows
        self.ages_s, self.reservoir, self._gradients = ages_s, reservoir, gradients
        self.awaited: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        """the places of rows whose gradients have not been recorded, by rank and step"""

    def offer(self, row: R) -> None:
        """Keeps a row if it is drawn."""
        if (place := self.reservoir.offer()) is not None:
            self.keep(place, row)

    def keep(self, place: int, row: R) -> None:
        """Keeps a row that was drawn.

        Args:
            place: its place in the sample.
            row: the row.
        """
        begun_s = self._gradients.begun_s(row.rank, row.step)
        age_s = None if begun_s is None else max(0.0, row.time_s - begun_s)
        if place == len(self.rows):
            self.rows.append(row)
            self.ages_s.append(age_s)
        else:
            self.rows[place], self.ages_s[place] = row, age_s
        if begun_s is None:
            self.awaited[row.rank, row.step].append(place)

    def began(self, rank: int, step: int) -> None:
        """Computes the ages of rows whose gradient is recorded after the update, as in a concurrent exchange."""
        begun_s = self._gradients.begun_s(rank, step)
        for place in self.awaited.pop((rank, step), ()):
            row = self.rows[place]
            if (row.rank, row.step) == (rank, step) and begun_s is not None:  # else the row has been replaced
                self.ages_s[place] = max(0.0, row.time_s - begun_s)


class SampledRecorder(Recorder):
    """Counts every record of a run; keeps the spans of some ranks and a sample of the updates.

    Args:
        keeping: what is kept.
        counters: the counts of the run.
    """

    def __init__(self, keeping: Keeping, counters: Counters) -> None:
        assert keeping.ranks is not None, "full records are not sampled"
        ages_s, layer_ages_s = list[float | None](), list[float | None]()
        trace = Trace(keeping=keeping, counters=counters, update_ages_s=ages_s, layer_ages_s=layer_ages_s)
        super().__init__(trace)
        self._keep_span = self._count_span
        self._ranks, self._counters = keeping.ranks, counters
        size, gradients = keeping.updates or 0, counters.gradients
        self._drawn = DrawnRows(trace.updates, ages_s, Reservoir(size, f"updates {keeping.seed}"), gradients)
        layers = Reservoir(size, f"layers {keeping.seed}")
        self._drawn_layers = DrawnRows(trace.layers, layer_ages_s, layers, gradients)
        self._places: dict[int, tuple[Integers, Integers]] = {}
        """the places of kept ranks in arrays of ranks, by the identity of the array"""

    def _count_span(self, span: Span) -> None:
        self._counters.add_span(span)
        if span.activity == "compute":
            for drawn in (self._drawn, self._drawn_layers):
                if drawn.awaited:
                    drawn.began(span.rank, span.step)
        if span.rank in self._ranks:
            self.trace.spans.append(span)

    def gradient(self, rank: Rank) -> None:
        self._counters.gradients.end(rank)

    def update(self, updates: Sequence[Update], layers: Sequence[LayerUpdate] = ()) -> None:
        for row in updates:
            self._counters.updates.add(row)
            self._drawn.offer(row)
        for landed in layers:
            self._counters.updates.add_layer(landed)
            self._drawn_layers.offer(landed)

    def changed(self, time_s: float) -> None:
        self._counters.updates.progress.changed(time_s)

    def evaluation(self, shot: Snapshot) -> None:
        super().evaluation(shot)
        self._counters.updates.progress.mark(shot.time_s)

    def heard(self, receiver: Rank, source: Rank | None, lane: str) -> None:
        """Keeps nothing, like the other facts for replays: only real runs are replayed, and those are complete."""

    def looked(self, rank: Rank, now_s: float) -> float:
        return now_s

    def outcome(self, rank: Rank, lane: str, outcome: Outcome) -> None:
        pass

    def last_end_s(self) -> float:
        return self._counters.last_end_s

    def _kept_places(self, ranks: Integers) -> Integers:
        """Returns the places of the ranks whose spans are kept; remembered, because an engine has few such arrays."""
        known, kept = self._places.get(id(ranks), (None, None))
        if known is not ranks or kept is None:
            chosen = np.fromiter(self._ranks, dtype=np.int64, count=len(self._ranks))
            kept = np.flatnonzero(np.isin(ranks, chosen))
            self._places[id(ranks)] = ranks, kept
        return kept

    def _count_spans(
        self,
        ranks: Integers,
        activity: Activity,
        starts_s: Floats,
        ends_s: Floats,
        nbytes: int | Integers,
        ready_s: Floats | None,
    ) -> slice | Integers:
        """Does for many spans what `Counters.add_span` does for one, without the gradients."""
        counters = self._counters
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
        return self._kept_places(ranks)

    def gradients(self, step: int | Integers, starts_s: Floats, ends_s: Floats) -> None:
        self._counters.gradients.add_all(step, starts_s, ends_s)

    def updates(
        self,
        times_s: Floats,
        ranks: Integers,
        steps: Integers,
        versions_read: Integers,
        versions_applied: Integers,
        staleness: Integers,
        samples: Integers,
    ) -> None:
        columns = (times_s, ranks, steps, versions_read, versions_applied, staleness, samples)
        total = int(samples.sum())
        self._counters.updates.add_arrays(times_s, ranks, steps, versions_applied, staleness, total)
        if drawn := list(self._drawn.reservoir.offer_many(len(times_s))):
            numbers = np.array([number for number, _ in drawn])
            rows = zip(*(column[numbers].tolist() for column in columns), strict=True)
            for (_, place), row in zip(drawn, rows, strict=True):
                self._drawn.keep(place, Update._make(row))

    def close(self) -> None:
        self._counters.gradients.gaps.flush()
