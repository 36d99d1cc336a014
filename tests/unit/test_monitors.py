"""Hung and deadlocked ranks are told from those that only take their time."""

from __future__ import annotations

from paceline.algorithms.core.values import Rank
from paceline.backend.status.rank_status import RankState
from paceline.backend.status.status_board import StatusBoard
from paceline.backend.supervision.liveness import hung
from paceline.backend.supervision.monitors import DeadlockMonitor

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
