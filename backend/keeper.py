"""Where a rank passes `Next` and `Applied`: stopping, staleness, and the weights that are being learned."""

from __future__ import annotations

from paceline.algorithms.job import Job
from paceline.algorithms.ledger import Ledger
from paceline.algorithms.operations import Applied, State
from paceline.algorithms.values import Step, Weights
from paceline.backend.station import Station, Thread
from paceline.records.trace import Schedule, Snapshot


class Keeper:
    """A rank's book; that of the job's keeper also holds the weights being learned."""

    def __init__(self, station: Station, job: Job, schedule: Schedule) -> None:
        self.station, self.job = station, job
        self.learned = Weights(job.learner.initial(), 0)
        """as last applied, with the version that they now have"""
        self._ledger = Ledger(job.method.notion)
        self._schedule = schedule
        self._samples = 0
        self._learned_s = 0.0
        """when they were applied"""
        self._shown = -1
        """the version of the last snapshot"""
        self._keeps = station.me.rank == job.keeper

    def next(self, thread: Thread, state: State) -> Step | None:
        """The next step, or None where the run ends; the role that keeps the weights decides, or follows the board."""
        me, board, now = self.station.me, self.station.board, self.station.clock.now()
        thread.step = state.step
        board.rows["step"][me.rank] = state.step
        self.station.recorder.breathe(now)
        if me.role == self.job.method.keeper:
            if self.job.limit is not None and state.step >= self.job.limit:
                return None
            if self.job.budget.seconds is not None and now >= self.job.budget.seconds:
                board.stop()
            if not board.grant(me.rank, state.step):
                return None
        return Step(state.step, self.job.samples(me, state.step))

    def applied(self, op: Applied) -> int:
        """The version that the weights now have; what was applied is written down."""
        now = self.station.clock.now()
        version, rows = self._ledger.enter(op, now)
        for row in rows:
            self.station.recorder.add("update", row)
        if self._keeps:
            self._samples += sum(row.samples for row in rows) * (1 if self.job.method.has_server else self.job.workers)
            if op.advance:
                self.learned, self._learned_s = Weights(op.weights.vector, version), now
                if self._schedule.due(updates=version, samples=self._samples, time_s=now):
                    self.show()
        return version

    def show(self) -> None:
        """Keeps the weights for evaluation after the run; no copy, since programs change no vector in place."""
        if self._keeps and self._shown != self.learned.version:
            self._shown = self.learned.version
            shot = Snapshot(self._learned_s, self._shown, self._samples, self.learned.vector)
            self.station.recorder.add("snapshot", shot)
