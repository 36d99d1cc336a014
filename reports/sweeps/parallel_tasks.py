"""Distributes independent tasks to processes of this machine or of a Dask cluster; a task that fails affects no other.

* A worker process runs one task after another and keeps no state. If a worker dies, its task fails, and another worker
  replaces it.
* No worker outlives its parent: the parent ends the workers when it exits, and each worker also detects the parent's
  death, since a killed parent cannot do this. Only the parent handles Ctrl-C.
* Workers are forked by a fork server, a process without threads that has imported the simulator once for all of them.
  A fork of the parent would copy locks that its threads may hold.
* Dask repeats the tasks of a worker that has died on other workers, `distributed.scheduler.allowed-failures` times.
  Then it gives up all of them, although only one may have killed the workers. Therefore the tasks that it gave up are
  repeated alone, one after another, when the others have ended. A task that kills its worker again has failed.
* A local Dask cluster ends with this process. On a given cluster, the tasks are cancelled when this process ends, and
  its workers stay.

Source: documentation of dask.distributed (Client.submit, as_completed, LocalCluster).
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar
from uuid import uuid4

from paceline.algorithms.core.errors import InputError, PacelineError, RunFailed

Piece = TypeVar("Piece")
Result = TypeVar("Result")

GRACE_S = 2.0
"""seconds after which a worker that was asked to end is killed"""
MISSING = "--engine dask: found no package dask.distributed, expected it installed: pip install 'paceline[dask]'"
DIED = "its process died on several workers of the cluster, also when it ran alone; was there enough memory?"
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


Worker = tuple[Connection, BaseProcess]


def cores() -> int:
    """Returns the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def each(
    work: Callable[[Piece], Result], pieces: Sequence[Piece], *, jobs: int, preload: Sequence[str] = ()
) -> Iterator[tuple[int, Done[Result] | TaskFailure]]:
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
    ours, child = context.Pipe()
    process = context.Process(target=_serve, args=(child, work), daemon=True)
    with without_interrupts():
        process.start()
        workers.append(process)
    child.close()  # otherwise the pipe would stay open after the end of the worker
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


def _answer(pipe: Connection) -> Done[Any] | TaskFailure | None:
    """Returns the answer of a worker; None if it has died."""
    try:
        answer: Done[Any] | TaskFailure = pipe.recv()
    except (EOFError, OSError):
        return None
    return answer


def _death(process: BaseProcess) -> TaskFailure:
    process.join(GRACE_S)
    code = process.exitcode
    if code is not None and code < 0:
        return TaskFailure(f"its process was killed by {signal.Signals(-code).name}; was there enough memory?")
    return TaskFailure(f"its process ended with exit status {code}")


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


def attempt(work: Callable[[Piece], Result], piece: Piece) -> Done[Result] | TaskFailure:
    """Returns the result of a task, or its error.

    Args:
        work: the function.
        piece: its argument.
    """
    try:
        return Done(work(piece))
    except PacelineError as error:
        return TaskFailure(str(error), traceback.format_exc())
    except Exception as error:
        return TaskFailure(f"{type(error).__name__}: {error}", traceback.format_exc())


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


def each_on_dask(
    work: Callable[[Piece], Result], pieces: Sequence[Piece], *, jobs: int, scheduler: str | None = None
) -> Iterator[tuple[int, Done[Result] | TaskFailure]]:
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
        given_up: list[int] = []
        for position, answer in _together(client, work, list(enumerate(pieces)), ahead):
            if answer is None:
                given_up.append(position)
            else:
                yield position, answer
        for position in given_up:
            for _, answer in _together(client, work, [(position, pieces[position])], 1):
                yield position, TaskFailure(DIED) if answer is None else answer


def _together(
    client: Any, work: Callable[[Piece], Result], pieces: Sequence[tuple[int, Piece]], ahead: int
) -> Iterator[tuple[int, Done[Result] | TaskFailure | None]]:
    """Runs tasks and yields the result of each when it ends; None if Dask gave it up because its workers died."""
    from distributed import as_completed

    waiting = iter(pieces)
    positions: dict[str, int] = {}

    def submit() -> Any:
        for position, piece in waiting:
            future = client.submit(attempt, work, piece, key=f"paceline-{uuid4()}", priority=-position)
            positions[future.key] = position
            return future
        return None

    ended = as_completed([future for _ in range(ahead) if (future := submit()) is not None])
    for future in ended:
        yield positions.pop(future.key), _result(future)
        future.release()
        if (following := submit()) is not None:
            ended.add(following)


@contextmanager
def _client(jobs: int, scheduler: str | None) -> Iterator[Any]:
    """Yields a connection to the cluster, which is closed at the end; a local cluster ends with it."""
    try:
        import distributed
    except ImportError as error:
        raise InputError(MISSING) from error
    for name in ("distributed.worker", "distributed.nanny", "distributed.scheduler", "distributed.core"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # failures are reported with the run that has them
    if scheduler is None:
        with without_interrupts(), suppress(TimeoutError):  # inherited by the threads and processes of the cluster
            cluster = distributed.LocalCluster(
                n_workers=jobs,
                threads_per_worker=1,
                processes=True,
                dashboard_address=None,  # pyright: ignore[reportArgumentType]  # documented: no dashboard
                silence_logs=logging.CRITICAL,
            )
            client = distributed.Client(cluster)
        try:
            yield client
        finally:
            with suppress(TimeoutError):
                client.close()
                cluster.close()
        return
    try:
        client = distributed.Client(scheduler, timeout=CONNECT_S)
    except (OSError, ValueError) as error:
        raise InputError(
            f"--scheduler: found {scheduler!r}, where no Dask scheduler answers ({error}); expected an address such as "
            "tcp://login1:8786"
        ) from error
    try:
        yield client
    finally:
        with suppress(TimeoutError):
            client.close()


def _result(future: Any) -> Any:
    """Returns the result of a task that has ended, or its failure; None if its workers died."""
    from distributed.scheduler import KilledWorker

    if future.status == "cancelled":
        raise RunFailed("--engine dask: the cluster was closed before all runs had ended")
    try:
        return future.result()
    except KilledWorker:
        return None
    except Exception as error:  # such as a result that cannot be sent
        return TaskFailure(f"{type(error).__name__}: {error}", traceback.format_exc())
