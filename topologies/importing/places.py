"""The default places of a graph's vertices in a picture.

Devices, or hosts without devices, are at the bottom, and vertices k hops away from them in row k above. The order of
each row follows the neighbours below, so that trees look like trees. If many connections are inside rows (rings, tori,
dragonflies, meshes of GPUs) there are no rows: distances in the picture follow distances in the graph (Kamada and Kawai
1989), or, for more than 150 vertices, forces between neighbours (Fruchterman and Reingold 1991). More than 1,500
vertices are never drawn, and are only put apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import networkx as nx

from paceline.topologies.graphs.graph import Kind, Place

GAP = 1.2
RISE = 2.0
LEVEL = 0.1
"""the largest number of connections inside rows, as a share of the vertices, for which rows are used"""

DRAWN = 1500
EXACT = 150
"""the largest number of vertices for which distances are used, at a cost that grows with its cube"""


def places(graph: nx.Graph[str], kinds: Mapping[str, Kind]) -> dict[str, Place]:
    """Returns a place for every vertex; the same graph gives the same places."""
    if len(graph) == 1:
        return dict.fromkeys(graph, (0.0, 0.0))
    computing = [name for name, kind in kinds.items() if kind == "device"]
    computing = computing or [name for name, kind in kinds.items() if kind == "host"]
    height = nx.multi_source_dijkstra_path_length(graph, set(computing), weight=None)
    level = sum(height[start] == height[end] for start, end in graph.edges)
    return _rows(graph, height) if level <= LEVEL * len(graph) else _free(graph)


def _free(graph: nx.Graph[str]) -> dict[str, Place]:
    """Places vertices by distances or forces; leaves of one vertex are around it, away from the centre."""
    core = graph.subgraph([name for name, degree in graph.degree if degree > 1] or list(graph))
    if len(core) == 1:
        positions: Mapping[str, Any] = dict.fromkeys(core, (0.0, 0.0))
    elif len(core) <= EXACT:
        positions = nx.kamada_kawai_layout(core)
    elif len(core) > DRAWN:
        positions = nx.circular_layout(core)
    else:
        positions = nx.spring_layout(core, seed=0, iterations=60)
    lengths = sorted(math.dist(positions[start], positions[end]) for start, end in core.edges)
    fan = max((sum(other not in core for other in graph[name]) for name in core), default=0)
    scale = (1.6 + min(1.6, 0.3 * fan)) / max(lengths[len(lengths) // 10], 1e-3) if lengths else 1.0
    at = {name: (float(x) * scale, float(y) * scale) for name, (x, y) in positions.items()}
    middle = sum(x for x, _ in at.values()) / len(at), sum(y for _, y in at.values()) / len(at)
    for name in list(core):
        leaves = [other for other in graph[name] if other not in core]
        out = math.atan2(at[name][1] - middle[1], at[name][0] - middle[0])
        for number, leaf in enumerate(leaves):
            turn = min(2.4, 0.6 * (len(leaves) - 1)) * (number / (len(leaves) - 1) - 0.5 if len(leaves) > 1 else 0.0)
            at[leaf] = (at[name][0] + math.cos(out + turn), at[name][1] + math.sin(out + turn))
    return at


def _rows(graph: nx.Graph[str], height: Mapping[str, float]) -> dict[str, Place]:
    """Places vertices row by row from below; in a row by the mean place of the neighbours in the rows beneath."""
    rows: dict[int, list[str]] = {}
    for name in graph:
        rows.setdefault(int(height[name]), []).append(name)
    top = max(rows)
    order = {name: number for number, name in enumerate(nx.dfs_preorder_nodes(graph, rows[top][0]))}
    x: dict[str, float] = {}
    for level in sorted(rows):
        mean = {name: _mean([x[other] for other in graph[name] if other in x], order[name]) for name in rows[level]}
        row = sorted(rows[level], key=lambda name: (mean[name], order[name]))
        x |= dict(zip(row, _apart([mean[name] for name in row]), strict=True))
    rise = max(RISE, 0.1 * GAP * max(map(len, rows.values())))
    return {name: (x[name], height[name] * rise) for name in graph}


def _mean(values: list[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else float(otherwise)


def _apart(wanted: list[float]) -> list[float]:
    """Returns the places nearest to these, in this order, with at least a gap between neighbours.

    >>> [round(x, 3) for x in _apart([5.0, 5.0, 9.0])]
    [4.6, 5.8, 8.6]
    """
    placed: list[float] = []
    for at in wanted:
        placed.append(max(at, placed[-1] + GAP) if placed else at)
    shift = sum(at - is_at for at, is_at in zip(wanted, placed, strict=True)) / len(placed)
    return [at + shift for at in placed]
