"""Processes of a host: locks between them, forks, guards that outlive a killed launcher, deferred signals, threads."""

from __future__ import annotations

import fcntl
import gc
import os
import shutil
import signal
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Self

LOCK_POLL_S = 0.0002
"""seconds between two attempts of a caller with a timeout"""


class HostLock:
    """A lock on a file, which the kernel releases if its process is killed.

    Such a lock (fcntl) belongs to a process and does not exclude its threads, so they acquire a second lock first.

    Args:
        path: the file; None for one without a name, for this process and those that it forks.

    >>> with HostLock():
    ...     print("alone")
    alone
    """

    def __init__(self, path: Path | None = None) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile() if path is None else path.open("ab")  # noqa: SIM115
        weakref.finalize(self, self._file.close)  # open as long as the lock exists
        self._threads = threading.Lock()

    def acquire(self, timeout: float) -> bool:
        """Acquires the lock; returns False if others have held it for `timeout` seconds."""
        until = time.monotonic() + timeout
        if not self._threads.acquire(timeout=timeout):
            return False
        while not takes(self._file):
            if time.monotonic() > until:
                self._threads.release()
                return False
            time.sleep(LOCK_POLL_S)
        return True

    def release(self) -> None:
        """Releases the lock."""
        fcntl.lockf(self._file, fcntl.LOCK_UN)
        self._threads.release()

    def __enter__(self) -> Self:
        self._threads.acquire()
        fcntl.lockf(self._file, fcntl.LOCK_EX)
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def takes(file: IO[bytes]) -> bool:
    """Acquires the lock on a file if no other process holds it, until the file is closed; returns whether it could."""
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Defers SIGINT and SIGTERM to the end of the block."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread handles signals
        yield
        return
    heard: list[int] = []
    both = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda number, _: heard.append(number)) for number in both]
    try:
        yield
    finally:
        for number, handler in zip(both, before, strict=True):
            signal.signal(number, handler)
    if heard:
        signal.raise_signal(heard[0])


@contextmanager
def noted(heard: list[int]) -> Iterator[None]:
    """Records SIGINT and SIGTERM during the block without interrupting it.

    Args:
        heard: receives the numbers of the signals.

    After an error in the block the signals are ignored, because the process ends anyway: a launcher that sees one of
    its processes end sends SIGTERM to the others, while the first one may still be writing the record.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda number, _: heard.append(number)) for number in numbers]
    try:
        yield
    except BaseException:
        before = [signal.SIG_IGN, signal.SIG_IGN]
        raise
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


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


class WorkerThread:
    """One thread, started with the first job.

    Args:
        name: the name of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._begun = False

    def put(self, job: Callable[[], object]) -> None:
        """Queues a job, which has to report its own failures."""
        if not self._begun:
            self._begun = True  # not earlier: a thread does not survive a fork
            threading.Thread(target=self._work, daemon=True, name=self._name).start()
        self._jobs.put(job)

    def close(self) -> None:
        """Ends the thread after the jobs in the queue."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job  # it may hold large objects
