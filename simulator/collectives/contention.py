"""The collectives of a run, which share the network with messages and with each other, and what its links carry.

* Invariant: the end of a collective does not depend on whether its messages are simulated one by one.
* A collective that is alone on its ports is not simulated message by message: `pattern_time` computes its end, and a
  timer waits for it. When a message or another collective begins to use one of its ports, `simulate_alone` computes its
  state at this instant, and an `EventDriver` continues from this state on the shared network. When nothing else uses
  its ports any more, it is handed back: `simulate_alone` computes its end from where it is, and a timer waits for that.
  (Measured: a copy of 4 ms to the devices made an all-reduce of 34 ms among 128 ranks go message by message to its end;
  `agd` on fat-tree-128 takes a sixth of the time.)
* Rejected: simulating every message on the shared network. A ring of 64 ranks has 8,064 messages, and most collectives
  of most runs are alone on their ports. Also rejected: slowing a collective down by a factor while it shares ports,
  because such a factor depends on which messages overlap.
* Source: the flow model of SimGrid and SMPI shares links among messages in the same way, without the shortcut.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf

import numpy as np
import simpy

from paceline.simulator.collectives.execution import (
    OPEN,
    Carry,
    EventDriver,
    Progress,
    TakeBack,
    begun,
    column,
    simulate_alone,
)
from paceline.simulator.collectives.pattern_time import alone_s
from paceline.simulator.collectives.plans import CollectivePlan, MessagePaths
from paceline.simulator.flows.fabric import Fabric
from paceline.simulator.flows.flow_engine import Port
from paceline.simulator.flows.path_tables import Amounts
from paceline.simulator.kernel.simpy_events import after, upon

Route = tuple[Port, ...]
Names = Callable[[], Mapping[Port, Port]]
FEWEST = 2000
"""messages that a collective must have left to be handed back, because computing its end takes as long as simulating
some hundred of them"""
PATIENCE = 1 / 64
"""of the time that a collective takes alone, how long after the end of another transfer it is handed back, so that it
does not change drivers with every single message"""
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
    alone_s: float
    """the seconds that it takes alone; infinity while a port is broken"""
    alone: bool
    """whether a timer replaces its messages"""
    driver: EventDriver | None = None
    """the present or latest driver of its messages"""
    halfway: Progress | None = None
    """where it was when it was handed back for the last time"""
    watched: bool = False
    """whether it is going to be looked at"""


class Contention:
    """All collectives of a run.

    Args:
        env: the run's clock.
        fabric: the network's ports and paths.
        carry: begins a transfer on the shared network.
        known: the ports of each plan, and the seconds that it takes alone, as far as they are known from earlier runs
            on the same fabric.
        traffic: counts the bytes of collectives while a timer replaces their messages.
        take_back: ends a transfer that `carry` has begun; without it, no collective is handed back. It must not be
            there if paths or capacities change.
    """

    def __init__(
        self,
        env: simpy.Environment,
        fabric: Fabric,
        carry: Carry,
        known: dict[CollectivePlan, Alone] | None = None,
        traffic: LinkTraffic | None = None,
        take_back: TakeBack | None = None,
    ) -> None:
        self._take_back = take_back
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
        active = ActiveCollective(plan, ports, self._env.now + plan.base_s, self._env.event(), seconds, alone)
        for port in ports:
            self._users.setdefault(port, []).append(active)
        if alone:
            self._traffic.performed(plan)
            self._wait(active, seconds)
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
        if (ports := self._messages.pop(message, None)) is not None and self._users:
            self._free(ports)

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
            more = frozenset(active.plan.present_paths().ports) - active.ports
            for other in self._active_on(more):
                self.carry_out(other)
            for port in more:
                self._users.setdefault(port, []).append(active)
            active.ports |= more

    @property
    def idle(self) -> bool:
        """Whether no collective and no message of one uses a port."""
        return not self._users and not self._messages

    def alone(self) -> list[ActiveCollective]:
        """Returns the active collectives whose messages are replaced by a timer."""
        return [active for active in self._active() if active.alone]

    def carry_out(self, active: ActiveCollective) -> None:
        """Simulates a collective message by message from now on; has no effect if it is already."""
        if not active.alone:
            return
        before = begun(active.plan) if active.halfway is None else active.halfway
        progress = simulate_alone(active.plan, self._fabric, before, self._env.now - active.begun_s)
        if not progress.tables.counts[OPEN]:
            return  # its timer is due at this instant
        active.alone = False
        self._traffic.performed(active.plan, -1)
        self._traffic.begun(active.plan, progress)
        self._follow(EventDriver(self._env, self._carry, active.plan, active.begun_s, progress), active)

    def _wait(self, active: ActiveCollective, seconds: float) -> None:
        """Waits for the end of a collective whose messages are replaced by a timer."""
        halfway = active.halfway

        def end(_: simpy.Event) -> None:
            if active.alone and active.halfway is halfway:
                self._end(active)

        after(self._env, seconds, end)

    def _free(self, ports: Iterable[Port]) -> None:
        """Something has left these ports, so a collective on them may be alone in a while."""
        if self._take_back is None:
            return
        for active in self._active_on(ports):
            if not (active.alone or active.watched) and self._left(active) >= FEWEST:
                active.watched = True
                after(self._env, PATIENCE * active.alone_s, partial(self._look, active))

    def _left(self, active: ActiveCollective) -> float:
        """Returns the number of messages that an active collective would have left if it had been alone."""
        share = 1 - (self._env.now - active.begun_s) / active.alone_s if active.alone_s < inf else 0.0
        return share * active.plan.pattern.messages

    def _look(self, active: ActiveCollective, _: simpy.Event) -> None:
        """Hands a collective back if it is alone and has not ended."""
        active.watched = False
        if active.alone or active.done.triggered or self._active_on(active.ports) != [active]:
            return
        if not all(map(active.ports.isdisjoint, self._messages.values())):
            return
        assert active.driver is not None, "a collective whose messages are simulated has a driver"
        assert self._take_back is not None, "nothing is looked at without it"
        active.halfway, active.alone = active.driver.stop(self._take_back), True
        self._traffic.performed(active.plan)
        self._traffic.begun(active.plan, active.halfway, -1)
        end = simulate_alone(active.plan, self._fabric, active.halfway).finish_s(np.zeros(len(active.plan.ranks)))
        self._wait(active, max(0.0, float(end.max(initial=0.0)) - active.halfway.time_s))

    def _follow(self, driver: EventDriver, active: ActiveCollective) -> None:
        active.driver = driver
        upon(driver.done, lambda _: self._end(active))

    def _end(self, active: ActiveCollective) -> None:
        for port in active.ports:
            users = self._users[port]
            users.remove(active)
            if not users:
                del self._users[port]
        active.done.succeed()
        if self._users:
            self._free(active.ports)

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
    ports, capacity = frozenset(plan.message_paths.ports), fabric.capacity
    if not all(capacity[port] for port in ports):
        return ports, inf
    return ports, float(alone_s(plan, fabric).max(initial=0.0))


# --- what links carry -------------------------------------------------------------------------------------------------

# * A port is one direction of a link. During a run, bytes are counted for each route, which is a tuple of ports, and
#   collectives without simulated messages for each plan. `by_port` distributes them over the ports once, at the end. So
#   a transfer costs one addition, whatever the length of its route.
# * A transfer counts when it begins. All transfers of a run end, because a run ends when no event is left.
# * A plan that a timer represents counts all messages of its pattern, which are those that would be simulated one by
#   one. If its messages are simulated from some instant on, `begun` counts what they had carried until then; and if a
#   timer represents it again, `begun` takes back what they have carried.
# * Rejected: counting in the flow engine. Rates times durations have rounding errors, and collectives that are alone on
#   their ports never get there.


class LinkTraffic:
    """The transfers of one run.

    >>> traffic = LinkTraffic()
    >>> traffic.routes["a>b", "b>c"] += 30
    >>> traffic.moved(("a>b", "b>c"), ("a>d", "d>c"), 10)
    >>> traffic.by_port()
    {'a>b': 20.0, 'b>c': 20.0, 'a>d': 10.0, 'd>c': 10.0}
    """

    def __init__(self) -> None:
        self.routes: defaultdict[Route, float] = defaultdict(int)
        """the bytes of the transfers along each route"""
        self._plans: defaultdict[CollectivePlan, int] = defaultdict(int)
        """how often each plan was executed without simulated messages"""
        self._started: dict[CollectivePlan, Amounts] = {}
        """what executions of each plan carried on each path before their messages were simulated one by one"""
        self._more: list[Callable[[], Mapping[Port, float]]] = []

    def performed(self, plan: CollectivePlan, times: int = 1) -> None:
        """Counts executions of a plan whose messages are not simulated one by one.

        Args:
            plan: the plan.
            times: how many executions to add; negative to take them back.
        """
        self._plans[plan] += times

    def begun(self, plan: CollectivePlan, progress: Progress, times: int = 1) -> None:
        """Counts what the messages of a plan have carried so far.

        Args:
            plan: the plan.
            progress: its state.
            times: 1, or -1 to take them back, because a timer counts all of them again.
        """
        messages = progress.tables.messages
        nbytes = np.array(column(messages, "nbytes"), dtype=float)
        carried = nbytes * np.array(column(messages, "sent"), dtype=float)
        for message, remaining in progress.left.items():
            carried[message] += nbytes[message] - remaining
        of_path = plan.message_paths.by_path(carried)
        self._started[plan] = times * of_path + self._started.get(plan, 0.0)

    def moved(self, before: Route, after: Route, nbytes: float) -> None:
        """Counts the rest of a transfer on another route.

        Args:
            before: the route on which it was counted.
            after: its new route.
            nbytes: the bytes that are left of it.
        """
        self.routes[before] -= nbytes
        self.routes[after] += nbytes

    def add_at_end(self, counted: Callable[[], Mapping[Port, float]]) -> None:
        """Adds a function that returns further bytes by port; it is called at the end of the run."""
        self._more.append(counted)

    def by_port(self) -> dict[Port, float]:
        """Returns the bytes that each port carried; ports without traffic may be missing."""
        nbytes_of: defaultdict[Port, float] = defaultdict(float)
        for route, nbytes in self.routes.items():
            for port in route:
                nbytes_of[port] += nbytes
        for plan, times in self._plans.items():
            if times:
                add(nbytes_of, bytes_of_plan(plan), times)
        for plan, of_path in self._started.items():
            add(nbytes_of, _named(plan.message_paths, of_path))
        for counted in self._more:
            add(nbytes_of, counted())
        return dict(nbytes_of)


def add(total: defaultdict[Port, float], more: Mapping[Port, float], times: int = 1) -> None:
    """Adds bytes by port to others.

    Args:
        total: the sums, which are changed.
        more: the bytes to add.
        times: how often to add them.
    """
    for port, nbytes in more.items():
        total[port] += times * nbytes


def bytes_of_plan(plan: CollectivePlan) -> dict[Port, float]:
    """Returns the bytes that each port carries in one execution of a plan."""
    nbytes = np.concatenate(
        [np.zeros(0), *(round_.nbytes * round_.times for part in plan.pattern.parts for round_ in part)]
    )
    return _named(plan.message_paths, plan.message_paths.by_path(nbytes))


def bytes_of_plans(plans: Sequence[tuple[CollectivePlan, Names | None]]) -> dict[Port, float]:
    """Returns the bytes that each port carries in one execution of each plan.

    Args:
        plans: the plans, each with a function that names the port to count for each of its own; None: its own.
    """
    known: dict[CollectivePlan, dict[Port, float]] = {}
    total: defaultdict[Port, float] = defaultdict(float)
    for plan, names in plans:
        if plan not in known:
            known[plan] = bytes_of_plan(plan)
        add(total, known[plan] if names is None else _renamed(known[plan], names()))
    return dict(total)


def _renamed(carried: Mapping[Port, float], names: Mapping[Port, Port]) -> dict[Port, float]:
    return {names[port]: nbytes for port, nbytes in carried.items()}


def _named(paths: MessagePaths, of_path: Amounts) -> dict[Port, float]:
    return dict(zip(paths.ports, paths.by_port(of_path).tolist(), strict=True))
