"""Folders of runs in shared memory: unused ones are removed when the next one is made, and nothing else is."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from pathlib import Path

import pytest

from paceline.backend.posix import run_folders
from paceline.backend.posix.host_lock import takes
from paceline.backend.posix.polling import wait_until


@pytest.fixture(autouse=True)
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A separate folder."""
    monkeypatch.setattr(run_folders, "SHARED", tmp_path)
    return tmp_path


def aged(folder: Path) -> None:
    """Makes it look as if it had been made a while ago."""
    before = time.time() - 2 * run_folders.YOUNG_S
    os.utime(folder, (before, before))


def stays_while_it_lives(folder: Path, child: int) -> None:
    """An old folder exists as long as a process does, and is removed after it."""
    aged(folder)
    try:
        run_folders.sweep()
        assert folder.is_dir()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    run_folders.sweep()
    assert not folder.exists()


def test_a_folder_is_in_use_while_its_maker_lives() -> None:
    folder, held = run_folders.new_folder()
    aged(folder)
    run_folders.sweep()
    assert folder.is_dir()
    os.close(held)
    run_folders.sweep()
    assert not folder.exists()


def test_a_folder_is_in_use_while_a_forked_child_of_its_maker_lives() -> None:
    folder, held = run_folders.new_folder()
    if (child := os.fork()) == 0:
        signal.pause()
    os.close(held)
    stays_while_it_lives(folder, child)


def test_a_folder_is_in_use_while_a_process_holds_a_file_in_it() -> None:
    folder, held = run_folders.new_folder()
    os.close(held)
    if (child := os.fork()) == 0:  # POSIX locks are between processes
        with (folder / "process1.alive").open("ab") as file:
            takes(file)
            (folder / "ready").touch()
            signal.pause()
    assert wait_until((folder / "ready").exists, within_s=60.0)
    stays_while_it_lives(folder, child)


def test_a_new_folder_that_is_not_locked_yet_stays(shared: Path) -> None:
    young = shared / f"{run_folders.PREFIX}young"
    young.mkdir()
    run_folders.sweep()
    assert young.is_dir()


def test_what_is_not_a_runs_folder_stays(shared: Path) -> None:
    (shared / f"{run_folders.PREFIX}file").write_text("")
    (shared / "paceline-reading").mkdir()
    for path in shared.iterdir():
        aged(path)
    run_folders.sweep()
    assert sorted(path.name for path in shared.iterdir()) == ["paceline-reading", "paceline-run-file"]


def test_making_a_folder_removes_what_was_left_behind(shared: Path) -> None:
    (left := shared / f"{run_folders.PREFIX}left").mkdir()
    (left / "rank0").write_text("a record")
    aged(left)
    folder, held = run_folders.new_folder()
    assert list(shared.iterdir()) == [folder]
    with pytest.raises(BlockingIOError):
        fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(held)
