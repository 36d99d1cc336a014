"""The tasks of a simulation, and the stations of the ranks that they run on.

* A task is one concurrent activity of one rank: the program itself ("main") or something that it started.
* A failure is stored as a value. SimPy creates a new exception when one passes from one process to another, and loses
  its attributes. So a task stores its failure in its `Promise`, which raises it in the task that waits for it.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import simpy

from paceline.algorithms.core.method import RankContext
from paceline.algorithms.core.program import Branches, Lane
from paceline.algorithms.runtime.handles import HandleTable, Promise
from paceline.algorithms.runtime.program_errors import place_of

Steps = Generator[simpy.Event, Any, Any]
"""the part of a SimPy process that performs one operation"""


def wait(event: simpy.Event) -> Steps:
    """Waits for an event."""
    yield event


class Mutex:
    """A lock that one task holds at a time; others wait in a queue, first come, first served."""

    def __init__(self, env: simpy.Environment) -> None:
        self.holder: SimulatedTask | None = None
        self._env = env
        self._queue: deque[tuple[SimulatedTask, simpy.Event]] = deque()

    def take(self, task: SimulatedTask) -> bool:
        """Takes the lock if it is free; returns whether it did."""
        if self.holder is None:
            self.holder = task
            return True
        return False

    def acquire(self, task: SimulatedTask, what: str) -> Steps:
        """Takes the lock, and waits for it if necessary; `what` names it in messages."""
        if self.take(task):
            return
        entry = (task, self._env.event())
        self._queue.append(entry)
        task.blocked = lambda: f"waits for {what}, held by {self.holder}"
        try:
            yield entry[1]
        except simpy.Interrupt:  # cancelled: it leaves the queue, or releases the lock to the next task
            if entry[1].triggered:
                self.release()
            else:
                self._queue.remove(entry)
            raise

    def release(self) -> None:
        """Releases the lock to the next task in the queue."""
        self.holder = None
        if self._queue:
            self.holder, turn = self._queue.popleft()
            turn.succeed()


@dataclass(eq=False, slots=True)
class SimulatedStation:
    """The state that all tasks of a rank share: its device, its handles, the names of its lanes."""

    me: RankContext
    device: Mutex
    handles: HandleTable[Promise]
    branches: Branches = field(default_factory=Branches)
    _names: list[int] = field(default_factory=list)
    _named: int = 0

    def take_name(self) -> str:
        """Returns the name of a new lane: the lowest number that is not in use, so that a run has few lanes."""
        if self._names:
            return str(heapq.heappop(self._names))
        self._named += 1
        return str(self._named)

    def give_name(self, name: str) -> None:
        heapq.heappush(self._names, int(name))


@dataclass(eq=False, slots=True)
class SimulatedTask:
    """One concurrent activity of one rank: a program or a single operation."""

    station: SimulatedStation
    me: RankContext
    """that of its station, which every operation reads"""
    name: str
    """its lane in the record"""
    promise: Promise
    lane: Lane | None = None
    """drives its program; None for a single operation"""
    place: str = ""
    """the line of the program that started a single operation"""
    line: str = ""
    """its name by `Branches`"""
    stream: str = ""
    """the program in whose order its collectives are counted, named alike on every rank, whatever the timing"""
    step: int = 0
    """the step of the program; for what it started, the step at the start"""
    blocked: Callable[[], str] = lambda: "has not begun"
    """describes what it waits for"""

    def where(self) -> str:
        """Returns the current line of its program."""
        return self.place if self.lane is None else self.lane.where()

    def __str__(self) -> str:
        return f"rank {self.me.rank} ({self.me.role}), lane {self.name}"

    def wait_for(self, promises: Sequence[Promise], least: int, env: simpy.Environment) -> Steps:
        """Waits until enough promises have settled.

        Args:
            promises: the promises.
            least: how many have to settle.
            env: the clock.
        """
        missing = least - sum([promise.settled for promise in promises])
        if missing <= 0:
            return
        turn = env.event()

        def one_more() -> None:
            nonlocal missing
            missing -= 1
            if missing == 0:
                turn.succeed()

        waited = [promise for promise in promises if not promise.settled]
        for promise in waited:
            promise.watchers.append(one_more)
        self.blocked = lambda: "waits for " + "; ".join(handle.what() for handle in waited if not handle.settled)
        yield turn

    def standing(self) -> str:
        """Returns the rank, the lane, the line of the program and the step, for messages."""
        return place_of(self.me, self.name, self.where(), self.step)
