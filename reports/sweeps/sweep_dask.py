"""Distributes the runs of a sweep to the workers of a Dask cluster, local or given by the address of its scheduler.

Rules of this file:

* A run is one Dask task. It receives its scenario and returns its summary, like a run in a process of this machine, so
  that the results do not depend on where it ran. Only this process writes files, except the records of runs.
* Dask repeats the runs of a worker that has died on other workers, `distributed.scheduler.allowed-failures` times.
  Then it gives up all of them, although only one may have killed the workers. Therefore the runs that it gave up are
  repeated alone, one after another, when the others have ended. A run that kills its worker again has failed.
* A local cluster ends with this process. Its processes ignore Ctrl-C, which only this process handles. On a given
  cluster, the runs are cancelled when this process ends, and its workers stay.

Source: documentation of dask.distributed (Client.submit, as_completed, LocalCluster).
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from uuid import uuid4

from paceline.algorithms.core.errors import InputError, RunFailed
from paceline.reports.sweeps.sweep_processes import Done, Failure, Piece, Result, attempt, without_interrupts

MISSING = "--engine dask: found no package dask.distributed, expected it installed: pip install 'paceline[dask]'"
DIED = "its process died on several workers of the cluster, also when it ran alone; was there enough memory?"
CONNECT_S = 30.0
"""seconds until a scheduler must have answered; INFERENCE: the default of dask.distributed"""
BATCH = 4
"""tasks in the scheduler for each thread of a worker, so that a sweep of 100,000 runs is not sent at once; INFERENCE"""


def each_on_dask(
    work: Callable[[Piece], Result], pieces: Sequence[Piece], *, jobs: int, scheduler: str | None = None
) -> Iterator[tuple[int, Done[Result] | Failure]]:
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
                yield position, Failure(DIED) if answer is None else answer


def _together(
    client: Any, work: Callable[[Piece], Result], pieces: Sequence[tuple[int, Piece]], ahead: int
) -> Iterator[tuple[int, Done[Result] | Failure | None]]:
    """Runs tasks and yields the result of each when it ends; None if Dask gave it up because its workers died.

    Args:
        client: the connection to the cluster.
        work: the function.
        pieces: the position and the argument of each task.
        ahead: number of tasks in the scheduler at a time.
    """
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
        with (
            without_interrupts(),  # inherited by the threads and processes of the cluster
            _quiet_end(),
        ):
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
            with _quiet_end():
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
        with _quiet_end():
            client.close()


@contextmanager
def _quiet_end() -> Iterator[None]:
    with suppress(TimeoutError):
        yield


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
        return Failure(f"{type(error).__name__}: {error}", traceback.format_exc())
