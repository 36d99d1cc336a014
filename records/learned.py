"""The weights being learned, and when they are looked at: the same in every interpreter."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.algorithms.core.job import Job
from paceline.algorithms.core.operations import RecordUpdate
from paceline.algorithms.runtime.update_log import Update
from paceline.records.trace import Schedule, Snapshot


@dataclass(frozen=True, slots=True)
class Kept:
    """What remains of a `Learned` in a checkpoint."""

    latest: Snapshot
    samples: int
    shown: bool


class Learned:
    """The keeper's weights as they change, with the samples that went into them.

    Only an `RecordUpdate` that moves the version changes what is being learned: a local step between averages does not.

    Args:
        job: whose keeper's `RecordUpdate` this is told of.
        schedule: when the weights are to be evaluated.
    """

    def __init__(self, job: Job, schedule: Schedule) -> None:
        self._job = job
        self._schedule = schedule
        self.samples = 0
        """that went into them, those of local steps among them"""
        self._shown: Snapshot | None = None
        self.latest = Snapshot(0.0, 0, 0, job.learner.initial())
        """what they are now"""

    def applied(self, op: RecordUpdate, version: int, rows: Sequence[Update], now_s: float) -> Snapshot | None:
        """Takes note of the keeper's `RecordUpdate`; answers what to evaluate, where that is due.

        By a schedule in seconds it is the weights that this update replaces.

        Args:
            op: what the keeper applied.
            version: the version that the weights have now.
            rows: the update's rows, from the ledger.
            now_s: the run's clock.
        """
        self._count(version, rows)
        if not op.advance:
            return None
        before = self._lasted_until(now_s)
        self.latest = Snapshot(now_s, version, self.samples, op.weights.vector)
        return self.show() if self._schedule.due(updates=version, samples=self.samples) else before

    def _lasted_until(self, now_s: float) -> Snapshot | None:
        """The latest weights at the time when they were due, if they were before now and have not been shown."""
        tick_s = self._schedule.tick(self.latest.time_s, now_s)
        if tick_s is None or (shot := self.show()) is None:
            return None
        return dataclasses.replace(shot, time_s=tick_s)

    def _count(self, version: int, rows: Sequence[Update]) -> None:
        """Counts the samples that are in the weights now.

        A server knows what it applied. A worker's update stands for everybody's: all apply theirs in the same step, or,
        where they step independently, about as many. The version of shared weights counts everybody's updates.
        """
        job, method = self._job, self._job.method
        if method.has_server:
            self.samples += sum(row.samples for row in rows)
        elif method.shared:
            self.samples = version * job.samples_per_step
        else:
            self.samples += len(rows) * job.samples_per_step * (job.workers if method.independent else 1)

    def show(self) -> Snapshot | None:
        """The latest weights, at the start and the end of a run: None if they have been shown already."""
        if self._shown is self.latest:
            return None
        self._shown = self.latest
        return self.latest

    def kept(self) -> Kept:
        """All of it, for a checkpoint."""
        return Kept(self.latest, self.samples, self._shown is self.latest)

    def restore(self, kept: Kept) -> None:
        """Goes on from a checkpoint; evaluations that were due by then have been made."""
        self.latest, self.samples = kept.latest, kept.samples
        self._shown = self.latest if kept.shown else None
        self._schedule.due(updates=self.latest.version, samples=self.samples)
