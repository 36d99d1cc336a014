"""Processes that read one record file at the same time, timed together: for the calibration of storage and its check.

Rules of this file:

* Every process opens the file itself, and bypasses the page cache if the file system supports that. Otherwise the
  cached pages of the file are dropped before each task, as far as the kernel follows the advice.
* Tasks are prepared in every process before the time starts. All begin at the same moment; the time ends with the last.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, NoReturn, Protocol, Self

from paceline.algorithms.core.errors import RunFailed
from paceline.backend.posix.reaper import fork
from paceline.backend.posix.waits import Clock
from paceline.workloads.reading import Piece
from paceline.workloads.reading.file import RecordFile
from paceline.workloads.reading.reader import Opened

START_IN_S = 0.002
HOST = "the host below a virtual machine may still cache"


class Work(Protocol):
    """A task of a process on the file; it can be pickled."""

    def ready(self, opened: Opened) -> Callable[[], object]:
        """Prepares the task and returns the function to be timed."""
        ...


class Readers:
    """A context manager for several processes.

    Args:
        file: the file that they read.
        count: the number of processes.
        direct: bypasses the page cache if possible; otherwise cached pages are read from the cache.
    """

    def __init__(self, file: RecordFile, count: int, *, direct: bool = True) -> None:
        self.file, self.count, self.direct = file, count, direct
        self.past_cache = "no: through the page cache"
        """how the page cache is bypassed, in words"""
        self.bypassed = False
        """whether it is bypassed by O_DIRECT, which also disables read-ahead"""
        self._children: list[tuple[int, Connection]] = []

    def __enter__(self) -> Self:
        for _ in range(self.count):
            ours, theirs = multiprocessing.Pipe()
            if (pid := fork()) == 0:
                ours.close()
                serve(theirs, self.file, self.direct)
            theirs.close()
            self._children.append((pid, ours))
        notes = [self._answer(connection) for _, connection in self._children]
        self.bypassed = self.direct and notes[0] is None
        if self.direct:
            self.past_cache = f"O_DIRECT; {HOST}" if self.bypassed else f"posix_fadvise(DONTNEED); {HOST}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pid, connection in self._children:
            connection.close()
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        self._children = []

    def seconds(self, work: Sequence[Work]) -> float:
        """Returns the time from the common start, with one task per process, to the end of the last.

        Raises:
            RunFailed: one of them failed.
        """
        busy = [connection for _, connection in self._children[: len(work)]]
        assert len(busy) == len(work), f"{len(work)} pieces of work for {self.count} readers"
        for connection, piece in zip(busy, work, strict=True):
            connection.send(piece)
        for connection in busy:
            self._answer(connection)
        start_s = time.monotonic() + START_IN_S
        for connection in busy:
            connection.send(start_s)
        return float(max(self._answer(connection) for connection in busy) - start_s)

    def _answer(self, connection: Connection) -> Any:
        try:
            answer = connection.recv()
        except EOFError as error:
            raise RunFailed("a reader died") from error
        if isinstance(answer, Exception):
            raise RunFailed(f"a reader failed: {answer}") from answer
        return answer


def serve(connection: Connection, file: RecordFile, direct: bool) -> NoReturn:
    """Runs in each process: performs the tasks that it receives until the connection is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the parent, which ends this process
    try:
        opened = Opened(file, direct=direct)
        opened.read(Piece(0, 1))  # the first read shows whether O_DIRECT works
        connection.send(opened.note)
        while True:
            run = connection.recv().ready(opened)
            if opened.note is not None:
                forget(file)
            connection.send(None)
            Clock(0.0).wait_until(connection.recv())
            run()
            connection.send(time.monotonic())
    except EOFError:
        os._exit(0)
    except Exception as error:
        connection.send(error)
    finally:
        os._exit(1)


def forget(file: RecordFile) -> None:
    """Asks the kernel to drop the cached pages of a file."""
    handle = os.open(file.path, os.O_RDONLY)
    try:
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(handle)
