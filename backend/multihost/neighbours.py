"""The ranks of a host whose processes others have started, as each of these sees its neighbours.

Rules of this file:

* Every process looks who has died or failed; now and then in a time-out, since each looks at all, who is stopped, and
  for how long. The first one that is not stopped itself kills who has been for the time-out.
* The first process that lives writes down how long each rank has been quiet. Whether that is too long, the leader says:
  who waits for it may be on another host.
* Who has not looked for a while was stopped itself, or kept from its processor: it knows nothing of that time.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence

from paceline.algorithms.core.method import RankContext
from paceline.algorithms.core.values import Rank
from paceline.backend.multihost.host_sync import lose
from paceline.backend.multihost.rank_mapping import Seats
from paceline.backend.multihost.world import World
from paceline.backend.status.status_board import Board, Doing
from paceline.backend.supervision import failure_messages
from paceline.backend.supervision.liveness import Signs, stopped

LOOK_S = 0.1
ABSENT_S = 2.0
"""who has not looked for so long was absent"""
DYING_S = 2.0
"""how long a process that was killed while stopped may take to end: until then it is alive, and no longer stopped"""


class Neighbours:
    """The ranks of this host.

    Args:
        world: all processes.
        seats: who of them is which rank.
        board: of this host.
        team: all ranks.
        timeout_s: how long a rank may be stopped.
    """

    def __init__(self, world: World, seats: Seats, board: Board, team: Sequence[RankContext], timeout_s: float) -> None:
        self._world, self._board, self._team, self._timeout_s = world, board, team, timeout_s
        ids = world.ids
        self._ranks = {one: seats.rank_of[one] for one in world.neighbours if one in seats.rank_of}
        self._pids = {ids[one]: rank for one, rank in self._ranks.items()}
        self._signs = Signs(board, self._pids, joined=True)
        self._stopped: dict[int, float] = {}
        """since when processes, by their ids, have been seen to be"""
        self._sentences: dict[Rank, tuple[str, float]] = {}
        """of ranks that have been stopped for long: why they are killed, whoever does it, and until when that holds"""
        self._looked_s = time.monotonic()

    def look(self, *, at_once: bool = False) -> None:
        """Looks at all of them, if it is time."""
        now = time.monotonic()
        if now - self._looked_s < LOOK_S and not at_once:
            return
        if now - self._looked_s > ABSENT_S:
            self._signs.forget()
            self._stopped.clear()
        self._looked_s = now
        self._look_for_dead()
        if self._signs.due(self._timeout_s):
            self._look_for_stopped(now)
            if self._world.first:
                for pid, seconds in self._signs.quiet_s().items():
                    self._board.rows["quiet_s"][self._pids[pid]] = seconds

    def _look_for_dead(self) -> None:
        """Notes which ranks have died or failed."""
        for process, rank in self._ranks.items():
            if self._board.doing(rank) is Doing.DRAINED:
                continue
            if self._board.doing(rank) is Doing.FAILED:
                lose(self._board, rank, self._board.failure(rank) or "failed")
            elif not self._world.lives(process):
                self._board.fail(rank)
                why, _ = self._sentences.get(rank, ("its process is gone", 0.0))
                lose(self._board, rank, why)

    def _look_for_stopped(self, now: float) -> None:
        """Notes which ranks are stopped; the first of the others kills those that have been for too long."""
        still = [pid for pid in self._pids if stopped(pid)]
        self._stopped = {pid: self._stopped.get(pid, now) for pid in still}
        for pid, rank in self._pids.items():
            self._board.rows["stopped"][rank] = pid in self._stopped
        acts = next((pid for pid in self._pids if pid not in self._stopped), None) == os.getpid()
        long = {pid: now - since_s for pid, since_s in self._stopped.items() if now - since_s > self._timeout_s / 2}
        kept = {rank: (words, until) for rank, (words, until) in self._sentences.items() if now < until}
        self._sentences = kept | {self._pids[pid]: (self._sentence(self._pids[pid]), now + DYING_S) for pid in long}
        for pid, seconds in long.items():
            if acts and seconds > self._timeout_s:  # it is lost once it is gone: now it may hold the board's lock
                os.kill(pid, signal.SIGKILL)

    def _sentence(self, rank: Rank) -> str:
        everyone, what = [me.rank for me in self._team], failure_messages.stopped(self._timeout_s)
        return failure_messages.sentence(self._board, self._team, rank, everyone, what)
