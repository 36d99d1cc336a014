"""The tasks of a vectorised run: programs and started operations of a class, each with a vector of times."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from paceline.algorithms.core.operations import Charge
from paceline.algorithms.core.program import Lane
from paceline.algorithms.core.values import Rank
from paceline.simulator.cohort.classes import Places, RankClass, TimedPromise, Times
from paceline.simulator.cohort.varying import Diverges, by_rank, of_ranks
from paceline.simulator.kernel.timing import Timing

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


class ManyTimes(Protocol):
    """The seconds of the gradients of several ranks."""

    def compute_s(self, step: int, samples: Any) -> Times:
        """Returns the seconds of a gradient at each rank.

        Args:
            step: the step.
            samples: the samples of a gradient, or an array with those of each rank.
        """
        ...


@runtime_checkable
class ManyAtOnce(Protocol):
    """A timing that computes the times of many ranks together."""

    def many(self, ranks: Sequence[int]) -> ManyTimes | None:
        """Returns the times of some ranks; None if they have to be computed one by one.

        Args:
            ranks: the ranks.
        """
        ...


class OwnWork:
    """The seconds of the work of a class; equal questions are asked once.

    Args:
        timing: the seconds of each rank's work.
        ranks: the ranks of the class.
    """

    def __init__(self, timing: Timing, ranks: Places) -> None:
        self._timing, self._ranks = timing, [Rank(rank) for rank in ranks.tolist()]
        self._many = timing.many(ranks.tolist()) if isinstance(timing, ManyAtOnce) else None
        self._charges: dict[Charge, Times | None] = {}
        self._loads: dict[int, Times] = {}
        self._rests: Times | None = None

    def compute_s(self, step: int, samples: Any, pauses_s: Times | None) -> Times:
        """Returns the seconds of a gradient.

        Args:
            step: the step.
            samples: its samples; a `Varying` if they differ.
            pauses_s: the seconds since each rank's previous gradient; None before the first one.
        """
        if self._many is not None:
            counts = samples if isinstance(samples, int) else of_ranks(samples, len(self._ranks))
            return self._many.compute_s(step, counts)
        counts = of_ranks(samples, len(self._ranks)).tolist()
        pauses = np.zeros(len(self._ranks)) if pauses_s is None else pauses_s
        timing = self._timing
        return np.array(
            [
                timing.compute_s(rank, step, count) + timing.paused_s(count, pause_s)
                for rank, count, pause_s in zip(self._ranks, counts, pauses.tolist(), strict=True)
            ],
            dtype=np.float64,
        )

    def started_factor(self, samples: Any) -> Times:
        """Returns the factor on the time of a gradient that a program has started."""
        return by_rank(samples, self._timing.started_factor, len(self._ranks))

    def charge_s(self, op: Charge) -> Times | None:
        """Returns the seconds of the program's own arithmetic; None if it takes no time."""
        if op not in self._charges:
            seconds = np.array([self._timing.work_s(rank, op) for rank in self._ranks], dtype=np.float64)
            self._charges[op] = seconds if seconds.any() else None
        return self._charges[op]

    def load_s(self, samples: Any) -> Times:
        """Returns the seconds of loading a batch."""
        if not isinstance(samples, int):
            pairs = zip(self._ranks, of_ranks(samples, len(self._ranks)).tolist(), strict=True)
            return np.array([self._timing.load_s(rank, count) for rank, count in pairs], dtype=np.float64)
        if samples not in self._loads:
            found = [self._timing.load_s(rank, samples) for rank in self._ranks]
            self._loads[samples] = np.array(found, dtype=np.float64)
        return self._loads[samples]

    def rest_s(self) -> Times:
        """Returns the seconds of a step outside all operations."""
        if self._rests is None:
            self._rests = np.array([self._timing.rest_s(rank) for rank in self._ranks], dtype=np.float64)
        return self._rests
