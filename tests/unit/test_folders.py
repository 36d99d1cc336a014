"""Folders of runs in shared memory: unused ones are removed when the next one is made, and nothing else is."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from paceline.backend.posix import run_folders
from paceline.backend.posix.processes import takes
from paceline.backend.posix.waits import wait_until


@pytest.fixture(autouse=True)
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A separate folder."""
    monkeypatch.setattr(run_folders, "SHARED", tmp_path)
    return tmp_path


def aged(folder: Path) -> None:
    """Makes it look as if it had been made a while ago."""
    before = time.time() - 2 * run_folders.YOUNG_S
    os.utime(folder, (before, before))


def killed_maker(shared: Path, *, with_guard: bool) -> Path:
    """Returns the folder of a process that was killed in its run, with its guard or without."""
    if (child := os.fork()) == 0:
        with run_folders.run_folder():
            signal.pause()
    assert wait_until(lambda: any(shared.glob(f"{run_folders.PREFIX}*")), within_s=60.0)
    (folder,) = shared.glob(f"{run_folders.PREFIX}*")
    (guard,) = wait_for_children(child)
    if with_guard:
        os.kill(guard, signal.SIGKILL)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    if with_guard:
        assert wait_until(lambda: has_ended(guard), within_s=60.0)
    return folder


def has_ended(pid: int) -> bool:
    """Whether a process has ended, waited for or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def wait_for_children(pid: int) -> list[int]:
    def found() -> list[int]:
        return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))

    assert wait_until(lambda: bool(found()), within_s=60.0)
    return found()


def test_a_folder_is_in_use_while_its_maker_lives(shared: Path) -> None:
    with run_folders.run_folder() as folder:
        aged(folder)
        run_folders.sweep()
        assert folder.is_dir()
    assert not list(shared.iterdir())


def test_the_guard_removes_the_folder_of_a_maker_that_was_killed(shared: Path) -> None:
    killed_maker(shared, with_guard=False)
    assert wait_until(lambda: not list(shared.iterdir()), within_s=60.0)


def test_the_next_run_removes_at_once_what_a_killed_one_left(shared: Path) -> None:
    """The guard was killed with it, as by Slurm; the folder is seconds old."""
    left = killed_maker(shared, with_guard=True)
    assert left.is_dir()
    with run_folders.run_folder() as folder:
        assert list(shared.iterdir()) == [folder]


@pytest.mark.parametrize("place", ["fork", "mkdtemp", "rename", "block"])
def test_an_interrupt_at_any_time_leaves_no_folder(place: str, shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal comes just after one of the steps."""

    def then_interrupted(what: Any) -> Any:
        def done(*args: Any, **kwargs: Any) -> Any:
            found = what(*args, **kwargs)
            if found != 0:  # not in the guard
                os.kill(os.getpid(), signal.SIGINT)
            return found

        return done

    for name, owner, step in (("fork", os, "fork"), ("mkdtemp", tempfile, "mkdtemp"), ("rename", Path, "rename")):
        if place == name:
            monkeypatch.setattr(owner, step, then_interrupted(getattr(owner, step)))

    def use_a_folder() -> None:
        with run_folders.run_folder() as folder:
            (folder / "rank0").write_text("a record")
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            use_a_folder()
    finally:
        signal.signal(signal.SIGINT, before)
    assert not list(shared.iterdir())


def test_a_file_that_appears_while_the_folder_is_removed_does_not_keep_it(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removing, late = shutil.rmtree, iter([True, True, False])

    def and_another(folder: Path, **settings: Any) -> None:
        removing(folder, **settings)
        if next(late, False):
            folder.mkdir()
            (folder / "late").touch()

    with run_folders.run_folder() as folder:
        monkeypatch.setattr(shutil, "rmtree", and_another)
    assert not folder.exists()


def test_a_folder_is_in_use_while_a_forked_child_of_its_maker_lives(shared: Path) -> None:
    folder, held = run_folders._created()
    if (child := os.fork()) == 0:
        signal.pause()
    os.close(held)
    stays_while_it_lives(folder, child)


def test_a_folder_is_in_use_while_a_process_holds_a_file_in_it() -> None:
    folder, held = run_folders._created()
    os.close(held)
    if (child := os.fork()) == 0:  # POSIX locks are between processes
        with (folder / "process1.alive").open("ab") as file:
            takes(file)
            (folder / "ready").touch()
            signal.pause()
    assert wait_until((folder / "ready").exists, within_s=60.0)
    stays_while_it_lives(folder, child)


def stays_while_it_lives(folder: Path, child: int) -> None:
    """A folder exists as long as a process does, and is removed after it."""
    try:
        run_folders.sweep()
        assert folder.is_dir()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    run_folders.sweep()
    assert not folder.exists()


def test_a_new_folder_that_is_not_locked_yet_stays_for_a_while(shared: Path) -> None:
    young = shared / f"{run_folders.NEW}young"
    young.mkdir()
    run_folders.sweep()
    assert young.is_dir()
    aged(young)
    run_folders.sweep()
    assert not young.exists()


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
    with run_folders.run_folder() as folder:
        assert list(shared.iterdir()) == [folder]
        with pytest.raises(BlockingIOError):
            fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
