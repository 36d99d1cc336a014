"""Detects hung ranks: those that neither make progress nor use their processor while other ranks wait for them.

Rules of this file:

* A rank that waits for others need not show activity; only a rank that should be at work can hang. It does not matter
  how a wait is implemented: a rank that polls uses its processor, and waits all the same.
* A rank hangs only if another rank waits for it. A rank that has come as far as it can without the others waits for all
  of them.
* While ranks connect, each may be the one that the others wait for. So either all hang then, or none does.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from paceline.algorithms.core.values import Rank
from paceline.backend.status.rank_status import RankState
from paceline.backend.status.status_board import StatusBoard

CHECKS = 40
"""in a time-out"""
LEAST_SHARE = 0.02
"""of a processor: a process that uses more is at work; threads that only wait for the network use less"""
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
RUNS = ("R", "D")
"""states of a thread in /proc: it has a processor or waits for one; it waits for a disk"""
AT_WORK = (RankState.STARTING, RankState.RUNNING, RankState.ENDED)
WAITING = (RankState.READY, RankState.BLOCKED, RankState.DRAINED)


@dataclass(frozen=True, slots=True)
class Activity:
    """A rank's progress count and processor time when it was last active."""

    progress: int
    processor_s: float
    at_s: float


class Liveness:
    """Measures since when each rank of a host has been inactive.

    Args:
        board: the ranks' states.
        processes: the ranks by their process ids.
        joined: whether each performs its program beside its main thread, which supervises the run and does not count.
    """

    def __init__(self, board: StatusBoard, processes: Mapping[int, Rank], *, joined: bool = False) -> None:
        self._board, self._processes, self._joined = board, processes, joined
        self._last: dict[int, Activity] = {}
        self._checked_s = 0.0

    def restart(self) -> None:
        """Counts every rank as active now."""
        self._last.clear()

    def due(self, timeout_s: float) -> bool:
        """Whether it is time for the next check, of which there are `CHECKS` in a time-out."""
        now = time.monotonic()
        if now - self._checked_s < timeout_s / CHECKS:
            return False
        self._checked_s = now
        return True

    def quiet_s(self) -> dict[int, float]:
        """Checks all processes; answers for how many seconds each has been inactive, by its id."""
        now = time.monotonic()
        return {pid: now - self._last_activity(pid, rank, now).at_s for pid, rank in self._processes.items()}

    def _last_activity(self, pid: int, rank: Rank, now: float) -> Activity:
        """When the process was last active, which may be now."""
        row, (used_s, runs) = self._board.ranks[rank], processor(pid, joined=self._joined)
        progress, waits, last = row.progress, row.state in WAITING, self._last.get(pid)
        if last is None or progress != last.progress or (not waits and at_work(last, used_s, runs, now)):
            last = self._last[pid] = Activity(progress, used_s, now)
        return last


def hung(states: Mapping[int, RankState], quiet_s: Mapping[int, float], timeout_s: float) -> list[int]:
    """The ranks that hang: they should be at work, have been inactive for the time-out, and are waited for as long.

    Args:
        states: of the ranks, by a number of the caller's choice.
        quiet_s: seconds for which each has been inactive.
        timeout_s: how long that may last.

    >>> hung({1: RankState.RUNNING, 2: RankState.BLOCKED}, {1: 61.0, 2: 70.0}, 60.0)
    [1]
    """
    late = [one for one in states if quiet_s[one] > timeout_s]
    if len(late) == len(states) and (connecting := [one for one in late if states[one] is RankState.CONNECTING]):
        return [one for one in late if states[one] is RankState.STARTING] or connecting
    waited = any(states[one] in (*WAITING, RankState.CONNECTING) for one in late)
    return [one for one in late if states[one] in AT_WORK] if waited else []


def at_work(last: Activity, used_s: float, runs: bool, now_s: float) -> bool:
    """Whether a process has used more of its processor since it was last active than one that waits for the network."""
    return runs or used_s - last.processor_s > LEAST_SHARE * (now_s - last.at_s) + TICK_S


def processor(pid: int, *, joined: bool = False) -> tuple[float, bool]:
    """Reads a process's use of processors.

    Args:
        pid: the process.
        joined: leaves its main thread out.

    Returns:
        Processor time in seconds, and whether a thread runs, could run, or waits for a disk.

    >>> processor(os.getpid())[1]
    True
    """
    process = Path(f"/proc/{pid}")
    try:
        stats = [thread / "stat" for thread in (process / "task").iterdir() if thread.name != str(pid)]
        found = [_used(stat) for stat in (stats if joined else [process / "stat"])]
    except OSError:  # the process, or a thread of it, has just ended
        return 0.0, False
    return sum(used_s for used_s, _ in found), any(state in RUNS for _, state in found)


def stopped(pid: int) -> bool:
    """Whether a signal or a debugger has stopped a process."""
    try:
        return _used(Path(f"/proc/{pid}/stat"))[1] in ("T", "t")
    except OSError:
        return False


def _used(stat: Path) -> tuple[float, str]:
    """Processor time in seconds, and the letter of the state."""
    fields = stat.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S, fields[0]
