"""Messages about failed ranks: what the rank did, how far it was, and what the other ranks waited for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from paceline.algorithms.core.method import RankContext
from paceline.algorithms.core.values import Rank
from paceline.backend.status.rank_status import RankState
from paceline.backend.status.status_board import StatusBoard

WORDS = {
    RankState.STARTING: "starting",
    RankState.CONNECTING: "connecting",
    RankState.READY: "ready for the start",
    RankState.RUNNING: "running",
    RankState.ENDED: "at its end",
    RankState.DRAINED: "at its end",
    RankState.FAILED: "failing",
}


def stopped(timeout_s: float, signal: str = "") -> str:
    """Describes that a process was stopped for too long, and by which signal if that is known."""
    return f"was stopped{signal and f' ({signal})'} for {timeout_s:g} s"


def hung(timeout_s: float) -> str:
    """Describes that a process made no progress for too long."""
    return f"made no progress for {timeout_s:g} s"


def when(board: StatusBoard, rank: Rank) -> str:
    """Describes how far a rank is."""
    return f"at step {board.ranks[rank].step}" if board.start_s else "before the start"


def describe(board: StatusBoard, team: Sequence[RankContext], rank: Rank, others: Iterable[Rank], what: str) -> str:
    """Describes a failure: what the rank did, its state, and what the other ranks waited for.

    Args:
        board: the ranks' states.
        team: all ranks.
        rank: the failed one.
        others: the ranks that may have waited.
        what: what the rank did, beginning with a verb: "made no progress for 60 s".

    Returns:
        The message, without the rank's name, with one line for each rank that waited.
    """
    status = board.ranks[rank]
    state = status.state
    words = status.text.partition(": ")[2] if state is RankState.BLOCKED else WORDS[state]
    if state is RankState.RUNNING and status.busy:
        words = "computing or loading"
    waits = "".join(f"\n  {line}" for line in _meanwhile(board, team, [other for other in others if other != rank]))
    return f"{what}, {words}" + (f"; meanwhile{waits}" if waits else "")


def _meanwhile(board: StatusBoard, team: Sequence[RankContext], others: Sequence[Rank]) -> list[str]:
    """Describes what these ranks wait for; before the start, their states."""
    if not board.start_s:
        return [f"rank {other} ({team[other].role}) is {WORDS[board.ranks[other].state]}" for other in others]
    return [board.ranks[other].text for other in others if board.ranks[other].state is RankState.BLOCKED]
