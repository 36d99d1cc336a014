"""Drives the state machine with SimPy events, for a collective on a shared network.

The path of a message is looked up when it starts, because links may have failed since the last one. A collective that
was simulated alone so far continues from its tables (`contention`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import simpy

from paceline.algorithms.core.values import Rank
from paceline.simulator.collectives.collective_plan import CollectivePlan
from paceline.simulator.collectives.pattern_tables import (
    OPEN,
    STARTS,
    PatternTables,
    as_lists,
    build_tables,
    enter_all,
    finish_s,
)
from paceline.simulator.collectives.rounds import Amounts
from paceline.simulator.collectives.state_machine import advance, bytes_through, handle
from paceline.simulator.flows.fabric import Fabric, Path
from paceline.simulator.flows.flow_engine import Flows
from paceline.simulator.flows.indexed_heap import least, take
from paceline.simulator.flows.max_min import together
from paceline.simulator.kernel.simpy_events import after, upon

Carry = Callable[[Rank, Rank, float, Path], simpy.Event]
"""begins a transfer from one rank to another along a path; returns an event that is triggered at its end, not before"""
TakeBack = Callable[[simpy.Event], float]
"""ends a transfer that `Carry` has begun, and returns the bytes that are left of it"""


class EventDriver:
    """A collective on a shared network.

    Args:
        env: the clock.
        carry: begins a transfer on the network.
        plan: the collective.
        begun_s: the time at which its messages may begin, now or later; now by default.
        tables: its state, as lists; by default all members enter at `begun_s`.
        left: the bytes that are left of the messages in flight, by their number in the tables.
    """

    def __init__(
        self,
        env: simpy.Environment,
        carry: Carry,
        plan: CollectivePlan,
        begun_s: float | None = None,
        tables: PatternTables | None = None,
        left: Mapping[int, float] | None = None,
    ) -> None:
        self._env, self._carry, self._plan = env, carry, plan
        self._begun_s = env.now if begun_s is None else begun_s
        self._tables = fresh_tables(plan) if tables is None else tables
        self.done: simpy.Event = env.event()
        """triggered when every member has completed all its rounds"""
        self._processed_s = self._now
        """when events were processed for the last time"""
        self._due_s: float | None = None
        """when the next event is due; timers for other times are ignored"""
        self._moving: dict[int, simpy.Event] | None = {}
        """the transfers under way, by the number of their message; None after `stop`"""
        for index, nbytes in (left or {}).items():
            self._start(index, nbytes)
        self._proceed()

    @property
    def _now(self) -> float:
        """The present time as the tables count it."""
        return self._env.now - self._begun_s

    def _start(self, index: int, nbytes: float) -> None:
        """Begins the transfer of a message, or of what is left of it."""
        message, ranks = self._tables.messages[index], self._plan.ranks
        source, target = ranks[message.source % len(ranks)], ranks[message.target % len(ranks)]
        path = self._plan.path(source, target, message.nbytes)
        message.latency_s = path.latency_s
        event = self._carry(source, target, nbytes, path)
        assert self._moving is not None, "a driver that was stopped starts nothing"
        self._moving[index] = event
        upon(event, lambda _: self._through(index))

    def stop(self, take_back: TakeBack) -> tuple[PatternTables, dict[int, float]]:
        """Ends the driver, and all its transfers where they are.

        Args:
            take_back: ends a transfer, and returns the bytes that are left of it.

        Returns:
            The state, and the bytes that are left of each message in flight, by its number.
        """
        assert self._moving is not None, "a driver is stopped once"
        left = {index: take_back(event) for index, event in self._moving.items()}
        self._moving = self._due_s = None
        return self._tables, left

    def _through(self, index: int) -> None:
        if self._moving is None:
            return
        del self._moving[index]
        bytes_through(self._tables, index, self._now)
        self._proceed()

    def _process(self, due_s: float) -> None:
        """Processes all events that are due at this time."""
        if due_s != self._due_s:
            return
        tables, now = self._tables, self._now
        latest_s, self._processed_s, self._due_s = together(due_s, self._processed_s), now, None
        while least(tables.events) <= latest_s:
            item = tables.events.order[0]
            take(tables.events, item)
            handle(tables, item, now)
            advance(tables, now)
        self._proceed()

    def _proceed(self) -> None:
        """Lets members proceed, starts messages, and starts a timer for the next event."""
        tables, now = self._tables, self._now
        advance(tables, now)
        count, tables.counts[STARTS] = tables.counts[STARTS], 0
        for index in tables.starts[:count]:
            self._start(index, tables.messages[index].nbytes)
        due_s = least(tables.events)
        if not tables.counts[OPEN]:
            self.done.succeed()
        elif tables.events.size[0] and due_s != self._due_s:
            self._due_s = due_s
            after(self._env, max(0.0, due_s - now), lambda _: self._process(due_s))


def fresh_tables(plan: CollectivePlan, entries_s: Amounts | None = None) -> PatternTables:
    """Returns the initial state, as lists.

    Args:
        plan: the collective.
        entries_s: when each member enters, seconds; all at 0 by default.
    """
    tables = as_lists(build_tables(plan))
    enter_all(tables, np.zeros(len(plan.ranks)) if entries_s is None else entries_s)
    return tables


def simulate_by_events(plan: CollectivePlan, fabric: Fabric, entries_s: Amounts) -> Amounts:
    """Computes the same result as `standalone.simulate`, with SimPy events.

    Args:
        plan: the collective.
        fabric: its network, which it uses alone.
        entries_s: when each rank enters, seconds.

    Returns:
        When each rank is done, seconds.
    """
    env = simpy.Environment(0.0)
    flows = Flows(env, fabric.capacity)

    def carry(_one: Rank, _other: Rank, nbytes: float, path: Path) -> simpy.Event:
        return flows.begin(path.ports, nbytes, path.limit_bytes_per_s)

    tables = fresh_tables(plan, entries_s)
    env.run(EventDriver(env, carry, plan, 0.0, tables).done)
    return finish_s(tables, entries_s)
