"""Links that are degraded, fail and are repaired during a run, and the messages in flight meanwhile.

* At each change, in this order: collectives that were represented by a timer are simulated message by message from now
  on; the capacities of links change; messages in flight are rerouted.
* Paths are those of the routing rule on the links that are not broken. If there is none, a message takes the path that
  it would take without faults, and waits until the broken link on it is repaired. Messages without bytes wait, too.
* A message retains the latency and the limit of the path on which it started.
* A degraded link stays in use: paths depend on which links are broken, not on their bandwidths.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain

import simpy

from paceline.algorithms.core.values import Rank
from paceline.simulator.collectives.contention import Contention, LinkTraffic
from paceline.simulator.collectives.tuning import Tuner
from paceline.simulator.flows.fabric import GraphFabric, both_ways
from paceline.simulator.flows.flow_engine import Flows, Port
from paceline.simulator.flows.path_tables import Path
from paceline.simulator.kernel.clock import VirtualClock
from paceline.simulator.kernel.simpy_events import upon
from paceline.topologies.faults.link_faults import Change
from paceline.topologies.graphs.graph import Ends
from paceline.topologies.graphs.links import Factors, VariationModel
from paceline.topologies.graphs.routing import port


@dataclass(slots=True)
class Moving:
    """A transfer in flight."""

    source: Rank
    to: Rank
    nbytes: float
    ports: tuple[Port, ...]


class Outages:
    """Applies the link faults of a run.

    Args:
        clock: the run's clock.
        changes: the changes of links, in order of time.
        fabric, flows, contention, tuner: the parts of the network that each change affects.
        traffic: counts what links carry; the rest of a rerouted transfer is counted on its new route.
    """

    def __init__(
        self,
        clock: VirtualClock,
        changes: Iterable[Change],
        fabric: GraphFabric,
        flows: Flows,
        contention: Contention,
        tuner: Tuner,
        traffic: LinkTraffic,
    ) -> None:
        self._clock, self._changes = clock, deque(changes)
        self._fabric, self._flows, self._contention, self._tuner = fabric, flows, contention, tuner
        self._traffic = traffic
        self._under_way: dict[simpy.Event, Moving] = {}
        self._broken: dict[Ends, float] = {}
        """the broken links, and the time since which each is broken"""
        self._schedule_next()

    def carry(self, source: Rank, to: Rank, nbytes: float, path: Path) -> simpy.Event:
        """Starts a transfer along a path, which is rerouted when links fail.

        Args:
            source: the sender.
            to: the receiver.
            nbytes: the bytes.
            path: the path at the start.

        Returns:
            An event for the end of the transfer.
        """
        if nbytes == 0 and self._gap(path.ports) is not None:
            event = self._clock.event()
        else:
            event = self._flows.begin(path.ports, nbytes, path.limit_bytes_per_s)
        if not event.triggered:
            self._under_way[event] = Moving(source, to, nbytes, path.ports)
            upon(event, self._arrived)
        return event

    def _arrived(self, event: simpy.Event) -> None:
        del self._under_way[event]

    def awaited(self) -> bool:
        """Returns whether messages wait for a repair and there are changes of links ahead."""
        return bool(self._changes) and bool(self.standing())

    def standing(self) -> list[str]:
        """Returns a description of the messages that each broken link blocks."""
        still: dict[Ends, list[Moving]] = {}
        for transfer in self._under_way.values():
            if (gap := self._gap(transfer.ports)) is not None:
                still.setdefault(gap, []).append(transfer)
        return [
            f"{' – '.join(gap)} has been broken since {self._broken[gap]:g} s and blocks {len(those)} "
            f"message{'s' * (len(those) > 1)}, such as from rank {those[0].source} to rank {those[0].to}"
            for gap, those in still.items()
        ]

    def _gap(self, ports: tuple[Port, ...]) -> Ends | None:
        """Returns the first broken link on a path; None if there is none."""
        if not self._broken:
            return None
        gaps = {way: ends for ends in self._broken for way in both_ways(ends)}
        return next((gaps[port] for port in ports if port in gaps), None)

    def _schedule_next(self) -> None:
        if self._changes:
            self._clock.meanwhile(self._changes[0].at_s, self._apply_next, self.awaited)

    def _apply_next(self) -> None:
        change = self._changes.popleft()
        now = self._clock.now
        broken = {ends: since for ends, since in self._broken.items() if ends not in change.rates}
        broken |= {ends: now for ends, rate in change.rates.items() if rate == 0.0}  # a change names no link twice
        anew = broken.keys() != self._broken.keys()
        self._contention.disturb(way for ends in change.rates for way in both_ways(ends))
        if anew:
            self._carry_out_rerouted(broken)
        for ends, rate in change.rates.items():
            self._fabric.degrade(ends, rate)
            for way in both_ways(ends):
                self._flows.change(way, self._fabric.capacity[way])
        self._broken = broken
        self._tuner.forget()
        if anew:
            self._fabric.without(broken)
            self._contention.rerouted()
            self._reroute()
        self._schedule_next()

    def _carry_out_rerouted(self, broken: Iterable[Ends]) -> None:
        """Simulates collectives message by message if their ports do not change but their messages are rerouted."""
        alone = self._contention.alone()
        routes = [active.plan.present_paths().routes for active in alone]
        self._fabric.without(broken)
        rerouted = [
            active for active, before in zip(alone, routes, strict=True) if active.plan.present_paths().routes != before
        ]
        self._fabric.without(self._broken)
        for active in rerouted:
            self._contention.carry_out(active)

    def _reroute(self) -> None:
        """Reroutes all messages in flight."""
        for event, transfer in list(self._under_way.items()):
            if event.triggered:
                continue
            ports = self._fabric.path(transfer.source, transfer.to, transfer.nbytes).ports
            if ports != transfer.ports:
                self._traffic.moved(transfer.ports, ports, self._flows.remaining(event) if transfer.nbytes else 0.0)
                transfer.ports = ports
                self._contention.moved(event, ports)
                if transfer.nbytes:
                    self._flows.move(event, ports)
            if not transfer.nbytes and self._gap(ports) is None:
                event.succeed()


# * All links with the same interval are redrawn together, at multiples of it. The first bandwidths hold from the
#   start.
# * A redraw changes the capacities of ports only. Paths and the choice of collectives do not depend on it: routers
#   and libraries do not know the bandwidth of the moment.
# * Flows continue at the new rates. Collectives that were represented by a timer are simulated message by message.
# * Redraws are background callbacks of the clock, so they do not keep a run alive. One redraw draws one factor per
#   link.
# * While nothing is in flight, nobody sees a bandwidth: all redraws until the next event are made at once, so that a
#   run with long pauses does not have an event for each of them.


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

    def __init__(self, fabric: GraphFabric, links: Mapping[Ends, VariationModel], seed: int) -> None:
        self._fabric = fabric
        together: dict[float, Together] = {}
        for ends, variation in links.items():
            alike = together.setdefault(variation.every_s, Together(variation.every_s, {}))
            alike.factors[ends] = variation.factors(seed, port(*ends))
        self._together = tuple(together.values())
        for alike in self._together:
            self._draw(alike)

    def run(self, clock: VirtualClock, flows: Flows, contention: Contention, wanted: Callable[[], bool]) -> None:
        """Starts the redraws.

        Args:
            clock: the run's clock.
            flows: the flows of the run, whose rates change.
            contention: the collectives of the run.
            wanted: returns whether the run waits for something that a background callback will do.
        """
        self._clock, self._flows, self._contention, self._wanted = clock, flows, contention, wanted
        for links in self._together:
            self._schedule_next(links)

    def _schedule_next(self, links: Together) -> None:
        links.redraws += 1
        self._clock.meanwhile(links.redraws * links.every_s, lambda: self._redraw(links), self._wanted)

    def _redraw(self, links: Together) -> None:
        ports = list(chain.from_iterable(map(both_ways, links.factors)))
        self._contention.disturb(ports)
        if unseen := self._unseen(links):
            links.redraws += unseen
            for factors in links.factors.values():
                factors.skip(unseen)
        self._draw(links)
        for changed in ports:
            self._flows.change(changed, self._fabric.capacity[changed])
        self._schedule_next(links)

    def _unseen(self, links: Together) -> int:
        """Returns the number of redraws, from this one on, that a later one replaces before anything uses a link."""
        soonest_s = self._clock.soonest_s
        if not (self._flows.idle and self._contention.idle) or soonest_s == math.inf:
            return 0
        last = math.floor(soonest_s / links.every_s)
        if last * links.every_s > soonest_s:  # by rounding
            last -= 1
        return max(0, last - links.redraws)

    def _draw(self, links: Together) -> None:
        for ends, factors in links.factors.items():
            self._fabric.vary(ends, next(factors))
