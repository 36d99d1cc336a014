"""The order of ranks in a ring, and in several parallel rings, as libraries lay them out over a machine's links.

* A ring visits the nodes in order and follows a path inside each node that `cycles` finds. Parallel rings run in both
  directions around cycles that share no link. If GPUs are connected by a switch that is wide enough, all rings use the
  same cycle. Each ring leaves and enters nodes where the fewest other rings do.
* A ring's share of the bytes is proportional to the bandwidth of its slowest hop, which it shares with other rings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property

from paceline.algorithms.core.values import Group
from paceline.simulator.collectives.cycles import Cycle, Lanes, disjoint_cycles, widest_cycle
from paceline.simulator.collectives.patterns import Channel
from paceline.simulator.flows.fabric import Fabric, Path
from paceline.simulator.flows.flow_engine import Port

Nodes = tuple[tuple[int, ...], ...]
PROBE_BYTES = 2.0**20
"""size of the messages by which hops are compared"""
TINY = 1e-300
"""bytes per second of a broken link in comparisons"""


class Layout:
    """The rings of a group.

    Args:
        fabric: the network.
        group: the ranks.
        nodes: the places of the group on each node.
    """

    def __init__(self, fabric: Fabric, group: Group, nodes: Nodes) -> None:
        self._fabric, self._group, self._nodes = fabric, tuple(group), nodes

    @cached_property
    def nodes(self) -> Nodes:
        """The places of each node in the order of its own best ring."""
        return tuple(
            tuple(places[at] for at in widest_cycle(self._rates(places))) if len(places) > 3 else places
            for places in self._nodes
        )

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The places in the order of one ring around all nodes."""
        loads: Counter[Port] = Counter()
        return self._around(self.nodes, loads)

    @cached_property
    def channels(self) -> tuple[Channel, ...]:
        """Parallel rings."""
        several = [self._cycles(number) for number in range(len(self.nodes))]
        count = min(map(len, several), default=1)
        loads: Counter[Port] = Counter()
        orders = [self._around(tuple(one[channel] for one in several), loads) for channel in range(count)]
        return self._shared(list(dict.fromkeys(orders)))

    def _path(self, one: int, other: int) -> Path:
        return self._fabric.path(self._group[one], self._group[other], PROBE_BYTES)

    def _rate(self, path: Path) -> float:
        return min(path.limit_bytes_per_s, *(self._fabric.capacity[port] for port in path.ports))

    def _rates(self, places: Sequence[int]) -> tuple[tuple[float, ...], ...]:
        return tuple(
            tuple(0.0 if one == other else self._rate(self._path(one, other)) for other in places) for one in places
        )

    def _lanes(self, places: Sequence[int]) -> Lanes:
        """Returns the number of direct lanes between each two places; all lanes of a node have the same width."""
        paths = [[None if one == other else self._path(one, other) for other in places] for one in places]
        rates = [
            [self._rate(path) if path and len(path.ports) == 1 and path.medium == "nvlink" else 0.0 for path in row]
            for row in paths
        ]
        least = min((rate for row in rates for rate in row if rate), default=1.0)
        return tuple(tuple(int(rate / least + 1e-9) for rate in row) for row in rates)

    def _cycles(self, number: int) -> list[tuple[int, ...]]:
        """Returns the cycles through one node that parallel rings may use."""
        places = self._nodes[number]
        found: list[Cycle] = []
        if len(places) <= 16:
            found = [way for cycle in disjoint_cycles(self._lanes(places)) for way in (cycle, cycle[::-1])]
        if found:
            return [tuple(places[at] for at in cycle) for cycle in found]
        return [self.nodes[number]] * (self._exits(number) if len(self._nodes) > 1 else 1)

    def _exits(self, number: int) -> int:
        """Returns the number of different slowest ports on the paths out of a node."""
        to = self._nodes[(number + 1) % len(self._nodes)][0]
        slowest = set()
        for place in self._nodes[number]:
            ports = self._path(place, to).ports
            slowest.add(min(ports, key=self._fabric.capacity.__getitem__))
        return len(slowest)

    def _around(self, cycles: Nodes, loads: Counter[Port]) -> tuple[int, ...]:
        """Returns a ring through these cycles, cut at the position where the hops between nodes are cheapest."""
        if len(cycles) == 1:
            return cycles[0]
        best: tuple[float, list[tuple[int, ...]], list[Port]] | None = None
        for cut in range(max(map(len, cycles))):
            cuts = [(*cycle[cut % len(cycle) :], *cycle[: cut % len(cycle)]) for cycle in cycles]
            exits = [
                port
                for one, other in zip(cuts, cuts[1:] + cuts[:1], strict=True)
                for port in self._path(one[-1], other[0]).ports
            ]
            cost = sum((1 + loads[port]) / (self._fabric.capacity[port] or TINY) for port in exits)
            if best is None or cost < best[0] * (1 - 1e-9):
                best = cost, cuts, exits
        assert best is not None, "a node has at least one place"
        loads.update(best[2])
        return tuple(place for cycle in best[1] for place in cycle)

    def _shared(self, orders: Sequence[tuple[int, ...]]) -> tuple[Channel, ...]:
        ports = [
            {port for hop in zip(order, (*order[1:], order[0]), strict=True) for port in self._path(*hop).ports}
            for order in orders
        ]
        rings = Counter(port for own in ports for port in own)
        # a broken link has bandwidth 0; a ring over it waits for its repair, as any message does
        widths = [min((self._fabric.capacity[port] or TINY) / rings[port] for port in own) for own in ports]
        return tuple(Channel(order, width / sum(widths)) for order, width in zip(orders, widths, strict=True))
