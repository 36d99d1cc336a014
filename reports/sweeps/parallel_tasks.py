"""Distributes independent tasks to processes of this machine or of a Dask cluster; a task that fails affects no other.

* Both are executors of `concurrent.futures`. If a process dies, its executor gives up tasks, of which only one may have
  killed it; Dask's executor may also raise an error of its own for a result that was on a worker that died. Therefore
  all tasks for which the executor has no answer are repeated alone, one after another, when the others have ended. A
  task that gets none again has failed.
* No process outlives its parent: each has one end of a pipe whose other end only the parent has, and ends when that is
  closed, by the parent or by the parent's death. Only the parent handles Ctrl-C.
* Processes are forked by a fork server, a process without threads that has imported the simulator once for all of them.
  A fork of the parent would copy locks that its threads may hold.
* Dask repeats the tasks of a worker that has died on other workers, `distributed.scheduler.allowed-failures` times,
  before it gives them up.
* A local Dask cluster ends with this process. On a given cluster, the tasks are cancelled when this process ends, and
  its workers stay.

Source: documentation of concurrent.futures and of dask.distributed (Client.get_executor, LocalCluster).
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Executor, Future, ProcessPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

from paceline.algorithms.core.errors import InputError, PacelineError, RunFailed

Piece = TypeVar("Piece")
Result = TypeVar("Result")

MISSING = "--engine dask: found no package dask.distributed, expected it installed: pip install 'paceline[dask]'"
DIED = "its process died, also when it ran alone; was there enough memory?"
CONNECT_S = 30.0
"""seconds until a scheduler must have answered; INFERENCE: the default of dask.distributed"""
BATCH = 4
"""tasks in the scheduler for each thread of a worker, so that a sweep of 100,000 runs is not sent at once; INFERENCE"""


@dataclass(frozen=True, slots=True)
class Done(Generic[Result]):
    """The result of a task."""

    result: Result


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """The error of a task."""

    message: str
    trace: str = ""
    """the traceback of a Python exception"""


def cores() -> int:
    """Returns the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def each(
    work: Callable[[Piece], Result], pieces: Sequence[Piece], *, jobs: int, preload: Sequence[str] = ()
) -> Generator[tuple[int, Done[Result] | TaskFailure], None, None]:
    """Runs all tasks and yields the position and the result of each when it ends.

    Args:
        work: an importable function, since it, its arguments and its results go through pipes.
        pieces: the arguments of the tasks, which are started in this order.
        jobs: number of parallel processes.
        preload: modules that every process needs, imported only once.
    """
    return _each(lambda: _processes(jobs, preload), work, pieces, jobs)


def each_on_dask(
    work: Callable[[Piece], Result], pieces: Sequence[Piece], *, jobs: int, scheduler: str | None = None
) -> Generator[tuple[int, Done[Result] | TaskFailure], None, None]:
    """Runs all tasks and yields the position and the result of each when it ends.

    Args:
        work: an importable function.
        pieces: the arguments of the tasks, which are started in this order.
        jobs: number of processes of a local cluster.
        scheduler: address of the scheduler of an existing cluster, such as ``tcp://login1:8786``; None: a local
            cluster.

    Raises:
        InputError: dask.distributed is not installed, or no scheduler answers.
        RunFailed: the connection to the scheduler was lost.
    """
    if not pieces:
        return
    with _client(jobs, scheduler) as client:
        ahead = max(1, jobs, sum(client.nthreads().values())) * BATCH
        yield from _each(lambda: nullcontext(client.get_executor(pure=False)), work, pieces, ahead)


def _each(
    executors: Callable[[], AbstractContextManager[Executor]],
    work: Callable[[Piece], Result],
    pieces: Sequence[Piece],
    ahead: int,
) -> Generator[tuple[int, Done[Result] | TaskFailure], None, None]:
    """Runs all tasks, of which `ahead` are in an executor at a time; tasks that it gives up are repeated alone."""
    waiting, given_up = deque(enumerate(pieces)), list[int]()
    while waiting:
        with executors() as executor:
            for position, answer in _until_broken(executor, work, waiting, ahead):
                if isinstance(answer, Exception):
                    given_up.append(position)
                else:
                    yield position, answer
    for position in given_up:
        with executors() as executor:
            for _, answer in _until_broken(executor, work, deque([(position, pieces[position])]), 1):
                yield position, _failure(answer) if isinstance(answer, Exception) else answer


def _until_broken(
    executor: Executor, work: Callable[[Piece], Result], waiting: deque[tuple[int, Piece]], ahead: int
) -> Iterator[tuple[int, Done[Result] | TaskFailure | Exception]]:
    """Runs the waiting tasks until none is left or the executor takes none; yields its error for those it gave up."""
    running: dict[Future[Done[Result] | TaskFailure], int] = {}
    while True:
        with suppress(BrokenExecutor), without_interrupts():  # processes start when tasks are submitted
            while waiting and len(running) < ahead:
                running[executor.submit(attempt, work, waiting[0][1])] = waiting[0][0]
                waiting.popleft()
        if not running:
            return
        for future in wait_for(running, return_when=FIRST_COMPLETED).done:
            yield running.pop(future), _answer(future)


def _answer(future: Future[Done[Result] | TaskFailure]) -> Done[Result] | TaskFailure | Exception:
    """Returns the answer of a task that has ended; the error of the executor if it has none."""
    try:
        return future.result()
    except CancelledError:
        raise RunFailed("--engine dask: the cluster was closed before all runs had ended") from None
    except Exception as error:  # a process died, or a result cannot be sent; `attempt` catches errors of the work
        return error


def _failure(error: Exception) -> TaskFailure:
    if isinstance(error, BrokenExecutor) or type(error).__name__ == "KilledWorker":  # of Dask
        return TaskFailure(DIED)
    message = str(error) if isinstance(error, PacelineError) else f"{type(error).__name__}: {error}"
    return TaskFailure(message, "".join(traceback.format_exception(error)))


def attempt(work: Callable[[Piece], Result], piece: Piece) -> Done[Result] | TaskFailure:
    """Returns the result of a task, or its error.

    Args:
        work: the function.
        piece: its argument.
    """
    try:
        return Done(work(piece))
    except Exception as error:
        return _failure(error)


@contextmanager
def without_interrupts() -> Iterator[None]:
    """Blocks Ctrl-C; processes that start meanwhile, and those that they fork, ignore it permanently."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _processes(jobs: int, preload: Sequence[str]) -> Iterator[Executor]:
    """Yields an executor of processes of this machine, which are ended after the block."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, *preload])
    open_end, parents_end = context.Pipe(duplex=False)
    executor = ProcessPoolExecutor(jobs, context, initializer=_end_with_parent, initargs=(open_end,))
    try:
        yield executor
    finally:
        parents_end.close()
        executor.shutdown(cancel_futures=True)
        open_end.close()


def _end_with_parent(parents: Connection) -> None:
    """Lets this process end when the other end of the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        wait([parents])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _client(jobs: int, scheduler: str | None) -> Iterator[Any]:
    """Yields a connection to the cluster, which is closed at the end; a local cluster ends with it."""
    try:
        import distributed
    except ImportError as error:
        raise InputError(MISSING) from error
    for name in ("distributed.worker", "distributed.nanny", "distributed.scheduler", "distributed.core"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # failures are reported with the run that has them
    opened = ExitStack()
    cluster: Any = scheduler
    try:
        if scheduler is None:
            with without_interrupts():  # inherited by the threads and processes of the cluster
                cluster = distributed.LocalCluster(
                    n_workers=jobs,
                    threads_per_worker=1,
                    processes=True,
                    dashboard_address=None,  # pyright: ignore[reportArgumentType]  # documented: no dashboard
                    silence_logs=logging.CRITICAL,
                )
                opened.enter_context(cluster)
        try:
            client = opened.enter_context(distributed.Client(cluster, timeout=CONNECT_S))
        except (OSError, ValueError) as error:
            if scheduler is None:
                raise
            raise InputError(
                f"--scheduler: found {scheduler!r}, where no Dask scheduler answers ({error}); expected an address "
                "such as tcp://login1:8786"
            ) from error
        yield client
    finally:
        # Dask fails an assertion if it is closed while it starts a worker again whose process has died.
        with suppress(TimeoutError, AssertionError):
            opened.close()
