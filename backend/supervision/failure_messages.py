"""What is said of a rank that keeps others waiting: when, what it was at, and who waited for what meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from paceline.algorithms.core.method import RankContext
from paceline.algorithms.core.values import Rank
from paceline.backend.status.status_board import Board, Doing

WORDS = {
    Doing.STARTING: "starting",
    Doing.CONNECTING: "connecting",
    Doing.READY: "ready for the start",
    Doing.RUNNING: "running",
    Doing.ENDED: "at its end",
    Doing.DRAINED: "at its end",
    Doing.FAILED: "failing",
}


def stopped(timeout_s: float, by: str = "") -> str:
    """What a rank did that was stopped for too long, by a signal where that is known."""
    return f"was stopped{by and f' ({by})'} for {timeout_s:g} s"


def kept_waiting(timeout_s: float) -> str:
    """What a rank did that showed no sign of life."""
    return f"kept others waiting for {timeout_s:g} s without a sign of life"


def when(board: Board, rank: Rank) -> str:
    """How far a rank is."""
    return f"at step {int(board.rows['step'][rank])}" if board.start_s else "before the start"


def sentence(board: Board, team: Sequence[RankContext], rank: Rank, others: Iterable[Rank], what: str) -> str:
    """What a rank did, what it was at, and what others waited for.

    Args:
        board: what ranks say.
        team: all of them.
        rank: the one that is told of.
        others: those that may have waited.
        what: it did.
    """
    doing = board.doing(rank)
    words = board.waits(rank).partition(": ")[2] if doing is Doing.BLOCKED else WORDS[doing]
    if doing is Doing.RUNNING and board.rows["busy"][rank] > 0:
        words = "computing or loading"
    told = "".join(f"\n  {line}" for line in _meanwhile(board, team, [one for one in others if one != rank]))
    return f"{what}, {words}" + (f"; meanwhile{told}" if told else "")


def _meanwhile(board: Board, team: Sequence[RankContext], others: Sequence[Rank]) -> list[str]:
    """What these wait for; before the start, how far they are."""
    if not board.start_s:
        return [f"rank {other} ({team[other].role}) is {WORDS[board.doing(other)]}" for other in others]
    return [board.waits(other) for other in others if board.doing(other) is Doing.BLOCKED]
