"""The clock of a run: SimPy's environment, with background callbacks that do not keep a run alive.

A background callback is called if other events follow at its time or later, or if its `wanted` function says that the
run waits for it. So link faults after the end of a run have no effect.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

import simpy

from paceline.simulator.kernel.simpy_events import after


class Clock(simpy.Environment):
    """Virtual time from 0 on.

    >>> clock = Clock()
    >>> clock.meanwhile(2.0, lambda: print("passes at", clock.now), lambda: False)
    >>> clock.meanwhile(9.0, lambda: print("never passes"), lambda: False)
    >>> _ = clock.timeout(3.0)
    >>> clock.run()
    passes at 2.0
    """

    def __init__(self) -> None:
        super().__init__(0.0)
        self._callbacks: list[tuple[float, int, Callable[[], None], Callable[[], bool]]] = []
        self._count = count()

    def meanwhile(self, at_s: float, then: Callable[[], None], wanted: Callable[[], bool]) -> None:
        """Schedules a background callback, which is not called if the run ends before.

        Args:
            at_s: the time of the call, seconds.
            then: the callback.
            wanted: called if there are no other events; returns whether the run waits for the callback.
        """
        heappush(self._callbacks, (at_s, next(self._count), then, wanted))
        self.step = self._step  # type: ignore[method-assign]  # without callbacks, SimPy's own `step` is used

    def _step(self) -> None:
        if self._callbacks:
            at_s, _, then, wanted = self._callbacks[0]
            soonest_s = self.peek()
            if at_s <= soonest_s if soonest_s < math.inf else wanted():
                heappop(self._callbacks)
                after(self, max(0.0, at_s - self.now), lambda _: then())
        super().step()
