"""A processor that several activities share: while more is demanded than it has, they run more slowly.

* An activity demands a part of the processor for as long as it lasts: a core for a gradient of one thread, a few of a
  GPU's multiprocessors for an all-reduce.
* There are several kinds of activities: computing, communicating, and on measured hosts messages and a server's work.
  At any time all of one kind run at one speed, which follows by a law from the demands of computing and communicating.
  The usual law is processor sharing with weights, as of threads that an operating system schedules fairly: both kinds
  at min(1, capacity / sum of demands).
* Between two changes the speeds are constant, so an activity waits for its end at the present speed or for the next
  change, whichever is first. Nothing is scheduled as long as no activity enters or leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Literal, NamedTuple, get_args

import simpy

from paceline.simulator.kernel.lanes import Steps

Kind = Literal["compute", "communicate", "message", "serve"]
KINDS: tuple[Kind, ...] = get_args(Kind)


class Speeds(NamedTuple):
    """The speeds of the kinds of activities, 0 to 1."""

    compute: float
    communicate: float
    message: float = 1.0
    serve: float = 1.0


Law = Callable[[float, float], Speeds]
"""the speeds, given the demands of all that compute and of all that communicate"""
DONE = 1e-9
"""the part of a piece of work that counts as nothing left, because progress is a sum of rounded numbers"""


def fair_share(capacity: float) -> Law:
    """Returns the law of processor sharing.

    Args:
        capacity: what the processor has, in the unit of the demands, such as cores.

    >>> two_cores = fair_share(2.0)
    >>> two_cores(1.0, 1.0).compute, two_cores(2.0, 2.0).compute
    (1.0, 0.5)
    """

    def speeds(compute: float, communicate: float) -> Speeds:
        demand = compute + communicate
        speed = min(1.0, capacity / demand) if demand > 0 else 1.0
        return Speeds(speed, speed)

    return speeds


class SharedProcessor:
    """A processor and the activities that run on it.

    Args:
        env: the run's clock.
        law: the speeds, given the sums of the demands.

    >>> env = simpy.Environment()
    >>> core = SharedProcessor(env, fair_share(1.0))
    >>> def activity(start_s, work_s):
    ...     yield env.timeout(start_s)
    ...     with core.activity("compute", 1.0):
    ...         yield from core.work("compute", work_s)
    ...     print(f"{env.now:g} s")
    >>> _ = env.process(activity(0.0, 3.0)), env.process(activity(1.0, 1.0))
    >>> env.run()  # from 1 s to 3 s both run at half speed
    3 s
    4 s
    """

    def __init__(self, env: simpy.Environment, law: Law) -> None:
        self._env, self._law = env, law
        self._demand: dict[Kind, float] = dict.fromkeys(KINDS, 0.0)
        self._progress_s: dict[Kind, float] = dict.fromkeys(KINDS, 0.0)
        self._since_s = env.now
        self._speeds = Speeds(1.0, 1.0)
        self.changed = env.event()
        """occurs when a speed changes next"""

    def speed(self, kind: Kind) -> float:
        """Returns the present speed of the activities of a kind."""
        speed: float = getattr(self._speeds, kind)
        return speed

    @property
    def communicates(self) -> bool:
        """Whether a communicating activity runs."""
        return self._demand["communicate"] > 0

    def progress_s(self, kind: Kind) -> float:
        """Returns the seconds at full speed that an activity would have done since the beginning."""
        return self._progress_s[kind] + self.speed(kind) * (self._env.now - self._since_s)

    @contextmanager
    def activity(self, kind: Kind, demand: float) -> Generator[None]:
        """Demands a part of the processor while the block runs."""
        self._add(kind, demand)
        try:
            yield
        finally:
            self._add(kind, -demand)

    def work(self, kind: Kind, seconds: float, since_s: float | None = None) -> Steps:
        """Waits until an activity has done its work; it must have entered.

        Args:
            kind: its kind.
            seconds: the work, at full speed.
            since_s: the `progress_s` at which it began; now, if it is not given.
        """
        begun_s = self.progress_s(kind) if since_s is None else since_s
        while (left_s := seconds - (self.progress_s(kind) - begun_s)) > DONE * seconds:
            speed = self.speed(kind)
            yield self.changed if speed == 0 else self._env.timeout(left_s / speed) | self.changed

    def _add(self, kind: Kind, demand: float) -> None:
        for running in self._progress_s:
            self._progress_s[running] = self.progress_s(running)
        self._since_s = self._env.now
        whole = self._demand[kind] + demand
        self._demand[kind] = whole if whole > DONE else 0.0
        if (speeds := self._law(self._demand["compute"], self._demand["communicate"])) != self._speeds:
            self._speeds = speeds
            changed, self.changed = self.changed, self._env.event()
            changed.succeed()
