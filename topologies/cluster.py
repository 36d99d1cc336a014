"""Clusters: machines on a graph, and the placement of ranks.

Worker ranks are numbered node by node. The server of a method that has one comes after the workers and is placed on
`server_node`, whose links it shares. Every rank is placed on a vertex of the graph. Ranks on one vertex reach each
other over their node's `intra_node_link`: each copies out and in at its rate, as processes of one host do. All others
use the graph.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from math import prod
from typing import Literal

from paceline.algorithms.core.values import Rank
from paceline.topologies.catalogue.charge_rates import ChargeRates
from paceline.topologies.catalogue.device import DeviceModel
from paceline.topologies.catalogue.host_memory import HostMemory, StagingModel, host_memory
from paceline.topologies.catalogue.libraries import Library
from paceline.topologies.catalogue.storage_devices import StorageModel
from paceline.topologies.faults.link_faults import LinkFaultModel
from paceline.topologies.faults.step_times import NO_VARIATION, StepTimes
from paceline.topologies.faults.worker_faults import NO_FAULTS, DeathAt, FaultPlace, Faults, Speed, speed_of
from paceline.topologies.graphs.compose import Cards, cards_of
from paceline.topologies.graphs.graph import Graph, Vertex
from paceline.topologies.graphs.links import LinkModel
from paceline.topologies.graphs.network_graphs import star


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One machine: devices of one kind, with a worker each.

    Args:
        seats: the vertices of its workers, one for each worker.
        host: the vertex of a server on this node.
        intra_node_link: the link between ranks on one vertex.
        step_time: how the steps of its devices vary; None: the cluster's.
        memory: the bandwidth of its main memory.
        host_rates: the cost of charges on its host; None: they are free.
    """

    name: str
    device: DeviceModel
    seats: tuple[str, ...]
    host: str
    intra_node_link: LinkModel
    step_time: StepTimes | None = None
    memory: HostMemory = field(default_factory=lambda: host_memory(None))
    host_rates: ChargeRates | None = None

    @property
    def workers(self) -> int:
        return len(self.seats)

    def reduce_s_per_byte(self, library: Library, nbytes: float, ranks: int) -> float:
        """Returns the time to add a received byte to a local one; 0 if it is not known.

        Args:
            library: its `reduces` says which processor adds, if that takes time of its own.
            nbytes: the size of the local vector.
            ranks: the ranks of this node that add at the same time.
        """
        if library.reduces == "fused":
            return 0.0
        by_core = self.device.kind in ("cpu", "manycore") if library.reduces is None else library.reduces == "core"
        rates = self.host_rates if by_core else self.device.rates
        return 0.0 if rates is None else rates.reduce_s_per_byte(nbytes, ranks if by_core else 1)


@dataclass(frozen=True, kw_only=True)
class ClusterModel:
    """Nodes, and the graph that joins them.

    >>> from paceline.topologies.graphs.links import LINKS
    >>> fast = DeviceModel(name="fast", overhead_s=0.004, per_sample_s=0.0005)
    >>> cluster = on_a_star([(fast, 2), (fast, 2)], link=LINKS["eth-10g"], local=LINKS["shared-memory"])
    >>> cluster.placement
    [[0, 1], [2, 3]]
    >>> cluster.node_of(Rank(3)), cluster.node_of(Rank(4))  # rank 4 is the server
    (1, 0)
    >>> cluster.vertex_of(Rank(3))
    'host1'
    """

    nodes: tuple[Node, ...]
    graph: Graph
    step_time: StepTimes = NO_VARIATION
    server_node: int = 0
    """the node of the first server"""
    servers: int = 1
    """the ranks after the workers; 1 also for methods without a server"""
    faults: Faults = NO_FAULTS
    link_faults: tuple[LinkFaultModel, ...] = ()
    storage: StorageModel | None = None
    """where samples are read from; None: reading costs nothing"""
    staging: StagingModel | None = None
    """the copies between hosts and devices; None: they cost nothing"""

    @property
    def links_change(self) -> bool:
        """Whether links fail or vary during a run, so that a network serves one run only."""
        return bool(self.link_faults) or bool(self.graph.varying)

    @cached_property
    def workers(self) -> int:
        return sum(node.workers for node in self.nodes)

    @property
    def ranks(self) -> range:
        """All ranks: the workers, then the servers."""
        return range(self.workers + self.servers)

    @cached_property
    def placement(self) -> list[list[Rank]]:
        """The worker ranks of each node."""
        sizes = [node.workers for node in self.nodes]
        return [[Rank(end - size + i) for i in range(size)] for size, end in zip(sizes, accumulate(sizes), strict=True)]

    @cached_property
    def _node_of(self) -> tuple[int, ...]:
        return tuple(index for index, node in enumerate(self.nodes) for _ in range(node.workers))

    @cached_property
    def _seats(self) -> tuple[str, ...]:
        return tuple(seat for node in self.nodes for seat in node.seats)

    def node_of(self, rank: Rank) -> int:
        """Returns the index of a rank's node; every rank after the workers is a server.

        The first server is on `server_node`, the others on the nodes after it in turn.
        """
        if rank < self.workers:
            return self._node_of[rank]
        return (self.server_node + rank - self.workers) % len(self.nodes)

    def vertex_of(self, rank: Rank) -> str:
        """Returns the vertex of a rank in the graph."""
        return self._seats[rank] if rank < self.workers else self.nodes[self.node_of(rank)].host

    @cached_property
    def _sockets(self) -> Mapping[str, str]:
        return nearest_sockets(self.graph)

    @cached_property
    def _cards(self) -> Cards:
        return cards_of(self.graph.striped())

    @cached_property
    def shares(self) -> Mapping[str, int]:
        """The number of workers at each vertex that has several, which share its cables."""
        return {seat: count for seat, count in Counter(self._seats).items() if count > 1}

    @property
    def has_cards(self) -> bool:
        """Whether some machine has several cards that are as near to a device or a socket."""
        return bool(self._cards.own or self._cards.near)

    def card_of(self, rank: Rank, other: Rank) -> str | None:
        """Returns the network card of a rank for messages with a rank of another machine.

        A worker has one card. A server distributes its workers to the cards of its socket in turn.

        Args:
            rank: the rank.
            other: the other rank.

        Returns:
            The vertex of the card; None if every route passes the same card or there is none.
        """
        if rank < self.workers:
            return self._cards.own.get(self.vertex_of(rank))
        near = self._cards.near.get(self.vertex_of(rank))
        return None if near is None else near[other % len(near)]

    def socket_of(self, rank: Rank) -> str | None:
        """Returns the vertex of the host memory that the device of a rank copies from and to; None without any.

        It is the socket that is nearest to the device, because launchers bind a process to it. Processors copy nothing,
        and neither do the ranks at a host's own vertex nor devices in a machine without a host, such as the cores of
        Knights Landing.
        """
        if rank >= self.workers or self.device_of(rank).kind == "cpu":
            return None
        seat = self.vertex_of(rank)
        socket = self._sockets.get(seat)
        return None if socket == seat else socket

    def device_of(self, rank: Rank) -> DeviceModel:
        """Returns the device of a rank."""
        return self.nodes[self.node_of(rank)].device

    def shares_memory(self, node: int) -> bool:
        """Returns whether the ranks of a node work in the main memory of its host, so that collectives pass it.

        Those of processors do, if they are at one vertex whose ranks share memory, at the sockets of a host, or joined
        by the memory of a chip. GPUs do not, nor do processors that only PCIe or a network joins.

        Args:
            node: the index of the node.
        """
        return self._share_memory[node]

    @cached_property
    def _share_memory(self) -> tuple[bool, ...]:
        hosts, media = set(self.graph.of_kind("host")), self.graph.bytes_per_s_by_medium

        def shares(node: Node) -> bool:
            seats = set(node.seats)
            if node.device.kind == "gpu" or (len(seats) < node.workers and node.intra_node_link.medium != "memory"):
                return False
            return len(seats) == 1 or hosts >= seats or all(media.get(seat, {}).keys() == {"memory"} for seat in seats)

        return tuple(map(shares, self.nodes))

    def devices_of(self, ranks: Iterable[Rank]) -> list[DeviceModel]:
        """Returns the different devices of some ranks, in the order of their first ranks."""
        objects = {id(device): device for device in map(self.device_of, ranks)}  # a device's hash takes 10 µs
        return list(dict.fromkeys(objects.values()))

    def rates_of(self, rank: Rank, where: Literal["device", "host"]) -> ChargeRates | None:
        """Returns the cost of a rank's charges on its device or on its node's host; None if they are free."""
        node = self.nodes[self.node_of(rank)]
        return node.host_rates if where == "host" else node.device.rates

    def step_times_of(self, rank: Rank, seed: int) -> StepTimes:
        """Returns the variation of a rank's steps: the last of its own, else its node's, else the cluster's."""
        own = [
            step_times.step_time
            for entry, step_times in enumerate(self.faults.step_times)
            if self._holds(step_times.place, rank, seed, entry)
        ]
        node = self.nodes[self.node_of(rank)]
        return own[-1] if own else self.step_time if node.step_time is None else node.step_time

    def slowness_of(self, rank: Rank, seed: int) -> float:
        """Returns the factor by which a rank is always slower."""
        return prod(
            straggler.factor
            for entry, straggler in enumerate(self.faults.stragglers)
            if self._holds(straggler.place, rank, seed, entry)
        )

    def speed_of(self, rank: Rank, seed: int) -> Speed:
        """Returns when a rank is slower for some time."""
        node, nodes = self.node_of(rank), len(self.nodes)
        return speed_of(self.faults.slowdowns, rank=int(rank), node=node, nodes=nodes, seed=seed)

    def deaths_of(self, rank: Rank, seed: int) -> list[DeathAt]:
        """Returns the deaths of a worker, of which the first one counts."""
        return [death for entry, death in enumerate(self.faults.deaths) if self._holds(death.place, rank, seed, entry)]

    def varied(self, change: Callable[[StepTimes], StepTimes]) -> ClusterModel:
        """Returns the same cluster whose steps vary otherwise, everywhere.

        Args:
            change: returns another variation for each of the cluster, of a node or of a worker.
        """
        nodes = tuple(
            node if node.step_time is None else replace(node, step_time=change(node.step_time)) for node in self.nodes
        )
        own = tuple(replace(entry, step_time=change(entry.step_time)) for entry in self.faults.step_times)
        faults = replace(self.faults, step_times=own)
        return replace(self, nodes=nodes, step_time=change(self.step_time), faults=faults)

    def without_jitter(self) -> ClusterModel:
        """Returns the same cluster without jitter; stragglers remain slow."""
        return self.varied(lambda _: NO_VARIATION)

    def _holds(self, place: FaultPlace, rank: Rank, seed: int, entry: int) -> bool:
        return place.holds(rank=int(rank), node=self.node_of(rank), nodes=len(self.nodes), seed=seed, entry=entry)


@dataclass(frozen=True, slots=True)
class Site:
    """The end points of one machine in a graph.

    Args:
        name: the machine's name.
        host: the vertex of its first socket or, if there is none, its first end point.
        seats: its end points.
        devices: the device at each end point, by its name in the catalogue; None if the graph does not define it.
        sockets: the processor of each socket, by its name in the catalogue; None if the graph does not define it.
    """

    name: str
    host: str
    seats: tuple[str, ...]
    devices: tuple[str | None, ...]
    sockets: tuple[str | None, ...] = ()


def sites(graph: Graph) -> list[Site]:
    """Returns the machines of a graph, in its order: each composed node or host; devices without a host are one
    machine.

    >>> from paceline.topologies.graphs.graph_registry import build
    >>> [(site.host, len(site.seats), site.devices[0]) for site in sites(build("dgx1-p100", {"nodes": 2}))]
    [('host0.cpu0', 8, 'p100-sxm2'), ('host1.cpu0', 8, 'p100-sxm2')]
    """
    ends = set(graph.endpoints)
    whole = bool(graph.of_kind("device"))
    seats: dict[str, list[Vertex]] = {}
    hosts: dict[str, list[Vertex]] = {}
    for vertex in graph.vertices:
        machine = vertex.host or (graph.name if whole else vertex.name)
        if vertex.name in ends:
            seats.setdefault(machine, []).append(vertex)
        if vertex.kind == "host":
            hosts.setdefault(machine, []).append(vertex)
    return [
        Site(
            name,
            (hosts.get(name) or parts)[0].name,
            tuple(part.name for part in parts),
            tuple(part.device for part in parts),
            tuple(socket.device for socket in hosts.get(name, [])),
        )
        for name, parts in seats.items()
    ]


def nearest_sockets(graph: Graph) -> dict[str, str]:
    """Returns the nearest host of the same machine for each vertex, by hops; the first one if several are as near.

    >>> from paceline.topologies.graphs.machines import dgx1
    >>> found = nearest_sockets(dgx1())
    >>> found["gpu3"], found["gpu4"]
    ('cpu0', 'cpu1')
    """
    machine = {vertex.name: vertex.host for vertex in graph.vertices}
    beside: dict[str, list[str]] = {name: [] for name in machine}
    for connection in graph.connections:
        end, other_end = connection.ends
        if machine[end] == machine[other_end]:
            beside[end].append(other_end)
            beside[other_end].append(end)
    nearest = {vertex.name: vertex.name for vertex in graph.vertices if vertex.kind == "host"}
    reached = deque(nearest)
    while reached:
        vertex = reached.popleft()
        for neighbour in beside[vertex]:
            if neighbour not in nearest:
                nearest[neighbour] = nearest[vertex]
                reached.append(neighbour)
    return nearest


def on_a_star(
    nodes: Sequence[tuple[DeviceModel, int]], *, link: LinkModel, local: LinkModel, server_node: int = 0
) -> ClusterModel:
    """Returns a cluster of nodes around one switch that never is the bottleneck.

    Args:
        nodes: the device of each node, and how many it has.
        link: each node's NIC and the cable to the switch; a message crosses two of them.
        local: the link between the ranks of one node.
        server_node: the index of the server's node.
    """
    return ClusterModel(
        nodes=tuple(
            Node(
                name=f"n{index}",
                device=device,
                seats=(f"host{index}",) * workers,
                host=f"host{index}",
                intra_node_link=local,
            )
            for index, (device, workers) in enumerate(nodes)
        ),
        graph=star(hosts=len(nodes), link=link),
        server_node=server_node,
    )
