"""What runs in a simulation: tasks, and the stations of the ranks that they run on.

Rules of this file:

* A task is one line of execution on one rank: the program itself ("main") or something that it started.
* Failures are values here. SimPy makes an exception anew when it passes from one process to another, and loses what it
  held; so a task keeps its failure in its `Promise`, which raises it where it is waited for.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import simpy

from paceline.algorithms.core.method import RankContext
from paceline.algorithms.core.program import Branches, Lane
from paceline.algorithms.runtime.handles import HandleTable, Promise
from paceline.algorithms.runtime.program_errors import place_of
from paceline.algorithms.runtime.update_log import UpdateLog

Steps = Generator[simpy.Event, Any, Any]
"""the part of a SimPy process that performs one operation"""


class Mutex:
    """Held by one task at a time; the others queue, first come first served."""

    def __init__(self, env: simpy.Environment) -> None:
        self.holder: Task | None = None
        self._env = env
        self._queue: deque[tuple[Task, simpy.Event]] = deque()

    def take(self, task: Task) -> bool:
        """Takes it if nobody holds it; says whether it did."""
        if self.holder is None:
            self.holder = task
            return True
        return False

    def acquire(self, task: Task, what: str) -> Steps:
        """Waits for its turn; `what` is what it waits for, for messages."""
        if self.take(task):
            return
        entry = (task, self._env.event())
        self._queue.append(entry)
        task.blocked = lambda: f"waits for {what}, held by {self.holder}"
        try:
            yield entry[1]
        except simpy.Interrupt:  # cancelled: its place in the queue, or its turn, goes to the next
            if entry[1].triggered:
                self.release()
            else:
                self._queue.remove(entry)
            raise

    def release(self) -> None:
        """Gives it to the next in the queue."""
        self.holder = None
        if self._queue:
            self.holder, turn = self._queue.popleft()
            turn.succeed()


@dataclass(eq=False, slots=True)
class Station:
    """One rank's place: its device, its log of updates, its handles, the names of its lanes."""

    me: RankContext
    device: Mutex
    log: UpdateLog
    handles: HandleTable[Promise]
    branches: Branches = field(default_factory=Branches)
    _names: list[int] = field(default_factory=list)
    _named: int = 0

    def take_name(self) -> str:
        """The name of a new lane: the lowest number that no lane has now, so that a run has few lanes."""
        if self._names:
            return str(heapq.heappop(self._names))
        self._named += 1
        return str(self._named)

    def give_name(self, name: str) -> None:
        heapq.heappush(self._names, int(name))


@dataclass(eq=False, slots=True)
class Task:
    """One line of execution on one rank."""

    station: Station
    name: str
    promise: Promise
    lane: Lane | None = None
    """None for a single operation"""
    place: str = ""
    """where a single operation was started: it has no line of its own"""
    line: str = ""
    """its name by `Branches`"""
    stream: str = ""
    """whose order its collectives stand in: its program's, counted alike on every rank, whatever the timing"""
    step: int = 0
    """the program's; of what it started, the one in which it did"""
    blocked: Callable[[], str] = lambda: "has not begun"
    """what it waits for, in words"""

    @property
    def me(self) -> RankContext:
        return self.station.me

    def where(self) -> str:
        """The line of the program it is at."""
        return self.place if self.lane is None else self.lane.where()

    def __str__(self) -> str:
        return f"rank {self.me.rank} ({self.me.role}), lane {self.name}"

    def wait_for(self, promises: Sequence[Promise], least: int, env: simpy.Environment) -> Steps:
        """Waits until `least` of the promises have settled."""
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
        self.blocked = lambda: "waits for " + "; ".join(one.what() for one in waited if not one.settled)
        yield turn

    def standing(self) -> str:
        """The rank, its lane, the line of its program and the step, for messages."""
        return place_of(self.me, self.name, self.where(), self.step)


def continued(steps: Steps, event: simpy.Event) -> Steps:
    """Goes on with steps that have run up to `event` already."""
    while True:
        try:
            value = yield event
        except simpy.Interrupt as interrupt:
            resume = partial(steps.throw, interrupt)
        else:
            resume = partial(steps.send, value)
        try:
            event = resume()
        except StopIteration as end:
            return end.value
