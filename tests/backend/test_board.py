"""The status board: which rank has entered which collective."""

from __future__ import annotations

import multiprocessing
import signal
import zlib
from collections.abc import Sequence

import pytest

from paceline.algorithms.core.errors import ProgramError
from paceline.algorithms.core.values import Rank
from paceline.backend.status.rank_status import BUCKETS, TEXT
from paceline.backend.status.status_board import StatusBoard

BOTH = [Rank(0), Rank(1)]


def board_of_two(what: str) -> StatusBoard:
    """Rank 0 has entered its first collective."""
    board = StatusBoard(2, BOTH)
    board.collectives.enter(Rank(0), BOTH, "everyone", 0, what, "here.py:1")
    return board


@pytest.mark.parametrize("what", ["AllReduce 'a'", "η", "η" * TEXT, "a" + "η" * TEXT], ids=len)
def test_members_that_enter_the_same_collective_may_go_on(what: str) -> None:
    """A name may have any length: the board stores only its beginning, measured in bytes."""
    board_of_two(what).collectives.enter(Rank(1), BOTH, "everyone", 0, what, "there.py:2")


def test_members_that_enter_different_ones_are_told_both() -> None:
    message = r"rank 1 at there\.py:2 enters Barrier 'b', where rank 0 at here\.py:1 entered AllReduce 'η'"
    with pytest.raises(ProgramError, match=message):
        board_of_two("AllReduce 'η'").collectives.enter(Rank(1), BOTH, "everyone", 0, "Barrier 'b'", "there.py:2")


def test_other_streams_and_positions_have_nothing_to_do_with_each_other() -> None:
    board = board_of_two("AllReduce 'a'")
    board.collectives.enter(Rank(1), BOTH, "everyone", 1, "Barrier 'b'", "there.py:2")
    board.collectives.enter(Rank(1), BOTH, "a lane", 0, "Barrier 'b'", "there.py:2")


def test_an_entry_that_is_being_written_is_not_read() -> None:
    """Two streams of one bucket: one rank overwrites its entries while the other reads them."""
    workers, node = "ranks 0,1,2,3", "ranks 0,1"
    assert zlib.crc32(workers.encode()) % BUCKETS == zlib.crc32(node.encode()) % BUCKETS
    board = StatusBoard(2, BOTH)

    def enter(rank: Rank, streams: Sequence[str]) -> None:
        for stream in [*streams] * 20_000:
            board.collectives.enter(rank, BOTH, stream, 6, f"AllReduce of {stream}", "here.py:1")

    other = multiprocessing.get_context("fork").Process(target=enter, args=(Rank(1), [workers, node]))
    other.start()
    try:
        enter(Rank(0), [node])
    finally:
        other.join()
    assert other.exitcode == 0


def test_who_looks_after_ranks_waits_for_no_lock_of_theirs() -> None:
    """A stopped rank may hold the board's lock, and a rank that waits for the lock could not end it."""
    board, (reading, writing) = StatusBoard(2, BOTH), multiprocessing.Pipe(duplex=False)

    def hold() -> None:
        with board._lock:
            writing.send("held")
            signal.pause()

    holder = multiprocessing.get_context("fork").Process(target=hold)
    holder.start()
    try:
        assert reading.recv() == "held"
        assert not board.stop_if_free("accuracy")
    finally:
        holder.kill()
        holder.join()
    assert board.grant(Rank(0), 0) and board.stop_if_free("accuracy")
    assert board.stopping and board.stop_reason == "accuracy" and not board.grant(Rank(1), 1)
