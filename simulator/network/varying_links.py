"""Links whose bandwidth varies over time, such as those of the Internet: redraws their bandwidths during a run.

* All links with the same interval are redrawn together, at multiples of it. The first bandwidths hold from the start.
* A redraw changes the capacities of ports only. Paths and the choice of collectives do not depend on it: routers and
  libraries do not know the bandwidth of the moment.
* Flows continue at the new rates. Collectives that were represented by a timer are simulated message by message.
* Redraws are background callbacks of the clock, so they do not keep a run alive. One redraw draws one factor per link.
* While nothing is in flight, nobody sees a bandwidth: all redraws until the next event are made at once, so that a run
  with long pauses does not have an event for each of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain

from paceline.simulator.collectives.contention import Contention
from paceline.simulator.flows.fabric import GraphFabric
from paceline.simulator.flows.flow_engine import Flows
from paceline.simulator.kernel.clock import Clock
from paceline.topologies.graphs.graph import Ends
from paceline.topologies.graphs.routing import port
from paceline.topologies.graphs.variation import Factors, Variation


@dataclass(slots=True)
class Together:
    """Links that are redrawn at the same times."""

    every_s: float
    factors: dict[Ends, Factors]
    redraws: int = 0


class VaryingLinks:
    """The bandwidths of a run's links that vary over time.

    Args:
        fabric: the ports; they have the first bandwidths from now on.
        links: how each link varies.
        seed: the seed of the run.
    """

    def __init__(self, fabric: GraphFabric, links: Mapping[Ends, Variation], seed: int) -> None:
        self._fabric = fabric
        found: dict[float, Together] = {}
        for ends, variation in links.items():
            one = found.setdefault(variation.every_s, Together(variation.every_s, {}))
            one.factors[ends] = variation.factors(seed, port(*ends))
        self._together = tuple(found.values())
        for one in self._together:
            self._draw(one)

    def run(self, clock: Clock, flows: Flows, contention: Contention, wanted: Callable[[], bool]) -> None:
        """Starts the redraws.

        Args:
            clock: the run's clock.
            flows: the flows of the run, whose rates change.
            contention: the collectives of the run.
            wanted: returns whether the run waits for something that a background callback will do.
        """
        self._clock, self._flows, self._contention, self._wanted = clock, flows, contention, wanted
        for one in self._together:
            self._schedule_next(one)

    def _schedule_next(self, one: Together) -> None:
        one.redraws += 1
        self._clock.meanwhile(one.redraws * one.every_s, lambda: self._redraw(one), self._wanted)

    def _redraw(self, one: Together) -> None:
        ports = list(chain.from_iterable((port(*ends), port(*ends[::-1])) for ends in one.factors))
        self._contention.disturb(ports)
        if unseen := self._unseen(one):
            one.redraws += unseen
            for factors in one.factors.values():
                factors.skip(unseen)
        self._draw(one)
        for changed in ports:
            self._flows.change(changed, self._fabric.capacity[changed])
        self._schedule_next(one)

    def _unseen(self, one: Together) -> int:
        """Returns the number of redraws, from this one on, that a later one replaces before anything uses a link."""
        soonest_s = self._clock.soonest_s
        if not (self._flows.idle and self._contention.idle) or soonest_s == math.inf:
            return 0
        last = math.floor(soonest_s / one.every_s)
        if last * one.every_s > soonest_s:  # by rounding
            last -= 1
        return max(0, last - one.redraws)

    def _draw(self, one: Together) -> None:
        for ends, factors in one.factors.items():
            self._fabric.vary(ends, next(factors))
