"""Networks of hosts and switches, one function each.

Every builder takes integers and names of links (`paceline list topologies` shows both), and raises an error with the
remedy for parameters that define no network. Sizes have an upper bound, so that a typing error does not fill the
memory. In a star and in trees hosts are connected to switches; in a ring, torus and hypercube hosts are joined
directly. Formulas of bisection bandwidths use b for the bandwidth of one connection in one direction.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from paceline.algorithms.core.errors import InputError
from paceline.topologies.graphs.graph import Bisection, Connection, Graph, Place, Vertex
from paceline.topologies.graphs.links import LinkModel
from paceline.topologies.graphs.wires import host_end, link_named, switch_hop

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
