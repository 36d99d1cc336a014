"""A worker thread with a queue: jobs are done in order, and no step includes the start of a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue


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
