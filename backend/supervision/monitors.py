"""The two monitors of every real run: one detects deadlocks, one ends the run when it has reached its goal."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from paceline.algorithms.core.errors import DeadlockError
from paceline.algorithms.core.job import Job, Reason
from paceline.algorithms.core.values import Rank
from paceline.backend.status.progress_counters import Scored
from paceline.backend.status.rank_status import RankState
from paceline.backend.status.recorder import Tail
from paceline.backend.status.status_board import StatusBoard
from paceline.backend.supervision import failure_messages
from paceline.backend.supervision.gather import stream_of
from paceline.records.targets import Goal

IDLE = (RankState.BLOCKED, RankState.ENDED, RankState.DRAINED)


class DeadlockMonitor:
    """Detects that all ranks wait for each other.

    Args:
        board: the ranks' states.
        timeout_s: how long all ranks may wait without progress.
    """

    def __init__(self, board: StatusBoard, timeout_s: float) -> None:
        self._board, self._timeout_s = board, timeout_s
        self._progress, self._since_s = -1, time.monotonic()

    def check(self, ranks: Iterable[int], *, excused: bool = False) -> DeadlockError | None:
        """Checks once.

        Args:
            ranks: the ranks that should still make progress.
            excused: restarts the timeout, for example while a rank is stopped.

        Returns:
            The error, if these ranks have waited for each other for the timeout; otherwise None.
        """
        rows, progress = [self._board.ranks[rank] for rank in ranks], self._board.progress
        blocked = [row for row in rows if row.state is RankState.BLOCKED]
        idle = all(row.state in IDLE and not row.busy for row in rows)
        if progress != self._progress or not blocked or not idle or excused:
            self._progress, self._since_s = progress, time.monotonic()
            return None
        if time.monotonic() - self._since_s <= self._timeout_s:
            return None
        lines = "".join(f"\n  {row.text}{failure_messages.missing(self._board, row)}" for row in blocked)
        return DeadlockError(
            f"deadlock: no rank has made progress for {self._timeout_s:g} s, after which ranks that all wait for each "
            f"other are given up (train.timeout is for a single rank that is stopped or hangs){lines}"
        )


class GoalMonitor:
    """Ends a run when a snapshot has reached the budget's accuracy or loss, or has diverged.

    Args:
        job: the job of the run.
        board: takes the stop of the run.
        folder: contains the records with the snapshots.
    """

    def __init__(self, job: Job, board: StatusBoard, folder: Path) -> None:
        self._job, self._board, self._folder = job, board, folder
        self._goal = Goal(job.budget)
        self._reason: Reason | None = None
        """the reason to end the run; None before that"""
        self.follow(board.weights_owner)

    def follow(self, owner: Rank) -> None:
        """Reads the snapshots of this rank from now on."""
        self._tail = Tail(stream_of(self._folder, owner))

    def check(self) -> None:
        """Evaluates new snapshots and stops the run if one of them reaches the goal."""
        if not self._job.budget.scored or self._board.stopping:
            return
        snapshots = (value for kind, value in self._tail.read() if kind == "snapshot")
        while self._reason is None and (snapshot := next(snapshots, None)) is not None:
            self._reason = self._goal.reached(self._job.learner.evaluate(snapshot.vector))
            self._board.scored = Scored(self._goal.loss, self._goal.accuracy)
        if self._reason is not None:
            self._board.stop_if_free(self._reason)  # if the lock is taken, the next check tries again
