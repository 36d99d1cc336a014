"""Ports that many share, most of which are hardly ever full.

Rules of this file: as long as all who are at a port could not, each at its own pace, ask for more than the port has,
nothing is shared, and a timer is all. What crosses a port that is asked for more becomes a flow (`Flows`): max-min
fair, with its own pace as its limit. That is exact, as a port that can never be full changes no flow's rate. What a
port has may depend on how many are at it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import simpy

from paceline.simulator.flows.flow_engine import Flows, Port
from paceline.simulator.kernel.simpy_events import after, upon

FULL = 1 + 1e-9
"""so many times as much is as much: sums are rounded"""
Then = Callable[[], None]
Capacity = float | Callable[[int], float]
"""of a port, a second; or for so many as are at it"""


@dataclass(eq=False, slots=True)
class Part:
    """What one batch wants of the same ports.

    Args:
        ports: those that it has to come through.
        amount: bytes, or requests.
        pace: of them in a second, alone.
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
    """the timer, and the parts that are flows"""


class Ports:
    """What all readers share. A part is a flow only where a port of its may be full."""

    def __init__(self, env: simpy.Environment, capacity: Mapping[Port, Capacity]) -> None:
        self._env, self._of = env, capacity
        self._capacity = {port: _for(1, given) for port, given in capacity.items()}
        """of each port, for as many as are at it"""
        self._flows = Flows(env, self._capacity)
        self._load = dict.fromkeys(capacity, 0.0)
        """what would come through each port if every part had its pace alone"""
        self._users = dict.fromkeys(capacity, 0)
        self._calm: dict[Port, dict[Part, _Batch]] = {port: {} for port in capacity}
        """the parts on each port that are no flows"""

    def begin(self, parts: Sequence[Part], seconds: float, then: Then) -> None:
        """Calls somebody when all parts are through, `seconds` from now if they have their pace."""
        batch = _Batch(parts, self._env.now, seconds, then)
        for part in parts:
            for port in part.ports:
                self._load[port] += part.pace
                self._users[port] += 1
                self._calm[port][part] = batch
        after(self._env, seconds, lambda _: self._due(batch))
        for port in dict.fromkeys(port for part in parts for port in part.ports):
            self._look_at(port)

    def _look_at(self, port: Port) -> None:
        """Shares it from now on, if it may be full."""
        now = _for(max(1, self._users[port]), self._of[port])
        if now != self._capacity[port]:
            self._capacity[port] = now
            self._flows.change(port, now)
        if self._load[port] > self._capacity[port] * FULL:
            for part, its in list(self._calm[port].items()):
                self._share(part, its)

    def _share(self, part: Part, batch: _Batch) -> None:
        """From now on the part is a flow, with what is left of it."""
        left = 1 - (self._env.now - batch.begun_s) / batch.seconds
        if left <= 0:
            return  # its timer comes at this very moment
        for port in part.ports:
            del self._calm[port][part]
        batch.pending += 1
        flow = self._flows.begin(part.ports, part.amount * left, part.pace)
        upon(flow, lambda _: self._through(part, batch))

    def _due(self, batch: _Batch) -> None:
        for part in batch.parts:
            if part in self._calm[part.ports[0]]:
                for port in part.ports:
                    del self._calm[port][part]
                self._leave(part)
        self._end_one(batch)

    def _through(self, part: Part, batch: _Batch) -> None:
        self._leave(part)
        self._end_one(batch)

    def _leave(self, part: Part) -> None:
        for port in part.ports:
            self._users[port] -= 1
            self._load[port] = self._load[port] - part.pace if self._users[port] else 0.0
            if callable(self._of[port]):
                self._look_at(port)

    def _end_one(self, batch: _Batch) -> None:
        batch.pending -= 1
        if batch.pending == 0:
            batch.then()


def _for(users: int, capacity: Capacity) -> float:
    return capacity(users) if callable(capacity) else capacity
