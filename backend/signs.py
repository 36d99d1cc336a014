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

from paceline.algorithms.values import Rank
from paceline.backend.board import Board, Doing

LOOKS = 40
"""in a time-out"""
LEAST_SHARE = 0.02
"""of a processor: who uses more is at work; threads that only wait for the network use less"""
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
AT_WORK = (Doing.STARTING, Doing.RUNNING, Doing.ENDED)
WAITING = (Doing.READY, Doing.BLOCKED, Doing.DRAINED)


@dataclass(frozen=True, slots=True)
class Sign:
    """How far a rank had come, and when."""

    moves: int
    processor_s: float
    at_s: float


class Signs:
    """The last sign of each rank."""

    def __init__(self, board: Board, children: Mapping[int, Rank]) -> None:
        self._board, self._children = board, children
        self._last: dict[int, Sign] = {}
        self._looked_s = 0.0

    def forget(self) -> None:
        """Everybody's time begins anew."""
        self._last.clear()

    def silent(self, timeout_s: float) -> list[int]:
        """The processes that should be at work, have given no sign for so long, and are waited for as long."""
        now = time.monotonic()
        if now - self._looked_s < timeout_s / LOOKS:
            return []
        self._looked_s = now
        doing = {pid: self._board.doing(rank) for pid, rank in self._children.items()}
        late = [pid for pid in doing if now - self._look(pid, doing[pid], now).at_s > timeout_s]
        if len(late) == len(doing) and (connecting := [pid for pid in late if doing[pid] is Doing.CONNECTING]):
            return [pid for pid in late if doing[pid] is Doing.STARTING] or connecting
        waited = any(doing[pid] in (*WAITING, Doing.CONNECTING) for pid in late)
        return [pid for pid in late if doing[pid] in AT_WORK] if waited else []

    def _look(self, pid: int, doing: Doing, now: float) -> Sign:
        """The process's last sign, which may be this one."""
        moves, (used_s, runs) = int(self._board.rows["moves"][self._children[pid]]), processor(pid)
        last = self._last.get(pid)
        if last is None or moves != last.moves or (doing not in WAITING and at_work(last, used_s, runs, now)):
            last = self._last[pid] = Sign(moves, used_s, now)
        return last


def at_work(last: Sign, used_s: float, runs: bool, now_s: float) -> bool:
    """Whether a process has used more of its processor since its last sign than one that waits for the network."""
    return runs or used_s - last.processor_s > LEAST_SHARE * (now_s - last.at_s) + TICK_S


def processor(pid: int) -> tuple[float, bool]:
    """Processor time that a process has used, in seconds, and whether it would use more if it were given a processor.

    >>> processor(os.getpid())[1]
    True
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has just ended
        return 0.0, False
    return (int(fields[11]) + int(fields[12])) * TICK_S, fields[0] == "R"
