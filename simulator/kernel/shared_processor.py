"""A processor that several activities share: while more is demanded than it has, all of them run more slowly.

* An activity demands a part of the processor for as long as it lasts: all cores of a node for a gradient, one core for
  a message, a few of a GPU's multiprocessors for an all-reduce.
* At any time all activities run at one speed, by default min(1, capacity / sum of demands). This is processor sharing
  with a weight for each activity, as of threads that an operating system schedules fairly.
* Between two changes the speed is constant, so an activity waits for the end at the present speed or for the next
  change, whichever is first. Nothing is scheduled as long as nobody else enters or leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

import simpy

from paceline.simulator.kernel.lanes import Steps

Law = Callable[[float], float]
"""the speed of all activities, 0 to 1, given the sum of their demands"""
DONE = 1e-9
"""the part of a piece of work that counts as nothing left, because progress is a sum of rounded numbers"""


def fair_share(capacity: float) -> Law:
    """Returns the law of processor sharing.

    Args:
        capacity: what the processor has, in the unit of the demands, such as cores.

    >>> two_cores = fair_share(2.0)
    >>> two_cores(1.0), two_cores(2.0), two_cores(4.0)
    (1.0, 1.0, 0.5)
    """

    def speed(demand: float) -> float:
        return min(1.0, capacity / demand) if demand > 0 else 1.0

    return speed


class SharedProcessor:
    """A processor and the activities that run on it.

    Args:
        env: the run's clock.
        law: the speed, given the sum of the demands.

    >>> env = simpy.Environment()
    >>> core = SharedProcessor(env, fair_share(1.0))
    >>> def activity(start_s, work_s):
    ...     yield env.timeout(start_s)
    ...     with core.activity(1.0):
    ...         yield from core.work(work_s)
    ...     print(f"{env.now:g} s")
    >>> _ = env.process(activity(0.0, 3.0)), env.process(activity(1.0, 1.0))
    >>> env.run()  # from 1 s to 3 s both run at half speed
    3 s
    4 s
    """

    def __init__(self, env: simpy.Environment, law: Law) -> None:
        self._env, self._law = env, law
        self._demand = 0.0
        self._progress_s = 0.0
        self._since_s = env.now
        self.speed = 1.0
        """the present speed of all activities"""
        self.changed = env.event()
        """occurs when the speed changes next"""

    @property
    def progress_s(self) -> float:
        """The seconds at full speed that an activity would have done since the beginning."""
        return self._progress_s + self.speed * (self._env.now - self._since_s)

    @contextmanager
    def activity(self, demand: float) -> Generator[None]:
        """Demands a part of the processor while the block runs."""
        self._add(demand)
        try:
            yield
        finally:
            self._add(-demand)

    def work(self, seconds: float, since_s: float | None = None) -> Steps:
        """Waits until an activity has done its work; it must have entered.

        Args:
            seconds: the work, at full speed.
            since_s: the `progress_s` at which it began; now, if it is not given.
        """
        begun_s = self.progress_s if since_s is None else since_s
        while (left_s := seconds - (self.progress_s - begun_s)) > DONE * seconds:
            yield self._env.timeout(left_s / self.speed) | self.changed

    def _add(self, demand: float) -> None:
        self._progress_s, self._since_s = self.progress_s, self._env.now
        self._demand = self._demand + demand if self._demand + demand > DONE else 0.0
        if (speed := self._law(self._demand)) != self.speed:
            self.speed = speed
            changed, self.changed = self.changed, self._env.event()
            changed.succeed()
