"""Mapped files are allocated first: a full file system is reported in one sentence, and no write ends a process."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from paceline.algorithms.core.errors import InputError, RunFailed
from paceline.algorithms.core.operations import Cell
from paceline.algorithms.core.values import Group, Rank
from paceline.backend.posix.reserve import explained, no_room, reserve, shared_file
from paceline.backend.status.rank_status import RankState
from paceline.backend.status.recorder import FileRecorder, Tail
from paceline.backend.status.status_board import StatusBoard
from paceline.backend.transports import mailbox
from paceline.backend.transports.cells import SharedCells
from paceline.backend.transports.shared_segment import Segment
from tests.filesystems import fill_up

PAIR = Group((Rank(0), Rank(1)))


def claimed(folder: Path) -> Segment:
    segment = Segment(PAIR, folder=folder)
    assert segment.claim(PAIR, "") == 0
    return segment


def written(folder: Path) -> SharedCells:
    cells = SharedCells(folder)
    cells.access(Cell("weights"), "swap", np.arange(100.0))
    return cells


MAPPINGS: dict[str, Callable[[Path], object]] = {
    "board": lambda folder: StatusBoard(2, [Rank(0)], folder=folder),
    "node0.segment": claimed,
    "mail": lambda folder: mailbox.in_file(folder / "mail", 2),
    "weights.cell": written,
}


@pytest.mark.parametrize("name", MAPPINGS)
def test_every_mapping_has_all_its_room(name: str, tmp_path: Path) -> None:
    """The claimed part of a segment is allocated; a file that was only truncated has no blocks."""
    MAPPINGS[name](tmp_path)
    status = (tmp_path / name).stat()
    needed = claimed(tmp_path).begins(1) if name == "node0.segment" else status.st_size
    assert status.st_blocks * 512 >= needed > 0


@pytest.mark.parametrize("name", MAPPINGS)
def test_a_full_file_system_is_told_in_one_sentence(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill_up(monkeypatch)
    with pytest.raises(RunFailed) as caught:
        MAPPINGS[name](tmp_path)
    assert " needs " in str(caught.value) and " free in /" in str(caught.value)
    assert "make room there, or enlarge it" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_another_error_is_not_taken_for_a_full_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "posix_fallocate", broken)
    with shared_file(tmp_path / "x") as file, pytest.raises(OSError, match="Input/output error"):
        reserve(file.fileno(), tmp_path / "x", 0, 10, "something")


def test_what_is_there_keeps_its_content(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"whole")
    with shared_file(tmp_path / "x") as file:
        reserve(file.fileno(), tmp_path / "x", 0, 3, "something")
        assert file.read() == b"whole"
        reserve(file.fileno(), tmp_path / "x", 0, 9, "something")
    assert (tmp_path / "x").read_bytes() == b"whole\0\0\0\0"


def test_errors_of_a_full_memory_are_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if a library reports it in its own words; other errors stay unchanged."""
    errors = [OSError(errno.ENOSPC, "No space left on device"), RuntimeError("write: No space left on device")]
    assert [explained(error, tmp_path) for error in errors] == errors, "there is room here"
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 4096}))
    for error in errors:
        told = explained(error, tmp_path)
        assert isinstance(told, RunFailed) and "found 4 KiB free in " in str(told)
    for other in (ValueError("x"), InputError("y"), no_room(tmp_path, "z")):
        assert explained(other, tmp_path) is other


@pytest.fixture
def small_files() -> Iterator[int]:
    """Limits the length of this process's files during the block: a write is truncated, and the next one fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    yield 20_000
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_record_holds_whole_pieces_when_the_disk_is_full(small_files: int, tmp_path: Path) -> None:
    """A truncated record is removed, so the following ones can be read."""
    recorder = FileRecorder(Rank(0), tmp_path / "rank0.stream")
    recorder.add("now", 1.0)
    recorder.flush()
    recorder.add("snapshot", np.zeros(small_files))
    with pytest.raises(OSError, match="File too large"):
        recorder.flush()
    recorder.add("now", 2.0)
    recorder.close()
    assert list(Tail(tmp_path / "rank0.stream").read()) == [("now", 1.0), ("now", 2.0)]


def test_the_board_says_why_a_rank_failed_that_cannot_record_it() -> None:
    board = StatusBoard(2, [Rank(0)])
    board.ranks[Rank(0)].report(RankState.BLOCKED, "rank 0 (worker) waits for a message")
    assert board.ranks[0].failure == ""
    board.ranks[Rank(0)].fail()
    assert (board.ranks[0].state, board.ranks[0].failure) == (RankState.FAILED, "")
    board.ranks[Rank(0)].fail("no room")
    assert board.ranks[0].failure == "no room"


def test_ranks_that_all_fail_at_once_have_not_come_to_their_end() -> None:
    """As if none of them had room: a joined run once took that for its end, and reported 0 updates."""
    board = StatusBoard(2, [Rank(0)])
    board.ranks[Rank(0)].fail()
    board.ranks[Rank(1)].fail()
    assert not board.all_drained
    board.lose(Rank(0))
    board.ranks[Rank(1)].report(RankState.DRAINED)
    assert board.all_drained
