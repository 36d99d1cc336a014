"""The shortest paths through a graph, computed on demand.

Vertices are numbers, their indices in the graph's order. Vertices that do not forward (devices, memories) can begin or
end a path and are never inside one. The paths from one vertex to another are a `Ways`: for every vertex on some
shortest path, all its next hops. The caller picks among them. Nothing is computed for pairs that are not requested: a
graph of a hundred thousand vertices costs its wiring, and each pair the neighbourhood that it spans.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from paceline.topologies.graphs.graph import Connection, Graph

Ways = Mapping[int, tuple[int, ...]]
"""the next hops of every vertex on a shortest path, in the graph's order"""

FORWARDERS = frozenset({"switch", "nic", "host"})
"""kinds of vertices that forward traffic"""


@dataclass(frozen=True, slots=True)
class Wiring:
    """The connections of a graph, with vertices as numbers."""

    names: tuple[str, ...]
    number: Mapping[str, int]
    forwards: Sequence[bool]
    connection: Mapping[tuple[int, int], Connection]
    """by both directions"""
    onward: Sequence[Sequence[int]]
    """the neighbours of each vertex that forward, in order"""

    @classmethod
    def of(cls, graph: Graph, broken: frozenset[frozenset[str]] = frozenset()) -> Wiring:
        """Returns the wiring of a graph without the broken pairs."""
        names = tuple(vertex.name for vertex in graph.vertices)
        number = {name: at for at, name in enumerate(names)}
        forwards = [vertex.kind in FORWARDERS for vertex in graph.vertices]
        connection: dict[tuple[int, int], Connection] = {}
        onward: list[list[int]] = [[] for _ in names]
        for joint in graph.connections:
            if broken and frozenset(joint.ends) in broken:
                continue
            a, b = number[joint.ends[0]], number[joint.ends[1]]
            connection[a, b] = connection[b, a] = joint
            if forwards[b]:
                onward[a].append(b)
            if forwards[a]:
                onward[b].append(a)
        for neighbours in onward:
            neighbours.sort()
        return cls(names=names, number=number, forwards=forwards, connection=connection, onward=onward)

    def climb(self, source: int, to: int) -> list[int]:
        """Follows the path from the source as long as there is only one, or until next to `to`.

        Every path to `to` begins with it, because the other vertices lead nowhere else. So pairs that leave their nodes
        by the same switch share one search.
        """
        chain, came = [source], -1
        here = source
        while here != to and (here, to) not in self.connection:
            ways_out = self.onward[here]
            back = came >= 0 and self.forwards[came]
            if len(ways_out) - back != 1:
                break
            came, here = here, next(other for other in ways_out if other != came)
            chain.append(here)
        return chain


def shortest(wiring: Wiring, source: int, to: int) -> Ways | None:
    """Returns all paths of fewest hops, by a search from both ends until they meet; None if there is none.

    Args:
        wiring: the graph.
        source: the first vertex.
        to: the last vertex.
    """
    if (source, to) in wiring.connection:
        return {source: (to,)}
    known: tuple[dict[int, int], dict[int, int]] = {source: 0}, {to: 0}
    edge: list[list[int]] = [[source], [to]]
    depth = [0, 0]
    while edge[0] and edge[1]:
        side = depth.index(0) if 0 in depth else int(len(edge[1]) < len(edge[0]))
        met = _spread(wiring.onward, edge, known, side, depth)
        if met:
            backward = _towards(wiring.onward, met, known[0])
            forward = _towards(wiring.onward, met, known[1])
            back: dict[int, list[int]] = {}
            for after, predecessors_at in backward.items():
                for before in predecessors_at:
                    back.setdefault(before, []).append(after)
            return {here: tuple(sorted(nexts)) for here, nexts in (forward | back).items()}
    return None


def _spread(
    onward: Sequence[Sequence[int]],
    edge: list[list[int]],
    known: tuple[dict[int, int], dict[int, int]],
    side: int,
    depth: list[int],
) -> list[int]:
    """Advances the search of a side by one hop; returns where it meets the other side."""
    own, other = known[side], known[1 - side]
    depth[side] += 1
    hops = depth[side]
    later: list[int] = []
    met: list[int] = []
    for here in edge[side]:
        for after in onward[here]:
            if after in own:
                continue
            own[after] = hops
            if after in other:
                met.append(after)
            elif hops == 1 or len(onward[after]) > 1:  # skip dead ends, except the only exit of an end point
                later.append(after)
    edge[side] = later
    return met


def _towards(onward: Sequence[Sequence[int]], met: Iterable[int], known: Mapping[int, int]) -> dict[int, list[int]]:
    """Returns, from each of these to where `known` began, the neighbours that are one hop nearer."""
    (start,) = (vertex for vertex, hops in known.items() if hops == 0)
    nearer_of: dict[int, list[int]] = {}
    level = list(met)
    while level:
        following: dict[int, None] = {}
        for here in level:
            hops = known[here]
            if hops == 0:
                continue
            nearer = [start] if hops == 1 else [after for after in onward[here] if known.get(after) == hops - 1]
            nearer_of[here] = nearer
            following.update(dict.fromkeys(nearer))
        level = list(following)
    return nearer_of


def in_stages(wiring: Wiring, source: int, to: int, group: Sequence[int], stages: Sequence[int]) -> Ways | None:
    """Returns all paths of fewest hops through these groups in this order, each once; None if there is none.

    Args:
        wiring: the graph.
        source: the first vertex.
        to: the last vertex.
        group: the group of every vertex.
        stages: the groups in order.
    """
    if not stages or group[source] != stages[0] or group[to] != stages[-1]:
        return None
    hops = {source: 0}
    edge = [source]
    before: dict[int, list[int]] = {}
    stage_of = {number: at for at, number in enumerate(stages)}
    while edge and to not in hops:
        later: list[int] = []
        for here in edge:
            stage = stage_of[group[here]]
            for after in _allowed(wiring, here, source, to):
                if stage_of.get(group[after], -1) not in (stage, stage + 1):
                    continue
                if after not in hops:
                    hops[after] = hops[here] + 1
                    later.append(after)
                if hops[after] == hops[here] + 1:
                    before.setdefault(after, []).append(here)
        edge = later
    return _backwards(before, to) if to in hops else None


def _allowed(wiring: Wiring, here: int, source: int, to: int) -> Iterator[int]:
    """Yields the possible next hops: dead ends are left out, unless they join the source or the target."""
    for after in wiring.onward[here]:
        if here == source or len(wiring.onward[after]) > 1 or after == to or (after, to) in wiring.connection:
            yield after
    if not wiring.forwards[to] and (here, to) in wiring.connection:
        yield to


def _backwards(before: Mapping[int, Sequence[int]], to: int) -> Ways:
    following: dict[int, list[int]] = {}
    level = [to]
    while level:
        earlier: dict[int, None] = {}
        for here in level:
            for previous in before.get(here, ()):
                following.setdefault(previous, []).append(here)
                earlier[previous] = None
        level = list(earlier)
    return {here: tuple(sorted(set(nexts))) for here, nexts in following.items()}


def follow(ways: Ways, source: int, to: int, pick: Callable[[tuple[int, ...], int], int]) -> list[int]:
    """Returns one of the paths: `pick` chooses among the next hops, given the number of hops so far.

    Args:
        ways: the next hops of every vertex.
        source: the first vertex.
        to: the last vertex.
        pick: returns one of the next hops; arguments: these hops, and the number of hops so far.
    """
    way = [source]
    while way[-1] != to:
        nexts = ways[way[-1]]
        way.append(nexts[0] if len(nexts) == 1 else pick(nexts, len(way) - 1))
    return way


def widest(wiring: Wiring, ways: Ways, source: int, to: int) -> list[int]:
    """Returns the path whose slowest connection is the fastest; of equals the first in the graph's order.

    Args:
        wiring: the graph.
        ways: the next hops of every vertex.
        source: the first vertex.
        to: the last vertex.
    """
    order = {source: None}  # level by level, so that every next hop comes later
    level = [source]
    while level:
        level = list(dict.fromkeys(after for here in level for after in ways.get(here, ())))
        order |= dict.fromkeys(level)
    width = {to: math.inf}
    best: dict[int, int] = {}
    for here in reversed(order):
        if here != to:
            across = [min(wiring.connection[here, after].bytes_per_s, width[after]) for after in ways[here]]
            width[here] = max(across)
            best[here] = ways[here][across.index(width[here])]
    way = [source]
    while way[-1] != to:
        way.append(best[way[-1]])
    return way
