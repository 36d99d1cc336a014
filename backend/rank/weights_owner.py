"""Performs `NextStep` and `RecordUpdate` of one real rank.

After a death that ends the run, `NextStep` raises, although it waits for no other rank.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from functools import partial

from paceline.algorithms.core.errors import PeerFailed
from paceline.algorithms.core.job import Job
from paceline.algorithms.core.operations import RecordUpdate, State
from paceline.algorithms.core.values import Rank, Step
from paceline.algorithms.runtime.stop_rule import NEVER, next_step
from paceline.algorithms.runtime.update_log import Update
from paceline.algorithms.runtime.weights_owner import WeightsOwner, followed
from paceline.backend.rank.rank_context import Station, Thread
from paceline.backend.status.rank_logs import life
from paceline.records.learned import Kept, Learned
from paceline.records.trace import Schedule, Snapshot


class RankWeightsOwner(WeightsOwner[Learned]):
    """The updates of one real rank, and the weights being learned if it owns them or may come to own them."""

    def __init__(self, station: Station, job: Job, schedule: Schedule) -> None:
        me = station.me.rank
        self.follows = me in followed(job, station.board.spare)
        """whether it records its weights as those being learned"""
        learned = {me: Learned(job, schedule)} if self.follows else {}
        super().__init__(job, learned, station.recorder.update, self._store)
        self.station = station
        self.until = NEVER
        """the step before which all ranks pause"""
        self._stepped = False

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

    def learn(self, rank: Rank, op: RecordUpdate, version: int, rows: Sequence[Update], now_s: float) -> None:
        super().learn(rank, op, version, rows, now_s)
        self.station.status.counters.applied(rows, self.learned.samples if self.follows else 0)

    def kept(self) -> Kept | None:
        """Returns the state of the weights being learned for a checkpoint; None at other ranks than their owner."""
        return self.learned.kept() if self.follows else None

    def restore(self, kept: Kept | None, age: int) -> None:
        """Restores the state of a checkpoint."""
        self.logs[self.station.me.rank].age = age
        if kept is not None:
            self.learned.restore(kept)

    def _store(self, shot: Snapshot) -> None:
        """Stores weights for evaluation after the run; without a copy, since programs change no vector in place."""
        if self.station.board.weights_owner == self.station.me.rank:
            self.station.recorder.evaluation(shot)
            if self.job.budget.scored:  # the launcher is waiting for it
                self.station.recorder.flush()
