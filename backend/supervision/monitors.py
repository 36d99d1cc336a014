"""The monitors of a real run: they detect hung ranks and deadlocks, and end the run when it has reached its goal.

Rules of this file:

* A rank that waits for others need not show activity; only a rank that should be working can hang. The implementation
  of a wait does not matter: a rank that polls uses its processor and is still waiting.
* A rank hangs only if another rank waits for it. A blocked rank counts as waiting for all others.
* While ranks connect, each may be the one that the others wait for. So either all hang then, or none does.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
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
from paceline.records.learned import WholeSnapshots
from paceline.records.targets import Goal
from paceline.records.trace import Snapshot

CHECKS = 40
"""checks per timeout"""
LEAST_SHARE = 0.02
"""a process that uses a larger share of a processor is working; threads that only wait for the network use less"""
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
RUNS = ("R", "D")
"""states of a thread in /proc: it has a processor or waits for one; it waits for a disk"""
AT_WORK = (RankState.STARTING, RankState.RUNNING, RankState.ENDED)
WAITING = (RankState.READY, RankState.BLOCKED, RankState.DRAINED)


@dataclass(frozen=True, slots=True)
class LastActivity:
    """A rank's progress count and processor time when it was last active."""

    progress: int
    processor_s: float
    at_s: float


class Liveness:
    """Measures how long each rank of a host has been inactive.

    Args:
        board: the ranks' states.
        processes: the ranks by their process ids.
        joined: whether each program runs beside the main thread, which supervises the run and does not count.
    """

    def __init__(self, board: StatusBoard, processes: Mapping[int, Rank], *, joined: bool = False) -> None:
        self._board, self._processes, self._joined = board, processes, joined
        self._last: dict[int, LastActivity] = {}
        self._checked_s = 0.0

    def restart(self) -> None:
        """Counts every rank as active now."""
        self._last.clear()

    def due(self, timeout_s: float) -> bool:
        """Whether the next check is due: there are `CHECKS` in a timeout."""
        now = time.monotonic()
        if now - self._checked_s < timeout_s / CHECKS:
            return False
        self._checked_s = now
        return True

    def quiet_s(self) -> dict[int, float]:
        """Checks all processes; returns the seconds for which each has been inactive, by process id."""
        now = time.monotonic()
        return {pid: now - self._last_activity(pid, rank, now).at_s for pid, rank in self._processes.items()}

    def _last_activity(self, pid: int, rank: Rank, now: float) -> LastActivity:
        """Returns the activity at the time when the process was last active, which may be now."""
        row, (used_s, runs) = self._board.ranks[rank], processor(pid, joined=self._joined)
        progress, waits, last = row.progress, row.state in WAITING, self._last.get(pid)
        if last is None or progress != last.progress or (not waits and at_work(last, used_s, runs, now)):
            last = self._last[pid] = LastActivity(progress, used_s, now)
        return last


def hung(states: Mapping[int, RankState], quiet_s: Mapping[int, float], timeout_s: float) -> list[int]:
    """Returns the ranks that hang: they should work, have been inactive for the timeout, and others wait as long.

    Args:
        states: the states of the ranks, by a number of the caller's choice.
        quiet_s: seconds for which each rank has been inactive.
        timeout_s: the timeout in seconds.

    >>> hung({1: RankState.RUNNING, 2: RankState.BLOCKED}, {1: 61.0, 2: 70.0}, 60.0)
    [1]
    """
    late = [rank for rank in states if quiet_s[rank] > timeout_s]
    if len(late) == len(states) and (connecting := [rank for rank in late if states[rank] is RankState.CONNECTING]):
        return [rank for rank in late if states[rank] is RankState.STARTING] or connecting
    waited = any(states[rank] in (*WAITING, RankState.CONNECTING) for rank in late)
    return [rank for rank in late if states[rank] in AT_WORK] if waited else []


def at_work(last: LastActivity, used_s: float, runs: bool, now_s: float) -> bool:
    """Whether a process has used more processor time since it was last active than one that waits for the network."""
    return runs or used_s - last.processor_s > LEAST_SHARE * (now_s - last.at_s) + TICK_S


def processor(pid: int, *, joined: bool = False) -> tuple[float, bool]:
    """Reads the processor use of a process.

    Args:
        pid: the process.
        joined: leaves out its main thread.

    Returns:
        Processor time in seconds, and whether a thread runs, could run, or waits for a disk.

    >>> processor(os.getpid())[1]
    True
    """
    process = Path(f"/proc/{pid}")
    try:
        stats = [thread / "stat" for thread in (process / "task").iterdir() if thread.name != str(pid)]
        used = [_used(stat) for stat in (stats if joined else [process / "stat"])]
    except OSError:  # the process, or one of its threads, has just ended
        return 0.0, False
    return sum(used_s for used_s, _ in used), any(state in RUNS for _, state in used)


def stopped(pid: int) -> bool:
    """Whether a signal or a debugger has stopped a process."""
    try:
        return _used(Path(f"/proc/{pid}/stat"))[1] in ("T", "t")
    except OSError:
        return False


def _used(stat: Path) -> tuple[float, str]:
    """Returns processor time in seconds and the letter of the state."""
    fields = stat.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S, fields[0]


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
        self._joined = WholeSnapshots(job)
        self.follow(board.weights_owner)

    def follow(self, owner: Rank) -> None:
        """Reads the snapshots of this rank from now on, or those of all servers if each has a shard of the weights."""
        owners = self._job.owners if self._job.team[0].shards else [owner]
        self._tails = {rank: Tail(stream_of(self._folder, rank)) for rank in owners}

    def check(self) -> None:
        """Evaluates new snapshots and stops the run if one of them reaches the goal."""
        if not self._job.budget.scored or self._board.stopping:
            return
        snapshots = self._snapshots()
        while self._reason is None and (snapshot := next(snapshots, None)) is not None:
            self._reason = self._goal.reached(self._job.learner.evaluate(snapshot.vector))
            self._board.scored = Scored(self._goal.loss, self._goal.accuracy)
        if self._reason is not None:
            self._board.stop_if_free(self._reason)  # if the lock is taken, the next check tries again

    def _snapshots(self) -> Iterator[Snapshot]:
        """Yields new snapshots of the whole weights."""
        for rank, tail in self._tails.items():
            for kind, value in tail.read():
                if kind == "snapshot" and (shot := self._joined.add(rank, value)) is not None:
                    yield shot
