"""The collectives of a run, which share the network with messages and with each other.

* Invariant: when a collective is done does not depend on whether its messages are simulated one by one.
* A collective whose ports nothing else uses is not simulated message by message. `pattern_time` knows when it will be
  done, and a timer waits for that. When a message or another collective comes to one of its ports, `standalone` finds
  the state that its state machine is in at this moment, and `event_driver` goes on from there on the shared network.
* Rejected: to simulate every message on the shared network. A ring of 64 ranks has 8,064 messages, and most collectives
  of most runs are alone on their ports. Rejected, too: to slow a collective down by a factor while it shares ports,
  because such a factor depends on which messages meet.
* Source: SimGrid's and SMPI's fluid model shares links among messages in the same way, without the short cut.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from math import inf

import simpy

from paceline.simulator.collectives.event_driver import Carry, EventDriver
from paceline.simulator.collectives.pattern_tables import OPEN
from paceline.simulator.collectives.pattern_time import alone_s
from paceline.simulator.collectives.plan import CollectivePlan
from paceline.simulator.collectives.standalone import state_at
from paceline.simulator.flows.fabric import Fabric
from paceline.simulator.flows.flow_engine import Port
from paceline.simulator.kernel.simpy_events import after, upon


@dataclass(eq=False, slots=True)
class ActiveCollective:
    """A collective under way."""

    plan: CollectivePlan
    ports: frozenset[Port]
    begun_s: float
    """when its messages may begin"""
    done: simpy.Event
    alone: bool
    """whether a timer stands for its messages"""


class Contention:
    """All collectives of a run.

    Args:
        env: the run's clock.
        fabric: what messages cross.
        carry: moves bytes on the shared network.
    """

    def __init__(self, env: simpy.Environment, fabric: Fabric, carry: Carry) -> None:
        self._env, self._fabric, self._carry = env, fabric, carry
        self._users: dict[Port, list[ActiveCollective]] = {}
        """the collectives that may use each port"""
        self._messages: dict[simpy.Event, tuple[Port, ...]] = {}
        """the ports of each message that is not part of a collective"""
        self._known: dict[CollectivePlan, tuple[frozenset[Port], float]] = {}
        """of each plan: its ports, and the seconds that it takes alone"""

    def start(self, plan: CollectivePlan) -> simpy.Event:
        """Starts a collective that all ranks enter now; the event comes when every rank is done."""
        if plan not in self._known:
            self._known[plan] = self._alone(plan)
        ports, seconds = self._known[plan]
        others = self._active_on(ports)
        alone = not others and seconds < inf and all(map(ports.isdisjoint, self._messages.values()))
        active = ActiveCollective(plan, ports, self._env.now + plan.base_s, self._env.event(), alone)
        for port in ports:
            self._users.setdefault(port, []).append(active)
        if alone:
            after(self._env, seconds, lambda _: self._end(active) if active.alone else None)
        else:
            for other in others:
                self.carry_out(other)
            self._follow(EventDriver(self._env, self._carry, plan, active.begun_s), active)
        return active.done

    def _alone(self, plan: CollectivePlan) -> tuple[frozenset[Port], float]:
        """A plan's ports, and the seconds that it takes alone: infinite while a port is broken."""
        ports, capacity = plan.ports(), self._fabric.capacity
        if not all(capacity[port] for port in ports):
            return ports, inf
        return ports, float(alone_s(plan, self._fabric).max(initial=0.0))

    def message(self, message: simpy.Event, ports: tuple[Port, ...]) -> None:
        """A message that is not part of a collective is about to use these ports; the event stands for it."""
        self._messages[message] = ports
        if self._users:
            for active in self._active_on(ports):
                self.carry_out(active)

    def passed(self, message: simpy.Event) -> None:
        """The message has passed its ports."""
        del self._messages[message]

    def moved(self, message: simpy.Event, ports: tuple[Port, ...]) -> None:
        """The message goes on along other ports. Messages of collectives are ignored here."""
        if message in self._messages:
            self.message(message, ports)

    def disturb(self, ports: Iterable[Port]) -> None:
        """Ports are about to change: collectives on them are simulated message by message from now on."""
        for active in self._active_on(ports):
            self.carry_out(active)
        self._known.clear()

    def rerouted(self) -> None:
        """Paths have changed: collectives whose ports others use now are simulated message by message."""
        for active in self._active():
            if active.alone:
                continue
            more = frozenset(chain.from_iterable(active.plan.current_routes())) - active.ports
            for other in self._active_on(more):
                self.carry_out(other)
            for port in more:
                self._users.setdefault(port, []).append(active)
            active.ports |= more

    def alone(self) -> list[ActiveCollective]:
        """The collectives under way that a timer stands for."""
        return [active for active in self._active() if active.alone]

    def carry_out(self, active: ActiveCollective) -> None:
        """From now on, a collective is simulated message by message; does nothing where it is already."""
        if not active.alone:
            return
        tables, left = state_at(active.plan, self._fabric, self._env.now - active.begun_s)
        if not tables.counts[OPEN]:
            return  # its timer comes at this moment
        active.alone = False
        self._follow(EventDriver(self._env, self._carry, active.plan, active.begun_s, tables, left), active)

    def _follow(self, driver: EventDriver, active: ActiveCollective) -> None:
        upon(driver.done, lambda _: self._end(active))

    def _end(self, active: ActiveCollective) -> None:
        for port in active.ports:
            users = self._users[port]
            users.remove(active)
            if not users:
                del self._users[port]
        active.done.succeed()

    def _active(self) -> list[ActiveCollective]:
        return list(dict.fromkeys(active for users in self._users.values() for active in users))

    def _active_on(self, ports: Iterable[Port]) -> list[ActiveCollective]:
        return list(dict.fromkeys(active for port in ports for active in self._users.get(port, ())))
