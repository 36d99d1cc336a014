"""Distributes independent tasks to processes of this machine; a task that fails does not affect the others.

Rules of this file:

* A worker process runs one task after another and keeps no state. If a worker dies, its task fails, and another worker
  replaces it.
* No worker outlives its parent: the parent ends the workers when it exits, and each worker also detects the parent's
  death, since a killed parent cannot do this. Only the parent handles Ctrl-C.
* Workers are forked by a fork server, a process without threads that has imported the simulator once for all of them.
  A fork of the parent would copy locks that its threads may hold.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar

from paceline.algorithms.core.errors import PacelineError

Piece = TypeVar("Piece")
Result = TypeVar("Result")

GRACE_S = 2.0
"""seconds after which a worker that was asked to end is killed"""


@dataclass(frozen=True, slots=True)
class Done(Generic[Result]):
    """The result of a task."""

    result: Result


@dataclass(frozen=True, slots=True)
class Failure:
    """The error of a task."""

    message: str
    trace: str = ""
    """the traceback of a Python exception"""


Worker = tuple[Connection, BaseProcess]


def cores() -> int:
    """Returns the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def each(
    work: Callable[[Piece], Result], pieces: Sequence[Piece], *, jobs: int, preload: Sequence[str] = ()
) -> Iterator[tuple[int, Done[Result] | Failure]]:
    """Runs all tasks and yields the position and the result of each when it ends.

    Args:
        work: an importable function, since it, its arguments and its results go through pipes.
        pieces: the arguments of the tasks, which are started in this order.
        jobs: number of parallel processes.
        preload: modules that every worker needs, imported only once.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, *preload])
    todo = deque(enumerate(pieces))
    workers: list[BaseProcess] = []
    idle: list[Worker] = []
    busy: dict[Connection, tuple[int, BaseProcess]] = {}
    try:
        while todo or busy:
            while todo and len(busy) < jobs:
                pipe, process = idle.pop() if idle else _start(context, work, workers)
                number, piece = todo.popleft()
                if _hand_over(pipe, piece):
                    busy[pipe] = number, process
                else:
                    yield number, _death(process)
            for ready in wait(list(busy)):
                assert isinstance(ready, Connection)
                number, process = busy.pop(ready)
                answer = _answer(ready)
                if answer is not None:
                    idle.append((ready, process))
                yield number, answer or _death(process)
    finally:
        _end(workers)


def _start(context: Any, work: Callable[[Any], Any], workers: list[BaseProcess]) -> Worker:
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, work), daemon=True)
    with without_interrupts():
        process.start()
        workers.append(process)
    theirs.close()  # otherwise the pipe would stay open after the end of the worker
    return ours, process


@contextmanager
def without_interrupts() -> Iterator[None]:
    """Blocks Ctrl-C; processes that start meanwhile, and those that they fork, ignore it permanently."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _hand_over(pipe: Connection, piece: Any) -> bool:
    """Sends a task to a worker; returns whether the worker was alive."""
    try:
        pipe.send(piece)
    except OSError:
        return False
    return True


def _answer(pipe: Connection) -> Done[Any] | Failure | None:
    """Returns the answer of a worker; None if it has died."""
    try:
        answer: Done[Any] | Failure = pipe.recv()
    except (EOFError, OSError):
        return None
    return answer


def _death(process: BaseProcess) -> Failure:
    process.join(GRACE_S)
    code = process.exitcode
    if code is not None and code < 0:
        return Failure(f"its process was killed by {signal.Signals(-code).name}; was there enough memory?")
    return Failure(f"its process ended with exit status {code}")


def _end(workers: Sequence[BaseProcess]) -> None:
    for process in workers:
        process.terminate()
    for process in workers:
        process.join(GRACE_S)
        if process.exitcode is None:
            process.kill()
            process.join()
        process.close()


def _serve(pipe: Connection, work: Callable[[Any], Any]) -> None:
    """The main function of a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    while True:
        try:
            piece = pipe.recv()
        except EOFError:
            return
        pipe.send(attempt(work, piece))


def attempt(work: Callable[[Piece], Result], piece: Piece) -> Done[Result] | Failure:
    """Returns the result of a task, or its error.

    Args:
        work: the function.
        piece: its argument.
    """
    try:
        return Done(work(piece))
    except PacelineError as error:
        return Failure(str(error), traceback.format_exc())
    except Exception as error:
        return Failure(f"{type(error).__name__}: {error}", traceback.format_exc())


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)
