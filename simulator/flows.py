"""Transfers in virtual time: the network engine with SimPy around it.

Rules of this file:

* What changes at one instant is solved once, after everything else of that instant.
* A flow that ends leaves its number to a later one of as many hops, so a run is no larger than what is under way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import simpy
from simpy.events import EventPriority

from paceline.simulator import fluid
from paceline.simulator.net import NONE, add_flow, network

Port = str
"""something that messages share, by name"""
AFTERWARDS = EventPriority(2)
"""SimPy's priority of what comes after the urgent (0) and the usual (1) of an instant"""


def fair_rates(flows: Sequence[tuple[Port, ...]], capacity: Mapping[Port, float]) -> list[float]:
    """The max-min fair rate of each flow, given the ports that it passes and what they carry.

    >>> fair_rates([("a", "b"), ("a",), ("b",)], {"a": 1.0, "b": 2.0})
    [0.5, 0.5, 1.5]
    """
    number = {port: index for index, port in enumerate(capacity)}
    net = network(capacity.values())
    for flow in flows:
        fluid.enter(net, add_flow(net, [number[port] for port in flow], 1.0), 0.0)
    fluid.solve(net, 0.0)
    return list(net.rate)


class Flows:
    """All transfers of a run."""

    def __init__(self, env: simpy.Environment, capacity: Mapping[Port, float]) -> None:
        self._env = env
        self._number = {port: index for index, port in enumerate(capacity)}
        self._net = network(capacity.values())
        self._begun = 0
        self._under_way: dict[int, tuple[int, simpy.Event]] = {}
        """of each flow: how many began before it, and what comes when it is through"""
        self._left: list[int] = []
        """flows that have ended at this instant"""
        self._unused: dict[int, list[int]] = {}
        """numbers that no flow has any more, by their hops"""
        self._to_solve = False
        self._solved_s = env.now
        self._soonest_s: float | None = None
        """when the next flow ends; a timer for any other time means nothing any more"""

    @property
    def carried_bytes(self) -> dict[Port, float]:
        """What has gone through each port so far, as rates times durations."""
        net, carried = self._net, list(self._net.carried)
        for flow in self._under_way:
            for entry in range(net.first[flow], net.first[flow] + net.hops[flow]):
                carried[net.link[entry]] += net.rate[flow] * (self._env.now - net.since[flow])
        return {port: carried[number] for port, number in self._number.items()}

    def begin(self, ports: tuple[Port, ...], nbytes: int) -> simpy.Event:
        """An event that comes when `nbytes` have passed all ports."""
        done = self._env.event()
        if nbytes == 0:
            return done.succeed()
        flow = self._numbered([self._number[port] for port in ports], float(nbytes))
        self._under_way[flow] = self._begun, done
        self._begun += 1
        fluid.enter(self._net, flow, self._env.now)
        self._solve_afterwards()
        return done

    def _numbered(self, route: list[int], nbytes: float) -> int:
        unused = self._unused.get(len(route))
        if not unused:
            return add_flow(self._net, route, nbytes)
        flow = unused.pop()
        first = self._net.first[flow]
        self._net.link[first : first + len(route)] = route
        self._net.remaining[flow] = nbytes
        return flow

    def _solve_afterwards(self) -> None:
        if not self._to_solve:
            self._to_solve = True
            _Afterwards(self._env, self._solve)

    def _solve(self) -> None:
        """New rates, and a timer for those that end first under them."""
        self._to_solve = False
        for flow in self._left:
            fluid.wake(self._net, flow)
            self._unused.setdefault(self._net.hops[flow], []).append(flow)
        self._left = []
        self._solved_s = self._env.now
        fluid.solve(self._net, self._solved_s)
        ends = self._net.ends
        if ends.size[0] == 0 or ends.key[ends.order[0]] == self._soonest_s:
            return
        self._soonest_s = soonest_s = ends.key[ends.order[0]]
        timer = self._env.timeout(max(soonest_s - self._env.now, 0.0))
        assert timer.callbacks is not None, "a timer that has just been made is still to come"
        timer.callbacks.append(lambda _: self._end(soonest_s))

    def _end(self, soonest_s: float) -> None:
        if soonest_s != self._soonest_s:
            return
        self._soonest_s = None
        latest_s = fluid.together(soonest_s, self._solved_s)
        while (flow := fluid.next_end(self._net, latest_s)) != NONE:
            fluid.leave(self._net, flow, self._env.now)
            self._left.append(flow)
        for _, done in sorted((self._under_way.pop(flow) for flow in self._left), key=lambda one: one[0]):
            done.succeed()
        self._solve_afterwards()


class _Afterwards(simpy.Event):
    """Comes at this instant, after all else that does."""

    def __init__(self, env: simpy.Environment, then: Callable[[], None]) -> None:
        super().__init__(env)
        self.callbacks = [lambda _: then()]
        self._ok, self._value = True, None
        env.schedule(self, AFTERWARDS)
