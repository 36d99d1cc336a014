"""An any-order run in which workers die, with the semantics of real runs (see `paceline.algorithms.methods.survivors`).

Rules of this file:

* What a rank has sent before its death is delivered. A receive from the dead rank fails after that, and a receive from
  any rank fails once for each dead rank.
* A collective fails at all members that wait for a dead rank.
* A message to a dead rank is lost without an error.
* A started operation that fails because of a death, and for which no program waits, has no effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paceline.algorithms.core.errors import PeerFailed
from paceline.algorithms.core.job import Job
from paceline.algorithms.core.operations import Op, Receive, Send
from paceline.algorithms.core.values import Rank
from paceline.algorithms.runtime.collective_matching import COLLECTIVES
from paceline.checking.cases.observed import Observed
from paceline.checking.lanes import Checkpoint, Task
from paceline.checking.moves import Move


class WithDeaths(Observed):
    """One run of one job in which ranks die.

    Args:
        job: the job to run.
        deaths: (rank, number of the move before which it dies) for each. A rank that has ended before does not die.
        start: as in `AnyOrder`.
    """

    def __init__(self, job: Job, deaths: Sequence[tuple[int, int]], start: Checkpoint | None = None) -> None:
        super().__init__(job, start)
        self._to_die = sorted(deaths, key=lambda death: death[1])
        self._dead: set[Rank] = set()

    @property
    def dead(self) -> frozenset[Rank]:
        """The ranks that have died."""
        return frozenset(self._dead)

    def _ready(self) -> list[Move]:
        while self._to_die and self._to_die[0][1] <= self._moves:
            self._die(Rank(self._to_die.pop(0)[0]))
        return super()._ready()

    def _die(self, rank: Rank) -> None:
        mine = [task for task in self._tasks if task.me.rank == rank]
        if not any(task.promise is None for task in mine):
            return
        self._dead.add(rank)
        self._mail.lose(rank)
        self._abandon(mine)
        for task in mine:
            task.lane.steps.close()
            self._tasks.remove(task)

    def _failed_peer(self, task: Task) -> Rank | None:
        """Returns the dead rank because of which the lane's operation fails; None if it does not fail now."""
        op = task.op
        if isinstance(op, COLLECTIVES):
            missing = [] if task.room is None else task.room.missing
            return next((one for one in missing if one in self._dead), None)
        if not isinstance(op, Receive) or self._letter(task, op) is not None:
            return None
        return self._mail.failed_peer(task.me.rank, op.source)

    def _can_go(self, task: Task) -> bool:
        return super()._can_go(task) or self._failed_peer(task) is not None

    def _perform(self, task: Task, op: Op[Any]) -> Any:
        dead = self._failed_peer(task)
        if dead is None:
            return super()._perform(task, op)
        if isinstance(op, Receive):
            self._mail.inboxes[task.me.rank].report(op.source, dead)
        task.room = None
        raise PeerFailed(f"rank {dead} died", dead)

    def _lane_failed(self, error: Exception) -> None:
        if not isinstance(error, PeerFailed):
            super()._lane_failed(error)

    def _send(self, task: Task, op: Send) -> None:
        if op.to not in self._dead:
            super()._send(task, op)
