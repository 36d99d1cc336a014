"""A cluster's network as an emulation needs it: hosts, and between any two the lines that a packet goes along.

Rules of this file:

* A host is a vertex of the graph on which ranks sit: all that sit on one are in one host, and what they say to each
  other crosses no line. A line is one direction of a connection; parallel cables are one line.
* Routes are the simulator's own, by the same rule, so that model and emulation send a message the same way.
* `time_dilation` dilates time: rates are divided by it and latencies multiplied, as device times are in a paced run.
  Then gradient and exchange stand in the scenario's proportion, on a slower clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paceline.algorithms.core.values import Rank
from paceline.topologies.cluster import Cluster
from paceline.topologies.graphs.routing import Routes, Rule

HEADERS = 52
"""of a packet: IP's, and TCP's with time stamps, in bytes; they come on top of what a line carries for messages"""


@dataclass(frozen=True, slots=True)
class Line:
    """One direction of a connection.

    Args:
        name: as ports are called, ``from>to``.
        bytes_per_s: what messages have of it; headers come on top.
        latency_s: from the moment a packet's last byte has been sent until it is at the other end.
    """

    name: str
    bytes_per_s: float
    latency_s: float


@dataclass(frozen=True, slots=True)
class Spokes:
    """What a star is to its hosts: of each, the line to the switch and the one from it."""

    out: tuple[Line, ...]
    into: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Lines:
    """What joins the hosts of a cluster.

    Args:
        hosts: vertices of the graph, in the order of the ranks that sit there first.
        places: the host of each rank, by its number.
        lines: all that some route goes along.
        routes: from host to host, the numbers of the lines in order.
    """

    hosts: tuple[str, ...]
    places: Mapping[Rank, int]
    lines: tuple[Line, ...]
    routes: Mapping[tuple[int, int], tuple[int, ...]]

    def latency_s(self, source: int, to: int) -> float:
        """Of all lines from one host to another."""
        return sum(self.lines[line].latency_s for line in self.routes.get((source, to), ()))

    @property
    def fastest(self) -> Line | None:
        """The line of the highest rate; None where there is but one host."""
        return max(self.lines, key=lambda line: line.bytes_per_s, default=None)

    @property
    def slowest(self) -> Line | None:
        """The line of the lowest rate; None where there is but one host."""
        return min(self.lines, key=lambda line: line.bytes_per_s, default=None)

    @property
    def longest_s(self) -> float:
        """The highest latency from one host to another."""
        return max((self.latency_s(*ends) for ends in self.routes), default=0.0)

    def spokes(self) -> Spokes | None:
        """The lines of a star; None where this is none: elsewhere hosts share more than the way to one switch."""
        out: dict[int, int] = {}
        into: dict[int, int] = {}
        for (source, to), route in self.routes.items():
            if (
                len(route) != 2
                or out.setdefault(source, route[0]) != route[0]
                or into.setdefault(to, route[1]) != route[1]
            ):
                return None
        count = len(self.hosts)
        if count < 2 or len({*out.values(), *into.values()}) < 2 * count:
            return None
        return Spokes(*(tuple(self.lines[ends[host]] for host in range(count)) for ends in (out, into)))


def lines_of(cluster: Cluster, ranks: Sequence[Rank], rule: Rule = "auto", time_dilation: float = 1.0) -> Lines:
    """The hosts of these ranks, and what joins them.

    Args:
        cluster: the graph, and who sits where.
        ranks: whose hosts are wanted.
        rule: which way messages go.
        time_dilation: what time is dilated by.

    >>> from paceline.topologies import LINKS, Device
    >>> from paceline.topologies.cluster import on_a_star
    >>> device = Device(name="d", overhead_s=0.0, per_sample_s=0.001)
    >>> cluster = on_a_star([(device, 2), (device, 1)], link=LINKS["eth-1g"], local=LINKS["shared-memory"])
    >>> found = lines_of(cluster, [Rank(0), Rank(1), Rank(2)], time_dilation=2)
    >>> found.hosts, found.lines[0]
    (('host0', 'host1'), Line(name='host0>switch', bytes_per_s=55000000.0, latency_s=4e-05))
    >>> found.routes[1, 0]
    (2, 3)
    """
    vertices = {rank: cluster.vertex_of(rank) for rank in ranks}
    hosts = tuple(dict.fromkeys(vertices.values()))
    routes = Routes(cluster.graph, rule)
    lines: dict[str, Line] = {}
    numbers: dict[str, int] = {}
    found: dict[tuple[int, int], tuple[int, ...]] = {}
    for source, one in enumerate(hosts):
        for to, other in enumerate(hosts):
            if one == other:
                continue
            route = routes.between(one, other)
            for name, hop in zip(route.ports, route.connections, strict=True):
                numbers.setdefault(name, len(numbers))
                lines[name] = Line(name, hop.bytes_per_s / time_dilation, hop.link.latency_s * time_dilation)
            found[source, to] = tuple(numbers[name] for name in route.ports)
    places = {rank: hosts.index(vertex) for rank, vertex in vertices.items()}
    return Lines(hosts, places, tuple(lines.values()), found)
