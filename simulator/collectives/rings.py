"""The order of ranks in a ring, and in several parallel rings, as libraries lay them out over a machine's links.

* A ring visits the nodes in order and follows a cycle inside each node (`widest_cycle`). Parallel rings run in both
  directions around cycles that share no link (`disjoint_cycles`). If GPUs are connected by a switch that is wide
  enough, all rings use the same cycle. There are at least as many rings as the node with the most network cards has in
  use. Each ring leaves and enters nodes where the fewest other rings do.
* A ring's share of the bytes is proportional to the bandwidth of its slowest hop, which it shares with other rings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain, islice

import numpy as np
from numpy.typing import NDArray

from paceline.algorithms.core.values import Group, Rank
from paceline.simulator.collectives.patterns import RingChannel
from paceline.simulator.flows.fabric import Fabric
from paceline.simulator.flows.flow_engine import Port
from paceline.simulator.flows.path_tables import SLOWNESS, Amounts, Numbers

Nodes = tuple[tuple[int, ...], ...]
Matrix = tuple[tuple[float, ...], ...]
Lanes = tuple[tuple[int, ...], ...]
Cycle = tuple[int, ...]
TINY = 1e-300
"""bytes per second of a broken link in comparisons"""
PROBE_BYTES = 2.0**20
"""size of the messages by which hops are compared"""
LARGEST = 16
"""number of places of the largest node that is searched"""
TRIES = 20_000
"""largest number of places that a search for one cycle visits"""
FEWER = 50
"""number of cycles that are tried at each position of a list of disjoint cycles"""


class RingLayout:
    """The rings of a group.

    Args:
        fabric: the network.
        group: the ranks.
        nodes: the places of the group on each node.
    """

    def __init__(self, fabric: Fabric, group: Group, nodes: Nodes) -> None:
        self._probes, self._nodes = Probes(fabric, group.ranks), nodes

    @property
    def places(self) -> Nodes:
        """The places of each node as they were given."""
        return self._nodes

    @cached_property
    def nodes(self) -> Nodes:
        """The places of each node in the order of its own best ring."""
        ordered = list(self._nodes)
        for size in {len(places) for places in self._nodes} - {1, 2, 3}:
            own = [number for number, places in enumerate(self._nodes) if len(places) == size]
            orders: dict[bytes, Cycle] = {}
            for numbers in _blocks(own, size):
                rates = self._inside([self._nodes[number] for number in numbers]).rates.reshape(len(numbers), size, -1)
                for number, matrix in zip(numbers, rates, strict=True):
                    if (key := matrix.tobytes()) not in orders:
                        orders[key] = widest_cycle(tuple(map(tuple, _with_diagonal(matrix).tolist())))
                    ordered[number] = tuple(self._nodes[number][at] for at in orders[key])
        return tuple(ordered)

    @cached_property
    def nvlinks(self) -> tuple[bool, bool]:
        """Whether NVLinks join the ring of every node with several places, and whether they do through switches.

        Of the nodes with as many places, the first is looked at.
        """
        firsts = {len(places): np.array(places) for places in reversed(self.nodes) if len(places) > 1}
        paths_of = [self._probes.find(places, np.roll(places, -1)) for places in firsts.values()]
        nvlink = bool(paths_of) and all(bool(paths.nvlink.all()) for paths in paths_of)
        return nvlink, nvlink and all(bool((paths.hops > 1).all()) for paths in paths_of)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The places in the order of one ring around all nodes."""
        return self._around(self.nodes, np.zeros(0))[0]

    @cached_property
    def channels(self) -> tuple[RingChannel, ...]:
        """Parallel rings."""
        several = self._cycles()
        count = max(map(len, several), default=1)
        loads, cuts, orders = np.zeros(0), Counter[int](), []
        for channel in range(count):
            order, loads = self._around(tuple(cycles[channel % len(cycles)] for cycles in several), loads, cuts)
            orders.append(order)
        return self._shared(list(dict.fromkeys(orders)))

    def _inside(self, nodes: Sequence[tuple[int, ...]]) -> ProbedPaths:
        """Returns the paths between each two places of nodes of one size, from each place to all others in order."""
        places = np.array(nodes)
        g = places.shape[1]
        source, to = np.nonzero(~np.eye(g, dtype=bool))
        return self._probes.find(places[:, source].ravel(), places[:, to].ravel())

    def _cycles(self) -> list[list[tuple[int, ...]]]:
        """Returns the cycles through each node that parallel rings may use, at least one for each way out of it."""
        cycles_of: list[list[tuple[int, ...]]] = [[] for _ in self._nodes]
        for size in {len(places) for places in self._nodes if 3 <= len(places) <= LARGEST}:
            own = [number for number, places in enumerate(self._nodes) if len(places) == size]
            cycles: dict[bytes, list[Cycle]] = {}
            for numbers in _blocks(own, size):
                paths = self._inside([self._nodes[number] for number in numbers])
                direct = np.where((paths.hops == 1) & paths.nvlink, paths.rates, 0.0).reshape(len(numbers), size, -1)
                for number, matrix in zip(numbers, direct, strict=True):
                    if (key := matrix.tobytes()) not in cycles:
                        both = disjoint_cycles(_lanes(_with_diagonal(matrix)))
                        cycles[key] = [way for cycle in both for way in (cycle, cycle[::-1])]
                    cycles_of[number] = [tuple(self._nodes[number][at] for at in cycle) for cycle in cycles[key]]
        exits = self._exits() if len(self._nodes) > 1 else [1]
        return [
            (own_cycles or [places]) * -(-ways // max(1, len(own_cycles)))
            for own_cycles, places, ways in zip(cycles_of, self.nodes, exits, strict=True)
        ]

    def _exits(self) -> list[int]:
        """Returns the number of ways out of each node: of different slowest ports on the paths from its places.

        A port of several cables, of which one message may use a part, counts as many times.
        """
        sizes = np.array([len(places) for places in self._nodes])
        firsts = np.array([places[0] for places in self._nodes])
        node = np.repeat(np.arange(len(sizes)), sizes)
        paths = self._probes.find(np.fromiter(chain.from_iterable(self._nodes), np.int64), np.roll(firsts, -1)[node])
        slowest, widths = paths.slowest_ports()
        pairs, at = np.unique(np.stack((node, slowest)), axis=1, return_index=True)
        shares = np.rint(widths[at] / np.maximum(paths.limit_bytes_per_s[at], TINY))
        counts: list[int] = np.bincount(pairs[0], np.clip(shares, 1, sizes[pairs[0]]), len(sizes)).astype(int).tolist()
        return counts

    def _around(
        self, cycles: Nodes, loads: Amounts, cuts: Counter[int] | None = None
    ) -> tuple[tuple[int, ...], Amounts]:
        """Returns a ring through these cycles, cut where the hops between nodes are cheapest, and the loads with it.

        The loads of a port are the rings that use it on their way between nodes. Of equally cheap positions, that with
        the fewest cuts so far is taken."""
        if len(cycles) == 1:
            return cycles[0], loads
        sizes = np.array([len(cycle) for cycle in cycles])
        starts, places = np.cumsum(sizes) - sizes, np.fromiter(chain.from_iterable(cycles), np.int64)
        used = Counter[int]() if cuts is None else cuts
        tried: list[tuple[float, ProbedPaths]] = []
        for cut in range(int(sizes.max())):
            begins, ends = places[starts + cut % sizes], places[starts + (cut - 1) % sizes]
            exits = self._probes.find(ends, np.roll(begins, -1))
            known = np.pad(loads, (0, max(0, exits.known - len(loads))))
            cost = float(np.sum((1 + known[exits.passes]) / np.maximum(exits.capacity, TINY)))
            tried.append((cost, exits))
        least = min(cost for cost, _ in tried) * (1 + 1e-9)
        cheap = [cut for cut, (cost, _) in enumerate(tried) if cost <= least]
        alike = len(cheap) == len(tried)  # as where all places of a node use the same cables
        cut = min(cheap, key=lambda position: used[position]) if alike else cheap[0]
        exits = tried[cut][1]
        used[cut] += 1
        loads = np.pad(loads, (0, max(0, exits.known - len(loads))))
        np.add.at(loads, exits.passes, 1)
        turned = [(*cycle[cut % len(cycle) :], *cycle[: cut % len(cycle)]) for cycle in cycles]
        return tuple(chain.from_iterable(turned)), loads

    def _shared(self, orders: Sequence[tuple[int, ...]]) -> tuple[RingChannel, ...]:
        rings = []
        for order in orders:
            places = np.array(order)
            paths = self._probes.find(places, np.roll(places, -1))
            ports, at = np.unique(paths.passes, return_index=True)
            rings.append((ports, paths.capacity[at], float(paths.limit_bytes_per_s.min())))
        count = np.bincount(np.concatenate([ports for ports, _, _ in rings]))
        # a broken link has bandwidth 0; a ring over it waits for its repair, as any message does
        widths = [
            min(limit, float((np.maximum(capacity, TINY) / count[ports]).min())) for ports, capacity, limit in rings
        ]
        return tuple(RingChannel(order, width / sum(widths)) for order, width in zip(orders, widths, strict=True))


def _blocks(numbers: Sequence[int], size: int) -> list[Sequence[int]]:
    """Returns the numbers in blocks whose pairs of places fit into memory."""
    step = max(1, 2**17 // size**2)
    return [numbers[low : low + step] for low in range(0, len(numbers), step)]


def _with_diagonal(rows: Amounts) -> Amounts:
    """Returns a square matrix whose diagonal is 0, given the other entries of each row."""
    g = len(rows)
    square = np.zeros((g, g))
    square[~np.eye(g, dtype=bool)] = rows.ravel()
    return square


def _lanes(rates: Amounts) -> Lanes:
    """Returns the number of direct lanes between each two places; all lanes of a node have the same width."""
    least = float(min((rate for rate in rates.ravel().tolist() if rate), default=1.0))
    return tuple(tuple(int(rate / least + 1e-9) for rate in row) for row in rates.tolist())


# --- paths between places ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class ProbedPaths:
    """The paths of several pairs.

    Args:
        first: the index at which the ports of each path begin; one more entry at the end.
        passes: the numbers of the ports of all paths, path after path.
        capacity: their bytes per second.
        limit_bytes_per_s: the largest rate of a message on each path.
        nvlink: whether the slowest hop of each path is an NVLink.
        known: above the number of every port so far.
    """

    first: Numbers
    passes: Numbers
    capacity: Amounts
    limit_bytes_per_s: Amounts
    nvlink: NDArray[np.bool_]
    known: int

    @property
    def hops(self) -> Numbers:
        """The number of ports of each path."""
        return np.diff(self.first)

    @property
    def rates(self) -> Amounts:
        """The bandwidth of each path."""
        rates = self.limit_bytes_per_s.copy()
        if len(some := np.flatnonzero(self.hops)):
            rates[some] = np.minimum(rates[some], np.minimum.reduceat(self.capacity, self.first[some]))
        return rates

    def slowest_ports(self) -> tuple[Numbers, Amounts]:
        """Returns the number of the slowest port of each path, the first one of equals, and its bytes per second."""
        path = np.repeat(np.arange(len(self.hops)), self.hops)
        order = np.lexsort((np.arange(len(path)), self.capacity, path))
        slowest = order[self.first[:-1]]
        return self.passes[slowest], self.capacity[slowest]


class Probes:
    """Looks up paths between places of a group.

    Args:
        fabric: the network.
        ranks: the rank at each place.
    """

    def __init__(self, fabric: Fabric, ranks: tuple[Rank, ...]) -> None:
        self._fabric, self._ranks = fabric, np.array(ranks, dtype=np.int64)
        self._numbers: dict[Port, int] = {}

    def find(self, ones: Numbers, others: Numbers) -> ProbedPaths:
        """Returns the paths of pairs of places.

        Args:
            ones: the first place of each pair.
            others: the last place of each pair.
        """
        paths = self._fabric.paths(self._ranks[ones], self._ranks[others], np.full(len(ones), PROBE_BYTES))
        used, again = np.unique(paths.passes, return_inverse=True)
        names, capacity = paths.names(used), self._fabric.mean_capacity
        number = np.array([self._numbers.setdefault(port, len(self._numbers)) for port in names], dtype=np.int64)
        return ProbedPaths(
            first=paths.first,
            passes=number[again],
            capacity=np.array([capacity[port] for port in names], dtype=float)[again],
            limit_bytes_per_s=paths.limit_bytes_per_s,
            nvlink=paths.medium == SLOWNESS.index("nvlink"),
            known=len(self._numbers),
        )


# --- cycles through the places of one node ----------------------------------------------------------------------------

# Places are numbered 0 … g - 1, and links are given as matrices. A search tries places in ascending order, so the order
# of a node whose hops are all alike does not change. It stops after a fixed number of tries and returns the best cycle
# found. Nodes with more than 16 places are not searched, and their order does not change.


@cache
def widest_cycle(rates: Matrix) -> Cycle:
    """Returns the cycle whose slowest hop is fastest, beginning at place 0. `rates` holds the bandwidth of each hop.

    >>> widest_cycle(((0, 1, 9, 9), (1, 0, 9, 9), (9, 9, 0, 1), (9, 9, 1, 0)))
    (0, 2, 1, 3)
    """
    g = len(rates)
    both = tuple(tuple(min(rates[i][j], rates[j][i]) for j in range(g)) for i in range(g))
    if 3 < g <= LARGEST:
        for least in sorted({rate for row in both for rate in row if rate > 0}, reverse=True):
            joined = tuple(tuple(int(rate >= least) for rate in row) for row in both)
            for cycle in cycles(joined):
                return cycle
    return tuple(range(g))


def cycles(lanes: Lanes) -> Iterator[Cycle]:
    """Yields the cycles along lanes through all places, in lexicographic order."""
    g, tried = len(lanes), 0
    path, nexts = [0], [iter(range(1, g))]
    while path and tried < TRIES:
        place = next(nexts[-1], None)
        tried += 1
        if place is None:
            path.pop()
            nexts.pop()
        elif lanes[path[-1]][place] and place not in path:
            path.append(place)
            nexts.append(iter(range(1, g)))
            if len(path) == g and lanes[place][0]:
                yield tuple(path)


@cache
def disjoint_cycles(lanes: Lanes) -> tuple[Cycle, ...]:
    """Returns as many cycles as it finds of which no two use the same lane.

    >>> disjoint_cycles(((0, 1, 1, 1, 1), (1, 0, 1, 1, 1), (1, 1, 0, 1, 1), (1, 1, 1, 0, 1), (1, 1, 1, 1, 0)))
    ((0, 1, 2, 3, 4), (0, 2, 4, 1, 3))
    """
    g = len(lanes)
    best: tuple[Cycle, ...] = ()
    most = min((sum(row) for row in lanes), default=0) // 2
    if not 3 <= g <= LARGEST or not most:
        return ()
    for cycle in islice(cycles(lanes), FEWER):
        disjoint = (cycle, *disjoint_cycles(_without(lanes, cycle)))
        if len(disjoint) > len(best):
            best = disjoint
        if len(best) >= most:
            break
    return best


def _without(lanes: Lanes, cycle: Cycle) -> Lanes:
    left = [list(row) for row in lanes]
    for place, following in zip(cycle, (*cycle[1:], cycle[0]), strict=True):
        left[place][following] -= 1
        left[following][place] -= 1
    return tuple(map(tuple, left))
