"""Ports that many readers share and that are rarely full.

Below capacity, every transfer runs at its own limit and a timer is enough: no max-min solve is needed. When the sum of
the limits exceeds the capacity of a port, its transfers become flows (`Flows`), which share it max-min fairly up to
their limits. This is exact, because a port that cannot be full changes no rate. The capacity of a port may depend on
the number of its users.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import simpy

from paceline.simulator.flows.flow_engine import Flows, Port
from paceline.simulator.kernel.simpy_events import after, upon

FULL = 1 + 1e-9
"""factor below which two sums count as equal, because they are rounded"""
Then = Callable[[], None]
Capacity = float | Callable[[int], float]
"""capacity of a port per second: a number, or a function of the number of its users"""


@dataclass(eq=False, slots=True)
class Part:
    """The part of a batch that passes the same ports.

    Args:
        ports: the ports that it passes.
        amount: bytes, or requests.
        pace: bytes or requests per second when it is alone, its limit.
    """

    ports: tuple[Port, ...]
    amount: float
    pace: float


@dataclass(eq=False, slots=True)
class _Batch:
    parts: Sequence[Part]
    begun_s: float
    seconds: float
    then: Then
    pending: int = 1
    """number of events to wait for: the timer, and the parts that are flows"""


class Ports:
    """The ports of a run. A part is a flow only if one of its ports may be full.

    Args:
        env: the run's clock.
        capacity: the capacity of each port.
    """

    def __init__(self, env: simpy.Environment, capacity: Mapping[Port, Capacity]) -> None:
        self._env, self._of = env, capacity
        self._capacity = {port: _for(1, given) for port, given in capacity.items()}
        """the present capacity of each port"""
        self._flows = Flows(env, self._capacity)
        self._load = dict.fromkeys(capacity, 0.0)
        """the sum of the paces of all parts at each port"""
        self._users = dict.fromkeys(capacity, 0)
        self._unshared: dict[Port, dict[Part, _Batch]] = {port: {} for port in capacity}
        """the parts at each port that are not flows"""

    def begin(self, parts: Sequence[Part], seconds: float, then: Then) -> None:
        """Begins a batch.

        Args:
            parts: its parts.
            seconds: how long it takes if every part runs at its own pace.
            then: called when all parts are done.
        """
        batch = _Batch(parts, self._env.now, seconds, then)
        for part in parts:
            for port in part.ports:
                self._load[port] += part.pace
                self._users[port] += 1
                self._unshared[port][part] = batch
        after(self._env, seconds, lambda _: self._timer_done(batch))
        for port in dict.fromkeys(port for part in parts for port in part.ports):
            self._update(port)

    def _update(self, port: Port) -> None:
        """Updates the capacity of a port and turns its parts into flows if it may be full."""
        now = _for(max(1, self._users[port]), self._of[port])
        if now != self._capacity[port]:
            self._capacity[port] = now
            self._flows.change(port, now)
        if self._load[port] > self._capacity[port] * FULL:
            for part, its in list(self._unshared[port].items()):
                self._share(part, its)

    def _share(self, part: Part, batch: _Batch) -> None:
        """Turns what is left of a part into a flow."""
        left = 1 - (self._env.now - batch.begun_s) / batch.seconds
        if left <= 0:
            return  # its timer is due at this instant
        for port in part.ports:
            del self._unshared[port][part]
        batch.pending += 1
        flow = self._flows.begin(part.ports, part.amount * left, part.pace)
        upon(flow, lambda _: self._part_done(part, batch))

    def _timer_done(self, batch: _Batch) -> None:
        for part in batch.parts:
            if part in self._unshared[part.ports[0]]:
                for port in part.ports:
                    del self._unshared[port][part]
                self._leave(part)
        self._end_one(batch)

    def _part_done(self, part: Part, batch: _Batch) -> None:
        self._leave(part)
        self._end_one(batch)

    def _leave(self, part: Part) -> None:
        for port in part.ports:
            self._users[port] -= 1
            self._load[port] = self._load[port] - part.pace if self._users[port] else 0.0
            if callable(self._of[port]):
                self._update(port)

    def _end_one(self, batch: _Batch) -> None:
        batch.pending -= 1
        if batch.pending == 0:
            batch.then()


def _for(users: int, capacity: Capacity) -> float:
    return capacity(users) if callable(capacity) else capacity
