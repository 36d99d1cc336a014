"""Clusters: nodes of devices, and who sits where.

Worker ranks are numbered node by node. The server of a method that has one comes after the workers and sits on
`server_node`, sharing that node's links.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from paceline.algorithms.values import Rank
from paceline.topologies.devices import Device
from paceline.topologies.links import Link
from paceline.topologies.spread import NO_SPREAD, Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One machine: `workers` devices of one kind, behind one NIC."""

    name: str
    device: Device
    workers: int
    link: Link
    """its NIC and the cable to the switch, in each direction"""
    local: Link
    """between two ranks of this node"""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Nodes around one switch that never is the bottleneck (a star).

    >>> from paceline.topologies.links import LINKS
    >>> fast = Device(name="fast", overhead_s=0.004, per_sample_s=0.0005)
    >>> node = Node(name="a", device=fast, workers=2, link=LINKS["eth-10g"], local=LINKS["shared-memory"])
    >>> cluster = Cluster(nodes=(node, node))
    >>> cluster.placement
    [[0, 1], [2, 3]]
    >>> cluster.node_of(Rank(3)), cluster.node_of(Rank(4))  # rank 4 is the server
    (1, 0)
    """

    nodes: tuple[Node, ...]
    spread: Spread = NO_SPREAD
    server_node: int = 0

    @cached_property
    def workers(self) -> int:
        return sum(node.workers for node in self.nodes)

    @cached_property
    def placement(self) -> list[list[Rank]]:
        """The worker ranks of each node."""
        sizes = [node.workers for node in self.nodes]
        return [[Rank(end - size + i) for i in range(size)] for size, end in zip(sizes, accumulate(sizes), strict=True)]

    @cached_property
    def _node_of(self) -> tuple[int, ...]:
        return tuple(index for index, node in enumerate(self.nodes) for _ in range(node.workers))

    def node_of(self, rank: Rank) -> int:
        """The index of the node on which a rank sits; every rank after the workers is a server."""
        return self._node_of[rank] if rank < self.workers else self.server_node

    def device_of(self, rank: Rank) -> Device:
        """The device of a rank."""
        return self.nodes[self.node_of(rank)].device
