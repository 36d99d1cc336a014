"""Reports what classes of ranks did to the recorder of the run.

The recorder takes the k-th gradients of all workers at once, and the updates that use them afterwards. With several
classes of ranks, the gradients and updates of a class wait here until the other classes have come as far.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from paceline.algorithms.runtime.update_log import LayerUpdate, Update
from paceline.records.recorder import Recorder
from paceline.records.trace import Activity
from paceline.simulator.cohort.classes import RankClass
from paceline.simulator.cohort.values import NotACohort, Times, of_ranks

Gradient = tuple[int, Times, Times]
Columns = tuple[Any, ...]


class ClassRecorder:
    """Reports the spans, gradients and updates of classes.

    Args:
        recorder: writes the record of the run.
        classes: all classes of ranks.
        workers: the number of workers.
    """

    def __init__(self, recorder: Recorder, classes: Sequence[RankClass], workers: int) -> None:
        self._recorder, self._classes, self._workers = recorder, classes, workers
        self._waiting: list[deque[Gradient | Columns]] = [deque() for _ in classes]
        """gradients and updates of each class that have not been reported"""
        self.wall_s = 0.0
        """the end of the last span; a copy that nothing waits for may end after the programs"""

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
        """Records a span of every rank of a class; the arguments are those of `Recorder.spans`."""
        if activity != "copy":
            self.wall_s = max(self.wall_s, float(ends_s.max()))
        self._recorder.spans(
            own.ranks, lane, activity, step, starts_s, ends_s, layer=layer, nbytes=nbytes, ready_s=last_s, key=key
        )

    def gradient(self, own: RankClass, step: int, starts_s: Times, ends_s: Times) -> None:
        """Notes a gradient of every rank of a class.

        Args:
            own: the class.
            step: its step.
            starts_s: the start of its first span.
            ends_s: the end of its last span.
        """
        if own.me.role == "worker":
            self._waiting[own.number].append((step, starts_s, ends_s))
            self._report()

    def updates(self, own: RankClass, rows: Sequence[Update]) -> None:
        """Records updates.

        Args:
            own: the class.
            rows: a row for each input, whose values may differ between ranks.
        """
        values: Any
        for values in rows:
            self._waiting[own.number].append(tuple(of_ranks(value, own.count) for value in values))
            self._report()

    def layers(self, own: RankClass, rows: Sequence[LayerUpdate]) -> None:
        """Records updates of layers.

        Args:
            own: the class.
            rows: a row for each input, whose values may differ between ranks.
        """
        values: Any
        for values in rows:
            columns = [
                [value] * own.count if isinstance(value, str) else of_ranks(value, own.count).tolist()
                for value in values
            ]
            self._recorder.update((), list(map(LayerUpdate._make, zip(*columns, strict=True))))

    def close(self) -> None:
        """Ends the reports; raises `NotACohort` if some workers have computed more gradients than others."""
        self._report()
        if any(self._waiting):
            raise NotACohort("its workers do not compute the same number of gradients")

    def _report(self) -> None:
        """Reports what all classes have: each class's updates, then the next gradient of all."""
        while True:
            for waiting in self._waiting:
                while waiting and len(waiting[0]) > 3:
                    self._recorder.updates(*waiting.popleft())  # pyright: ignore[reportArgumentType]  # see the types of `_waiting`
            workers = [one for one in self._classes if one.me.role == "worker"]
            if not all(self._waiting[one.number] for one in workers):
                return
            starts_s, ends_s = np.empty(self._workers), np.empty(self._workers)
            step = 0
            for one in workers:
                step, starts_s[one.ranks], ends_s[one.ranks] = self._waiting[one.number].popleft()
            self._recorder.gradients(step, starts_s, ends_s)
