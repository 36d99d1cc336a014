"""The collectives of a run, which share the network with messages and with each other.

* Invariant: the end of a collective does not depend on whether its messages are simulated one by one.
* A collective that is alone on its ports is not simulated message by message: `pattern_time` computes its end, and a
  timer waits for it. When a message or another collective begins to use one of its ports, `standalone` computes the
  state of its state machine at this instant, and `event_driver` continues from this state on the shared network.
* Rejected: simulating every message on the shared network. A ring of 64 ranks has 8,064 messages, and most collectives
  of most runs are alone on their ports. Also rejected: slowing a collective down by a factor while it shares ports,
  because such a factor depends on which messages overlap.
* Source: the flow model of SimGrid and SMPI shares links among messages in the same way, without the shortcut.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from math import inf

import simpy

from paceline.simulator.collectives.collective_plan import CollectivePlan
from paceline.simulator.collectives.event_driver import Carry, EventDriver
from paceline.simulator.collectives.link_traffic import LinkTraffic
from paceline.simulator.collectives.pattern_tables import OPEN
from paceline.simulator.collectives.pattern_time import alone_s
from paceline.simulator.collectives.standalone import state_at
from paceline.simulator.flows.fabric import Fabric
from paceline.simulator.flows.flow_engine import Port
from paceline.simulator.kernel.simpy_events import after, upon

Alone = tuple[frozenset[Port], float]
"""the ports of a plan, and the seconds that it takes alone on them"""


@dataclass(eq=False, slots=True)
class ActiveCollective:
    """A collective that has begun and not ended."""

    plan: CollectivePlan
    ports: frozenset[Port]
    begun_s: float
    """when its first messages may begin"""
    done: simpy.Event
    alone: bool
    """whether a timer replaces its messages"""


class Contention:
    """All collectives of a run.

    Args:
        env: the run's clock.
        fabric: the network's ports and paths.
        carry: begins a transfer on the shared network.
        known: the ports of each plan, and the seconds that it takes alone, as far as they are known from earlier runs
            on the same fabric.
        traffic: counts the bytes of collectives while a timer replaces their messages.
    """

    def __init__(
        self,
        env: simpy.Environment,
        fabric: Fabric,
        carry: Carry,
        known: dict[CollectivePlan, Alone] | None = None,
        traffic: LinkTraffic | None = None,
    ) -> None:
        self._env, self._fabric, self._carry = env, fabric, carry
        self._traffic = LinkTraffic() if traffic is None else traffic
        self._users: dict[Port, list[ActiveCollective]] = {}
        """the collectives that may use each port"""
        self._messages: dict[simpy.Event, tuple[Port, ...]] = {}
        """the ports of each message that is not part of a collective"""
        self._known: dict[CollectivePlan, Alone] = {} if known is None else known

    def start(self, plan: CollectivePlan) -> simpy.Event:
        """Starts a collective that all ranks enter now; returns an event for the time when every rank is done."""
        if plan not in self._known:
            self._known[plan] = alone_on(plan, self._fabric)
        ports, seconds = self._known[plan]
        others = self._active_on(ports)
        alone = not others and seconds < inf and all(map(ports.isdisjoint, self._messages.values()))
        active = ActiveCollective(plan, ports, self._env.now + plan.base_s, self._env.event(), alone)
        for port in ports:
            self._users.setdefault(port, []).append(active)
        if alone:
            self._traffic.performed(plan)
            after(self._env, seconds, lambda _: self._end(active) if active.alone else None)
        else:
            for other in others:
                self.carry_out(other)
            self._follow(EventDriver(self._env, self._carry, plan, active.begun_s), active)
        return active.done

    def message(self, message: simpy.Event, ports: tuple[Port, ...]) -> None:
        """Registers a message outside collectives.

        Args:
            message: the event of its transfer.
            ports: the ports that it uses from now on.
        """
        self._messages[message] = ports
        if self._users:
            for active in self._active_on(ports):
                self.carry_out(active)

    def passed(self, message: simpy.Event) -> None:
        """Unregisters a message that has passed its ports; ignores flows that were not registered."""
        self._messages.pop(message, None)

    def moved(self, message: simpy.Event, ports: tuple[Port, ...]) -> None:
        """Updates the ports of a message that was rerouted; ignores messages of collectives.

        Args:
            message: the event of its transfer.
            ports: its new ports.
        """
        if message in self._messages:
            self.message(message, ports)

    def disturb(self, ports: Iterable[Port]) -> None:
        """Simulates the collectives on these ports message by message; called before the ports change."""
        for active in self._active_on(ports):
            self.carry_out(active)
        self._known.clear()

    def rerouted(self) -> None:
        """Simulates collectives message by message if others use their ports after paths have changed."""
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
        """Returns the active collectives whose messages are replaced by a timer."""
        return [active for active in self._active() if active.alone]

    def carry_out(self, active: ActiveCollective) -> None:
        """Simulates a collective message by message from now on; has no effect if it is already."""
        if not active.alone:
            return
        tables, left = state_at(active.plan, self._fabric, self._env.now - active.begun_s)
        if not tables.counts[OPEN]:
            return  # its timer is due at this instant
        active.alone = False
        self._traffic.performed(active.plan, -1)
        self._traffic.begun(active.plan, tables, left)
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


def alone_on(plan: CollectivePlan, fabric: Fabric) -> Alone:
    """Returns a plan's ports, and the seconds that it takes alone: infinity while a port is broken.

    Args:
        plan: the collective.
        fabric: the network's ports and paths.
    """
    ports, capacity = plan.ports(), fabric.capacity
    if not all(capacity[port] for port in ports):
        return ports, inf
    return ports, float(alone_s(plan, fabric).max(initial=0.0))
