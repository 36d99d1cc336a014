"""The weights being learned, and when they are looked at: the same in every interpreter."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.algorithms.job import Job, Score
from paceline.algorithms.ledger import Update
from paceline.algorithms.operations import Applied
from paceline.records.metrics import smoothed
from paceline.records.summary import SMOOTHING
from paceline.records.trace import Schedule, Snapshot


class Goal:
    """The accuracy that ends a run. It is the smoothed one, which the time to accuracy is read from.

    A single evaluation passes earlier than its mean with those before: a run that ended there would never have reached
    the accuracy for which it ended.

    Args:
        accuracy: what the mean of the last evaluations has to reach; None if no accuracy ends the run.

    >>> goal = Goal(0.5)
    >>> [goal.reached(Score(1.0, accuracy)) for accuracy in (0.2, 0.6, 0.6, 0.6)]
    [False, False, False, True]
    """

    def __init__(self, accuracy: float | None) -> None:
        self.accuracy = accuracy
        self._seen: list[float] = []

    def reached(self, score: Score) -> bool:
        """Takes note of the next evaluation; answers whether the run is to end."""
        if self.accuracy is None or score.accuracy is None:
            return False
        self._seen.append(score.accuracy)
        return bool(smoothed(self._seen[-SMOOTHING:], SMOOTHING)[-1] >= self.accuracy)


class Learned:
    """The keeper's weights as they change, with the samples that went into them.

    Only an `Applied` that moves the version changes what is being learned: a local step between averages does not.

    Args:
        job: whose keeper's `Applied` this is told of.
        schedule: when the weights are to be evaluated.
    """

    def __init__(self, job: Job, schedule: Schedule) -> None:
        self._job = job
        self._schedule = schedule
        self._samples = 0
        self._shown: Snapshot | None = None
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
        self._count(version, rows)
        if not op.advance:
            return None
        self.latest = Snapshot(now_s, version, self._samples, op.weights.vector)
        return self.show() if self._schedule.due(updates=version, samples=self._samples, time_s=now_s) else None

    def _count(self, version: int, rows: Sequence[Update]) -> None:
        """Counts the samples that are in the weights now.

        A server knows what it applied. A worker's update stands for everybody's: all apply theirs in the same step, or,
        where they step independently, about as many. The version of shared weights counts everybody's updates.
        """
        job, method = self._job, self._job.method
        if method.has_server:
            self._samples += sum(row.samples for row in rows)
        elif method.shared:
            self._samples = version * job.samples_per_step
        else:
            self._samples += len(rows) * job.samples_per_step * (job.workers if method.independent else 1)

    def show(self) -> Snapshot | None:
        """The latest weights, at the start and the end of a run: None if they have been shown already."""
        if self._shown is self.latest:
            return None
        self._shown = self.latest
        return self.latest
