"""A cluster's network for an emulation: hosts, and between any two the lines that a packet crosses.

A host is a vertex of the graph with ranks: all ranks on a vertex are on one host, and messages between them cross no
line. A line is one direction of a connection; parallel cables are one line. Routes are the simulator's own, by the same
rule, so that model and emulation route messages alike. `time_dilation` scales time: rates are divided by it and
latencies multiplied, as device times are in a paced run. So gradient and exchange times have the same ratio as in the
scenario, on a slower clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paceline.algorithms.core.values import Rank
from paceline.topologies.cluster import ClusterModel
from paceline.topologies.graphs.routing import Routes, Rule

HEADERS = 52
"""headers of a packet in bytes: IP's, and TCP's with time stamps; they are added to the bytes of messages"""


@dataclass(frozen=True, slots=True)
class PacketLine:
    """One direction of a connection.

    Args:
        name: as of ports, ``from>to``.
        bytes_per_s: the rate of message bytes; headers are added.
        latency_s: from the moment a packet's last byte has been sent until it is at the other end.
    """

    name: str
    bytes_per_s: float
    latency_s: float


@dataclass(frozen=True, slots=True)
class Spokes:
    """The lines of a star: of each host, the line to the switch and the line from it."""

    out: tuple[PacketLine, ...]
    into: tuple[PacketLine, ...]


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines between the hosts of a cluster.

    Args:
        hosts: vertices of the graph, in the order of their first ranks.
        places: the host of each rank, by its number.
        lines: all lines that some route crosses.
        routes: from host to host, the numbers of the lines in order.
    """

    hosts: tuple[str, ...]
    places: Mapping[Rank, int]
    lines: tuple[PacketLine, ...]
    routes: Mapping[tuple[int, int], tuple[int, ...]]

    def latency_s(self, source: int, to: int) -> float:
        """Returns the latency of all lines from one host to another."""
        return sum(self.lines[line].latency_s for line in self.routes.get((source, to), ()))

    @property
    def fastest(self) -> PacketLine | None:
        """The line with the highest rate; None if there is only one host."""
        return max(self.lines, key=lambda line: line.bytes_per_s, default=None)

    @property
    def slowest(self) -> PacketLine | None:
        """The line with the lowest rate; None if there is only one host."""
        return min(self.lines, key=lambda line: line.bytes_per_s, default=None)

    @property
    def longest_s(self) -> float:
        """The highest latency from one host to another."""
        return max((self.latency_s(*ends) for ends in self.routes), default=0.0)

    def spokes(self) -> Spokes | None:
        """Returns the lines of a star; None if the hosts share more than the lines to one switch."""
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


def lines_of(cluster: ClusterModel, ranks: Sequence[Rank], rule: Rule = "auto", time_dilation: float = 1.0) -> Lines:
    """Returns the hosts of these ranks and the lines between them.

    Args:
        cluster: the graph and the placement of ranks.
        ranks: the ranks whose hosts are needed.
        rule: the routing rule.
        time_dilation: the factor of time.

    >>> from paceline.topologies import LINKS, DeviceModel
    >>> from paceline.topologies.cluster import on_a_star
    >>> device = DeviceModel(name="d", overhead_s=0.0, per_sample_s=0.001)
    >>> cluster = on_a_star([(device, 2), (device, 1)], link=LINKS["eth-1g"], local=LINKS["shared-memory"])
    >>> lines = lines_of(cluster, [Rank(0), Rank(1), Rank(2)], time_dilation=2)
    >>> lines.hosts, lines.lines[0]
    (('host0', 'host1'), PacketLine(name='host0>switch', bytes_per_s=55000000.0, latency_s=4e-05))
    >>> lines.routes[1, 0]
    (2, 3)
    """
    vertices = {rank: cluster.vertex_of(rank) for rank in ranks}
    hosts = tuple(dict.fromkeys(vertices.values()))
    routes = Routes(cluster.graph, rule)
    lines: dict[str, PacketLine] = {}
    numbers: dict[str, int] = {}
    numbers_of: dict[tuple[int, int], tuple[int, ...]] = {}
    for source, host in enumerate(hosts):
        for to, other in enumerate(hosts):
            if host == other:
                continue
            route = routes.between(host, other)
            for name, hop in zip(route.ports, route.connections, strict=True):
                numbers.setdefault(name, len(numbers))
                rate = hop.bytes_per_s_from(name.partition(">")[0])
                lines[name] = PacketLine(name, rate / time_dilation, hop.link.latency_s * time_dilation)
            numbers_of[source, to] = tuple(numbers[name] for name in route.ports)
    places = {rank: hosts.index(vertex) for rank, vertex in vertices.items()}
    return Lines(hosts, places, tuple(lines.values()), numbers_of)
