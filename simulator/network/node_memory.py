"""Accesses to a node's main memory, as flows on the memory and on the links to it: to cells, and copies to devices.

* The cells of a node are in the memory of its host. A core moves at most `HostMemory.core_bytes_per_s`, and all
  accesses of a node together at most `HostMemory.bytes_per_s`; they share it max-min fairly.
* A rank that is not at the host's vertex moves the bytes over its route to the host too: a GPU over PCIe, a core of
  another socket over the bus between sockets. There they contend with messages and collectives.
* The parts of an access run at the same time, block after block, so the slowest of them determines its end.
* A copy between a host and a device is one flow on the memory and on the links between the device and its nearest
  socket. A core's copy inside the memory reads and writes every byte.
* Collectives inside a node load the same memory (`collectives.shared_slots`). Traffic inside a device's own memory, and
  of messages between ranks of one vertex, is not counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal, NamedTuple

import simpy

from paceline.algorithms.core.values import Rank
from paceline.simulator.flows.flow_engine import Port
from paceline.simulator.flows.path_tables import Path, memory_port
from paceline.simulator.network.network import ClusterNetwork
from paceline.topologies.cluster import Node

Action = Literal["read", "add", "swap"]
Direction = Literal["to device", "to host"]
TRAFFIC: dict[Action, int] = {"read": 2, "add": 3, "swap": 4}
"""how often the core of an access moves the cell's bytes in memory: a read loads them and stores a copy, an add loads
both terms and stores the sum, a swap copies twice"""
MOST_SLOWED = 512
"""workers up to which copies to and from devices slow collectives down on the links that they share: with more, every
collective would be simulated message by message, 50 times as long for 1,024 (our choice)"""
LINE_BYTES = 64
"""cells up to one line of a processor's cache, such as counters, are accessed without cost"""


@dataclass(frozen=True, slots=True)
class MemoryAccess:
    """The flows of one access."""

    network: ClusterNetwork
    flows: Sequence[tuple[simpy.Event, float]]
    """each with its bytes"""

    @property
    def events(self) -> list[simpy.Event]:
        """The events for the ends of its flows."""
        return [flow for flow, _ in self.flows]

    def share(self) -> float:
        """Returns which share of the access is done: that of its slowest flow."""
        return min(1 - self.network.left(flow) / nbytes for flow, nbytes in self.flows)

    def cancel(self) -> None:
        """Ends the flows before all bytes have passed."""
        for flow, _ in self.flows:
            self.network.cancel_copy(flow)


class DeviceCopy(NamedTuple):
    """A copy between a host and a device that has begun."""

    flow: simpy.Event
    latency_s: float
    """seconds from the end of the flow to the end of the copy"""


class NodeMemory:
    """The memories of a cluster's nodes.

    Args:
        network: carries the flows.
    """

    def __init__(self, network: ClusterNetwork) -> None:
        self._network, self._routes = network, cache(self._found)
        self._to_device = cache(self._device_path)

    def begin(self, rank: Rank, action: Action, nbytes: int) -> MemoryAccess | None:
        """Begins an access.

        Args:
            rank: the rank that accesses a cell of its node.
            action: what it does.
            nbytes: the bytes of the cell.

        Returns:
            Its flows; None if it takes no time.
        """
        if nbytes <= LINE_BYTES:
            return None
        cluster = self._network.cluster
        node = cluster.nodes[cluster.node_of(rank)]
        port, core = memory_port(node.name), node.memory.core_bytes_per_s
        to_rank, to_host, own_memory = self._routes(rank)
        flows: list[tuple[tuple[Port, ...], float, float]] = []
        if not own_memory or action == "add":
            flows.append(((port,), TRAFFIC[action] * nbytes, core))
        direct = (port,) if own_memory else ()  # a core's traffic contains the memory's part already
        if to_rank and (action != "add" or not own_memory):
            flows.append(((*direct, *to_rank), nbytes, float("inf")))
        if to_host and action != "read":
            flows.append(((*to_host, *direct), nbytes, float("inf")))
        begun = [(self._network.copy(ports, size, limit), size) for ports, size, limit in flows]
        return MemoryAccess(self._network, begun)

    @property
    def network(self) -> ClusterNetwork:
        """The network that carries the flows."""
        return self._network

    def copy(self, rank: Rank, direction: Direction, nbytes: float) -> DeviceCopy | None:
        """Begins a copy between pinned memory of a host and a device.

        Args:
            rank: the rank that computes on the device.
            direction: from the host to the device, or back.
            nbytes: its bytes.

        Returns:
            The copy; None if the rank's data are in host memory.
        """
        if (path := self._to_device(rank, direction)) is None:
            return None
        few = self._network.cluster.workers <= MOST_SLOWED
        flow = self._network.copy(path.ports, nbytes, path.limit_bytes_per_s, slows_collectives=few)
        return DeviceCopy(flow, path.latency_s)

    def path_to_device(self, rank: Rank) -> Path:
        """Returns the links of copies to the device of a rank, without the memory of its node."""
        path = self._to_device(rank, "to device")
        assert path is not None, "the rank's data are copied"
        return path

    def capacity_of(self, port: Port) -> float:
        """Returns the bytes per second of a link or of the memory of a node."""
        return self._network.fabric.capacity[port]

    def copy_by_core(self, rank: Rank, nbytes: float) -> simpy.Event:
        """Begins a copy inside the memory of a rank's node by one core, which reads and writes every byte.

        Args:
            rank: the rank.
            nbytes: the bytes to copy.
        """
        core = self._node(rank).memory.core_bytes_per_s
        return self._network.copy((self._port(rank),), TRAFFIC["read"] * nbytes, core)

    def cancel(self, flow: simpy.Event) -> None:
        """Ends a flow of a copy, whatever is left of it."""
        self._network.cancel_copy(flow)

    def _node(self, rank: Rank) -> Node:
        cluster = self._network.cluster
        return cluster.nodes[cluster.node_of(rank)]

    def _port(self, rank: Rank) -> Port:
        return memory_port(self._node(rank).name)

    def _device_path(self, rank: Rank, direction: Direction) -> Path | None:
        """Returns the path of copies of a rank, with the memory that they pass too; None if there are no copies."""
        cluster = self._network.cluster
        if (socket := cluster.socket_of(rank)) is None:
            return None
        fabric, seat = self._network.fabric, cluster.vertex_of(rank)
        path = fabric.between(socket, seat) if direction == "to device" else fabric.between(seat, socket)
        return replace(path, ports=(self._port(rank), *path.ports))

    def _found(self, rank: Rank) -> tuple[tuple[Port, ...], tuple[Port, ...], bool]:
        """Returns the ports from a rank's host to the rank and back, and whether the rank has a memory of its own."""
        cluster, fabric = self._network.cluster, self._network.fabric
        node = cluster.nodes[cluster.node_of(rank)]
        seat = cluster.vertex_of(rank)
        if seat == node.host:
            return (), (), False
        down, up = fabric.between(node.host, seat), fabric.between(seat, node.host)
        own_memory = seat in cluster.graph.of_kind("device") and down.medium != "memory"
        return down.ports, up.ports, own_memory
