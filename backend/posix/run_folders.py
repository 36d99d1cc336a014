"""Creates folders of runs in host memory, and removes them even if all their processes were killed.

Rules of this file:

* The process that creates a folder holds a lock on it, and so do all processes that it forks, including the guard
  (`guard`): the folder is in use while one of them lives. The lock is flock, which children inherit, unlike the fcntl
  lock of `HostLock`. Processes that a launcher has started hold locks on files in the folder instead.
* If the guard was killed too, as Slurm does when a job exceeds its time, the next run on the host removes the folder,
  however soon it begins.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paceline.backend.posix.processes import ALIVE, free, guard, uninterrupted

SHARED = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path(tempfile.gettempdir())
"""where folders are created: in memory if possible"""
PREFIX, NEW = "paceline-run-", ".paceline-new-"
"""distinguish our folders from other files there; a new one is renamed when it is locked, so that the lock of
the folder of a run that lives is never free"""
YOUNG_S = 60.0
"""a younger new folder may not be locked yet"""
TRIES, PAUSE_S = 20, 0.05
"""how often a folder is removed if files appear in it meanwhile"""


@contextmanager
def run_folder() -> Iterator[Path]:
    """Creates a folder for the block, and removes it at its end, however it ends.

    From the beginning, a guard removes the folder if this process is killed. Unused folders of other runs are removed
    first.
    """
    sweep()
    made: list[tuple[Path, int, int]] = []
    try:
        with uninterrupted():  # an interrupt is raised here, where the folder is known
            folder, held = _created()
            made.append((folder, held, guard(folder)))
        yield folder
    finally:
        with uninterrupted():
            for folder, held, pid in made:
                if removed(folder):  # else the guard goes on when this process has ended
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
                os.close(held)


def _created() -> tuple[Path, int]:
    """Creates a folder; returns it with the descriptor that holds its lock until it is closed."""
    new = Path(tempfile.mkdtemp(prefix=NEW, dir=SHARED))
    held = os.open(new, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_SH)
    return new.rename(SHARED / new.name.replace(NEW, PREFIX)), held


def removed(folder: Path) -> bool:
    """Removes a folder, also if a process that is ending still creates a file; returns whether it is gone."""
    for _ in range(TRIES):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return True
        time.sleep(PAUSE_S)
    return False


def sweep() -> None:
    """Removes the folders of runs whose processes have all ended."""
    for folder in (*SHARED.glob(f"{PREFIX}*"), *SHARED.glob(f"{NEW}*")):
        try:
            if _left_behind(folder):
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # it belongs to another user or has been removed
            continue


def _left_behind(folder: Path) -> bool:
    """Whether no process uses the folder."""
    if not folder.is_dir():
        return False
    if folder.name.startswith(NEW) and time.time() - folder.stat().st_mtime < YOUNG_S:
        return False
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(held)
    return all(map(free, folder.glob(ALIVE)))
