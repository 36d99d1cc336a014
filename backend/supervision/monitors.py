"""What is looked for in every run, whoever looks after its ranks: that nobody moves, and that a score ends it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from paceline.algorithms.core.errors import DeadlockError
from paceline.algorithms.core.job import Job
from paceline.algorithms.core.values import Rank
from paceline.backend.status.recorder import Tail
from paceline.backend.status.status_board import Board, Doing
from paceline.backend.supervision.gather import stream_of
from paceline.records.goals import Goal
from paceline.records.trace import Reason

STILL = (Doing.BLOCKED, Doing.ENDED, Doing.DRAINED)


class Stillness:
    """A deadlock: every rank is blocked or at its end, none computes, and nothing has moved for a while.

    Args:
        board: what ranks say.
        patience_s: how long that while is.
    """

    def __init__(self, board: Board, patience_s: float) -> None:
        self._board, self._patience_s = board, patience_s
        self._moves, self._moved_s = -1, time.monotonic()

    def look(self, ranks: Iterable[int], *, excused: bool = False) -> DeadlockError | None:
        """The deadlock of these ranks, if there is one; with `excused` their time begins anew."""
        board, ranks = self._board, list(ranks)
        moves = int(board.rows["moves"].sum())
        blocked = [rank for rank in ranks if board.doing(rank) is Doing.BLOCKED]
        idle = all(board.doing(rank) in STILL and not board.rows["busy"][rank] for rank in ranks)
        if moves != self._moves or not blocked or not idle or excused:
            self._moves, self._moved_s = moves, time.monotonic()
            return None
        if time.monotonic() - self._moved_s <= self._patience_s:
            return None
        lines = "\n".join(f"  {board.waits(Rank(rank))}" for rank in blocked)
        return DeadlockError(f"deadlock: nobody has moved for {self._patience_s:g} s\n{lines}")


class Scores:
    """Ends a run when a snapshot has reached what the budget asks for, or has diverged.

    Args:
        job: what is run.
        board: where the stop is called.
        folder: where ranks write their snapshots.
    """

    def __init__(self, job: Job, board: Board, folder: Path) -> None:
        self._job, self._board, self._folder = job, board, folder
        self._goal = Goal(job.budget)
        self._why: Reason | None = None
        """why the run is to end"""
        self.follow(board.weights_owner)

    def follow(self, keeper: Rank) -> None:
        """From now on the snapshots of this rank are looked at."""
        self._tail = Tail(stream_of(self._folder, keeper))

    def look(self) -> None:
        """Scores what is new."""
        if not self._job.budget.scored or self._board.stopping:
            return
        snapshots = (value for kind, value in self._tail.read() if kind == "snapshot")
        while self._why is None and (snapshot := next(snapshots, None)) is not None:
            self._why = self._goal.reached(self._job.learner.evaluate(snapshot.vector))
        if self._why is not None:
            self._board.stop_if_free(self._why)  # otherwise with the next look
