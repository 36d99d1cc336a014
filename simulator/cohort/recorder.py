"""Writes the records of a vectorised run: the same rows as event by event.

* Spans of kept ranks become rows; those of all ranks are counted, if the records are sampled.
* The counters count the k-th gradients of all workers at once. With several classes of ranks, the gradients and updates
  of a class wait here until the other classes have come as far.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any

import numpy as np

from paceline.algorithms.core.values import Rank
from paceline.algorithms.runtime.update_log import LayerUpdate, Update
from paceline.records.sampled import add_gradients, add_updates, count_spans, kept_of
from paceline.records.trace import Activity, Span, Trace
from paceline.simulator.cohort.classes import Places, RankClass, Times
from paceline.simulator.cohort.varying import of_ranks

Gradient = tuple[int, Times, Times]
Columns = tuple[Any, ...]


class Recorder:
    """Writes the record of one run.

    Args:
        trace: the record.
        classes: all classes of ranks.
        workers: the number of workers.
    """

    def __init__(self, trace: Trace, classes: Sequence[RankClass], workers: int) -> None:
        self.trace, self._workers = trace, workers
        self._classes = classes
        self._kept: list[Places] | None = None
        if trace.keeping.ranks is not None:
            self._kept = [kept_of(one.ranks, trace.keeping.ranks) for one in classes]
        self._waiting: list[deque[Gradient | Columns]] = [deque() for _ in classes]
        """gradients and updates of each class that have not been counted"""
        self.wall_s = 0.0

    def span(
        self,
        own: RankClass,
        lane: Any,
        activity: Activity,
        step: int,
        starts_s: Times,
        ends_s: Times,
        *,
        layer: str | None = None,
        nbytes: Any = 0,
        last_s: Times | None = None,
        key: str | Callable[[Any], list[str]] | None = None,
    ) -> None:
        """Records a span of every rank of a class.

        Args:
            own: the class.
            lane: the name of the lane, or an array of numbers.
            activity: the activity.
            step: the step.
            starts_s: its beginning at each rank.
            ends_s: its end.
            layer: the layer.
            nbytes: the bytes that each rank has sent, or an array.
            last_s: the last entry, for collectives.
            key: the name of the collective; a function of places if it differs between ranks.
        """
        if activity != "copy":  # a copy that nothing waits for may end after the programs
            self.wall_s = max(self.wall_s, float(ends_s.max()))
        places: Any = slice(None)
        if self._kept is not None:
            assert self.trace.counters is not None, "sampled records are counted"
            count_spans(self.trace.counters, own.ranks, activity, starts_s, ends_s, nbytes, last_s)
            places = self._kept[own.number]
            if not len(places):
                return
        lanes = lane[places].astype(str).tolist() if isinstance(lane, np.ndarray) else repeat(lane)
        sizes = nbytes[places].tolist() if isinstance(nbytes, np.ndarray) else repeat(nbytes)
        ready_s = repeat(None) if last_s is None or self._kept is None else last_s[places].tolist()
        keys: Any = repeat(key) if isinstance(key, str | None) else key(places)
        columns = (own.ranks[places].tolist(), lanes, repeat(activity), repeat(layer), repeat(step))
        rows = zip(*columns, starts_s[places].tolist(), ends_s[places].tolist(), sizes, ready_s, keys)  # noqa: B905
        list.extend(self.trace.spans, map(Span._make, rows))  # they have been counted

    def gradient(self, own: RankClass, step: int, starts_s: Times, ends_s: Times) -> None:
        """Counts a gradient of every rank of a class.

        Args:
            own: the class.
            step: its step.
            starts_s: the start of its first span.
            ends_s: the end of its last span.
        """
        if self.trace.counters is not None and own.me.role == "worker":
            self._waiting[own.number].append((step, starts_s, ends_s))
            self._count()

    def updates(self, own: RankClass, rows: Sequence[Update]) -> None:
        """Records updates.

        Args:
            own: the class.
            rows: a row for each input, whose values may differ between ranks.
        """
        values: Any
        for values in rows:
            columns = tuple(
                of_ranks(value, own.count) if not isinstance(value, np.ndarray) else value for value in values
            )
            if self.trace.counters is None:
                self.trace.updates.extend(map(Update._make, zip(*(column.tolist() for column in columns), strict=True)))
            elif len(self._classes) == 1:
                add_updates(self.trace, *columns)
            else:
                self._waiting[own.number].append(columns)
                self._count()

    def layers(self, own: RankClass, rows: Sequence[LayerUpdate]) -> None:
        """Records updates of layers.

        Args:
            own: the class.
            rows: a row for each input, whose values may differ between ranks.
        """
        values: Any
        for values in rows:
            columns = [
                repeat(value) if isinstance(value, str)
                else (value if isinstance(value, np.ndarray) else of_ranks(value, own.count)).tolist()
                for value in values
            ]  # fmt: skip
            self.trace.layers.extend(map(LayerUpdate._make, zip(*columns)))  # noqa: B905  # the layer has no end

    def _count(self) -> None:
        """Counts what all classes have: each class's updates, then the next gradient of all."""
        while True:
            for waiting in self._waiting:
                while waiting and len(waiting[0]) > 3:
                    add_updates(self.trace, *waiting.popleft())  # pyright: ignore[reportArgumentType]  # see the types of `_waiting`
            workers = [one for one in self._classes if one.me.role == "worker"]
            if not all(self._waiting[one.number] for one in workers):
                return
            starts_s, ends_s = np.empty(self._workers), np.empty(self._workers)
            step = 0
            for one in workers:
                step, starts_s[one.ranks], ends_s[one.ranks] = self._waiting[one.number].popleft()
            add_gradients(self.trace, step, starts_s, ends_s)

    def close(self, states: dict[Rank, Any]) -> None:
        """Ends the record.

        Args:
            states: the final state of each rank.
        """
        self.trace.wall_s = self.wall_s
        self.trace.states = states
        if self.trace.counters is not None:
            self.trace.counters.gradients.gaps.flush()
