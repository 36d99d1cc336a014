"""The dragonfly of Cray's Aries. The rules are those of `network_graphs`.

Routers of a group form a grid: all routers of a row are joined to each other, and all of a column, by several links.
Any two groups are joined by `pair_links` global links, which are distributed to the routers of each group in turn.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from paceline.algorithms.core.errors import InputError
from paceline.topologies.graphs.graph import Connection, Graph, Place, Vertex
from paceline.topologies.graphs.links import LinkModel
from paceline.topologies.graphs.network_graphs import FAMILY, MOST, on_circle, whole
from paceline.topologies.graphs.wires import host_end, link_named, switch_hop

ROW_GAP, COLUMN_GAP = 2.3, 1.15


def dragonfly(
    *,
    groups: int = 4,
    rows: int = 2,
    columns: int = 4,
    hosts_per_router: int = 2,
    hosts: int = 0,
    column_links: int = 3,
    pair_links: int = 2,
    link: str | LinkModel = "aries-nic",
    within: str | LinkModel = "auto",
    between: str | LinkModel = "auto",
) -> Graph:
    """Returns groups of routers in rows and columns, in which all rows, columns and groups are joined all to all.

    Bisection: no formula; measured, so from 17 hosts on an upper bound, halved group by group.

    Args:
        groups: the number of groups; one has no global links.
        rows: rows of routers in a group; 6 in Aries.
        columns: columns of routers in a group; 16 in Aries.
        hosts_per_router: hosts of a router; 4 in Aries.
        hosts: the number of hosts, router by router; 0 fills all routers.
        column_links: links between two routers of a column; 3 in Aries (MEMORY high).
        pair_links: global links between two groups.
        link: from a host to its router.
        within: between routers of a group; `auto`: `aries-local` with `aries-nic`, otherwise a cable like `link`.
        between: between groups; `auto`: `aries-global` with `aries-nic`, otherwise a cable like `link`.

    >>> figures = dragonfly(groups=2, rows=2, columns=2, hosts_per_router=1, pair_links=4).describe()
    >>> figures.nodes, figures.links, figures.diameter_hops
    (16, 28, 5)
    """
    routers = whole("groups", groups, 1, 256) * whole("rows", rows, 1, 16) * whole("columns", columns, 1, 32)
    room = routers * whole("hosts_per_router", hosts_per_router, 1, 16)
    if room > MOST or routers > MOST // 4:
        raise InputError(f"groups, rows, columns: found room for {room} hosts, expected at most {MOST}")
    whole("column_links", column_links, 1, 16)
    whole("pair_links", pair_links, 1, 1024)
    whole("hosts", hosts, 0, room)
    cable = link_named(link)
    hop = switch_hop(cable)
    within, between = (
        (own if cable.name == "aries-nic" else hop) if given == "auto" else given
        for given, own in ((within, "aries-local"), (between, "aries-global"))
    )
    grids = [_routers(group, rows, columns) for group in range(groups)]
    spots = _places(groups, rows, columns)
    vertices = [
        Vertex(name=name, kind="switch", place=_in_group(spots[group], number, rows, columns))
        for group, grid in enumerate(grids)
        for number, name in enumerate(grid)
    ]
    connections = [
        *itertools.chain.from_iterable(_inside(grid, columns, within, column_links) for grid in grids),
        *_global(grids, pair_links, between),
    ]
    machines = [(router, n) for router in vertices for n in range(hosts_per_router)][: hosts or room]
    for number, (router, n) in enumerate(machines):
        x, y = router.place
        at = (x + ((n + 0.5) / hosts_per_router - 0.5) * 0.9 * COLUMN_GAP, y - 0.55)
        vertices.append(Vertex(name=f"host{number}", kind="host", place=at))
        connections.append(Connection(ends=(router.name, f"host{number}"), link=host_end(cable)))
    return Graph(name="dragonfly", vertices=tuple(vertices), connections=tuple(connections), provenance=FAMILY)


def _routers(group: int, rows: int, columns: int) -> list[str]:
    return [f"router{group}.{row}.{column}" for row in range(rows) for column in range(columns)]


def _places(groups: int, rows: int, columns: int) -> list[Place]:
    """Returns the centres of the groups: on a circle large enough to separate them."""
    size = math.hypot(columns * COLUMN_GAP, rows * ROW_GAP)
    radius = 0.0 if groups == 1 else max(size * 0.62, groups * size * 1.05 / (2 * math.pi))
    turned = math.pi / groups if groups % 2 == 0 else 0.0  # an even number is turned, so that its groups form rows
    return [
        (x * math.cos(turned) - y * math.sin(turned), x * math.sin(turned) + y * math.cos(turned))
        for x, y in on_circle(groups, radius)
    ]


def _in_group(middle: Place, number: int, rows: int, columns: int) -> Place:
    row, column = divmod(number, columns)
    return middle[0] + (column - (columns - 1) / 2) * COLUMN_GAP, middle[1] + ((rows - 1) / 2 - row) * ROW_GAP


def _inside(grid: list[str], columns: int, within: str | LinkModel, column_links: int) -> Iterator[Connection]:
    wire = link_named(within)
    for first, second in itertools.combinations(range(len(grid)), 2):
        ends = grid[first], grid[second]
        if first // columns == second // columns:
            yield Connection(ends=ends, link=wire, bend=_bow(first, second))
        elif first % columns == second % columns:
            yield Connection(ends=ends, link=wire, count=column_links, bend=0.0 if second == first + columns else 0.12)


def _bow(first: int, second: int) -> float:
    """Returns the bend of a link over the routers between its ends, at most the space above the row."""
    return 0.0 if second == first + 1 else -min(0.25, 2.2 / ((second - first) * COLUMN_GAP))


def _global(grids: list[list[str]], pair_links: int, between: str | LinkModel) -> Iterator[Connection]:
    """Distributes the links of every pair of groups to routers in turn; several between two routers become one."""
    wire, turn = link_named(between), [0] * len(grids)
    for first, second in itertools.combinations(range(len(grids)), 2):
        counts: dict[tuple[str, str], int] = {}
        for _ in range(pair_links):
            ends = grids[first][turn[first] % len(grids[first])], grids[second][turn[second] % len(grids[second])]
            turn[first], turn[second] = turn[first] + 1, turn[second] + 1
            counts[ends] = counts.get(ends, 0) + 1
        for ends, count in counts.items():
            yield Connection(ends=ends, link=wire, count=count)
