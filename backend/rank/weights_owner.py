"""Where a rank passes `NextStep` and `RecordUpdate`: stopping, staleness, and the weights that are being learned.

Rules of this file:

* One rank keeps the weights being learned. Where workers do and can be done without, each follows its own, so that the
  next one can take over when the keeper dies.
* Whoever passes `NextStep` after a death that ends the run is told so there, though it waits for nobody.
"""

from __future__ import annotations

from paceline.algorithms.core.errors import PeerFailed
from paceline.algorithms.core.job import Job
from paceline.algorithms.core.operations import RecordUpdate, State
from paceline.algorithms.core.values import Step
from paceline.algorithms.runtime.staleness_ledger import Ledger
from paceline.backend.rank.rank_context import Station, Thread
from paceline.backend.status.rank_logs import life
from paceline.backend.status.status_board import NEVER
from paceline.records.learned import Kept, Learned
from paceline.records.trace import Schedule, Snapshot


class Keeper:
    """A rank's book; that of the job's keeper also holds the weights being learned."""

    def __init__(self, station: Station, job: Job, schedule: Schedule) -> None:
        self.station, self.job = station, job
        self.learned = Learned(job, schedule)
        self._ledger = Ledger(job.method.staleness_kind, job.workers)
        keeps = station.me.role == job.method.weights_owner
        self.follows = keeps and (station.me.rank == job.weights_owner or station.board.spare > 0)
        """whether it follows its weights as those being learned"""
        self.until = NEVER
        """the step before which everybody pauses"""
        self._stepped = False
        self._tally = station.board.tally(station.me.rank)

    def next(self, thread: Thread, state: State) -> Step | None:
        """The next step, or None where the run ends; the role that keeps the weights decides, or follows the board."""
        me, board, now = self.station.me, self.station.board, self.station.clock.now()
        thread.step = state.step
        board.rows["step"][me.rank] = state.step
        self.station.recorder.breathe(now)
        if (dead := board.lost()) is not None:
            raise PeerFailed(f"rank {dead} died", dead)
        if me.role == self.job.method.weights_owner:
            if self.job.budget.seconds is not None and now >= self.job.budget.seconds:
                board.stop("seconds")
            if not board.grant(me.rank, state.step, self.until):
                return None
        if not self._stepped:
            self._stepped = True
            life.info("first step: number %d, %.3f s from the start", state.step, now)
        return Step(state.step, self.job.samples(me, state.step))

    def applied(self, op: RecordUpdate) -> int:
        """The version that the weights now have; what was applied is written down."""
        now = self.station.clock.now()
        if op.layer is not None:
            for one in self._ledger.land(op, op.layer, now):
                self.station.recorder.add("layer", one)
            return op.weights.version
        version, rows = self._ledger.enter(op, now)
        for row in rows:
            self.station.recorder.add("update", row)
        if self.follows:
            self._record(self.learned.applied(op, version, rows, now))
        self._tally.applied(rows, self.learned.samples)
        return version

    def show(self) -> None:
        """Records the weights as they are at the start or the end of the run."""
        if self.follows:
            self._record(self.learned.show())

    @property
    def age(self) -> int:
        """Local steps since the version last moved."""
        return self._ledger.age

    def kept(self) -> Kept | None:
        """What a checkpoint keeps of the weights being learned, at the job's keeper."""
        return self.learned.kept() if self.follows else None

    def restore(self, kept: Kept | None, age: int) -> None:
        """Goes on from a checkpoint."""
        self._ledger.age = age
        if kept is not None:
            self.learned.restore(kept)

    def _record(self, shot: Snapshot | None) -> None:
        """Keeps weights for evaluation after the run; no copy, since programs change no vector in place."""
        if shot is not None and self.station.board.weights_owner == self.station.me.rank:
            self.station.recorder.add("snapshot", shot)
            if self.job.budget.scored:  # the launcher is waiting to see it
                self.station.recorder.flush()
