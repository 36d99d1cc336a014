"""Cleans up after a launcher that was killed: a forked process outlives it and removes the run's folder."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

from paceline.backend.posix.host_lock import takes


def fork() -> int:
    """Forks, as `os.fork` does; the child's collector ignores the objects that the child has inherited.

    If a child collected a process group of torch's, its destructor would wait for ever for a thread that was not
    forked. We have seen this as a rank that never started.

    Returns:
        0 in the child, and the child's process id in the parent.
    """
    collects = gc.isenabled()
    gc.disable()  # not even between the fork and the next line
    try:
        if (pid := os.fork()) == 0:
            gc.freeze()
        return pid
    finally:
        if collects:
            gc.enable()


POLL_S = 0.1
"""seconds between two checks whether the launcher is alive"""
ALIVE = "*.alive"
"""files in the folder that other processes lock while they need it"""


def guard(folder: Path) -> int:
    """Forks a process that removes the folder if this one is killed.

    The folder is in host memory, which would otherwise not be freed. If other processes use it, it remains as long as
    one of them lives. The caller ends the guard after it has removed the folder itself.

    Returns:
        The guard's process id.
    """
    return survivor(lambda: _remove(folder))


def survivor(clean_up: Callable[[], None]) -> int:
    """Forks a process that waits for the end of this one and then cleans up; returns its process id."""
    launcher = os.getpid()
    if (pid := fork()) != 0:
        return pid
    try:
        os.setsid()  # a signal to the caller's process group must not reach the guard
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        while os.getppid() == launcher:
            time.sleep(POLL_S)
        clean_up()
    finally:
        os._exit(0)


def _remove(folder: Path) -> None:
    while any(not free(path) for path in folder.glob(ALIVE)):
        time.sleep(POLL_S)
    while folder.exists():  # a rank that has not ended yet may still create a file
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(POLL_S)


def free(path: Path) -> bool:
    """Whether the process that locked this file has ended."""
    try:
        with path.open("ab") as file:
            return takes(file)
    except FileNotFoundError:
        return True
