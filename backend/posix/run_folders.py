"""Creates folders of runs in host memory, and removes them even if all their processes were killed.

Rules of this file:

* The process that creates a folder holds a lock on it, and so do all processes that it forks, including the guard
  (`reaper`): the folder is in use while one of them lives. The lock is flock, which children inherit, unlike the fcntl
  lock of `host_lock`. Processes that a launcher has started hold locks on files in the folder instead.
* If the guard was killed too, as Slurm does when a job exceeds its time, the next run on the host removes the folder.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

from paceline.backend.posix.reaper import ALIVE, free

SHARED = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path(tempfile.gettempdir())
"""where folders are created: in memory if possible"""
PREFIX = "paceline-run-"
"""distinguishes our folders from other files there"""
YOUNG_S = 60.0
"""a younger folder may not be locked yet"""


def new_folder() -> tuple[Path, int]:
    """Creates a folder and removes unused ones.

    Returns:
        The folder, and the descriptor that holds its lock until it is closed.
    """
    sweep()
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=SHARED))
    held = os.open(folder, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_SH)
    return folder, held


def sweep() -> None:
    """Removes the folders of runs whose processes have all ended."""
    for folder in SHARED.glob(f"{PREFIX}*"):
        try:
            if _left_behind(folder):
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # it belongs to another user or has been removed
            continue


def _left_behind(folder: Path) -> bool:
    """Whether no process uses the folder."""
    if not folder.is_dir() or time.time() - folder.stat().st_mtime < YOUNG_S:
        return False
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(held)
    return all(map(free, folder.glob(ALIVE)))
