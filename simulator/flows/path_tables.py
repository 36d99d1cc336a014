"""The paths of messages as values, and those of many messages at once as arrays.

`PathTables` finds the hops of all messages together. Latency and limit are computed once for each kind of path, by the
same function as for a single message, since messages whose hops, sizes and ends are alike differ in their ports only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.algorithms.core.values import Rank
from paceline.simulator.flows.flow_engine import Port
from paceline.topologies.cluster import ClusterModel, Node
from paceline.topologies.graphs.graph import Connection
from paceline.topologies.graphs.links import LinkModel, Medium
from paceline.topologies.graphs.routing import Routes

Numbers = NDArray[np.int64]
Amounts = NDArray[np.float64]
SLOWNESS: tuple[Medium, ...] = ("memory", "nvlink", "pcie", "network")
"""the media of hops, fastest first"""
CARDS = ((True, True), (True, False), (False, True))
"""whether a message takes the card of its sender, and that of its receiver, in order of preference"""


@dataclass(frozen=True, slots=True)
class Path:
    """The path of a message from one rank to another.

    Args:
        ports: the shared ports, in order; each is one direction of a link, or a bus.
        latency_s: seconds from when the last byte has passed the ports until the message has arrived.
        medium: the slowest kind of hop on the path.
        limit_bytes_per_s: the largest rate of one message, even if all ports are idle.
        send_s: the part of the latency that is work of the sender's processor, one message at a time.
        receive_s: the part of the latency that is work of the receiver's processor, one message at a time.
        beyond_usual_s: the part of the latency that libraries' measured steps do not include.
    """

    ports: tuple[Port, ...]
    latency_s: float
    medium: Medium = "network"
    limit_bytes_per_s: float = math.inf
    send_s: float = 0.0
    receive_s: float = 0.0
    beyond_usual_s: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class PathTable:
    """The paths of many messages; the fields of `Path` as arrays.

    Args:
        latency_s: the latency of each path.
        limit_bytes_per_s: the largest rate of a message on each path.
        medium: the slowest kind of hop of each path, as a place in `SLOWNESS`.
        send_s: the part of each latency that is work of the sender's processor.
        receive_s: the part of each latency that is work of the receiver's processor.
        beyond_usual_s: the part of each latency that libraries' measured steps do not include.
        first: the index in `passes` at which the ports of each path begin; one more entry at the end.
        passes: the numbers of the ports of all paths, path after path.
        names: returns the names of ports, given their numbers.
    """

    latency_s: Amounts
    limit_bytes_per_s: Amounts
    medium: Numbers
    send_s: Amounts
    receive_s: Amounts
    beyond_usual_s: Amounts
    first: Numbers
    passes: Numbers
    names: Callable[[Numbers], list[Port]]

    def path(self, row: int) -> Path:
        """Returns the path in a row."""
        ports = tuple(self.names(self.passes[self.first[row] : self.first[row + 1]]))
        latency_s, limit, medium, *rest = (getattr(self, field.name)[row].item() for field in fields(self)[:6])
        return Path(ports, latency_s, SLOWNESS[medium], limit, *rest)


def memory_port(node: str) -> Port:
    """Returns the name of the port of a node's main memory, given the node's name."""
    return f"memory of {node}"


FindPaths = Callable[[Numbers, Numbers, Amounts], PathTable]
"""returns the paths of messages, given their senders, receivers and bytes"""


def stacked(paths: Sequence[Path]) -> PathTable:
    """Returns a table of paths that were looked up singly."""
    number: dict[Port, int] = {}
    passes = [number.setdefault(port, len(number)) for path in paths for port in path.ports]
    names = list(number)
    return PathTable(
        latency_s=np.array([path.latency_s for path in paths], dtype=float),
        limit_bytes_per_s=np.array([path.limit_bytes_per_s for path in paths], dtype=float),
        medium=np.array([SLOWNESS.index(path.medium) for path in paths], dtype=np.int64),
        send_s=np.array([path.send_s for path in paths], dtype=float),
        receive_s=np.array([path.receive_s for path in paths], dtype=float),
        beyond_usual_s=np.array([path.beyond_usual_s for path in paths], dtype=float),
        first=np.cumsum([0, *(len(path.ports) for path in paths)]),
        passes=np.array(passes, dtype=np.int64),
        names=lambda ports: [names[at] for at in ports.tolist()],
    )


@dataclass(frozen=True, slots=True, eq=False)
class Routed:
    """The hops of many messages, which do not depend on their bytes.

    Args:
        sources: the sender of each message.
        targets: the receiver of each message.
        away: the messages between different vertices.
        first: the index in `hops` at which the hops of each of them begin; one more entry at the end.
        hops: the numbers of the hops of all of them.
    """

    sources: Numbers
    targets: Numbers
    away: Numbers
    first: Numbers
    hops: Numbers


class PathTables:
    """Looks up the paths of many messages on a graph.

    Ports have numbers: the hops of the graph as in `Routes.many`, then two for each rank, out of it and into it.

    Args:
        cluster: the placement of ranks.
        routes: the routes through the graph.
        copied: the host vertex of each rank whose messages begin and end there.
        passed: the host vertex of each rank whose messages to other nodes pass it.
        along: returns the path of a message, given its two ends, its hops (none between ranks of one vertex), whether
            it rests in host memory on its way, and its bytes.
    """

    def __init__(
        self,
        cluster: ClusterModel,
        routes: Routes,
        copied: Mapping[Rank, str],
        passed: Mapping[Rank, str],
        along: Callable[[Rank, Rank, tuple[Connection, ...], bool, float], Path],
    ) -> None:
        self._cluster, self._routes, self._along = cluster, routes, along
        ranks, numbers = list(map(Rank, cluster.ranks)), routes.numbers
        self._vertex = np.array([numbers[copied.get(rank) or cluster.vertex_of(rank)] for rank in ranks])
        self._node = np.array([cluster.node_of(rank) for rank in ranks])
        self._stop = np.array([numbers[passed[rank]] if rank in passed else -1 for rank in ranks])
        self._shares = np.zeros(len(numbers), dtype=np.int64)
        self._shares[[numbers[seat] for seat in cluster.shares]] = list(cluster.shares.values())
        workers, servers = ranks[: cluster.workers], ranks[cluster.workers :]
        own = [cluster.card_of(rank, servers[0]) for rank in workers] if cluster.has_cards else []
        near = [[cluster.card_of(server, rank) for rank in workers] if cluster.has_cards else [] for server in servers]

        def cards(names: Sequence[str | None]) -> Numbers:
            return np.array([-1 if name is None else numbers[name] for name in names], dtype=np.int64)

        self._card, self._of_server = cards(own), np.array(list(map(cards, near)))

    def find(self, sources: Numbers, targets: Numbers, nbytes: Amounts) -> PathTable:
        """Returns the paths of messages; arguments as for `Fabric.paths`."""
        return self.of_size(self.routed(sources, targets), nbytes)

    def routed(self, sources: Numbers, targets: Numbers) -> Routed:
        """Returns the hops of messages.

        Args:
            sources: the sender of each message.
            targets: the receiver of each message.
        """
        own, others = (np.minimum(ranks, len(self._node) - 1) for ranks in (sources, targets))
        away = np.flatnonzero(self._vertex[own] != self._vertex[others])
        return Routed(own, others, away, *self._routed(own[away], others[away]))

    def of_size(self, routed: Routed, nbytes: Amounts) -> PathTable:
        """Returns the paths of messages whose hops are known.

        Args:
            routed: their hops.
            nbytes: the bytes of each message.
        """
        own, others, away, first = routed.sources, routed.targets, routed.away, routed.first
        counts = np.full(len(own), 2)
        counts[away] = np.diff(first)
        ends = np.cumsum(counts)
        passes = np.zeros(int(ends[-1]) if len(ends) else 0, dtype=np.int64)
        beside = np.ones(len(own), dtype=bool)
        beside[away] = False
        near, base = np.flatnonzero(beside), len(self._routes.connections)
        passes[ends[near] - 2], passes[ends[near] - 1] = base + 2 * own[near], base + 2 * others[near] + 1
        passes[np.repeat(~beside, counts)] = routed.hops
        size = np.unique(nbytes, return_inverse=True)[1]
        resting = (self._node[own] != self._node[others]) & ((self._stop[own] >= 0) | (self._stop[others] >= 0))
        kinds = np.full((len(own), 5 + int(counts.max(initial=0))), -1)
        kinds[:, 0], kinds[near, 1] = size, self._inside[own[near]]
        kinds[away, 2], kinds[away, 3] = self._shares[self._vertex[own[away]]], self._shares[self._vertex[others[away]]]
        kinds[away, 4] = resting[away]
        row = np.repeat(np.arange(len(away)), np.diff(first))
        kinds[away[row], 5 + np.arange(len(row)) - first[row]] = self._kinds[routed.hops]
        _, example, kind = np.unique(_row_numbers(kinds), return_index=True, return_inverse=True)
        hops = dict(zip(away.tolist(), pairwise(first.tolist()), strict=True))
        connections = self._routes.connections
        tables = []
        for at in example.tolist():
            way = tuple(connections[hop] for hop in routed.hops[slice(*hops.get(at, (0, 0)))].tolist())
            tables.append(
                self._along(Rank(int(own[at])), Rank(int(others[at])), way, bool(resting[at]), float(nbytes[at]))
            )
        by_kind, kind = stacked(tables), kind.reshape(-1)
        return replace(
            by_kind,
            **{field.name: getattr(by_kind, field.name)[kind] for field in fields(PathTable)[:6]},
            first=np.r_[0, ends],
            passes=passes,
            names=self.names,
        )

    def alike(self, members: Numbers, capacity: Mapping[Port, float]) -> AlikeGroups:
        """Returns which groups have alike paths between their members.

        Args:
            members: the ranks of each group, one row per group.
            capacity: the bytes per second of each port.
        """
        size = members.shape[1]
        sources, targets = pairs(members)
        table = self.find(sources, targets, np.zeros(len(sources)))
        used, again = np.unique(table.passes, return_inverse=True)
        names = self.names(used)
        links = np.stack([self._link_of(used), np.array([capacity[port] for port in names]).view(np.int64)], axis=1)
        nodes = _numbered_nodes(self._cluster.nodes)
        signatures, ports = [], []
        ends = table.first[:: size * (size - 1)]
        for group, (low, high) in enumerate(pairwise(ends.tolist())):
            numbers, own = in_order(again[low:high])
            hops = np.diff(table.first[group * size * (size - 1) : (group + 1) * size * (size - 1) + 1])
            on = self._node[members[group]]
            again_on, own_nodes = in_order(on)
            parts = (hops, numbers, links[own], nodes[on], again_on)
            signatures.append(tuple(part.tobytes() for part in parts))
            memories = (memory_port(self._cluster.nodes[node].name) for node in own_nodes.tolist())
            ports.append((*(names[port] for port in own.tolist()), *memories))
        return AlikeGroups(firsts(signatures), tuple(ports))

    def _link_of(self, ports: Numbers) -> Numbers:
        """Returns a number for each port that is equal if its link, and how many there are in parallel, are."""
        base = len(self._routes.connections)
        hop, rank = np.minimum(ports, base - 1), np.maximum(ports - base, 0) // 2
        return np.where(ports < base, self._kinds[hop], -1 - self._inside[np.minimum(rank, len(self._node) - 1)])

    def names(self, ports: Numbers) -> list[Port]:
        """Returns the names of ports, given their numbers."""
        base, given = len(self._routes.connections), ports.tolist()
        of_hops = iter(self._routes.hop_names([port for port in given if port < base]))
        return [
            next(of_hops) if port < base else f"{'into' if (port - base) % 2 else 'out of'} rank {(port - base) // 2}"
            for port in given
        ]

    def _routed(self, own: Numbers, others: Numbers) -> tuple[Numbers, Numbers]:
        """Returns the hops between different vertices, by way of host memory where messages pass it."""
        stops = [self._vertex[own], self._stop[own], self._stop[others], self._vertex[others]]
        local = self._node[own] == self._node[others]
        for at in (1, 2):
            unused = local | (stops[at] < 0) | (stops[at] == stops[0]) | (stops[at] == stops[3])
            stops[at] = np.where(unused, stops[0] if at == 1 else stops[3], stops[at])
        legs = self._legs(stops)
        if not len(self._card):
            return legs
        out, into = self._cards(own, others), self._cards(others, own)
        rows = np.flatnonzero(~local & ((out >= 0) | (into >= 0)))
        for by_sender, by_receiver in CARDS:
            first, second = out[rows] if by_sender else -1, into[rows] if by_receiver else -1
            first = np.where(first < 0, stops[1][rows], first)
            second = np.where(second < 0, first, second)
            ways = self._legs([stops[0][rows], stops[1][rows], first, second, stops[2][rows], stops[3][rows]])
            as_short = np.diff(ways[0]) <= np.diff(legs[0])[rows]
            legs = _replaced(legs, rows, ways, as_short)
            rows = rows[~as_short]
        return legs

    def _cards(self, ranks: Numbers, others: Numbers) -> Numbers:
        """Returns the card of each rank for a message with another one; −1 without."""
        last = len(self._card) - 1
        own = self._card[np.minimum(ranks, last)]
        near = self._of_server[np.maximum(ranks - last - 1, 0), np.minimum(others, last)]
        cards: Numbers = np.where(ranks <= last, own, near)
        return cards

    def _legs(self, stops: Sequence[Numbers]) -> tuple[Numbers, Numbers]:
        """Returns the hops by way of stops, of which successive ones may be the same."""
        legs = []
        for here, there in pairwise(stops):
            moves = np.flatnonzero(here != there)
            if len(moves):
                legs.append((moves, *self._routes.many(here[moves], there[moves])))
        if len(legs) == 1 and len(legs[0][0]) == len(stops[0]):
            return legs[0][1], legs[0][2]
        none = np.zeros(0, dtype=np.int64)
        row = np.concatenate([none, *(np.repeat(moves, np.diff(first)) for moves, first, _ in legs)])
        hops = np.concatenate([none, *(own for _, _, own in legs)])
        counts = np.bincount(row, minlength=len(stops[0]))
        return np.r_[0, np.cumsum(counts)], hops[np.argsort(row, kind="stable")]

    @cached_property
    def _inside(self) -> Numbers:
        """A number for the link between ranks of one vertex of each rank's node."""
        kinds: Numbers = _numbered([node.intra_node_link for node in self._cluster.nodes])[self._node]
        return kinds

    @cached_property
    def _kinds(self) -> Numbers:
        """A number for each hop's link and the number of parallel ones."""
        links = _numbered([connection.link for connection in self._routes.connections])
        counts = np.array([connection.count for connection in self._routes.connections], dtype=np.int64)
        kinds: Numbers = links + (links.max(initial=0) + 1) * counts
        return kinds


def _replaced(
    legs: tuple[Numbers, Numbers], rows: Numbers, ways: tuple[Numbers, Numbers], taken: NDArray[np.bool_]
) -> tuple[Numbers, Numbers]:
    """Returns the hops of messages (where each begins, and all hops) with those of the rows that are taken replaced."""
    row = np.repeat(np.arange(len(legs[0]) - 1), np.diff(legs[0]))
    other = np.repeat(rows, np.diff(ways[0]))
    replaced = np.zeros(len(legs[0]) - 1, dtype=bool)
    replaced[rows[taken]] = True
    kept, new = ~replaced[row], replaced[other]
    rows_of = np.concatenate((row[kept], other[new]))
    hops = np.concatenate((legs[1][kept], ways[1][new]))[np.argsort(rows_of, kind="stable")]
    return np.r_[0, np.cumsum(np.bincount(rows_of, minlength=len(replaced)))], hops


def _numbered_nodes(nodes: Sequence[Node]) -> Numbers:
    """Returns a number for each node that is equal for successive nodes that differ only in name and vertices."""
    last: Node | None = None
    numbers: list[int] = []
    for node in nodes:
        plain = replace(node, name="", seats=(), host="")
        if plain != last:  # equal nodes follow each other
            last = plain
            numbers.append(numbers[-1] + 1 if numbers else 0)
        else:
            numbers.append(numbers[-1])
    return np.array(numbers)


def _numbered(links: Sequence[LinkModel]) -> Numbers:
    """Returns a number for each link that is equal for equal links."""
    distinct: dict[LinkModel, int] = {}
    known: dict[int, int] = {}  # comparing addresses is faster than comparing links
    for link in links:
        if id(link) not in known:
            known[id(link)] = distinct.setdefault(link, len(distinct))
    return np.array([known[id(link)] for link in links], dtype=np.int64)


# --- groups of ranks whose paths are alike ---------------------------------------------------------------------------

# The paths between all pairs of members of a group are looked up, and their ports are numbered in the order in which
# these paths first pass them. Two groups are alike if equal places are joined by paths over ports of equal numbers,
# whose links and capacities are equal, and their members are on equal nodes. Then every pattern takes the same time
# in both.


@dataclass(frozen=True, slots=True, eq=False)
class AlikeGroups:
    """Groups of one size, by the paths between their members.

    Args:
        like: for each group, the first group that is alike, perhaps itself.
        ports: for each group, the ports of the paths of all pairs of members, and of the memories of their nodes; alike
            groups use them equally.
    """

    like: tuple[int, ...]
    ports: tuple[tuple[Port, ...], ...]

    def renamed(self, group: int, ports: frozenset[Port]) -> frozenset[Port]:
        """Returns the ports of a group that correspond to those of the group that is alike.

        Args:
            group: the group.
            ports: ports of the paths of the group that is alike.

        >>> alike = AlikeGroups((0, 0), (("a>b", "b>a"), ("c>d", "d>c")))
        >>> alike.renamed(1, frozenset({"b>a"}))
        frozenset({'d>c'})
        """
        names = self.names(group)
        return frozenset(names[port] for port in ports)

    def names(self, group: int) -> dict[Port, Port]:
        """Returns the port of a group that corresponds to each port of the group that is alike, given its number."""
        return dict(zip(self.ports[self.like[group]], self.ports[group], strict=True))


def pairs(members: Numbers) -> tuple[Numbers, Numbers]:
    """Returns the sources and targets of all pairs of different members, group by group.

    Args:
        members: the ranks of each group, one row per group.

    >>> pairs(np.array([[4, 5]]))
    (array([4, 5]), array([5, 4]))
    """
    size = members.shape[1]
    source, to = np.nonzero(~np.eye(size, dtype=bool))
    return members[:, source].ravel(), members[:, to].ravel()


def in_order(passes: Numbers) -> tuple[Numbers, Numbers]:
    """Returns the passed ports, numbered in the order in which they are first passed, and the ports in this order.

    Args:
        passes: the numbers of ports, path after path.

    >>> in_order(np.array([7, 3, 7, 9]))
    (array([0, 1, 0, 2]), array([7, 3, 9]))
    """
    used, at, again = np.unique(passes, return_index=True, return_inverse=True)
    order = np.argsort(at)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return rank[again], used[order]


def firsts(signatures: Sequence[Any]) -> tuple[int, ...]:
    """Returns for each signature the place of the first equal one.

    >>> firsts(["a", "b", "a"])
    (0, 1, 0)
    """
    known: dict[Any, int] = {}
    return tuple(known.setdefault(signature, place) for place, signature in enumerate(signatures))


def _row_numbers(rows: Numbers) -> Numbers:
    """Returns a number for each row of integers; the order of numbers is that of rows.

    `numpy.unique` takes eight times as long to sort rows as to sort numbers.
    """
    numbers = np.zeros(len(rows), dtype=np.int64)
    for column in rows.T if len(rows) else ():
        least = int(column.min())
        span = int(column.max()) - least + 1
        if int(numbers.max()) >= 2**62 // span:
            numbers = np.unique(numbers, return_inverse=True)[1]
        numbers = numbers * span + (column - least)
    return numbers
