"""Flows in virtual time: connects the max-min solver of `max_min` to SimPy.

* Invariant: the rates are max-min fair at every instant, and times do not depend on the shortcuts below.
* All changes of one instant are collected and solved once, after all other events of that instant. Rejected: solving at
  each change, because n flows that begin together would then be solved n times, with the same result.
* Shortcuts: a flow that shares no port with another one needs no solving: its rate is the capacity of its narrowest
  port. It enters the network when another flow begins on one of its ports or when one of them changes. (Measured: 96 %
  of the flows of async-sgd on 64 workers, which becomes 1.4 times as fast.) With very many flows in the network, as
  at a parameter server, compiled code takes over.
* The limit of a single flow is a link that only this flow uses. Numbers of flows, and these links, are reused when a
  flow has ended, so memory grows with the number of concurrent flows, not with the length of the run.
* Source: the flow model of SimGrid, which also shares links max-min fairly; for the solver see `max_min`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf

import simpy

from paceline.algorithms.core.errors import InputError
from paceline.simulator.flows.max_min import (
    NONE,
    PLAIN_PYTHON,
    Net,
    add_flow,
    add_link,
    as_arrays,
    as_lists,
    least,
    machine_code,
    network,
    together,
    until,
)  # fmt: skip
from paceline.simulator.kernel.simpy_events import after, afterwards, happen

MANY = 300
"""number of concurrent flows in the network from which compiled code is used"""
Port = str
"""the name of a shared resource, such as one direction of a link"""


@dataclass(slots=True)
class _Flow:
    """A flow that has not ended."""

    begun: int
    """the number of flows that began before it"""
    ports: tuple[Port, ...]
    remaining: float
    """bytes left at the time when it enters, or enters again, the network; or at `since_s`, if it shares no port"""
    limit_bytes_per_s: float
    done: simpy.Event
    """the event for its end"""
    number: int = NONE
    """number in the network; NONE until it has entered"""
    separate: bool = False
    """whether it shares no port with another flow, and is not in the network"""
    since_s: float = 0.0
    """when it began, if it shares no port"""
    rate: float = 0.0
    """bytes per second, if it shares no port"""


class Flows:
    """All flows of a run.

    Args:
        env: the run's clock.
        capacity: bytes per second of each port.

    >>> env = simpy.Environment(0.0)
    >>> flows = Flows(env, {"a": 10.0, "b": 4.0})
    >>> first, second = flows.begin(("a",), 30), flows.begin(("a", "b"), 10, limit_bytes_per_s=2.0)
    >>> env.run(first), env.now
    (None, 3.75)
    >>> flows.change("b", 1.0)
    >>> env.run(second), env.now
    (None, 6.25)
    """

    def __init__(self, env: simpy.Environment, capacity: Mapping[Port, float]) -> None:
        self._env = env
        self._number = {port: index for index, port in enumerate(capacity)}
        self._net, self._code = network(capacity.values()), PLAIN_PYTHON
        self._capacity = dict(capacity)
        """present bytes per second of each port"""
        self._begun = 0
        self._under_way: dict[simpy.Event, _Flow] = {}
        self._done: dict[int, simpy.Event] = {}
        """the event of each flow in the network, by number"""
        self._routes: dict[int, list[int]] = {}
        """the links of each number that is in use"""
        self._unused: dict[int, list[int]] = {}
        """numbers that are not in use, by the number of hops"""
        self._unused_limits: list[int] = []
        """links of single flows that are not in use"""
        self._separate: dict[Port, _Flow] = {}
        """the flow on each port that only one flow uses, which shares none of its ports"""
        self._sharing: dict[Port, int] = {}
        """the number of flows on each port that are in the network or will enter it"""
        self._to_solve = False
        self._left: list[int] = []
        """flows that have left the network since the last solution"""
        self._changed: dict[int, float] = {}
        """links whose capacity has changed since the last solution"""
        self._to_enter: dict[simpy.Event, _Flow] = {}
        self._solved_s = env.now
        self._soonest_s: float | None = None
        """when the next flow ends; timers for other times are ignored"""

    @property
    def idle(self) -> bool:
        """Whether no flow is under way or about to enter."""
        return not self._under_way and not self._to_enter

    def begin(self, ports: tuple[Port, ...], nbytes: float, limit_bytes_per_s: float = inf) -> simpy.Event:
        """Begins a flow.

        Args:
            ports: the ports that it passes.
            nbytes: its bytes.
            limit_bytes_per_s: its largest rate.

        Returns:
            An event that is triggered when all bytes have passed the ports.
        """
        done = self._env.event()
        if nbytes == 0 or not (ports or limit_bytes_per_s < inf):
            return done.succeed()
        flow = self._under_way[done] = _Flow(self._begun, ports, float(nbytes), limit_bytes_per_s, done)
        self._begun += 1
        self._place(flow)
        return done

    def change(self, port: Port, bytes_per_s: float) -> None:
        """Sets the capacity of a port. At 0, its flows make no progress until the capacity is raised again.

        Args:
            port: the port.
            bytes_per_s: its new capacity.

        Raises:
            InputError: the capacity is negative or not finite.
        """
        if not 0.0 <= bytes_per_s < inf:
            raise InputError(f"port {port!r}: found {bytes_per_s} bytes/s, expected 0 or more, finite")
        if (flow := self._separate.get(port)) is not None:
            self._join(flow)
        self._changed[self._number[port]] = self._capacity[port] = float(bytes_per_s)
        self._solve_afterwards()

    def move(self, event: simpy.Event, ports: tuple[Port, ...]) -> None:
        """Moves what is left of a flow to other ports, with the same limit. Has no effect if the flow has ended.

        Args:
            event: the event that `begin` returned for the flow.
            ports: its new ports.
        """
        if event.triggered:
            return
        flow = self._under_way[event]
        self._displace(flow)
        if flow.number != NONE:
            self._leave(flow.number)
            flow.remaining, flow.number = self._net.flows[flow.number].remaining, NONE
        flow.ports = ports
        if ports or flow.limit_bytes_per_s < inf:
            self._place(flow)
        else:
            del self._under_way[event]
            event.succeed()
        self._solve_afterwards()

    def cancel(self, event: simpy.Event) -> None:
        """Ends a flow before all its bytes have passed; its event is not triggered. Has no effect if it has ended.

        >>> env = simpy.Environment(0.0)
        >>> flows = Flows(env, {"a": 1.0})
        >>> first, second = flows.begin(("a",), 4), flows.begin(("a",), 4)
        >>> env.run(2.0)
        >>> flows.cancel(first)
        >>> env.run(second), env.now
        (None, 5.0)
        """
        if event.triggered:
            return
        flow = self._under_way.pop(event)
        self._displace(flow)
        if flow.number != NONE:
            self._leave(flow.number)
        self._solve_afterwards()

    def route(self, event: simpy.Event) -> tuple[Port, ...]:
        """Returns the ports of a flow that has not ended, given the event that `begin` returned."""
        return self._under_way[event].ports

    def remaining(self, event: simpy.Event) -> float:
        """Returns the bytes that are left of a flow, given the event that `begin` returned."""
        flow = self._under_way.get(event)
        if flow is None:
            return 0.0
        if flow.separate:
            return max(0.0, flow.remaining - flow.rate * (self._env.now - flow.since_s))
        if flow.number == NONE:
            return flow.remaining
        its = self._net.flows[flow.number]
        return max(0.0, float(its.remaining - its.rate * (self._env.now - its.since)))

    # --- flows that share no port -----------------------------------------------------------------------------------

    def _place(self, flow: _Flow) -> None:
        """Begins a flow: by itself if no other flow uses its ports, otherwise in the network."""
        ports, separate = flow.ports, self._separate
        if not (separate.keys().isdisjoint(ports) and self._sharing.keys().isdisjoint(ports)):
            self._join(flow)
            return
        separate.update(dict.fromkeys(ports, flow))
        rate = min(map(self._capacity.__getitem__, ports), default=inf)
        rate = min(rate, flow.limit_bytes_per_s)
        flow.separate, flow.since_s, flow.rate = True, self._env.now, rate
        if (seconds := until(flow.remaining, rate)) < inf:
            begun_s = flow.since_s
            after(self._env, seconds, lambda _: self._end_separate(flow, begun_s))

    def _join(self, flow: _Flow) -> None:
        """Lets a flow enter the network at the next solution, together with the flows that it shares ports with."""
        if flow.separate:
            self._leave_ports(flow)
        sharing = self._sharing
        for port in flow.ports:
            if (other := self._separate.get(port)) is not None:
                self._join(other)
            sharing[port] = sharing.get(port, 0) + 1
        self._to_enter[flow.done] = flow
        self._solve_afterwards()

    def _displace(self, flow: _Flow) -> None:
        """Frees the ports of a flow; one in the network has to leave it."""
        if flow.separate:
            self._leave_ports(flow)
            return
        self._to_enter.pop(flow.done, None)
        sharing = self._sharing
        for port in flow.ports:
            sharing[port] -= 1
            if not sharing[port]:
                del sharing[port]

    def _leave_ports(self, flow: _Flow) -> None:
        """Frees the ports of a flow that shares none."""
        flow.separate, flow.remaining = False, flow.remaining - flow.rate * (self._env.now - flow.since_s)
        for port in flow.ports:
            self._separate.pop(port, None)  # a route may pass a port twice

    def _end_separate(self, flow: _Flow, begun_s: float) -> None:
        if not flow.separate or flow.since_s != begun_s:
            return  # it shares a port by now, or has moved
        self._leave_ports(flow)
        del self._under_way[flow.done]
        happen(flow.done)

    # --- flows in the network ----------------------------------------------------------------------------------------

    def _leave(self, number: int) -> None:
        self._code.leave(self._net, number, self._env.now)
        del self._done[number]
        self._left.append(number)

    def _enter(self, done: simpy.Event, flow: _Flow, now: float) -> None:
        route = [self._number[port] for port in flow.ports]
        if flow.limit_bytes_per_s < inf:
            self._unused_limits = self._unused_limits or self._grown(lambda net: add_link(net, 0.0))
            route.append(self._unused_limits.pop())
            self._code.change(self._net, route[-1], flow.limit_bytes_per_s)
        hops = len(route)
        if not self._unused.get(hops):
            self._unused[hops] = self._grown(lambda net: add_flow(net, [NONE] * hops, 0.0))
        flow.number = self._unused[hops].pop()
        self._done[flow.number], self._routes[flow.number] = done, route
        self._code.enter_anew(self._net, flow.number, flow.remaining, tuple(route), now)

    def _grown(self, add: Callable[[Net], int]) -> list[int]:
        """Adds a row to the tables, and returns its number; if they are arrays, which are copied then, many rows."""
        if self._code is PLAIN_PYTHON:
            return [add(self._net)]
        net = as_lists(self._net)
        numbers = [add(net) for _ in range(max(64, len(self._done) // 2))]
        self._net = as_arrays(net)
        return numbers[::-1]

    def _solve_afterwards(self) -> None:
        if not self._to_solve:
            self._to_solve = True
            afterwards(self._env, self._solve)

    def _solve(self) -> None:
        """Computes new rates and starts a timer for the flows that end first."""
        self._to_solve = False
        for number in self._left:  # they, and the links that were their limits, may be used again
            route = self._routes.pop(number)
            self._unused.setdefault(len(route), []).append(number)
            if route[-1] >= len(self._number):
                self._unused_limits.append(route[-1])
        self._left, self._solved_s = [], self._env.now
        for link, bytes_per_s in self._changed.items():
            self._code.change(self._net, link, bytes_per_s)
        for done, flow in self._to_enter.items():
            self._enter(done, flow, self._solved_s)
        if len(self._done) > MANY and self._code is PLAIN_PYTHON:
            self._net, self._code = as_arrays(self._net), machine_code()
        self._changed, self._to_enter = {}, {}
        self._code.solve(self._net, self._solved_s)
        self._start_timer(float(least(self._net.ends)))

    def _start_timer(self, soonest_s: float) -> None:
        """Starts a timer for the flows that end first."""
        if soonest_s == inf or soonest_s == self._soonest_s:
            return
        self._soonest_s = soonest_s
        after(self._env, max(soonest_s - self._env.now, 0.0), lambda _: self._end(soonest_s))

    def _end(self, soonest_s: float) -> None:
        if soonest_s != self._soonest_s:
            return
        self._soonest_s = None
        latest_s = together(soonest_s, self._solved_s)
        ended = []
        while least(self._net.ends) <= latest_s:
            number = int(self._net.ends.order[0])
            ended.append(self._done[number])
            self._leave(number)
        ended.sort(key=lambda event: self._under_way[event].begun)
        for done in ended:
            self._displace(self._under_way.pop(done))
        if self._done:
            self._solve_afterwards()
        for done in ended:
            happen(done)
