"""Signs of life: who of the ranks has moved or used its processor, and since when not.

Rules of this file:

* Waiting for others is no sign of life and none is asked of it: only those are silent who should be at work. How a wait
  is made does not matter: one that looks again and again uses its processor, and is still one.
* Nobody is silent for whom nobody waits. Whoever has come as far as it can without the others waits for all of them.
* While ranks connect each may be the one that the others wait for: so then all are silent, or none.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from paceline.algorithms.core.values import Rank
from paceline.backend.status.status_board import Board, Doing

LOOKS = 40
"""in a time-out"""
LEAST_SHARE = 0.02
"""of a processor: who uses more is at work; threads that only wait for the network use less"""
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
RUNS = ("R", "D")
"""has a processor or waits for one; waits for a disk"""
AT_WORK = (Doing.STARTING, Doing.RUNNING, Doing.ENDED)
WAITING = (Doing.READY, Doing.BLOCKED, Doing.DRAINED)


@dataclass(frozen=True, slots=True)
class Sign:
    """How far a rank had come, and when."""

    moves: int
    processor_s: float
    at_s: float


class Signs:
    """The last sign of each rank of a host.

    Args:
        board: what ranks say.
        processes: theirs, by their ids.
        joined: whether each performs its program beside its main thread, which looks after the run and does not count.
    """

    def __init__(self, board: Board, processes: Mapping[int, Rank], *, joined: bool = False) -> None:
        self._board, self._processes, self._joined = board, processes, joined
        self._last: dict[int, Sign] = {}
        self._looked_s = 0.0

    def forget(self) -> None:
        """Everybody's time begins anew."""
        self._last.clear()

    def due(self, timeout_s: float) -> bool:
        """Whether it is time to look again, as it is now and then in a time-out."""
        now = time.monotonic()
        if now - self._looked_s < timeout_s / LOOKS:
            return False
        self._looked_s = now
        return True

    def quiet_s(self) -> dict[int, float]:
        """How long each process has given no sign, by this look and those before."""
        now = time.monotonic()
        return {pid: now - self._look(pid, rank, now).at_s for pid, rank in self._processes.items()}

    def _look(self, pid: int, rank: Rank, now: float) -> Sign:
        """The process's last sign, which may be this one."""
        moves, (used_s, runs) = int(self._board.rows["moves"][rank]), processor(pid, joined=self._joined)
        last, waits = self._last.get(pid), self._board.doing(rank) in WAITING
        if last is None or moves != last.moves or (not waits and at_work(last, used_s, runs, now)):
            last = self._last[pid] = Sign(moves, used_s, now)
        return last


def silent(doing: Mapping[int, Doing], quiet_s: Mapping[int, float], timeout_s: float) -> list[int]:
    """Who should be at work, has given no sign for so long, and is waited for as long.

    >>> silent({1: Doing.RUNNING, 2: Doing.BLOCKED}, {1: 61.0, 2: 70.0}, 60.0)
    [1]
    """
    late = [one for one in doing if quiet_s[one] > timeout_s]
    if len(late) == len(doing) and (connecting := [one for one in late if doing[one] is Doing.CONNECTING]):
        return [one for one in late if doing[one] is Doing.STARTING] or connecting
    waited = any(doing[one] in (*WAITING, Doing.CONNECTING) for one in late)
    return [one for one in late if doing[one] in AT_WORK] if waited else []


def at_work(last: Sign, used_s: float, runs: bool, now_s: float) -> bool:
    """Whether a process has used more of its processor since its last sign than one that waits for the network."""
    return runs or used_s - last.processor_s > LEAST_SHARE * (now_s - last.at_s) + TICK_S


def processor(pid: int, *, joined: bool = False) -> tuple[float, bool]:
    """Processor time that a process has used, in seconds, and whether it would use more, or the disk, if it were let.

    Args:
        pid: the process.
        joined: leaves its main thread out.

    >>> processor(os.getpid())[1]
    True
    """
    process = Path(f"/proc/{pid}")
    try:
        stats = [thread / "stat" for thread in (process / "task").iterdir() if thread.name != str(pid)]
        found = [_used(stat) for stat in (stats if joined else [process / "stat"])]
    except OSError:  # it, or a thread of it, has just ended
        return 0.0, False
    return sum(used_s for used_s, _ in found), any(state in RUNS for _, state in found)


def stopped(pid: int) -> bool:
    """Whether a process is, by a signal or a debugger."""
    try:
        return _used(Path(f"/proc/{pid}/stat"))[1] in ("T", "t")
    except OSError:
        return False


def _used(stat: Path) -> tuple[float, str]:
    """Processor time in seconds, and the state, by its letter."""
    fields = stat.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S, fields[0]
