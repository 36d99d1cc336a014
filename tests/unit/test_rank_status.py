"""A rank's row of the status board, by its typed properties."""

from __future__ import annotations

import json
from pathlib import Path

from paceline.algorithms.core.values import Rank
from paceline.backend.status.rank_status import TEXT, VOTES, RankState, StatusValues, Vote
from paceline.backend.status.status_board import RunState, StatusBoard

ALL = [Rank(0), Rank(1), Rank(2)]
UNTOUCHED = StatusValues(RankState.STARTING, "", 0, 0, 0, 0.0, False)


def filled(board: StatusBoard) -> None:
    """Rank 1 reports something in every field."""
    row = board.ranks[1]
    row.report(RankState.BLOCKED, "rank 1 (worker): waits in Barrier 'b'")
    row.note_progress()
    row.step, row.granted, row.quiet_s, row.stopped, row.dead = 7, 9, 1.5, True, True
    row.add_busy(+1)
    row.counters.gradient(0.25, 0.5)
    row.vote(3, 4, Vote.ABORT)


def test_a_row_has_what_was_written_and_its_neighbours_do_not() -> None:
    board = StatusBoard(3, ALL)
    filled(board)
    row = board.ranks[1]
    assert row.values == (
        RankState.BLOCKED,
        "rank 1 (worker): waits in Barrier 'b'",
        2,
        7,
        1,
        1.5,
        True,
        (1.0, 0.25, 0.0, 0.0, 0.0, 0.5),
    )
    assert (row.state, row.granted, row.busy, row.dead) == (RankState.BLOCKED, 9, True, True)
    assert row.vote_on(3, 4) is Vote.ABORT and row.vote_on(3, 5) is None
    for other in (board.ranks[0], board.ranks[2]):
        assert other.values == UNTOUCHED and other.vote_on(3, 4) is None and not other.dead and other.granted == 0
    assert (board.progress, board.longest_quiet_s, board.any_stopped) == (2, 1.5, True)
    assert board.totals(Rank(1), 1.0)[1:4] == (7, 1.0, 0.25)
    assert board.run_state is RunState.RUNNING and not board.stopping and board.loss_text == ""


def test_the_samples_of_a_run_are_those_of_the_weights_owner() -> None:
    """Every rank counts the samples in its own copy of the weights; these are the same samples."""
    board = StatusBoard(3, ALL)
    for rank, samples in zip(ALL, (64, 32, 32), strict=True):
        board.ranks[rank].counters.applied((), samples)
    assert board.totals(Rank(0), 1.0).samples == 64


def test_two_processes_of_a_host_see_one_board(tmp_path: Path) -> None:
    """Both map the file; the second one does not reset it."""
    one = StatusBoard(3, ALL, folder=tmp_path)
    filled(one)
    other = StatusBoard(3, ALL, folder=tmp_path)
    assert other.ranks[1].values == one.ranks[1].values
    other.lose_because(Rank(2), "its process is gone")
    assert (one.lost(), one.loss_text, one.ranks[2].dead) == (2, "its process is gone", True)
    other.lose_because(Rank(0), "a later reason")
    assert (one.lost(), one.loss_text) == (2, "its process is gone")


def test_values_travel_between_hosts_as_json() -> None:
    here, there = StatusBoard(3, ALL), StatusBoard(3, ALL)
    filled(here)
    there.ranks[1].update(StatusValues(*json.loads(json.dumps(here.ranks[1].values))))
    assert there.ranks[1].values == here.ranks[1].values


def test_a_long_text_is_cut_and_a_shorter_one_replaces_all_of_it() -> None:
    row = StatusBoard(3, ALL).ranks[0]
    row.report(RankState.BLOCKED, "long " * TEXT)
    assert row.text == ("long " * TEXT)[:TEXT]
    row.report(RankState.BLOCKED, "short")
    assert row.text == "short"
    row.fail()
    assert row.failure == ""


def test_the_last_votes_are_kept() -> None:
    row = StatusBoard(3, ALL).ranks[0]
    for position in range(VOTES + 1):
        row.vote(1, position, Vote.COMMIT)
    assert row.vote_on(1, 0) is None
    assert all(row.vote_on(1, position) is Vote.COMMIT for position in range(1, VOTES + 1))
