"""Performs `NextStep` and `RecordUpdate` of one rank: stopping, staleness, and the weights that are being learned.

Rules of this file:

* One rank owns the weights being learned. If workers own them and the run can lose workers, each worker also records
  its own weights, so that the next one can take over when the owner dies.
* After a death that ends the run, `NextStep` raises, although it waits for no other rank.
"""

from __future__ import annotations

import os
import signal
from functools import partial

from paceline.algorithms.core.errors import PeerFailed
from paceline.algorithms.core.job import Job
from paceline.algorithms.core.operations import RecordUpdate, State
from paceline.algorithms.core.values import Step
from paceline.algorithms.runtime.stop_rule import NEVER, next_step
from paceline.algorithms.runtime.update_log import UpdateLog
from paceline.backend.rank.rank_context import Station, Thread
from paceline.backend.status.rank_logs import life
from paceline.records.learned import Kept, Learned
from paceline.records.trace import Schedule, Snapshot


class WeightsOwner:
    """A rank's log of updates and, at the weights' owner, the weights being learned."""

    def __init__(self, station: Station, job: Job, schedule: Schedule) -> None:
        self.station, self.job = station, job
        self.learned = Learned(job, schedule)
        self._log = UpdateLog(job.method.staleness_kind, job.workers)
        owns = station.me.role == job.method.weights_owner
        self.follows = owns and (station.me.rank == job.weights_owner or station.board.spare > 0)
        """whether it records its weights as those being learned"""
        self.until = NEVER
        """the step before which all ranks pause"""
        self._stepped = False
        self._counters = station.status.counters

    def next(self, thread: Thread, state: State) -> Step | None:
        """Returns the next step, or None if the run ends. The weights' owners decide; other ranks follow the board."""
        me, board, now = self.station.me, self.station.board, self.station.clock.now()
        thread.step = state.step
        self.station.status.step = state.step
        self.station.recorder.breathe(now)
        if self.job.deaths and self.job.dies_at(me.rank, state.step):
            self.station.recorder.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        if (dead := board.lost()) is not None:
            raise PeerFailed(f"rank {dead} died", dead)
        step = next_step(self.job, me, state.step, now, partial(board.grant, until=self.until), board.stop)
        if step is not None and not self._stepped:
            self._stepped = True
            life.info("first step: number %d, %.3f s from the start", state.step, now)
        return step

    def applied(self, op: RecordUpdate) -> int:
        """Records an update and returns the version that the weights now have."""
        now = self.station.clock.now()
        version, rows, layers = self._log.book(op, now)
        self.station.recorder.update(rows, layers)
        if op.layer is not None:
            return version
        if self.follows:
            self._record(self.learned.applied(op, version, rows, now))
        self._counters.applied(rows, self.learned.samples)
        return version

    def show(self) -> None:
        """Records the weights at the start or the end of the run."""
        if self.follows:
            self._record(self.learned.show())

    @property
    def age(self) -> int:
        """Local steps since the version last changed."""
        return self._log.age

    def kept(self) -> Kept | None:
        """Returns the state of the weights being learned for a checkpoint; None at other ranks than their owner."""
        return self.learned.kept() if self.follows else None

    def restore(self, kept: Kept | None, age: int) -> None:
        """Restores the state of a checkpoint."""
        self._log.age = age
        if kept is not None:
            self.learned.restore(kept)

    def _record(self, shot: Snapshot | None) -> None:
        """Stores weights for evaluation after the run; without a copy, since programs change no vector in place."""
        if shot is not None and self.station.board.weights_owner == self.station.me.rank:
            self.station.recorder.evaluation(shot)
            if self.job.budget.scored:  # the launcher is waiting for it
                self.station.recorder.flush()
