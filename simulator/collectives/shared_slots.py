"""Collectives in the main memory of a node, as the real backend does (`backend.transports.shared_collectives`).

* Every member writes its value into a slot of its own, and reads the slots of the others with its own core. So accesses
  of a member are messages from it to itself, on the port of the node's memory, at the rate of a core; the members of a
  node share the memory max-min fairly, with other collectives and with accesses to cells (`network.node_memory`).
* Between writing and reading, members wait for counters of others: messages without bytes, which take the latency of
  the path between two members for each piece of the value.
* Bytes of a slot that is read by a member at another vertex (a socket, a part of a chip) pass the links between them
  meanwhile.
* Members of one vertex proceed alike, so it suffices that each waits for the one before it.
* A value passes in pieces, with two buffers: while others read a piece of the root, it writes the next one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from paceline.algorithms.core.values import Rank
from paceline.simulator.collectives.patterns import (
    Pattern,
    Round,
    Rounds,
    Setting,
    among,
    one_round,
    ring_all_reduce,
    side_by_side,
)
from paceline.simulator.flows.fabric import Fabric
from paceline.simulator.flows.path_tables import Amounts, Numbers, Path, PathTable, stacked
from paceline.topologies.catalogue.host_memory import PIECE_BYTES, shares_sum

COPY = 2
"""bytes of traffic for each byte that a core copies: it reads and writes it"""


def adding(values: int) -> int:
    """Returns the bytes of traffic for each byte of a sum: two are read and one is written for every value added; the
    sum that was just written is overwritten where it is, which moves it once.

    >>> adding(2), adding(4)
    (3, 7)
    """
    return 2 * values - 1


def slots(kind: str, places: Sequence[int], nbytes: float, root: int, seats: Sequence[str]) -> Rounds:
    """Returns the accesses and waits of the members of one node.

    Args:
        kind: the operation.
        places: the places of the members.
        nbytes: the n of the closed forms.
        root: the place that gets or has the value of a `Reduce` or `Broadcast`.
        seats: the vertex of each place of the group.

    >>> for one in slots("Reduce", [0, 1, 2], 1000, 0, ["host"] * 3):
    ...     print(one.sources, one.targets, one.nbytes)
    [0 1 2] [0 1 2] [2000. 2000. 2000.]
    [1 2] [0 0] [0. 0.]
    [0] [0] [5000.]
    """
    p, others = len(places), [place for place in places if place != root]
    meet = one_round([(place, places[number - p + 1]) for number, place in enumerate(places)], 0.0)
    to_root = one_round([(place, root) for place in others], 0.0)

    def access(traffic: Mapping[int, float], writers: Iterable[int] = (), read_bytes: float = 0.0) -> Round:
        """Accesses of these members, which read so many bytes of each slot of the writers."""
        far = [(writer, reader) for writer in writers for reader in traffic if seats[writer] != seats[reader]]
        ends = np.array([*zip(traffic, traffic, strict=True), *far], dtype=np.int64)
        return Round(ends[:, 0], ends[:, 1], np.array([*traffic.values(), *(read_bytes for _ in far)], dtype=float))

    def everyone(traffic: float, read_bytes: float = 0.0) -> Round:
        return access(dict.fromkeys(places, traffic), places if read_bytes else (), read_bytes)

    match kind:
        case "AllReduce" | "Reduce" if shares_sum(p, nbytes):
            share = nbytes / p
            sums = everyone(adding(p) * share + COPY * share, share)  # of its share, which it also publishes
            if kind == "AllReduce":
                return everyone(COPY * nbytes), meet, sums, meet, everyone(COPY * nbytes, share)
            return everyone(COPY * nbytes), meet, sums, to_root, access({root: COPY * nbytes}, others, share)
        case "AllReduce":
            return everyone(COPY * nbytes), meet, everyone(adding(p) * nbytes, nbytes)
        case "ReduceScatter":
            return everyone(COPY * nbytes), meet, everyone(adding(p) * nbytes / p, nbytes / p)
        case "AllGather":
            return everyone(COPY * nbytes / p), meet, everyone(COPY * nbytes, nbytes / p)
        case "Reduce":
            return everyone(COPY * nbytes), to_root, access({root: adding(p) * nbytes}, others, nbytes)
        case "Broadcast":
            notices, first = one_round([(root, place) for place in others], 0.0), min(nbytes, PIECE_BYTES)
            reads = dict.fromkeys(others, COPY * nbytes) | ({root: COPY * (nbytes - first)} if nbytes > first else {})
            return access({root: COPY * first}), notices, access(reads, [root], nbytes)
        case _:
            return (meet,)


def in_memory(kind: str, setting: Setting, seats: Sequence[str]) -> Pattern:
    """Returns the pattern of a collective whose members work in the main memory of their nodes.

    Of several nodes, which an all-reduce may have, the leader of each adds what its node wrote, the leaders form a
    ring, and the nodes read the result.

    Args:
        kind: the operation.
        setting: its arguments; the first member of a node is its leader.
        seats: the vertex of each member.
    """
    nodes, nbytes = setting.nodes, setting.nbytes
    if setting.p < 2:
        return Pattern(())
    if len(nodes) == 1:
        return Pattern((slots(kind, nodes[0], nbytes, setting.root, seats),))
    several = [node for node in nodes if len(node) > 1]
    up, down = (
        side_by_side([slots(kind, node, nbytes, node[0], seats) for node in several])
        for kind in ("Reduce", "Broadcast")
    )
    return Pattern(((*up, *among([node[0] for node in nodes], ring_all_reduce(len(nodes), nbytes)), *down),))


class SlotPaths:
    """The paths of a pattern with slots.

    Args:
        fabric: the placement of ranks and the network between them.
        ranks: the members.
        kind: the operation.
        nbytes: the n of the closed forms.
    """

    def __init__(self, fabric: Fabric, ranks: Sequence[Rank], kind: str, nbytes: float) -> None:
        self._fabric = fabric
        each = nbytes / len(ranks) if kind == "AllGather" else nbytes
        self._turns = max(1, math.ceil(each / PIECE_BYTES))
        """pieces of a member's value"""
        self._members = Counter(map(fabric.node_of, ranks))
        self._bytes = 2 * each + nbytes
        """bytes that a member uses: its value, its slot and the result"""

    def find(self, sources: Numbers, targets: Numbers, nbytes: Amounts) -> PathTable:
        """Returns the paths of accesses (from a member to itself), of counters without bytes, and of messages."""
        usual, rows = self._fabric.paths(sources, targets, nbytes), zip(sources, targets, nbytes, strict=True)
        return stacked([self._path(usual.path(row), *ends) for row, ends in enumerate(rows)])

    def _path(self, usual: Path, source: Rank, to: Rank, nbytes: float) -> Path:
        node = self._fabric.node_of(source)
        if source == to:
            return self._fabric.core_path(source, self._members[node] * self._bytes)
        if node != self._fabric.node_of(to):
            return usual
        if nbytes == 0:
            return replace(usual, ports=(), latency_s=self._turns * usual.latency_s)
        return replace(usual, latency_s=0.0)
