"""Networks of hosts and switches, one function each.

Every builder takes integers and names of links (`paceline list topologies` shows both), and raises an error with the
remedy for parameters that define no network. Sizes have an upper bound, so that a typing error does not fill the
memory. In a star and in trees hosts are connected to switches; in a ring, torus and hypercube hosts are joined
directly. Formulas of bisection bandwidths use b for the bandwidth of one connection in one direction.

The dragonfly is that of Cray's Aries. Routers of a group form a grid: all routers of a row are joined to each other,
and all of a column, by several links. Any two groups are joined by `pair_links` global links, which are distributed to
the routers of each group in turn.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from paceline.algorithms.core.errors import InputError
from paceline.topologies.graphs.graph import Bisection, Connection, Graph, Place, Vertex
from paceline.topologies.graphs.links import LinkModel, host_end, link_named, switch_hop

FAMILY = "a family of graphs, no machine"
MOST = 16384
"""hosts of the largest network"""


def whole(name: str, value: int, least: int, most: int) -> int:
    """Returns the value, or raises an `InputError` with the expected range.

    Args:
        name: the name of the parameter, for the message.
        value: its value.
        least: the smallest valid value.
        most: the largest valid value.

    >>> whole("hosts", 1, 2, 9)
    Traceback (most recent call last):
    paceline.algorithms.core.errors.InputError: hosts: found 1, expected a whole number from 2 to 9
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InputError(f"{name}: found {value!r}, expected a whole number from {least} to {most}")
    return value


def on_circle(count: int, radius: float) -> Iterator[Place]:
    """Yields places around (0, 0), clockwise from the top."""
    for number in range(count):
        angle = math.pi / 2 - 2 * math.pi * number / count
        yield radius * math.cos(angle), radius * math.sin(angle)


def star(*, hosts: int = 8, link: str | LinkModel = "eth-10g", cables: int = 1) -> Graph:
    """Returns hosts around one switch.

    Bisection: ⌊hosts/2⌋ b, exact.

    Args:
        hosts: the number of hosts.
        link: from a host to the switch.
        cables: links per host.

    >>> star(hosts=6).describe().diameter_hops
    2
    """
    whole("hosts", hosts, 1, MOST)
    whole("cables", cables, 1, 64)
    wire = link_named(link)
    places = on_circle(hosts, max(1.5, hosts * 0.8 / (2 * math.pi)))
    vertices = [Vertex(name=f"host{n}", kind="host", place=place) for n, place in enumerate(places)]
    return Graph(
        name="star",
        vertices=(Vertex(name="switch", kind="switch", place=(0.0, 0.0)), *vertices),
        connections=tuple(
            Connection(ends=("switch", vertex.name), link=host_end(wire), count=cables) for vertex in vertices
        ),
        provenance=FAMILY,
        bisection=Bisection(hosts // 2 * cables * wire.bytes_per_s, "exact: ⌊hosts/2⌋ b") if hosts > 1 else None,
    )


def containers(
    *,
    per_machine: str = "2x2",
    link: str | LinkModel = "eth-10g",
    inside: str | LinkModel = "auto",
    loopback: int = 0,
) -> Graph:
    """Returns machines around one switch, with containers, such as pods of Kubernetes, that libraries take for hosts.

    NCCL tells hosts apart by name and boot identity (FOUND NVIDIA/nccl src/misc/utils.cc @v2.7.8-1, getHostHash). A
    container has a name of its own, so ranks of one machine use sockets, or its RDMA card, instead of shared memory
    and peer access. Containers of a machine share its link to the switch.

    Args:
        per_machine: the containers of each machine, such as 1x1x2x4.
        link: from a machine to the switch.
        inside: from a container to its machine's network; `auto`: `veth`, through the kernel.
        loopback: whether messages between containers of one machine pass its link in both directions, as RDMA between
            containers passes the card: 0 or 1.

    >>> figures = containers(per_machine="1x3").describe()
    >>> figures.nodes, figures.links, figures.diameter_hops
    (7, 6, 4)
    """
    sizes = [int(size) for size in per_machine.split("x") if size.isdecimal()]
    if "x".join(map(str, sizes)) != per_machine or not sizes or 0 in sizes or sum(sizes) > MOST:
        raise InputError(
            f"per_machine: found {per_machine!r}, expected the containers of each machine, such as 1x1x2x4, "
            f"{MOST} at most"
        )
    whole("loopback", loopback, 0, 1)
    wire, port = link_named(link), link_named("veth" if inside == "auto" else inside)
    width, first = max(1.2 * len(sizes), 0.62 * sum(sizes) + 0.5 * len(sizes)), 0
    vertices = [Vertex(name="switch", kind="switch", place=(0.0, 3.0))]
    connections, listed = [], []
    for number, (size, (x, y)) in enumerate(zip(sizes, spread_out(len(sizes), width, 1.6), strict=True)):
        card, own = f"machine{number}", [f"host{first + place}" for place in range(size)]
        vertices.append(Vertex(name=card, kind="switch", place=(x, y)))
        row = spread_out(size, 0.62 * size, 0.4)
        vertices += [
            Vertex(name=name, kind="host", place=(x + at, low)) for name, (at, low) in zip(own, row, strict=True)
        ]
        connections.append(Connection(ends=("switch", card), link=host_end(wire)))
        connections += [Connection(ends=(card, name), link=host_end(port)) for name in own]
        if loopback:
            listed += [(a, card, "switch", card, b) for a, b in itertools.permutations(own, 2)]
        first += size
    return Graph(
        name="containers",
        vertices=tuple(vertices),
        connections=tuple(connections),
        provenance=FAMILY,
        listed=tuple(listed),
    )


def ring(*, hosts: int = 8, link: str | LinkModel = "eth-10g") -> Graph:
    """Returns hosts in a ring, each joined to the next.

    Bisection: 2 b, exact.

    Args:
        hosts: the number of hosts, at least 3.
        link: from a host to the next.

    >>> ring(hosts=8).describe().diameter_hops
    4
    """
    whole("hosts", hosts, 3, MOST)
    wire = link_named(link)
    names = [f"host{number}" for number in range(hosts)]
    places = on_circle(hosts, max(1.2, hosts * 1.0 / (2 * math.pi)))
    return Graph(
        name="ring",
        vertices=tuple(Vertex(name=name, kind="host", place=at) for name, at in zip(names, places, strict=True)),
        connections=tuple(Connection(ends=ends, link=wire) for ends in zip(names, [*names[1:], names[0]], strict=True)),
        provenance=FAMILY,
        bisection=Bisection(2 * wire.bytes_per_s, "exact: 2 b"),
        all_alike=True,
    )


def torus(*, sides: tuple[int, ...] = (4, 4), link: str | LinkModel = "eth-10g") -> Graph:
    """Returns hosts on a grid of two or three dimensions whose rows close to rings.

    A side of 2 has one connection, not two. Bisection: 2 hosts / (longest side) b if the longest side is even and
    above 2, exact (Aroca and Fernández Anta 2014); otherwise measured.

    Args:
        sides: hosts along each dimension, such as 4x4 or 4x4x4.
        link: from a host to each neighbour.

    >>> torus(sides=(4, 4, 4)).describe().diameter_hops
    6
    """
    if len(sides) not in {2, 3} or math.prod(sides) > MOST:
        raise InputError(f"sides: found {sides!r}, expected two or three, such as 4x4x4, of at most {MOST} hosts")
    for side in sides:
        whole("sides", side, 2, MOST)
    wire = link_named(link)
    spots = list(itertools.product(*map(range, sides)))
    longest = max(sides)
    known = Bisection(2 * len(spots) // longest * wire.bytes_per_s, "exact: 2 hosts / (longest side) b")
    return Graph(
        name="torus",
        vertices=tuple(Vertex(name=_spot(spot), kind="host", place=_on_grid(spot)) for spot in spots),
        connections=tuple(_torus_connections(spots, sides, wire)),
        provenance=FAMILY,
        bisection=known if longest % 2 == 0 and longest > 2 else None,
        all_alike=True,
    )


def _spot(spot: tuple[int, ...]) -> str:
    return "host" + ".".join(map(str, spot))


def _on_grid(spot: tuple[int, ...]) -> Place:
    column, row, depth = (*spot, 0)[:3]
    deep = len(spot) == 3
    return (2.4 if deep else 1.2) * column + 0.85 * depth, -(2.1 if deep else 1.2) * row + 0.6 * depth


def _torus_connections(spots: list[tuple[int, ...]], sides: tuple[int, ...], wire: LinkModel) -> Iterator[Connection]:
    flat = len(sides) == 2
    for spot in spots:
        for axis, side in enumerate(sides):
            after = (*spot[:axis], (spot[axis] + 1) % side, *spot[axis + 1 :])
            if spot[axis] < side - 1:
                yield Connection(ends=(_spot(spot), _spot(after)), link=wire)
            elif side > 2:  # closes the ring; in three dimensions only its two ends are drawn, to avoid crossings
                bend = (0.18 if axis == 0 else -0.18) if flat else None
                yield Connection(ends=(_spot(after), _spot(spot)), link=wire, bend=bend)


def hypercube(*, dimensions: int = 4, link: str | LinkModel = "eth-10g") -> Graph:
    """Returns 2^dimensions hosts, joined where their numbers differ in one bit.

    Bisection: 2^(dimensions − 1) b, exact. Diameter: dimensions.

    Args:
        dimensions: the number of bits of a host's number.
        link: from a host to each neighbour.

    >>> figures = hypercube(dimensions=3).describe()
    >>> figures.nodes, figures.links, figures.diameter_hops
    (8, 12, 3)
    """
    whole("dimensions", dimensions, 1, 14)
    wire = link_named(link)
    axes: list[Place] = [(1.6, 0.0), (0.0, 1.6), (0.62, 0.5), (3.9, -1.0), (1.0, 4.1), (9.2, -2.2)]
    axes += [(0.5 * 2**number, 8.0 * 2 ** (number - 6)) for number in range(6, dimensions)]

    def place(number: int) -> Place:
        ones = [axes[bit] for bit in range(dimensions) if number >> bit & 1]
        return sum(x for x, _ in ones), sum(y for _, y in ones)

    numbers = range(2**dimensions)
    return Graph(
        name="hypercube",
        vertices=tuple(Vertex(name=f"host{n}", kind="host", place=place(n)) for n in numbers),
        connections=tuple(
            Connection(ends=(f"host{number}", f"host{number | 1 << bit}"), link=wire)
            for number in numbers
            for bit in range(dimensions)
            if not number >> bit & 1
        ),
        provenance=FAMILY,
        bisection=Bisection(2 ** (dimensions - 1) * wire.bytes_per_s, "exact: 2^(dimensions − 1) b"),
        all_alike=True,
    )


def spread_out(count: int, width: float, y: float) -> list[Place]:
    """Returns places in a row of this width around x = 0, each in the middle of its share.

    >>> spread_out(2, 4.0, 1.0)
    [(-1.0, 1.0), (1.0, 1.0)]
    """
    return [((number + 0.5) / count * width - width / 2, y) for number in range(count)]


def hop(start: str, end: str, wire: LinkModel, count: int = 1) -> Connection:
    """Returns cables between two switches."""
    return Connection(ends=(start, end), link=switch_hop(wire), count=count)


def leaf_spine(
    *,
    leaves: int = 4,
    spines: int = 2,
    hosts_per_leaf: int = 4,
    link: str | LinkModel = "eth-10g",
    uplink: str | LinkModel = "auto",
    cables: int = 1,
    uplinks: int = 1,
) -> Graph:
    """Returns hosts on leaf switches, with every leaf connected to every spine.

    Bisection: a half consists of whole leaves or separates single hosts; the cost is linear between, so it is the
    smaller of ⌊hosts/2⌋ b and spines ⌊leaves/2⌋ u + (⌊hosts/2⌋ − hosts_per_leaf ⌊leaves/2⌋) b, with u from a leaf to a
    spine.

    Args:
        leaves: the number of switches with hosts.
        spines: the number of switches that join the leaves.
        hosts_per_leaf: hosts of each leaf.
        link: from a host to its leaf.
        uplink: from a leaf to a spine: a cable by its name, which adds a hop between switches, or a link unchanged;
            `auto`: a cable like `link`, and `eth-40g-usnic` above `eth-10g`.
        cables: links per host.
        uplinks: links from each leaf to each spine.

    >>> figures = leaf_spine(leaves=4, spines=2, hosts_per_leaf=4).describe()
    >>> figures.nodes, figures.links, figures.diameter_hops
    (22, 24, 4)
    """
    whole("leaves", leaves, 2, 1024)
    whole("spines", spines, 1, 1024)
    whole("hosts_per_leaf", hosts_per_leaf, 1, MOST // leaves)
    whole("cables", cables, 1, 64)
    whole("uplinks", uplinks, 1, 64)
    cable = link_named(link)
    down = host_end(cable)
    if uplink == "auto":
        uplink = "eth-40g-usnic" if cable.name == "eth-10g" else switch_hop(cable)
    up = switch_hop(link_named(uplink)) if isinstance(uplink, str) else uplink
    width = leaves * max(1.6, hosts_per_leaf * 0.62 + 0.5)
    spots = spread_out(leaves, width, 2.0)
    roots = [
        Vertex(name=f"spine{n}", kind="switch", place=place)
        for n, place in enumerate(spread_out(spines, width * 0.8, 4.0 + 0.02 * width))
    ]
    vertices, connections = [*roots], []
    for number, (x, y) in enumerate(spots):
        leaf = Vertex(name=f"leaf{number}", kind="switch", place=(x, y))
        row = spread_out(hosts_per_leaf, width / leaves - 0.5, 0.8)
        hosts = [
            Vertex(name=f"host{number * hosts_per_leaf + n}", kind="host", place=(x + at, low))
            for n, (at, low) in enumerate(row)
        ]
        vertices += [leaf, *hosts]
        connections += [Connection(ends=(leaf.name, root.name), link=up, count=uplinks) for root in roots]
        connections += [Connection(ends=(leaf.name, host.name), link=down, count=cables) for host in hosts]
    half, low = leaves * hosts_per_leaf // 2, leaves // 2
    per_cable = cables * down.bytes_per_s
    across = min(half * per_cable, spines * low * uplinks * up.bytes_per_s + (half - hosts_per_leaf * low) * per_cable)
    return Graph(
        name="leaf-spine",
        vertices=tuple(vertices),
        connections=tuple(connections),
        provenance=FAMILY,
        bisection=Bisection(across, "exact: hosts cut off, or whole leaves"),
    )


def fat_tree(*, k: int = 4, link: str | LinkModel = "eth-10g") -> Graph:
    """Returns the k-ary fat tree of Al-Fares, Loukissas and Vahdat 2008: k pods, k³/4 hosts, switches with k ports.

    Bisection: k³/8 b, exact, as any permutation of the hosts can be routed at full speed. Diameter: 6.

    Args:
        k: the number of ports of a switch, even.
        link: every link.

    >>> figures = fat_tree(k=4).describe()
    >>> figures.nodes, figures.links, figures.diameter_hops
    (36, 48, 6)
    """
    if whole("k", k, 2, 80) % 2:
        raise InputError(f"k: found {k}, expected an even number from 2 to 80")
    wire, half = link_named(link), k // 2
    pod_width = half * (half * 0.62 + 0.45) + 0.7
    width = k * pod_width
    vertices = [
        Vertex(name=f"core{n}", kind="switch", place=place)
        for n, place in enumerate(spread_out(half * half, width * 0.75, 5.6 + 0.05 * width))
    ]
    connections: list[Connection] = []
    for pod, (middle, _) in enumerate(spread_out(k, width, 0.0)):
        edges = [(middle + x, y) for x, y in spread_out(half, pod_width - 0.7, 2.0)]
        for number, (x, y) in enumerate(edges):
            top, edge = f"aggregation{pod}.{number}", f"edge{pod}.{number}"
            vertices.append(Vertex(name=top, kind="switch", place=(x, y + 1.7)))
            vertices.append(Vertex(name=edge, kind="switch", place=(x, y)))
            connections += [hop(top, f"core{number * half + n}", wire) for n in range(half)]
            connections += [hop(edge, f"aggregation{pod}.{n}", wire) for n in range(half)]
            for n, (at, low) in enumerate(spread_out(half, half * 0.62, 0.8)):
                host = f"host{(pod * half + number) * half + n}"
                vertices.append(Vertex(name=host, kind="host", place=(x + at, low)))
                connections.append(Connection(ends=(edge, host), link=host_end(wire)))
    return Graph(
        name="fat-tree",
        vertices=tuple(vertices),
        connections=tuple(connections),
        provenance=f"{FAMILY}; Al-Fares, Loukissas, Vahdat, SIGCOMM 2008",
        bisection=Bisection(k**3 // 4 // 2 * wire.bytes_per_s, "exact: k³/8 b"),
    )


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
