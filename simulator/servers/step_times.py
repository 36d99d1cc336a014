"""The times of gradients, drawn for some blocks of steps ahead of each worker."""

from __future__ import annotations

import numpy as np

from paceline.algorithms.core.job import Job
from paceline.algorithms.core.values import Rank
from paceline.simulator.cohort.own_work import ManyAtOnce
from paceline.simulator.kernel.timing import Timing
from paceline.topologies.faults.jitter import BLOCK

SHORT = 0.75
"""the part of a block up to which a run is expected to need one block for most workers; provenance: INFERENCE"""


class StepTimes:
    """The seconds of gradients: those of the last two blocks of each worker, or of one block if a run is short.

    Workers get a block together, when the first of them needs it: drawing it for one at a time takes ten times as long.

    Args:
        job: the run's job.
        timing: the seconds of each rank's own work.
    """

    def __init__(self, job: Job, timing: Timing) -> None:
        self._job, self._timing = job, timing
        expected = np.inf if job.limit is None else job.samples_in(job.limit) / sum(job.batches)
        self._blocks = 1 if expected <= SHORT * BLOCK else 2
        self.seconds = np.zeros((self._blocks * BLOCK, job.workers))
        self.until = np.zeros(job.workers, np.int64)
        """the first step of each worker whose time is not known"""

    def draw(self, rank: int, steps: np.ndarray) -> None:
        """Draws the next block of a worker, and of others that have room for it.

        Args:
            rank: the worker.
            steps: the present step of each worker.
        """
        first = int(self.until[rank])
        others = (self.until == first) & (steps >= first - (self._blocks - 1) * BLOCK)
        others[rank] = True
        ranks = np.flatnonzero(others)
        self.until[ranks] = first + BLOCK
        rows = (first % len(self.seconds)) + np.arange(BLOCK)
        many = self._timing.many(ranks.tolist()) if isinstance(self._timing, ManyAtOnce) else None
        batch = self._job.batches[0]
        if many is None:
            for one in ranks.tolist():
                self.seconds[rows, one] = [
                    self._timing.compute_s(Rank(one), step, batch) for step in range(first, first + BLOCK)
                ]
            return
        for row in range(BLOCK):
            self.seconds[rows[row], ranks] = many.compute_s(first + row, batch)
