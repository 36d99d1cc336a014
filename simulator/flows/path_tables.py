"""The paths of many messages at once, as arrays: the same paths as those of `GraphFabric.path`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from paceline.algorithms.core.values import Rank
from paceline.simulator.flows.flow_engine import Port
from paceline.topologies.catalogue.libraries import USUAL_LATENCY_S
from paceline.topologies.cluster import Cluster, Node
from paceline.topologies.graphs.links import Link, Medium
from paceline.topologies.graphs.routing import Routes

# The paths between all pairs of members of a group are looked up, and their ports are numbered in the order in which
# these paths first pass them. Two groups are alike if equal places are joined by paths over ports of equal numbers,
# whose links and capacities are equal, and their members are on equal nodes. Then every pattern takes the same time
# in both.


Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class AlikeGroups:
    """Groups of one size, by the paths between their members.

    Args:
        like: for each group, the first group that is alike, perhaps itself.
        ports: for each group, the ports of the paths of all pairs of members; alike groups use them equally.
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
    one, other = np.nonzero(~np.eye(size, dtype=bool))
    return members[:, one].ravel(), members[:, other].ravel()


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
    return tuple(known.setdefault(one, place) for place, one in enumerate(signatures))


Amounts = NDArray[np.float64]
SLOWNESS: tuple[Medium, ...] = ("memory", "nvlink", "pcie", "network")
"""the media of hops, fastest first"""
CARDS = ((True, True), (True, False), (False, True))
"""whether a message takes the card of its sender, and that of its receiver, in order of preference"""
ACROSS_ROOT = 2
"""hops from one uplink of a socket to the next one on the way of a message from device to device: 1, or 2 by way of the
bus between sockets"""


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


FindPaths = Callable[[Sequence[Rank], Sequence[Rank], Amounts], PathTable | None]
"""returns the paths of messages, given their senders, receivers and bytes; None if they have to be looked up singly"""


@runtime_checkable
class ManyPaths(Protocol):
    """A fabric that looks up many paths at once."""

    def paths(self, sources: Sequence[Rank], targets: Sequence[Rank], nbytes: Amounts) -> PathTable | None:
        """Returns the paths of messages; None if they have to be looked up singly.

        Args:
            sources: the sender of each message.
            targets: the receiver of each message.
            nbytes: the bytes of each message.
        """
        ...


class PathTables:
    """Looks up the paths of many messages on a graph.

    Ports have numbers: the hops of the graph as in `Routes.many`, then two for each rank, out of it and into it.

    Args:
        cluster: the placement of ranks.
        routes: the routes through the graph.
        copied: the host vertex of each rank whose messages begin and end there.
        passed: the host vertex of each rank whose messages to other nodes pass it.
    """

    def __init__(
        self, cluster: Cluster, routes: Routes, copied: Mapping[Rank, str], passed: Mapping[Rank, str]
    ) -> None:
        self._cluster, self._routes = cluster, routes
        ranks, numbers = [Rank(rank) for rank in range(cluster.workers + 1)], routes.numbers
        self._vertex = np.array([numbers[copied.get(rank) or cluster.vertex_of(rank)] for rank in ranks])
        self._node = np.array([cluster.node_of(rank) for rank in ranks])
        self._stop = np.array([numbers[passed[rank]] if rank in passed else -1 for rank in ranks])
        self._workers = np.ones(len(numbers))
        self._workers[[numbers[seat] for seat in cluster.shares]] = list(cluster.shares.values())
        workers, server = ranks[:-1], ranks[-1]
        own = [cluster.card_of(rank, server) for rank in workers] if cluster.has_cards else []
        near = [cluster.card_of(server, rank) for rank in workers] if cluster.has_cards else []
        self._card, self._of_server = (
            np.array([-1 if name is None else numbers[name] for name in names], dtype=np.int64) for names in (own, near)
        )

    def find(self, sources: Sequence[Rank], targets: Sequence[Rank], nbytes: Amounts) -> PathTable:
        """Returns the paths of messages; arguments as for `ManyPaths.paths`."""
        return self.of_size(self.routed(sources, targets), nbytes)

    def routed(self, sources: Sequence[Rank], targets: Sequence[Rank]) -> Routed:
        """Returns the hops of messages.

        Args:
            sources: the sender of each message.
            targets: the receiver of each message.
        """
        one, other = (
            np.minimum(np.asarray(ranks, dtype=np.int64), len(self._node) - 1) for ranks in (sources, targets)
        )
        away = np.flatnonzero(self._vertex[one] != self._vertex[other])
        return Routed(one, other, away, *self._routed(one[away], other[away]))

    def of_size(self, routed: Routed, nbytes: Amounts) -> PathTable:
        """Returns the paths of messages whose hops are known.

        Args:
            routed: their hops.
            nbytes: the bytes of each message.
        """
        one, other, away, first = routed.sources, routed.targets, routed.away, routed.first
        counts = np.full(len(one), 2)
        counts[away] = np.diff(first)
        ends = np.cumsum(counts)
        passes = np.zeros(int(ends[-1]) if len(ends) else 0, dtype=np.int64)
        beside = np.ones(len(one), dtype=bool)
        beside[away] = False
        near, base = np.flatnonzero(beside), len(self._routes.connections)
        passes[ends[near] - 2], passes[ends[near] - 1] = base + 2 * one[near], base + 2 * other[near] + 1
        passes[np.repeat(~beside, counts)] = routed.hops
        latency_s, limit, send_s, receive_s, beyond_s = (np.zeros(len(one)) for _ in range(5))
        medium = np.zeros(len(one), dtype=np.int64)
        found = PathTable(latency_s, limit, medium, send_s, receive_s, beyond_s, np.r_[0, ends], passes, self.names)
        latency_s[away], limit[away], medium[away], beyond_s[away] = self._along(
            first, routed.hops, nbytes[away], self._peers(one[away], other[away])
        )
        if self._cluster.shares:
            both = (
                (self._vertex[one[away]], routed.hops[first[:-1]]),
                (self._vertex[other[away]], routed.hops[first[1:] - 1]),
            )
            for vertices, hops in both:
                limit[away] = np.minimum(limit[away], self._own_rate(vertices, hops, nbytes[away]))
        send_s[away], receive_s[away] = self._work(routed.hops[first[:-1]]), self._work(routed.hops[first[1:] - 1], 1)
        self._fill_inside(found, near, self._node[one[near]], nbytes[near])
        return found

    def _own_rate(self, vertices: Numbers, hops: Numbers, nbytes: Amounts) -> Amounts:
        """Returns what a message of one worker of a host may use of the host's cables, bytes per second."""
        kinds, links = self._kinds
        workers = self._workers[vertices]
        found = np.full(len(hops), math.inf)
        for number in np.unique(kinds[hops]).tolist():
            link = links[number]
            some = np.flatnonzero((kinds[hops] == number) & (workers > 1) & (self._counts[hops] > 1))
            rate = pieces_of(link, nbytes[some])[1] if link.pieces else np.full(len(some), link.bytes_per_s)
            found[some] = rate * np.maximum(1.0, self._counts[hops[some]] / workers[some])
        return found

    def _work(self, hops: Numbers, end: int = 0) -> Amounts:
        """Returns the work of the processor at one end of each hop: 0 for the sender's, 1 for the receiver's."""
        kinds, links = self._kinds
        return np.array([(link.send_s, link.receive_s)[end] for link in links], dtype=float)[kinds[hops]]

    def alike(self, members: Numbers, capacity: Mapping[Port, float]) -> AlikeGroups:
        """Returns which groups have alike paths between their members.

        Args:
            members: the ranks of each group, one row per group.
            capacity: the bytes per second of each port.
        """
        size = members.shape[1]
        sources, targets = pairs(members)
        table = self.find(sources.tolist(), targets.tolist(), np.zeros(len(sources)))
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
            parts = (hops, numbers, links[own], nodes[on], in_order(on)[0])
            signatures.append(tuple(part.tobytes() for part in parts))
            ports.append(tuple(names[port] for port in own.tolist()))
        return AlikeGroups(firsts(signatures), tuple(ports))

    def _link_of(self, ports: Numbers) -> Numbers:
        """Returns a number for each port that is equal if its link, and how many there are in parallel, are."""
        base = len(self._routes.connections)
        kinds, links = self._kinds
        inside, _ = self._inside
        hop, rank = np.minimum(ports, base - 1), np.maximum(ports - base, 0) // 2
        own = kinds[hop] + len(links) * self._counts[hop]
        return np.where(ports < base, own, -1 - inside[self._node[np.minimum(rank, len(self._node) - 1)]])

    def names(self, ports: Numbers) -> list[Port]:
        """Returns the names of ports, given their numbers."""
        base, given = len(self._routes.connections), ports.tolist()
        of_hops = iter(self._routes.hop_names([port for port in given if port < base]))
        return [
            next(of_hops) if port < base else f"{'into' if (port - base) % 2 else 'out of'} rank {(port - base) // 2}"
            for port in given
        ]

    def _routed(self, one: Numbers, other: Numbers) -> tuple[Numbers, Numbers]:
        """Returns the hops between different vertices, by way of host memory where messages pass it."""
        stops = [self._vertex[one], self._stop[one], self._stop[other], self._vertex[other]]
        local = self._node[one] == self._node[other]
        for at in (1, 2):
            unused = local | (stops[at] < 0) | (stops[at] == stops[0]) | (stops[at] == stops[3])
            stops[at] = np.where(unused, stops[0] if at == 1 else stops[3], stops[at])
        found = self._legs(stops)
        if not len(self._card):
            return found
        out, into = self._cards(one, other), self._cards(other, one)
        rows = np.flatnonzero(~local & ((out >= 0) | (into >= 0)))
        for by_sender, by_receiver in CARDS:
            first, second = out[rows] if by_sender else -1, into[rows] if by_receiver else -1
            first = np.where(first < 0, stops[1][rows], first)
            second = np.where(second < 0, first, second)
            ways = self._legs([stops[0][rows], stops[1][rows], first, second, stops[2][rows], stops[3][rows]])
            as_short = np.diff(ways[0]) <= np.diff(found[0])[rows]
            found = _replaced(found, rows, ways, as_short)
            rows = rows[~as_short]
        return found

    def _cards(self, ranks: Numbers, others: Numbers) -> Numbers:
        """Returns the card of each rank for a message with another one; −1 without."""
        last = len(self._card) - 1
        own, near = self._card[np.minimum(ranks, last)], self._of_server[np.minimum(others, last)]
        found: Numbers = np.where(ranks <= last, own, near)
        return found

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

    def _peers(self, one: Numbers, other: Numbers) -> NDArray[np.bool_]:
        """Returns whether messages do not rest in host memory on their way."""
        rests = (self._stop[one] >= 0) | (self._stop[other] >= 0)
        found: NDArray[np.bool_] = (self._node[one] == self._node[other]) | ~rests
        return found

    def _along(
        self, first: Numbers, hops: Numbers, nbytes: Amounts, peers: NDArray[np.bool_]
    ) -> tuple[Amounts, Amounts, Numbers, Amounts]:
        """Returns latency, limit, medium and the latency beyond the usual one of paths over the graph.

        They are added up hop by hop as `GraphFabric.path` does.
        """
        counts = np.diff(first)
        latency_s, limit = np.zeros(len(counts)), np.full(len(counts), math.inf)
        beyond_s = np.zeros(len(counts))
        medium = np.zeros(len(counts), dtype=np.int64)
        uplink = np.full(len(counts), -ACROSS_ROOT - 1)
        for position in range(int(counts.max(initial=0))):
            rows = np.flatnonzero(counts > position)
            hop = hops[first[rows] + position]
            kinds, links = self._kinds
            for number in np.unique(kinds[hop]).tolist():
                link, own = links[number], kinds[hop] == number
                some = rows[own]
                latency, rate = pieces_of(link, nbytes[some])
                latency_s[some] += latency
                beyond_s[some] += np.maximum(0.0, latency - USUAL_LATENCY_S.get(link.medium, 0.0))
                limit[some] = np.minimum(limit[some], rate * self._counts[hop[own]])
                medium[some] = np.maximum(medium[some], SLOWNESS.index(link.medium))
                if link.peer_share < 1.0:
                    again = some[peers[some] & (position - uplink[some] <= ACROSS_ROOT)]
                    counts_again = self._counts[hops[first[again] + position]]
                    limit[again] = np.minimum(limit[again], link.peer_share * link.bytes_per_s * counts_again)
                    uplink[some] = position
        return latency_s, limit, medium, beyond_s

    def _fill_inside(self, found: PathTable, rows: Numbers, nodes: Numbers, nbytes: Amounts) -> None:
        """Fills in the paths between ranks of one vertex."""
        kinds, links = self._inside
        for number in np.unique(kinds[nodes]).tolist():
            link, own = links[number], kinds[nodes] == number
            some = rows[own]
            found.latency_s[some], found.limit_bytes_per_s[some] = pieces_of(link, nbytes[own])
            found.medium[some] = SLOWNESS.index(link.medium)
            found.send_s[some], found.receive_s[some] = link.send_s, link.receive_s
            usual_s = 2 * USUAL_LATENCY_S.get(link.medium, 0.0)
            found.beyond_usual_s[some] = np.maximum(0.0, found.latency_s[some] - usual_s)

    @cached_property
    def _inside(self) -> tuple[Numbers, list[Link]]:
        """The number of each node's link between ranks of one vertex, and these links."""
        return _numbered([node.intra_node_link for node in self._cluster.nodes])

    @cached_property
    def _kinds(self) -> tuple[Numbers, list[Link]]:
        """The number of each hop's link, and these links."""
        return _numbered([one.link for one in self._routes.connections])

    @cached_property
    def _counts(self) -> Numbers:
        """The number of parallel links of each hop."""
        return np.array([one.count for one in self._routes.connections])


def _replaced(
    found: tuple[Numbers, Numbers], rows: Numbers, ways: tuple[Numbers, Numbers], taken: NDArray[np.bool_]
) -> tuple[Numbers, Numbers]:
    """Returns the hops of messages with those of some rows replaced.

    Args:
        found: the index at which the hops of each message begin, and the hops.
        rows: the rows for which there are other ways.
        ways: the same for these.
        taken: whether each of them is taken.
    """
    row = np.repeat(np.arange(len(found[0]) - 1), np.diff(found[0]))
    other = np.repeat(rows, np.diff(ways[0]))
    replaced = np.zeros(len(found[0]) - 1, dtype=bool)
    replaced[rows[taken]] = True
    kept, new = ~replaced[row], replaced[other]
    rows_of = np.concatenate((row[kept], other[new]))
    hops = np.concatenate((found[1][kept], ways[1][new]))[np.argsort(rows_of, kind="stable")]
    return np.r_[0, np.cumsum(np.bincount(rows_of, minlength=len(replaced)))], hops


def _numbered_nodes(nodes: Sequence[Node]) -> Numbers:
    """Returns a number for each node that is equal for successive nodes that differ only in name and vertices."""
    last: Node | None = None
    found: list[int] = []
    for node in nodes:
        plain = replace(node, name="", seats=(), host="")
        if plain != last:  # equal nodes follow each other
            last = plain
            found.append(found[-1] + 1 if found else 0)
        else:
            found.append(found[-1])
    return np.array(found)


def pieces_of(link: Link, nbytes: Amounts) -> tuple[Amounts, Amounts]:
    """Returns latency and limit of messages on one link: the limit is infinite if the link has no pieces.

    Args:
        link: the link.
        nbytes: the bytes of each message.
    """
    if not link.pieces:
        return np.full(len(nbytes), link.latency_s), np.full(len(nbytes), math.inf)
    sizes, which = np.unique(nbytes, return_inverse=True)
    found = [link.piece(size) for size in sizes.tolist()]
    latency_s = np.array([one.latency_s for one in found], dtype=float)
    return latency_s[which], np.array([one.bytes_per_s for one in found], dtype=float)[which]


def _numbered(links: Sequence[Link]) -> tuple[Numbers, list[Link]]:
    """Returns the number of each link, and the different links."""
    distinct: dict[Link, int] = {}
    known: dict[int, int] = {}  # comparing addresses is faster than comparing links
    for link in links:
        if id(link) not in known:
            known[id(link)] = distinct.setdefault(link, len(distinct))
    return np.array([known[id(link)] for link in links], dtype=np.int64), list(distinct)
