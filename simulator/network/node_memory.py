"""Accesses to cells in a node's main memory, as flows on the memory and on the links to it.

* The cells of a node are in the memory of its host. A core moves at most `HostMemory.core_bytes_per_s`, and all
  accesses of a node together at most `HostMemory.bytes_per_s`; they share it max-min fairly.
* A rank that is not at the host's vertex moves the bytes over its route to the host too: a GPU over PCIe, a core of
  another socket over the bus between sockets. There they contend with messages and collectives.
* The parts of an access run at the same time, block after block, so the slowest of them determines its end.
* Traffic inside a device's own memory, and of messages between ranks of one vertex, is not counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import simpy

from paceline.algorithms.core.values import Rank
from paceline.simulator.flows.flow_engine import Port
from paceline.simulator.network.network import ClusterNetwork, memory_port

Action = Literal["read", "add", "swap"]
TRAFFIC: dict[Action, int] = {"read": 2, "add": 3, "swap": 4}
"""how often the core of an access moves the cell's bytes in memory: a read loads them and stores a copy, an add loads
both terms and stores the sum, a swap copies twice"""
LINE_BYTES = 64
"""cells up to one line of a processor's cache, such as counters, are accessed without cost"""


@dataclass(frozen=True, slots=True)
class Copying:
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


class NodeMemory:
    """The memories of a cluster's nodes.

    Args:
        network: carries the flows.
    """

    def __init__(self, network: ClusterNetwork) -> None:
        self._network, self._routes = network, cache(self._found)

    def begin(self, rank: Rank, action: Action, nbytes: int) -> Copying | None:
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
        return Copying(self._network, begun)

    def _found(self, rank: Rank) -> tuple[tuple[Port, ...], tuple[Port, ...], bool]:
        """Returns the ports from a rank's host to the rank and back, and whether the rank has a memory of its own."""
        cluster, fabric = self._network.cluster, self._network.fabric
        node = cluster.nodes[cluster.node_of(rank)]
        seat = cluster.vertex_of(rank)
        if seat == node.host:
            return (), (), False
        down, medium = fabric.between(node.host, seat)
        up, _ = fabric.between(seat, node.host)
        return down, up, seat in cluster.graph.of_kind("device") and medium != "memory"
