"""Routes of messages through a cluster graph, by the rule that a network follows.

* Devices and memories begin and end routes and never forward. Switches and NICs do, and so do hosts: CPUs inside nodes,
  and the hosts of direct networks (torus, ring, hypercube).
* ``shortest`` uses the path with the fewest hops; of these, the one whose slowest connection is the fastest; of these,
  the first in the graph's order. All pairs use the same switches, as in a network that does not spread its load.
* ``ecmp`` picks at every fork among the next hops of all shortest paths, by a hash of source, target, flow, hop.
* ``minimal`` is for dragonflies: hops inside the source's group, one global link, hops inside the target's group (Kim,
  Dally, Scott and Abts, ISCA 2008), as few of each as possible; forks as in ``ecmp``.
* ``valiant`` is for dragonflies: first to an intermediate group, which a hash of the pair, the flow and the seed picks,
  then to the target's. Inside one group, and if there is no intermediate group, it is ``minimal``.
* ``auto`` is the usual rule of a network: ``ecmp`` in leaf-spines and fat trees, and systems built on them; ``minimal``
  in dragonflies; ``shortest`` elsewhere.
* If a group has lost the global links that its rule needs, ``valiant`` takes another group, and finally both use the
  path with the fewest hops: a broken link causes a detour and not an error, as long as a path remains.
* If a graph lists its routes, as a SimGrid platform may, messages between two hosts take the listed one, in its own
  direction and by every rule. A broken link of it is no detour but the end of the route.
* Parallel cables are one link with their total bandwidth. Vertices of one plane are one vertex (`Graph.striped`).
* The result does not depend on Python's hash(), so every process finds the same routes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, get_args

from paceline.algorithms.core.errors import InputError, PacelineError
from paceline.algorithms.core.naming import near_miss
from paceline.topologies.graphs.graph import Connection, Graph, Vertex
from paceline.topologies.graphs.shortest_paths import Ways, Wiring, follow, in_stages, shortest, widest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from paceline.topologies.graphs.route_tables import RouteTables

Rule = Literal["auto", "shortest", "ecmp", "minimal", "valiant"]
RULES: tuple[Rule, ...] = get_args(Rule)

ROUTER = re.compile(r"router(\d+)\.\d+\.\d+")
"""the pattern of names of a dragonfly's routers: group, row, column"""
TOP = re.compile(r"(spine|core)\d+")
"""the pattern of names of the top switches of leaf-spines and fat trees, over which all paths of a pair are equal"""


class NoRoute(PacelineError):
    """Two vertices are no longer connected."""


def port(source: str, to: str) -> str:
    """Returns the name of one direction of the connection between two neighbours.

    >>> port("host0", "switch")
    'host0>switch'
    """
    return f"{source}>{to}"


@dataclass(frozen=True, slots=True)
class Route:
    """A path from one vertex to another.

    >>> from paceline.topologies.graphs.network_graphs import star
    >>> route = Routes(star(hosts=3, link="eth-10g")).between("host0", "host2")
    >>> route.ports, route.latency_s
    (('host0>switch', 'switch>host2'), 2e-05)
    """

    vertices: tuple[str, ...]
    latency_s: float
    """the latency of all its hops together"""
    connections: tuple[Connection, ...]

    @property
    def ports(self) -> tuple[str, ...]:
        """Its hops, each as the direction of a connection."""
        return tuple(port(source, to) for source, to in pairwise(self.vertices))

    @property
    def bytes_per_s(self) -> float:
        """The bandwidth of a single flow over its slowest connection; infinite without any."""
        ways = zip(self.vertices, self.connections, strict=False)
        return min((connection.flow_bytes_per_s_from(start) for start, connection in ways), default=float("inf"))


def usual(graph: Graph) -> Rule:
    """Returns the rule that networks of this kind usually follow.

    >>> from paceline.topologies.graphs.graph_registry import build
    >>> [usual(build(name)) for name in ("summit", "cori-knl", "torus")]
    ['ecmp', 'minimal', 'shortest']
    """
    switches = graph.of_kind("switch")
    if any(ROUTER.fullmatch(name) for name in switches):
        return "minimal"
    return "ecmp" if any(TOP.fullmatch(name) for name in switches) else "shortest"


class Routes:
    """The routes of a graph by one rule.

    Args:
        graph: the graph.
        rule: ``auto``, ``shortest``, ``ecmp``, ``minimal`` or ``valiant``; the last two for dragonflies.
        seed: changes what is picked by hash.

    Raises:
        InputError: the rule is unknown, or is not for such a graph.

    >>> from paceline.topologies.graphs.network_graphs import fat_tree
    >>> routes = Routes(fat_tree(k=4), rule="ecmp")
    >>> len({routes.between("host0", "host15", flow).vertices for flow in range(100)})
    4
    """

    def __init__(
        self,
        graph: Graph,
        rule: Rule = "shortest",
        seed: int = 0,
        *,
        broken: frozenset[frozenset[str]] = frozenset(),
    ) -> None:
        if rule not in RULES:
            raise InputError(f"routing: found {rule!r}, expected {', '.join(RULES[:-1])} or {RULES[-1]}")
        striped = getattr(graph, "striped", None)
        self.graph: Graph = graph if striped is None else striped()
        self.rule: Rule = usual(graph) if rule == "auto" else rule
        self.seed = seed
        self.broken = broken
        self._wiring = Wiring.of(self.graph, broken)
        self._found: dict[tuple[int, int, tuple[int, ...]], Ways | None] = {}
        self._widest: dict[tuple[int, int], list[int]] = {}
        if rule in {"minimal", "valiant"}:
            _ = self._groups  # refuses other graphs at once

    def between(self, source: str, to: str, flow: int = 0) -> Route:
        """Returns the route from one vertex to another.

        Args:
            source: the first vertex.
            to: the last vertex; the same vertex gives a route without hops.
            flow: separates messages that may use different paths.

        Raises:
            NoRoute: the two are not connected.
            InputError: a vertex is unknown.
        """
        start, end = self._number(source), self._number(to)
        way = self._way(start, end, flow)
        wiring = self._wiring
        connections = tuple(wiring.connection[hop] for hop in pairwise(way))
        latency_s = sum(connection.link.latency_s for connection in connections)
        return Route(tuple(wiring.names[at] for at in way), latency_s, connections)

    @cached_property
    def capacity(self) -> Mapping[str, float]:
        """Returns the bytes per second of every port: of both directions of every connection that is not broken."""
        names, known = self._wiring.names, self._wiring.connection
        return {port(names[a], names[b]): connection.bytes_per_s_from(names[a]) for (a, b), connection in known.items()}

    def many(self, sources: ArrayLike, targets: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the routes of many pairs at once, which are those of `between` for flow 0.

        Args:
            sources: the number of the first vertex of each pair, its place in the graph.
            targets: the number of the last vertex of each pair, another one.

        Returns:
            The index at which the hops of each pair begin, with one more entry at the end; and the hops of all pairs.
            The number of a hop is its place in `hop_names`.

        Raises:
            NoRoute: the vertices of a pair are not connected.
        """
        import numpy as np  # slow to import, and not needed for single routes

        ends = np.array((sources, targets), dtype=np.int64)
        tables = self._tables
        if self.rule in {"shortest", "ecmp"} and not self._listed:
            vertices, hops = tables.find(*ends)
        else:  # the paths of dragonflies, and listed ones, are not the shortest ones
            vertices, hops = ends[:1].T, np.zeros(ends.shape[1], dtype=np.int64)
        searched = {}
        for row in np.flatnonzero(hops == 0).tolist():
            searched[row] = self._way(int(ends[0, row]), int(ends[1, row]), 0)
            hops[row] = len(searched[row]) - 1
        if (more := int(hops.max(initial=0)) + 1 - vertices.shape[1]) > 0:
            vertices = np.pad(vertices, ((0, 0), (0, more)))
        for row, way in searched.items():
            vertices[row, : len(way)] = way
        taken = np.arange(vertices.shape[1] - 1) < hops[:, None]
        first = np.r_[0, np.cumsum(hops)]
        return first, tables.hops(vertices[:, :-1][taken], vertices[:, 1:][taken])

    @cached_property
    def connections(self) -> tuple[Connection, ...]:
        """The connection of each hop, by its number."""
        return tuple(self._wiring.connection.values())

    def hop_names(self, hops: Iterable[int]) -> list[str]:
        """Returns the ports of hops, which have numbers as in `many`."""
        names, ends = self._wiring.names, self._hop_ends
        return [port(names[(pair := ends[hop])[0]], names[pair[1]]) for hop in hops]

    @property
    def numbers(self) -> Mapping[str, int]:
        """The number of each vertex, its place in the graph."""
        return self._wiring.number

    @cached_property
    def _hop_ends(self) -> list[tuple[int, int]]:
        return list(self._wiring.connection)

    @cached_property
    def _tables(self) -> RouteTables:
        from paceline.topologies.graphs.route_tables import RouteTables  # imports NumPy

        def pick(source: int, to: int, hop: int) -> int:
            return self._hash(source, to, 0, hop)

        own = [vertex.host or (None if vertex.kind == "switch" else vertex.name) for vertex in self.graph.vertices]
        forks = self.rule == "ecmp"
        return RouteTables(self._wiring, own, pick if forks else None)

    def without(self, broken: Iterable[tuple[str, str]]) -> Routes:
        """Returns the routes by the same rule on a graph without the connections of these pairs, in both directions.

        >>> from paceline.topologies.graphs.network_graphs import ring
        >>> routes = Routes(ring(hosts=4))
        >>> routes.without([("host0", "host1")]).between("host0", "host1").vertices
        ('host0', 'host3', 'host2', 'host1')
        """
        pairs = list(broken)
        for start, end in pairs:
            if (self._number(start), self._number(end)) not in self._wiring.connection:
                gone = frozenset({start, end}) in self.broken
                raise InputError(f"{start} and {end}: {'are parted already' if gone else 'nothing joins the two'}")
        lost = self.broken | {frozenset(pair) for pair in pairs}
        return Routes(self.graph, self.rule, self.seed, broken=lost)

    def _number(self, name: str) -> int:
        number = self._wiring.number.get(name)
        if number is None:
            hint = near_miss(name, self._wiring.names) or f" (such as {self._wiring.names[0]})"
            raise InputError(f"{self.graph.name}: has no vertex {name!r}{hint}")
        return number

    @cached_property
    def _listed(self) -> dict[tuple[str, str], list[int]]:
        """The listed route between the machines of two vertices."""
        number, vertices = self._wiring.number, self.graph.vertices
        routes = ([number[name] for name in route] for route in self.graph.listed)
        return {(self._machine(vertices[route[0]]), self._machine(vertices[route[-1]])): route for route in routes}

    @staticmethod
    def _machine(vertex: Vertex) -> str:
        return vertex.host or vertex.name

    def _as_listed(self, source: int, to: int, flow: int) -> list[int] | None:
        """Returns the way by the listed route of two machines, from and to their doors; None if there is none."""
        vertices = self.graph.vertices
        middle = self._listed.get((self._machine(vertices[source]), self._machine(vertices[to])))
        if middle is None:
            return None
        if any(hop not in self._wiring.connection for hop in pairwise(middle)):
            here, there = self._wiring.names[source], self._wiring.names[to]
            raise NoRoute(f"{self.graph.name}: the listed route from {here} to {there} is broken")
        start = [source] if source == middle[0] else self._way(source, middle[0], flow)
        end = [to] if to == middle[-1] else self._way(middle[-1], to, flow)
        return [*start[:-1], *middle, *end[1:]]

    def _way(self, source: int, to: int, flow: int) -> list[int]:
        if self._listed and (way := self._as_listed(source, to, flow)) is not None:
            return way
        start = self._wiring.climb(source, to)
        end = self._wiring.climb(to, start[-1])
        a, b = start[-1], end[-1]
        if a == b:
            return start
        ways = self._ways(a, b, self._choices(a, b, source, to, flow))
        if ways is None:
            here, there = self._wiring.names[source], self._wiring.names[to]
            raise NoRoute(f"{self.graph.name}: nothing joins {here} and {there} any more")
        if self.rule == "shortest":
            if (a, b) not in self._widest:
                self._widest[a, b] = widest(self._wiring, ways, a, b)
            middle = self._widest[a, b]
        else:
            middle = follow(ways, a, b, lambda nexts, hop: nexts[self._hash(source, to, flow, hop) % len(nexts)])
        return [*start[:-1], *middle, *end[-2::-1]]

    def _hash(self, *parts: int) -> int:
        text = ",".join(map(str, (self.seed, *parts)))
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())

    def _choices(self, a: int, b: int, source: int, to: int, flow: int) -> list[tuple[int, ...]]:
        """Returns the sequences of groups that the rule may use, in order of preference."""
        if self.rule in {"shortest", "ecmp"}:
            return []
        here, there = self._groups[a], self._groups[b]
        direct = (here,) if here == there else (here, there)
        if self.rule == "minimal" or here == there:
            return [direct]
        between = [group for group in self._all_groups if group not in direct]
        first = self._hash(source, to, flow, -1) % max(1, len(between))
        return [*((here, group, there) for group in between[first:] + between[:first]), direct]

    def _ways(self, a: int, b: int, choices: Sequence[tuple[int, ...]]) -> Ways | None:
        """Returns the paths through the first of these sequences of groups with any, or else those of fewest hops."""
        for stages in (*choices, ()):
            key = a, b, stages
            if key not in self._found:
                wiring = self._wiring
                self._found[key] = in_stages(wiring, a, b, self._groups, stages) if stages else shortest(wiring, a, b)
            if known := self._found[key]:
                return known
        return None

    @cached_property
    def _groups(self) -> Sequence[int]:
        """The group of every vertex: of a router by its name, of a node's parts by the node's router."""
        groups = [int(match[1]) if (match := ROUTER.fullmatch(name)) else -1 for name in self._wiring.names]
        if max(groups) < 0:
            raise InputError(
                f"routing: {self.rule} is for dragonflies (dragonfly, cori-knl), whose routers are in groups; found "
                f"{self.graph.name}, expected shortest or ecmp"
            )
        joined: list[list[int]] = [[] for _ in groups]
        for connection in self.graph.connections:
            a, b = (self._wiring.number[end] for end in connection.ends)
            joined[a].append(b)
            joined[b].append(a)
        edge = [at for at, group in enumerate(groups) if group >= 0]
        for here in edge:
            for other in joined[here]:
                if groups[other] < 0:
                    groups[other] = groups[here]
                    edge.append(other)
        return groups

    @cached_property
    def _all_groups(self) -> list[int]:
        return sorted({group for group in self._groups if group >= 0})
