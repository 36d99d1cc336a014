"""Messages about failed ranks: what the rank did, how far it was, and what the other ranks waited for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from paceline.algorithms.core.method import RankContext
from paceline.algorithms.core.values import Rank
from paceline.backend.status.rank_status import TEXT, RankState, RankStatus
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

COLLECTIVE = re.compile(r"(?:in|for|:|,) (\w+ (?:'[^']*'|\"[^\"]*\")(?: (?!over ranks)\S+)*) over ranks ([\d,]+)")
"""a collective that a blocked rank waits for, and its members"""
SENDER = re.compile(r"waits to receive from rank (\d+)")
PLACE = re.compile(r"rank \d+ \(\w+\) (at .+, step \d+): ")
NAMED = 8
"""how many missing ranks are named; the rest are counted"""


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


def missing(board: StatusBoard, row: RankStatus) -> str:
    """Describes which ranks a blocked rank waits for in vain, and what these do instead.

    These are the members that have not entered its collective, or a sender whose program has ended.

    Args:
        board: the ranks' states.
        row: the row of the blocked rank.

    Returns:
        The continuation of the row's text; empty if nobody is known to be missing.
    """
    absent: dict[Rank, None] = {}
    for words, group in COLLECTIVE.findall(row.text):
        members = [Rank(int(rank)) for rank in group.split(",") if rank]
        if len(row.text.encode()) == TEXT:
            members.pop()  # the text was cut, perhaps within this number
        entered = f"{words} over ranks {group}"
        late = board.collectives.absent(row.rank, words, members)
        absent |= dict.fromkeys(rank for rank in late if entered not in board.ranks[rank].text or _over(board, rank))
    if sender := SENDER.search(row.text):
        absent |= dict.fromkeys(rank for rank in [Rank(int(sender[1]))] if _over(board, rank))
    if not absent:
        return ""
    said = [f"rank {rank}, {_instead(board, rank)}" for rank in list(absent)[:NAMED]]
    if len(absent) > NAMED:
        said.append(f"and {len(absent) - NAMED} more")
    return f"; missing: {'; '.join(said)}"


def _over(board: StatusBoard, rank: Rank) -> bool:
    return board.ranks[rank].dead or board.ranks[rank].state in (RankState.ENDED, RankState.DRAINED)


def _instead(board: StatusBoard, rank: Rank) -> str:
    """Describes what a missing rank does, as a relative clause."""
    row = board.ranks[rank]
    if row.state in (RankState.ENDED, RankState.DRAINED):
        return f"whose program has ended, at step {row.step}"
    if row.dead:
        return "which is dead"
    place = PLACE.match(row.text) if row.state is RankState.BLOCKED else None
    return f"which waits elsewhere, {place[1]}" if place else f"which is {WORDS.get(row.state, 'waiting elsewhere')}"


def _meanwhile(board: StatusBoard, team: Sequence[RankContext], others: Sequence[Rank]) -> list[str]:
    """Describes what these ranks wait for; before the start, their states."""
    if not board.start_s:
        return [f"rank {other} ({team[other].role}) is {WORDS[board.ranks[other].state]}" for other in others]
    return [board.ranks[other].text for other in others if board.ranks[other].state is RankState.BLOCKED]
