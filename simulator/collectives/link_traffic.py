"""Counts the bytes that each port of a network carries during a run.

* A port is one direction of a link. During a run, bytes are counted for each route, which is a tuple of ports, and
  collectives without simulated messages for each plan. `by_port` distributes them over the ports once, at the end. So a
  transfer costs one addition, whatever the length of its route.
* A transfer counts when it begins. All transfers of a run end, because a run ends when no event is left.
* A plan that a timer represents counts all messages of its pattern, which are those that would be simulated one by one.
  If its messages are simulated from some instant on, `begun` counts what they had carried until then; and if a timer
  represents it again, `begun` takes back what they have carried.
* Rejected: reading the counters of the flow engine. They are rates times durations, so that they have rounding errors,
  and collectives that are alone on their ports never get there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping

import numpy as np

from paceline.simulator.collectives.collective_plan import CollectivePlan
from paceline.simulator.collectives.message_paths import MessagePaths
from paceline.simulator.collectives.pattern_tables import PatternTables, column
from paceline.simulator.collectives.rounds import Amounts
from paceline.simulator.flows.flow_engine import Port

Route = tuple[Port, ...]


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

    def begun(self, plan: CollectivePlan, tables: PatternTables, left: Mapping[int, float], times: int = 1) -> None:
        """Counts what the messages of a plan have carried so far.

        Args:
            plan: the plan.
            tables: the state of its execution.
            left: the bytes that are left of each message in flight, by its number in the tables.
            times: 1, or -1 to take them back, because a timer counts all of them again.
        """
        nbytes = np.array(column(tables.messages, "nbytes"), dtype=float)
        carried = nbytes * np.array(column(tables.messages, "sent"), dtype=float)
        for message, remaining in left.items():
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
        found: defaultdict[Port, float] = defaultdict(float)
        for route, nbytes in self.routes.items():
            for port in route:
                found[port] += nbytes
        for plan, times in self._plans.items():
            if times:
                add(found, bytes_of_plan(plan), times)
        for plan, of_path in self._started.items():
            add(found, _named(plan.message_paths, of_path))
        for counted in self._more:
            add(found, counted())
        return dict(found)


def add(found: defaultdict[Port, float], more: Mapping[Port, float], times: int = 1) -> None:
    """Adds bytes by port to others.

    Args:
        found: the sums, which are changed.
        more: the bytes to add.
        times: how often to add them.
    """
    for port, nbytes in more.items():
        found[port] += times * nbytes


def bytes_of_plan(plan: CollectivePlan) -> dict[Port, float]:
    """Returns the bytes that each port carries in one execution of a plan."""
    if not plan.pattern.parts:
        return {}
    nbytes = np.concatenate([one.nbytes * one.times for part in plan.pattern.parts for one in part])
    return _named(plan.message_paths, plan.message_paths.by_path(nbytes))


def _named(paths: MessagePaths, of_path: Amounts) -> dict[Port, float]:
    return dict(zip(paths.ports, paths.by_port(of_path).tolist(), strict=True))
