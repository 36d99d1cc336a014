"""Hung and deadlocked ranks are told from those that only take their time."""

from __future__ import annotations

from paceline.algorithms.core.values import Rank
from paceline.backend.status.rank_status import RankState
from paceline.backend.status.status_board import StatusBoard
from paceline.backend.supervision.monitors import DeadlockMonitor, hung

TIMEOUT_S = 60.0


def test_a_silent_rank_hangs_only_if_another_one_has_waited_for_it_for_as_long() -> None:
    late, recent = TIMEOUT_S + 1, 1.0
    assert hung({1: RankState.RUNNING, 2: RankState.BLOCKED}, {1: late, 2: late}, TIMEOUT_S) == [1]
    assert hung({1: RankState.RUNNING, 2: RankState.BLOCKED}, {1: late, 2: recent}, TIMEOUT_S) == []
    assert hung({1: RankState.RUNNING, 2: RankState.RUNNING}, {1: late, 2: recent}, TIMEOUT_S) == []
    assert hung({1: RankState.RUNNING, 2: RankState.RUNNING}, {1: late, 2: late}, TIMEOUT_S) == []


def test_ranks_are_not_deadlocked_while_one_of_their_lanes_computes() -> None:
    """The main lanes of both ranks wait; a second lane of rank 1 is busy until it says otherwise."""
    board = StatusBoard(2, [Rank(0), Rank(1)])
    for row in board.ranks:
        row.report(RankState.BLOCKED, "waits to receive")
    monitor = DeadlockMonitor(board, timeout_s=-1.0)  # over as soon as it has begun
    board.ranks[1].add_busy(+1)
    assert [monitor.check([0, 1]) for _ in range(3)] == [None, None, None]
    board.ranks[1].add_busy(-1)
    assert "waits to receive" in str(monitor.check([0, 1]))


WHAT = "AllReduce 'average 5' mean of 8 bytes"
ENDED = "missing: rank 1, whose program has ended, at step 5"


def deadlocked(*doing: str | RankState, entered: int) -> list[str]:
    """Returns the lines about blocked ranks, of which the first ones have entered the collective WHAT of all ranks."""
    board = StatusBoard(len(doing), [Rank(rank) for rank in range(len(doing))])
    members = [row.rank for row in board.ranks]
    for row, does in zip(board.ranks, doing, strict=True):
        row.step = 5
        text = f"rank {row.rank} (worker) at mine.py:{row.rank} in worker, step 5: {does}"
        if isinstance(does, str):
            row.report(RankState.BLOCKED, text)
        else:
            row.report(does)
        if row.rank < entered:
            board.collectives.enter(row.rank, members, "all", 4, "AllReduce 'average 4' mean of 8 bytes", "mine.py:3")
            board.collectives.enter(row.rank, members, "all", 5, WHAT, "mine.py:3")
    monitor = DeadlockMonitor(board, timeout_s=-1.0)  # over as soon as it has begun
    assert monitor.check(members) is None
    error = str(monitor.check(members))
    return [line.partition("step 5: ")[2] for line in error.splitlines()[1:]]


def test_a_deadlock_names_the_members_that_are_missing_and_what_they_do_instead() -> None:
    """Rank 1 has ended; rank 2 waits for a message; rank 3 has started the collective and waits for a message too."""
    waits = f"waits in {WHAT} over ranks 0,1"
    assert deadlocked(waits, RankState.ENDED, entered=1) == [f"{waits}; {ENDED}"]
    waits, other = f"waits for {WHAT} over ranks 0,2,1, started at mine.py:3", "waits to receive from rank 0"
    assert deadlocked(waits, other, other, entered=2) == [
        f"{waits}; missing: rank 2, which waits elsewhere, at mine.py:2 in worker, step 5", other, other
    ]  # fmt: skip


def test_a_deadlock_names_no_member_that_has_come_and_no_rank_outside_the_group() -> None:
    waits = f"waits in {WHAT} over ranks 0,1"
    assert deadlocked(waits, waits, "waits to receive from anyone", entered=2)[:2] == [waits, waits]


def test_a_deadlock_names_a_sender_whose_program_has_ended() -> None:
    waits = "waits to receive from rank 1 with tag 'answer'"
    assert deadlocked(waits, RankState.DRAINED, entered=0) == [f"{waits}; {ENDED}"]


def test_many_missing_members_are_counted() -> None:
    ranks = ",".join(map(str, range(12)))
    (line,) = deadlocked(f"waits in {WHAT} over ranks {ranks}", *[RankState.ENDED] * 11, entered=1)
    assert line.count("rank ") == 8 and line.endswith("; and 3 more")
