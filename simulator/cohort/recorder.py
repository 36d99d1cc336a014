"""Reports the gradients and updates of classes of ranks to the recorder of the run.

The recorder takes the k-th gradients of all workers at once, and the updates that use them afterwards. With several
classes of ranks, the gradients and updates of a class wait here until the other classes have come as far.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from paceline.algorithms.runtime.weights_owner import LayerUpdate, Update
from paceline.records.recorder import Recorder
from paceline.simulator.cohort.classes import RankClass
from paceline.simulator.cohort.values import NotACohort, Times, of_ranks


class ClassRecorder:
    """Reports the gradients and updates of classes.

    Args:
        recorder: writes the record of the run.
        classes: all classes of ranks.
        workers: the number of workers.
    """

    def __init__(self, recorder: Recorder, classes: Sequence[RankClass], workers: int) -> None:
        self._recorder, self._workers = recorder, workers
        self._waiting: list[deque[tuple[Any, ...]]] = [deque() for _ in classes]
        """gradients (three values) and updates of each class that have not been reported"""
        self._computing = [own for own in classes if own.me.role == "worker"]

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

    def update(self, own: RankClass, rows: Sequence[Update], layers: Sequence[LayerUpdate]) -> None:
        """Records an update, or the update of a layer.

        Args:
            own: the class.
            rows: a row for each input, whose values may differ between ranks.
            layers: as `rows`, for the update of a layer.
        """
        self._waiting[own.number].extend(tuple(of_ranks(value, own.count) for value in row) for row in rows)
        self._report()
        for row in layers:
            columns = [of_ranks(value, own.count).tolist() for value in row]
            self._recorder.update((), list(map(LayerUpdate._make, zip(*columns, strict=True))))

    def close(self) -> None:
        """Ends the reports; raises `NotACohort` if some workers have computed more gradients than others."""
        if any(self._waiting):
            raise NotACohort("its workers do not compute the same number of gradients")

    def _report(self) -> None:
        """Reports what all classes have: each class's updates, then the next gradient of all."""
        while True:
            for waiting in self._waiting:
                while waiting and len(waiting[0]) > 3:
                    self._recorder.updates(*waiting.popleft())
            if not all(self._waiting[own.number] for own in self._computing):
                return
            step, starts_s, ends_s = 0, np.empty(self._workers), np.empty(self._workers)
            for own in self._computing:
                step, starts_s[own.ranks], ends_s[own.ranks] = self._waiting[own.number].popleft()
            self._recorder.gradients(step, starts_s, ends_s)
