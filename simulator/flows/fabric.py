"""The paths of messages between ranks, and the ports that they share.

A fabric knows the placement of ranks and the links between them; it has no clock. The path of a pair of ranks stays the
same until links are degraded, fail or are repaired (`GraphFabric.degrade`, `GraphFabric.without`). `GraphFabric.path`
looks up the path of one message, `GraphFabric.paths` those of many at once, which are the same (`path_tables`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, pairwise
from typing import Protocol

import numpy as np

from paceline.algorithms.core.values import Rank
from paceline.simulator.flows.flow_engine import Port
from paceline.simulator.flows.path_tables import (
    CARDS,
    SLOWNESS,
    AlikeGroups,
    Amounts,
    Numbers,
    Path,
    PathTable,
    PathTables,
    Routed,
    memory_port,
    stacked,
)
from paceline.topologies.catalogue.libraries import USUAL_LATENCY_S, Library
from paceline.topologies.cluster import ClusterModel
from paceline.topologies.graphs.graph import Connection
from paceline.topologies.graphs.links import Medium
from paceline.topologies.graphs.routing import NoRoute, Routes, Rule, port

Stops = tuple[str | None, str | None]
NO_STOPS: Stops = (None, None)
MANY = 256
"""number of paths from which they are looked up at once: fewer are looked up singly in the same time"""
MANY_WORKERS = 512
"""number of workers from which the paths to a server are looked up together"""
MOST_COMPARED = 64
"""members of groups that are compared with each other, because all pairs of members are looked up; our choice"""
ACROSS_ROOT = 2
"""hops from one uplink of a socket to the next one on the way of a message from device to device: 1, or 2 by way of the
bus between sockets"""


class Fabric(Protocol):
    """The placement of ranks and the network between them."""

    @property
    def capacity(self) -> Mapping[Port, float]:
        """The bytes per second of every port at present."""
        ...

    @property
    def mean_capacity(self) -> Mapping[Port, float]:
        """The bytes per second of every port without variation over time, by which patterns are chosen."""
        ...

    def reduce_cost(self, ranks: Sequence[Rank], nbytes: float, library: Library) -> float:
        """Returns γ: the seconds that a receiver needs to add one received byte to its own.

        Args:
            ranks: the members of the collective.
            nbytes: the size of the vector of one member.
            library: the library that performs it.
        """
        ...

    def node_of(self, rank: Rank) -> int:
        """Returns the index of a rank's node."""
        ...

    def architectures(self, ranks: Sequence[Rank]) -> set[str]:
        """Returns the architectures of the devices of some ranks; "" for a device that is not in the catalogue."""
        ...

    def memory_bytes_per_s(self, ranks: Sequence[Rank]) -> float:
        """Returns the least traffic that the main memory of a node of some ranks sustains."""
        ...

    def seats_in_memory(self, ranks: Sequence[Rank]) -> tuple[str, ...]:
        """Returns the vertex of each rank, if the ranks of every node work in its main memory; else none."""
        ...

    def core_path(self, rank: Rank, footprint: float) -> Path:
        """Returns the path of what the core of a rank reads and writes in the main memory of its node.

        Args:
            rank: the rank.
            footprint: the bytes that all cores of the node use together; as long as they fit into the cache, they do
                not load the memory.
        """
        ...

    @property
    def broken(self) -> Hashable:
        """The broken links, on which paths depend."""
        ...

    def paths(self, sources: Numbers, targets: Numbers, nbytes: Amounts) -> PathTable:
        """Returns the paths of messages.

        Args:
            sources: the sender of each message.
            targets: the receiver of each message.
            nbytes: bytes of each message, because the limit of a link may depend on them.
        """
        ...


# * `copied` (gloo, and MPI without GPUDirect): the program copies whole vectors to the host, the library works there,
#   and results are copied back. So messages begin and end at the host's vertex, whose route does not pass PCIe, and
#   the interpreter begins the copies (`interpreter.device_copies`), each rank for itself. No byte passes PCIe twice.
# * `passed` (NCCL without GPUDirect): messages to other nodes go through a buffer in host memory, piece by piece. A
#   piece is sent on while the next one arrives, so all links of the detour limit one flow, and only the route
#   changes.
# * Rejected: copies in the plan of a collective. Patterns have messages between ranks only, and the tuner would have
#   to compare candidates that all have the same copies.


@dataclass(frozen=True, slots=True)
class HostBuffers:
    """The host vertex of each rank whose messages pass host memory.

    Args:
        copied: of ranks whose messages begin and end there.
        passed: of ranks whose messages to other nodes go through it.
    """

    copied: Mapping[Rank, str] = field(default_factory=dict)
    passed: Mapping[Rank, str] = field(default_factory=dict)


def host_buffers(cluster: ClusterModel, library: Library, transport: str) -> HostBuffers:
    """Returns the ranks of a cluster whose messages pass host memory.

    Args:
        cluster: the cluster; without `staging`, no rank's messages do.
        library: the library.
        transport: the transport between nodes: `tcp`, or `any` for others.
    """
    if cluster.staging is None or library.through_host == "never":
        return HostBuffers()
    transport = "any" if len(cluster.nodes) == 1 else transport  # no message leaves the node
    buffer_of: dict[Rank, str] = {}
    for rank in map(Rank, range(cluster.workers)):
        if cluster.staging.direct(cluster.device_of(rank), library, transport):
            continue
        if (socket := cluster.socket_of(rank)) is not None:
            buffer_of[rank] = socket
    return HostBuffers(copied=buffer_of) if library.through_host == "copied" else HostBuffers(passed=buffer_of)


@dataclass(slots=True)
class RouteCache:
    """Routes, and a cache of the paths that have been looked up."""

    routes: Routes
    known: dict[tuple[str, str, str | None, str | None], tuple[Connection, ...]] = field(default_factory=dict)
    """by the two ends and their cards"""
    paths: dict[tuple[str, str, str | None, str | None, tuple[float, ...]], Path] = field(default_factory=dict)
    """shared by messages that take the same hops in pieces of the same size"""
    asked: dict[tuple[Rank, Rank, float], Path] = field(default_factory=dict)


class GraphFabric:
    """The paths through a cluster's graph.

    The switches of one plane are represented as one, because hardware stripes traffic over them.

    Args:
        cluster: the graph, and the placement of ranks.
        routing: the rule that chooses among several paths.
        seed: seed of the random choices of the rule.
        buffers: the ranks whose messages pass host memory; None: no rank's.

    >>> from paceline.topologies.cluster import on_a_star
    >>> from paceline.topologies import LINKS, DeviceModel
    >>> device = DeviceModel(name="d", overhead_s=0.0, per_sample_s=0.001)
    >>> fabric = GraphFabric(on_a_star([(device, 2), (device, 2)], link=LINKS["eth-10g"], local=LINKS["shared-memory"]))
    >>> fabric.path(Rank(0), Rank(2), 1000).ports, fabric.path(Rank(0), Rank(1), 1000).ports
    (('host0>switch', 'switch>host1'), ('out of rank 0', 'into rank 1'))
    """

    def __init__(
        self, cluster: ClusterModel, routing: Rule = "auto", seed: int = 0, buffers: HostBuffers | None = None
    ) -> None:
        self._cluster = cluster
        self.buffers = buffers or HostBuffers()
        self._whole = self._cache = RouteCache(Routes(cluster.graph, routing, seed))
        self.broken = frozenset[tuple[str, str]]()
        """the broken links, which paths avoid"""
        self._around = {self.broken: self._whole}
        """the paths for each set of broken links"""
        self.capacity: dict[Port, float] = {}
        """present bytes per second of each port"""
        for rank in map(Rank, cluster.ranks):
            rate = cluster.nodes[cluster.node_of(rank)].intra_node_link.bytes_per_s
            self.capacity[f"out of rank {rank}"] = self.capacity[f"into rank {rank}"] = rate
        for connection in cluster.graph.striped().connections:
            start, end = connection.ends
            self.capacity[port(start, end)] = connection.bytes_per_s_from(start)
            self.capacity[port(end, start)] = connection.bytes_per_s_from(end)
        self.capacity |= {memory_port(node.name): node.memory.bytes_per_s for node in cluster.nodes}
        self._full = dict(self.capacity)
        self.mean_capacity = dict(self.capacity)
        """bytes per second of each port as faults leave it, without variation over time"""
        self._varied: dict[Port, float] = {}
        """the present factor of each port whose bandwidth varies over time"""
        self._with_server: dict[tuple[Rank, bool], Routed] = {}
        """the hops between workers and a server, by direction"""
        self._of_server: dict[tuple[Rank, int, bool], PathTable] = {}
        """the paths between workers and a server, by bytes and direction"""

    def reduce_cost(self, ranks: Sequence[Rank], nbytes: float, library: Library) -> float:
        members = Counter(map(self._cluster.node_of, ranks))
        nodes = self._cluster.nodes
        return max(nodes[node].reduce_s_per_byte(library, nbytes, count) for node, count in members.items())

    def node_of(self, rank: Rank) -> int:
        return self._cluster.node_of(rank)

    def architectures(self, ranks: Sequence[Rank]) -> set[str]:
        nodes = self._cluster.nodes
        return {nodes[node].device.architecture for node in set(map(self._cluster.node_of, ranks))}

    def memory_bytes_per_s(self, ranks: Sequence[Rank]) -> float:
        return min(self._cluster.nodes[node].memory.bytes_per_s for node in set(map(self._cluster.node_of, ranks)))

    def seats_in_memory(self, ranks: Sequence[Rank]) -> tuple[str, ...]:
        cluster = self._cluster
        if not all(map(cluster.shares_memory, dict.fromkeys(map(cluster.node_of, ranks)))):
            return ()
        return tuple(map(cluster.vertex_of, ranks))

    def core_path(self, rank: Rank, footprint: float) -> Path:
        node = self._cluster.nodes[self._cluster.node_of(rank)]
        ports = () if footprint <= node.memory.cache_bytes else (memory_port(node.name),)
        return Path(ports, 0.0, "memory", node.memory.core_rate(footprint))

    def degrade(self, ends: tuple[str, str], rate: float) -> None:
        """Sets the bandwidth of a link in both directions.

        Args:
            ends: the two ends of the link.
            rate: the bandwidth as a fraction of the full bandwidth, 0 … 1.
        """
        for way in both_ways(ends):
            self.mean_capacity[way] = rate * self._full[way]
            self.capacity[way] = self.mean_capacity[way] * self._varied.get(way, 1.0)

    def vary(self, ends: tuple[str, str], factor: float) -> None:
        """Sets the factor by which the bandwidth of a link, in both directions, differs from its mean at present.

        Args:
            ends: the two ends of the link.
            factor: the factor, above 0.
        """
        for way in both_ways(ends):
            self._varied[way] = factor
            self.capacity[way] = self.mean_capacity[way] * factor

    def without(self, broken: Iterable[tuple[str, str]]) -> None:
        """Sets the broken links. Paths avoid them, unless two ranks have no other path."""
        self.broken = frozenset(broken)
        if self.broken not in self._around:
            self._around[self.broken] = RouteCache(self._whole.routes.without(self.broken))
        self._cache = self._around[self.broken]

    def path(self, source: Rank, to: Rank, nbytes: float) -> Path:
        if (path := self._cache.asked.get((source, to, nbytes))) is None:
            path = self._cache.asked[source, to, nbytes] = self._found(source, to, nbytes)
        return path

    def paths(self, sources: Numbers, targets: Numbers, nbytes: Amounts) -> PathTable:
        if len(sources) >= MANY and self._cache is self._whole:
            return self._tables.find(sources, targets, nbytes)
        return stacked(list(map(self.path, sources.tolist(), targets.tolist(), nbytes.tolist())))

    def server_paths(self, server: Rank, nbytes: int, *, to_server: bool) -> PathTable | None:
        """Returns the paths between every worker and a server; None while links are broken.

        The paths of each number of bytes are looked up once.

        Args:
            server: the server.
            nbytes: the bytes of each message.
            to_server: whether the server receives; it sends otherwise.
        """
        if self._cache is not self._whole:
            return None
        if (known := self._of_server.get((server, nbytes, to_server))) is None:
            sizes, hops = np.full(self._cluster.workers, float(nbytes)), self._server_hops(server, to_server)
            known = self._of_server[server, nbytes, to_server] = self._tables.of_size(hops, sizes)
        return known

    def _server_hops(self, server: Rank, to_server: bool) -> Routed:
        """Returns the hops between every worker and a server."""
        if (known := self._with_server.get((server, to_server))) is None:
            workers = np.arange(self._cluster.workers)
            ends = workers, np.full(len(workers), server)
            known = self._with_server[server, to_server] = self._tables.routed(*(ends if to_server else ends[::-1]))
        return known

    def alike(self, groups: Sequence[Sequence[Rank]]) -> AlikeGroups | None:
        """Returns which groups have alike paths between their members; None if this is not known.

        Args:
            groups: the ranks of each group.
        """
        sizes = {len(group) for group in groups}
        if self._cache is not self._whole or len(sizes) > 1 or max(sizes) > MOST_COMPARED or min(sizes) < 2:
            return None
        return self._tables.alike(np.array([tuple(group) for group in groups], dtype=np.int64), self.capacity)

    @cached_property
    def _tables(self) -> PathTables:
        return PathTables(self._cluster, self._whole.routes, self.buffers.copied, self.buffers.passed, self._along_hops)

    def between(self, here: str, there: str, nbytes: float = 0.0) -> Path:
        """Returns the path between two vertices of the graph.

        Args:
            here: the first vertex.
            there: the last vertex.
            nbytes: bytes that are to be moved.
        """
        return self._along(here, self._hops(here, there), nbytes)

    def _end_of(self, rank: Rank) -> str:
        """Returns the vertex at which messages of a rank begin and end."""
        return self.buffers.copied.get(rank) or self._cluster.vertex_of(rank)

    def _found(self, source: Rank, to: Rank, nbytes: float) -> Path:
        passed = self.buffers.passed
        here, there = self._end_of(source), self._end_of(to)
        if here == there:
            return self._inside(source, to, nbytes)
        cluster, cards = self._cluster, NO_STOPS
        if (apart := self.node_of(source) != self.node_of(to)) and cluster.has_cards:
            cards = cluster.card_of(source, to), cluster.card_of(to, source)
        cache, key = self._cache, (here, there, *cards)
        if key not in cache.known and max(source, to) >= cluster.workers >= MANY_WORKERS and cache is self._whole:
            legs = self._server_hops(max(source, to), to >= cluster.workers)
            at = int(np.searchsorted(legs.away, min(source, to)))
            hops = legs.hops[legs.first[at] : legs.first[at + 1]].tolist()
            cache.known[key] = tuple(cache.routes.connections[hop] for hop in hops)
        if key not in cache.known:
            between = (passed.get(source), passed.get(to)) if apart else NO_STOPS
            cache.known[key] = self._by_cards(here, there, between, cards)
        way = cache.known[key]
        pieces = tuple(hop.link.piece(nbytes).up_to_bytes for hop in way if hop.link.pieces)
        if (known := cache.paths.get((*key, pieces))) is None:
            peers = not (apart and {source, to} & passed.keys())  # else data rest in host memory on their way
            known = cache.paths[*key, pieces] = self._along(here, way, nbytes, peers=peers)
        return known

    def _by_cards(self, here: str, there: str, stops: Stops, cards: Stops) -> tuple[Connection, ...]:
        """Returns the hops of a message by way of host memory and of the cards of its two ends.

        A card that would make the way longer is not used: its cable is broken, or it leads to another network.
        """

        def by_way_of(out: str | None, into: str | None) -> tuple[Connection, ...]:
            ways = [here, *(stop for stop in (stops[0], out, into, stops[1]) if stop not in (None, here, there)), there]
            return tuple(chain.from_iterable(self._hops(*pair) for pair in pairwise(ways)))

        shortest = by_way_of(None, None)
        for choice in CARDS:
            out, into = (card if use else None for card, use in zip(cards, choice, strict=True))
            if (out or into) and len(way := by_way_of(out, into)) <= len(shortest):
                return way
        return shortest

    def _hops(self, here: str, there: str) -> tuple[Connection, ...]:
        try:
            return self._cache.routes.between(here, there).connections
        except NoRoute:  # the message waits until the link is repaired
            return self._whole.routes.between(here, there).connections

    def _along_hops(self, source: Rank, to: Rank, hops: tuple[Connection, ...], rests: bool, nbytes: float) -> Path:
        if not hops:
            return self._inside(source, to, nbytes)
        return self._along(self._end_of(source), hops, nbytes, peers=not rests)

    def _inside(self, source: Rank, to: Rank, nbytes: float) -> Path:
        link = self._cluster.nodes[self._cluster.node_of(source)].intra_node_link
        piece = link.piece(nbytes)
        limit = piece.bytes_per_s if link.pieces else math.inf
        start, end = (min(rank, self._cluster.ranks[-1]) for rank in (source, to))
        ports = (f"out of rank {start}", f"into rank {end}")
        beyond_s = beyond_usual_s([(link.medium, piece.latency_s)], hops=2)
        return Path(ports, piece.latency_s, link.medium, limit, link.send_s, link.receive_s, beyond_s)

    def _along(self, here: str, hops: tuple[Connection, ...], nbytes: float, *, peers: bool = True) -> Path:
        ports: list[Port] = []
        start = here
        for hop in hops:
            there = hop.ends[1] if hop.ends[0] == here else hop.ends[0]
            ports.append(port(here, there))
            here = there
        pieces = [hop.link.piece(nbytes) for hop in hops]
        limits = [piece.bytes_per_s * hop.count for piece, hop in zip(pieces, hops, strict=True) if hop.link.pieces]
        limits += [
            piece.bytes_per_s * own_cables(hop.count, self._cluster.shares[end])
            for end, hop, piece in ((start, hops[0], pieces[0]), (here, hops[-1], pieces[-1]))
            if end in self._cluster.shares and hop.count > 1
        ]
        if peers:
            uplinks = [at for at, hop in enumerate(hops) if hop.link.peer_share < 1.0]
            second = [
                hops[at]
                for before, at in pairwise(uplinks)
                if at - before <= ACROSS_ROOT and hops[before].link.name == hops[at].link.name  # up and down again
            ]
            limits += [hop.link.peer_share * hop.link.bytes_per_s * hop.count for hop in second]
        return Path(
            ports=tuple(ports),
            latency_s=sum(piece.latency_s for piece in pieces),
            medium=SLOWNESS[max(SLOWNESS.index(hop.link.medium) for hop in hops)],
            limit_bytes_per_s=min(limits, default=math.inf),
            send_s=hops[0].link.send_s,
            receive_s=hops[-1].link.receive_s,
            beyond_usual_s=beyond_usual_s(
                [(hop.link.medium, piece.latency_s) for hop, piece in zip(hops, pieces, strict=True)]
            ),
        )


def both_ways(ends: tuple[str, str]) -> tuple[Port, Port]:
    """Returns the ports of both directions of a link, given its ends."""
    return port(*ends), port(*ends[::-1])


def own_cables(cables: int, workers: int) -> float:
    """Returns the cables that a message of one of several workers of a host uses: its own, at least one.

    >>> own_cables(8, 4), own_cables(2, 8)
    (2.0, 1.0)
    """
    return max(1.0, cables / workers)


def beyond_usual_s(latencies: Sequence[tuple[Medium, float]], hops: int = 1) -> float:
    """Returns the part of a path's latency that libraries' measured steps do not include: all of a network's.

    Args:
        latencies: medium and latency of each link of the path.
        hops: the hops that each link stands for.

    >>> beyond_usual_s([("pcie", 3e-6), ("network", 15e-3), ("network", 15e-3), ("pcie", 3e-6)]) * 1e3
    30.0
    """
    return sum(max(0.0, latency_s - hops * USUAL_LATENCY_S.get(medium, 0.0)) for medium, latency_s in latencies)
