"""Supervises the ranks of one host in processes that a launcher has started: each process checks all others there.

Rules of this file:

* Every process checks which ranks of its host have died or failed, and, `CHECKS` times per timeout, which are stopped
  and for how long. The first process that is not stopped itself kills those that have been stopped for the timeout.
* The first living process records how long each rank has been inactive. Host 0 decides whether that is too long,
  because the ranks that wait for it may be on another host.
* A process that has not checked for a while was stopped itself, or had no processor time. It has no information about
  that time and measures anew.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence

from paceline.algorithms.core.method import RankContext
from paceline.algorithms.core.values import Rank
from paceline.backend.multihost.rank_mapping import RankMapping
from paceline.backend.multihost.world import World
from paceline.backend.status.rank_status import RankState
from paceline.backend.status.status_board import StatusBoard
from paceline.backend.supervision import failure_messages
from paceline.backend.supervision.liveness import Liveness, stopped

CHECK_S = 0.1
"""seconds between two checks"""
ABSENT_S = 2.0
"""a process that has not checked for so long was stopped itself"""
DYING_S = 2.0
"""how long a process that was killed while stopped may take to end; until then it is alive and no longer stopped"""


class Neighbours:
    """The ranks of this host.

    Args:
        world: all processes.
        mapping: which process is which rank.
        board: the board of this host.
        team: all ranks.
        timeout_s: how long a rank may be stopped, in seconds.
    """

    def __init__(
        self, world: World, mapping: RankMapping, board: StatusBoard, team: Sequence[RankContext], timeout_s: float
    ) -> None:
        self._world, self._board, self._team, self._timeout_s = world, board, team, timeout_s
        ids = world.ids
        self._ranks = {one: mapping.rank_of[one] for one in world.neighbours if one in mapping.rank_of}
        self._pids = {ids[one]: rank for one, rank in self._ranks.items()}
        self._liveness = Liveness(board, self._pids, joined=True)
        self._stopped: dict[int, float] = {}
        """since when processes, by their ids, have been stopped"""
        self._kill_reasons: dict[Rank, tuple[str, float]] = {}
        """ranks that are killed, by any process, as stopped for too long: the reason and until when it is valid"""
        self._checked_s = time.monotonic()

    def check(self, *, at_once: bool = False) -> None:
        """Checks all ranks of the host, if it is time."""
        now = time.monotonic()
        if now - self._checked_s < CHECK_S and not at_once:
            return
        if now - self._checked_s > ABSENT_S:
            self._liveness.restart()
            self._stopped.clear()
        self._checked_s = now
        self._check_dead()
        if self._liveness.due(self._timeout_s):
            self._check_stopped(now)
            if self._world.first:
                for pid, seconds in self._liveness.quiet_s().items():
                    self._board.ranks[self._pids[pid]].quiet_s = seconds

    def _check_dead(self) -> None:
        """Records which ranks have died or failed."""
        for process, rank in self._ranks.items():
            row = self._board.ranks[rank]
            if row.state is RankState.DRAINED:
                continue
            if row.state is RankState.FAILED:
                self._board.lose_because(rank, row.failure or "failed")
            elif not self._world.lives(process):
                row.fail()
                reason, _ = self._kill_reasons.get(rank, ("its process is gone", 0.0))
                self._board.lose_because(rank, reason)

    def _check_stopped(self, now: float) -> None:
        """Records which ranks are stopped; the first process that is not kills those that have been for too long."""
        still = [pid for pid in self._pids if stopped(pid)]
        self._stopped = {pid: self._stopped.get(pid, now) for pid in still}
        for pid, rank in self._pids.items():
            self._board.ranks[rank].stopped = pid in self._stopped
        acts = next((pid for pid in self._pids if pid not in self._stopped), None) == os.getpid()
        long = {pid: now - since_s for pid, since_s in self._stopped.items() if now - since_s > self._timeout_s / 2}
        kept = {rank: (reason, until) for rank, (reason, until) in self._kill_reasons.items() if now < until}
        self._kill_reasons = kept | {self._pids[pid]: (self._reason(self._pids[pid]), now + DYING_S) for pid in long}
        for pid, seconds in long.items():
            if acts and seconds > self._timeout_s:  # lost only once it has ended: until then it may hold a lock
                os.kill(pid, signal.SIGKILL)

    def _reason(self, rank: Rank) -> str:
        everyone, what = [me.rank for me in self._team], failure_messages.stopped(self._timeout_s)
        return failure_messages.describe(self._board, self._team, rank, everyone, what)
