"""A thread that stands ready: what is handed to it is done in order, and a step pays for no thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue


class Standing:
    """One thread, begun with the first job.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._begun = False

    def put(self, job: Callable[[], object]) -> None:
        """Has this done after all that was handed over before; a job tells of its failures itself."""
        if not self._begun:
            self._begun = True  # not before: a thread does not survive a fork
            threading.Thread(target=self._work, daemon=True, name=self._name).start()
        self._jobs.put(job)

    def close(self) -> None:
        """Ends the thread, once everything is done."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job  # what it holds may be large
