"""The weights being learned, and when they are looked at: the same in every interpreter."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.algorithms.job import Job
from paceline.algorithms.ledger import Update
from paceline.algorithms.operations import Applied
from paceline.records.trace import Schedule, Snapshot


class Learned:
    """The keeper's weights as they change, with the samples that went into them.

    Only an `Applied` that moves the version changes what is being learned: a local step between averages does not.

    Args:
        job: whose keeper's `Applied` this is told of.
        schedule: when the weights are to be evaluated.
    """

    def __init__(self, job: Job, schedule: Schedule) -> None:
        # A worker's update stands for everybody's: all apply theirs in the same step. A server's is one worker's.
        self._alike = 1 if job.method.has_server else job.workers
        self._schedule = schedule
        self._samples = 0
        self._shown = -1
        self.latest = Snapshot(0.0, 0, 0, job.learner.initial())
        """what they are now"""

    def applied(self, op: Applied, version: int, rows: Sequence[Update], now_s: float) -> Snapshot | None:
        """Takes note of the keeper's `Applied`; answers what to evaluate, where that is due now.

        Args:
            op: what the keeper applied.
            version: the version that the weights have now.
            rows: the update's rows, from the ledger.
            now_s: the run's clock.
        """
        self._samples += self._alike * sum(row.samples for row in rows)
        if not op.advance:
            return None
        self.latest = Snapshot(now_s, version, self._samples, op.weights.vector)
        return self.show() if self._schedule.due(updates=version, samples=self._samples, time_s=now_s) else None

    def show(self) -> Snapshot | None:
        """The latest weights, at the start and the end of a run: None if they have been shown already."""
        if self._shown == self.latest.version:
            return None
        self._shown = self.latest.version
        return self.latest
