"""Transfers that share ports: max-min fair, by progressive filling.

Rules of this file:

* A flow has a rate, which changes only when a flow begins or ends; in between everything is a straight line.
* Who ends next is decided when rates are set, not by comparing what remains with nought: no rounding can lose a flow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import simpy

Port = str
"""something that messages share, by name"""
TOGETHER = 1 + 1e-12
"""flows that end within this factor of each other end together: equal shares may differ in their last bit"""


@dataclass(eq=False, slots=True)
class Flow:
    """A transfer under way."""

    ports: tuple[Port, ...]
    remaining_bytes: float
    done: simpy.Event
    bytes_per_s: float = 0.0

    @property
    def left_s(self) -> float:
        return self.remaining_bytes / self.bytes_per_s


def fair_rates(flows: Sequence[tuple[Port, ...]], capacity: Mapping[Port, float]) -> list[float]:
    """The max-min fair rate of each flow, given the ports that it passes and what they carry.

    All rates rise together until a port is full; the flows through it keep theirs, the others go on
    (progressive filling).

    >>> fair_rates([("a", "b"), ("a",), ("b",)], {"a": 1.0, "b": 2.0})
    [0.5, 0.5, 1.5]
    """
    rates = [0.0] * len(flows)
    free = {port: capacity[port] for flow in flows for port in flow}
    rising = dict.fromkeys(range(len(flows)))
    while rising:
        count = dict.fromkeys(free, 0)
        for index in rising:
            for port in flows[index]:
                count[port] += 1
        full = min((port for port in free if count[port]), key=lambda port: free[port] / count[port])
        rate = free[full] / count[full]
        for index in [index for index in rising if full in flows[index]]:
            rates[index] = rate
            del rising[index]
            for port in flows[index]:
                free[port] -= rate
        del free[full]
    return rates


class Flows:
    """All transfers of a run."""

    def __init__(self, env: simpy.Environment, capacity: Mapping[Port, float]) -> None:
        self._env, self._capacity = env, capacity
        self._flows: list[Flow] = []
        self._since_s = env.now
        self.carried_bytes: dict[Port, float] = dict.fromkeys(capacity, 0.0)
        """what has gone through each port so far, as rates times durations"""
        self._plan = 0
        """counts the changes of rates; a timer of an earlier plan means nothing any more"""

    def begin(self, ports: tuple[Port, ...], nbytes: int) -> simpy.Event:
        """An event that comes when `nbytes` have passed all ports."""
        flow = Flow(ports, float(nbytes), self._env.event())
        if nbytes == 0:
            return flow.done.succeed()
        self._pass_time()
        self._flows.append(flow)
        self._set_rates()
        return flow.done

    def _pass_time(self) -> None:
        """What has gone through since the rates were set."""
        passed = self._env.now - self._since_s
        self._since_s = self._env.now
        for flow in self._flows:
            moved = min(flow.remaining_bytes, flow.bytes_per_s * passed)
            flow.remaining_bytes -= moved
            for port in flow.ports:
                self.carried_bytes[port] += moved

    def _set_rates(self) -> None:
        """New rates, and a timer for those that end first under them."""
        self._plan += 1
        if not self._flows:
            return
        rates = fair_rates([flow.ports for flow in self._flows], self._capacity)
        for flow, rate in zip(self._flows, rates, strict=True):
            flow.bytes_per_s = rate
        soonest = min(flow.left_s for flow in self._flows)
        ending = [flow for flow in self._flows if flow.left_s <= soonest * TOGETHER]
        timer, plan = self._env.timeout(soonest), self._plan
        assert timer.callbacks is not None, "a timer that has just been made is still to come"
        timer.callbacks.append(lambda _: self._end(ending, plan))

    def _end(self, ending: list[Flow], plan: int) -> None:
        if plan != self._plan:
            return
        self._pass_time()
        self._flows = [flow for flow in self._flows if flow not in ending]
        self._set_rates()
        for flow in ending:
            flow.done.succeed()
