"""The clock of a run: SimPy's, with moments that pass only as long as something else is to come.

Rules of this file: a moment keeps no run alive. It passes when something later, or at the same time, is to come; or
when nothing is, and whoever asked for it still wants it. So what happens to links after the end changes nothing.
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
        self._moments: list[tuple[float, int, Callable[[], None], Callable[[], bool]]] = []
        self._count = count()

    def meanwhile(self, at_s: float, then: Callable[[], None], wanted: Callable[[], bool]) -> None:
        """Does `then` at a time, unless the run has ended by then.

        Args:
            wanted: asked where nothing else is to come: whether the run waits for this.
        """
        heappush(self._moments, (at_s, next(self._count), then, wanted))
        self.step = self._step  # type: ignore[method-assign]  # without moments, a step is SimPy's own

    def _step(self) -> None:
        if self._moments:
            at_s, _, then, wanted = self._moments[0]
            soonest_s = self.peek()
            if at_s <= soonest_s if soonest_s < math.inf else wanted():
                heappop(self._moments)
                after(self, max(0.0, at_s - self.now), lambda _: then())
        super().step()
