"""Folders of runs in the host's memory: made, seen to be in use, and given back even if everybody was killed.

Rules of this file:

* Who makes a folder holds it locked, and so do all that it forks, the guard (`guard`) among them: it is in use while
  one of them lives. That takes flock: the locks of `hostlock` are a process's own, and its children have none of them.
  Processes that others have started hold files in it locked instead.
* Where even the guard was killed, as Slurm does when a job's time is over, the next run on the host removes the folder.
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
"""where folders are made: in memory, where there is such a place"""
PREFIX = "paceline-run-"
"""not of anything else that may lie there"""
YOUNG_S = 60.0
"""a folder may have been made and not been locked yet"""


def new_folder() -> tuple[Path, int]:
    """A folder, and the descriptor that holds it locked until it is closed; what nobody uses any more is removed."""
    sweep()
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=SHARED))
    held = os.open(folder, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_SH)
    return folder, held


def sweep() -> None:
    """Removes the folders of runs whose processes are all gone."""
    for folder in SHARED.glob(f"{PREFIX}*"):
        try:
            if _left_behind(folder):
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # somebody else's, or gone already
            continue


def _left_behind(folder: Path) -> bool:
    """Whether nobody uses it."""
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
