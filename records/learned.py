"""The weights being learned, and when they are evaluated; the same in every interpreter."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.algorithms.core.buckets import Bucket
from paceline.algorithms.core.job import Job
from paceline.algorithms.core.operations import RecordUpdate
from paceline.algorithms.core.values import Rank, join
from paceline.algorithms.runtime.weights_owner import Update, WholeVersions
from paceline.records.trace import Schedule, Snapshot


@dataclass(frozen=True, slots=True)
class Kept:
    """The state of a `Learned` in a checkpoint."""

    latest: Snapshot
    samples: int
    shown: bool


class Learned:
    """The weights of their owner, with the number of samples used for them.

    Only a `RecordUpdate` that advances the version changes the weights being learned; a local step between averages
    does not.

    Args:
        job: the run's job.
        schedule: when the weights are evaluated.
        shard: the layers of one of several servers, if the weights are these. Their samples are counted by version, so
            that evaluations of all shards are due at the same versions.
    """

    def __init__(self, job: Job, schedule: Schedule, shard: Bucket | None = None) -> None:
        self._job = job
        self._schedule = schedule
        self._shard = shard
        self.samples = 0
        """number of samples used for the weights, those of local steps included"""
        self._shown: Snapshot | None = None
        initial = job.learner.initial()
        self.latest = Snapshot(0.0, 0, 0, initial if shard is None else initial[shard.part])
        """the present weights"""

    def applied(self, op: RecordUpdate, version: int, rows: Sequence[Update], now_s: float) -> Snapshot | None:
        """Notes an update by the weights' owner; returns the weights to evaluate, if an evaluation is due.

        With a schedule in seconds, these are the weights before the update.

        Args:
            op: the update.
            version: the present version of the weights.
            rows: the update's rows in the log.
            now_s: the present time of the run's clock.
        """
        self._count(version, rows)
        if not op.advance:
            return None
        before = self._lasted_until(now_s)
        self.latest = Snapshot(now_s, version, self.samples, op.weights.vector)
        return self.show() if self._schedule.due(updates=self._updates(version), samples=self.samples) else before

    def _lasted_until(self, now_s: float) -> Snapshot | None:
        """Returns the latest weights if an evaluation was due before now and has not been made."""
        tick_s = self._schedule.tick(self.latest.time_s, now_s)
        if tick_s is None or (shot := self.show()) is None:
            return None
        return dataclasses.replace(shot, time_s=tick_s)

    def _count(self, version: int, rows: Sequence[Update]) -> None:
        """Counts the samples used for the weights.

        A server knows the inputs of its updates. For a worker, the updates of all workers are assumed to be alike: all
        update in the same step or, if they step independently, at about the same rate. The version of shared weights
        counts the updates of all workers.
        """
        job, method = self._job, self._job.method
        if self._shard is not None:
            self.samples = job.samples_in(version)
        elif method.has_server:
            self.samples += sum(row.samples for row in rows)
        elif method.shared:
            self.samples = job.samples_in(version)
        else:
            self.samples += job.samples_in(len(rows) * (job.workers if method.independent else 1))

    def _updates(self, version: int) -> int:
        """Returns the number of updates as `stop.updates` counts them: of the server, or else steps of a worker.

        The version of a method with local steps counts only its averages, and that of workers that step independently
        only one's own steps: there, samples say how many there were. The first steps of a method with a delay apply no
        gradient, so there the version does.
        """
        job = self._job
        return version if job.method.has_server else max(version, job.steps_for(self.samples))

    def show(self) -> Snapshot | None:
        """Returns the latest weights for an evaluation; None if they were returned before."""
        if self._shown is self.latest:
            return None
        self._shown = self.latest
        return self.latest

    def kept(self) -> Kept:
        """Returns the state for a checkpoint."""
        return Kept(self.latest, self.samples, self._shown is self.latest)

    def restore(self, kept: Kept) -> None:
        """Restores the state of a checkpoint; evaluations that were due before it are not repeated."""
        self.latest, self.samples = kept.latest, kept.samples
        self._shown = self.latest if kept.shown else None
        self._schedule.due(updates=self._updates(self.latest.version), samples=self.samples)


class WholeSnapshots:
    """Joins the snapshots of the shards of several servers, which are due at the same versions.

    With a single owner of the weights, its snapshots stay as they are.

    Args:
        job: the run's job.
    """

    def __init__(self, job: Job) -> None:
        self._versions = WholeVersions[Snapshot](job.owners) if job.team[0].shards else None

    def add(self, owner: Rank, shot: Snapshot) -> Snapshot | None:
        """Adds a snapshot; returns the whole weights of its version, or None if it is not the last shard of them.

        The time is that of the last shard.
        """
        if self._versions is None:
            return shot
        if (shots := self._versions.add(owner, shot.version, shot)) is None:
            return None
        last_s = max(part.time_s for part in shots)
        return dataclasses.replace(shots[0], time_s=last_s, vector=join([part.vector for part in shots]))
