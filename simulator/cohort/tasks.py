"""The tasks of a vectorised run: programs and started operations of a class, each with a vector of times."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np

from paceline.algorithms.core.program import Lane
from paceline.simulator.cohort.classes import RankClass, Times
from paceline.simulator.cohort.promises import TimedPromise
from paceline.simulator.cohort.unsuitable import Diverges

Steps = Generator[TimedPromise, None, Any]
"""the part of a task that performs one operation; it yields promises that have not settled"""


@dataclass(eq=False, slots=True)
class CohortTask:
    """One concurrent activity of a class: a program or a single operation."""

    own: RankClass
    name: Any
    """its lane in the record: a text, or an array of numbers if it differs between ranks"""
    promise: TimedPromise
    now_s: Times
    """the time at each rank"""
    lane: Lane | None = None
    """drives its program; None for a single operation"""
    line: str = ""
    """its name by `Branches`"""
    stream: str = ""
    """the program in whose order its collectives are counted"""
    step: int = 0
    """the step of the program; for what it started, the step at the start"""

    def pass_s(self, seconds: Times) -> None:
        """Lets time pass."""
        self.now_s = self.now_s + seconds

    def until(self, promise: TimedPromise) -> None:
        """Lets time pass until something has ended at each rank."""
        assert promise.ends_s is not None, "it has settled"
        self.now_s = np.maximum(self.now_s, promise.ends_s)


class Scheduler:
    """Runs tasks in turn; each runs until it needs a promise that has not settled."""

    def __init__(self) -> None:
        self._ready: deque[tuple[CohortTask, Steps]] = deque()
        self.waiting = 0
        """tasks that need a promise"""

    def add(self, task: CohortTask, steps: Steps) -> None:
        """Adds a task, which begins after those that are ready."""
        self._ready.append((task, steps))

    def begin(self, task: CohortTask, steps: Steps) -> None:
        """Runs a task at once, until it needs a promise that has not settled."""
        try:
            needed = next(steps)
        except StopIteration:
            return
        except Diverges as diverges:
            if diverges.of is None:
                diverges.of = task.own.number
            raise
        self.waiting += 1
        needed.watchers.append(lambda: self._resume(task, steps))

    def run(self) -> None:
        """Runs until no task is ready."""
        while self._ready:
            self.begin(*self._ready.popleft())

    def _resume(self, task: CohortTask, steps: Steps) -> None:
        self.waiting -= 1
        self._ready.append((task, steps))
