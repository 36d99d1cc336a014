"""Measures of any graph: its diameter and its bisection bandwidth.

The bisection bandwidth is the smallest capacity, in one direction, that separates one half of the end points from the
other; with an odd number, one half has one more. Switches, NICs and memories are on the side where they cost less.
"""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array, lil_array
from scipy.sparse.csgraph import dijkstra

from paceline.topologies.graphs.compose import cabled
from paceline.topologies.graphs.graph import Bisection, Graph

SEARCHED = 16
"""up to so many end points the best halves are searched for"""

ROWS = 256
"""breadth-first searches whose distances are in memory at the same time"""


def diameter_hops(graph: Graph) -> int:
    """Returns the number of hops between the two vertices that are farthest apart.

    Of parts that are interchangeable (hosts on one switch, spines of the same leaves), two are examined. Leaving out
    the others changes no distance between the remaining ones, and each part left out has the same distances as a
    remaining one.

    >>> from paceline.topologies.graphs.network_graphs import ring
    >>> diameter_hops(ring(hosts=7))
    3
    """
    small = graph.nx if graph.all_alike else _without_doubles(graph)
    names = list(small)
    matrix: csr_array = nx.to_scipy_sparse_array(small, nodelist=names, weight=None, format="csr")
    sources = np.arange(1 if graph.all_alike else len(names))
    farthest = 0.0
    for start in range(0, len(sources), ROWS):
        farthest = max(farthest, float(dijkstra(matrix, indices=sources[start : start + ROWS], unweighted=True).max()))
    assert np.isfinite(farthest), "builders make connected graphs"
    return int(farthest)


def _without_doubles(graph: Graph) -> nx.Graph[str]:
    small = graph.nx.copy()
    parts: dict[str, list[str]] = {}
    for vertex in graph.vertices:
        parts.setdefault(vertex.host or vertex.name, []).append(vertex.name)
    while True:
        seen: dict[frozenset[tuple[str, str]], list[str]] = {}
        for part, members in parts.items():
            seen.setdefault(_outside(small, part, members), []).append(part)
        doubles = [part for alike in seen.values() for part in alike[2:]]
        if not doubles:
            return small
        for part in doubles:
            small.remove_nodes_from(parts.pop(part))


def _outside(graph: nx.Graph[str], part: str, members: list[str]) -> frozenset[tuple[str, str]]:
    """Returns the neighbours of a part, with the members that they join: equal for interchangeable parts."""
    inside = set(members)
    kinds = [("", graph.nodes[member]["kind"] + member.removeprefix(part)) for member in members]
    joined = [
        (member.removeprefix(part), other) for member in members for other in graph[member] if other not in inside
    ]
    return frozenset(kinds + joined)


def bisection(graph: Graph) -> Bisection:
    """Returns the bisection bandwidth of a graph whose family has no formula.

    Of a composed graph it is an upper bound, by cuts that do not divide nodes, see `compose`.
    Up to 16 end points the best halves are searched for by an integer program, which is exact. With more, the result
    is an upper bound: the least cut between the first and the second half of the end points, in the builder's order.

    >>> from paceline.topologies.graphs.machines import minsky_node
    >>> bisection(minsky_node()).bytes_per_s / 1e9  # the X-bus
    30.0
    """
    if graph.parts:
        return _of_whole_nodes(*graph.parts)
    endpoints = graph.endpoints
    if len(endpoints) < 2:
        return Bisection(None, "one end point has no halves")
    if len(endpoints) <= SEARCHED:
        return Bisection(_searched(graph), "exact: the cheapest of all halves")
    half = len(endpoints) // 2
    cut = least_cut(graph, endpoints[:half], endpoints[half:])
    return Bisection(cut, "upper bound: the least cut between first and second half in the builder's order")


def _of_whole_nodes(network: Graph, node: Graph) -> Bisection:
    across = (network.bisection or bisection(network)).bytes_per_s
    if across is None:
        return Bisection(None, "one node has no halves")
    hosts = set(network.of_kind("host"))
    nics = cabled(
        node, max(connection.count for connection in network.connections if hosts.intersection(connection.ends))
    )
    if not set(nics).intersection(node.endpoints):  # devices are behind NICs, which may be slower than cables
        across = min(across, len(network.endpoints) // 2 * least_cut(node, node.endpoints, nics))
    return Bisection(across, "upper bound: the cheapest cut that does not divide nodes")


def least_cut(graph: Graph, sources: tuple[str, ...], targets: tuple[str, ...]) -> float:
    """Returns the bytes per second, one way, from some vertices to others when nothing else uses the graph.

    Args:
        graph: the graph.
        sources: the names of the first vertices.
        targets: the names of the other vertices.
    """
    directed: nx.DiGraph[Any] = nx.DiGraph()
    for a, b, data in graph.nx.edges(data=True):
        directed.add_edge(a, b, capacity=data["bytes_per_s"])
        directed.add_edge(b, a, capacity=data["bytes_per_s"])
    ends = object(), object()  # equal to no name
    directed.add_edges_from((ends[0], name) for name in sources)  # no capacity means no limit
    directed.add_edges_from((name, ends[1]) for name in targets)
    value: float = nx.minimum_cut_value(directed, *ends)
    return value


def _searched(graph: Graph) -> float:
    """Minimises Σ c_e y_e with y_e ≥ |x_u − x_v|, x of the end points 0 or 1 and half of them 1."""
    names = [vertex.name for vertex in graph.vertices]
    at = {name: index for index, name in enumerate(names)}
    capacities = np.array([connection.bytes_per_s for connection in graph.connections])
    scale, size = capacities.max(), len(names) + len(capacities)
    rows = lil_array((2 * len(capacities) + 1, size))
    for number, connection in enumerate(graph.connections):
        a, b = (at[end] for end in connection.ends)
        for row, sign in ((2 * number, 1.0), (2 * number + 1, -1.0)):
            rows[row, a], rows[row, b], rows[row, len(names) + number] = sign, -sign, -1.0
    whole, lower, upper = np.zeros(size), np.zeros(size), np.ones(size)
    for name in graph.endpoints:
        whole[at[name]] = rows[2 * len(capacities), at[name]] = 1.0
    upper[at[graph.endpoints[0]]] = 0.0 if len(graph.endpoints) % 2 == 0 else 1.0  # equal halves are interchangeable
    half = len(graph.endpoints) // 2
    ends = np.concatenate([np.zeros(2 * len(capacities)), [half]])
    starts = np.concatenate([np.full(2 * len(capacities), -np.inf), [half]])
    solution = milp(
        np.concatenate([np.zeros(len(names)), capacities / scale]),
        integrality=whole.astype(int),
        bounds=Bounds(lower, upper),
        constraints=LinearConstraint(rows.tocsr(), starts, ends),
        options={"mip_rel_gap": 0.0},
    )
    assert solution.success and solution.x is not None, solution.message
    chosen = tuple(name for name in graph.endpoints if solution.x[at[name]] > 0.5)
    return least_cut(graph, chosen, tuple(name for name in graph.endpoints if name not in chosen))  # without rounding
