"""A network of nodes: every host of a network is replaced by a whole node."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from paceline.algorithms.core.errors import InputError
from paceline.topologies.graphs.cards import cabled, striped_cards
from paceline.topologies.graphs.graph import Connection, Graph, Vertex

MOST = 200_000
"""the maximum number of vertices of a composed graph"""


def compose(name: str, network: Graph, node: Graph | Mapping[str, Graph], provenance: str) -> Graph:
    """Returns the network with a copy of the node in place of each host.

    The cables of a host are distributed to the node's NICs in turn; fewer cables than NICs to those that `cards.cabled`
    names. A node without NICs is connected at its first socket or device. NICs that share the traffic of one device are
    one plane (`cards.striped_cards`). The vertex ``gpu0`` of a node becomes ``host3.gpu0``.

    Bisection: an upper bound, the cheaper of two cuts that do not divide nodes: the network's own, and separating half
    of the nodes where their devices reach the network.

    Args:
        name: the name of the new graph.
        network: a graph with hosts and without devices.
        node: replaces each host, or those that are named; the others remain.
        provenance: where the shape of the new graph comes from.

    >>> from paceline.topologies.graphs.network_graphs import star
    >>> from paceline.topologies.graphs.gpu_machines import dgx1
    >>> cluster = compose("pair", star(hosts=2, link="ib-edr", cables=4), dgx1(), "an example")
    >>> len(cluster.endpoints), cluster.describe().diameter_hops, cluster.describe().bisection.bytes_per_s / 1e9
    (16, 6, 47.6)
    """
    hosts = network.of_kind("host")
    if not hosts or network.of_kind("device"):
        raise InputError(f"network: found {network.name}, which has no hosts to replace; expected a network of hosts")
    inside = dict.fromkeys(hosts, node) if isinstance(node, Graph) else dict(node)
    if sum(len(copy.vertices) for copy in inside.values()) > MOST:
        raise InputError(f"hosts: found {len(inside)} nodes of many vertices, expected at most {MOST} in all")
    cables: dict[str, int] = {}
    for connection in network.connections:
        for end in inside.keys() & set(connection.ends):
            cables[end] = cables.get(end, 0) + connection.count
    known: dict[tuple[int, int], tuple[tuple[str, ...], dict[str, str]]] = {}
    nics: dict[str, tuple[str, ...]] = {}
    planes: dict[str, dict[str, str]] = {}
    for host, copy in inside.items():
        if (key := (id(copy), cables.get(host, 0))) not in known:
            doors = cabled(copy, key[1])
            known[key] = doors, striped_cards(copy, doors)
        nics[host], planes[host] = known[key]
    vertices = [vertex for vertex in network.vertices if vertex.name not in inside]
    used = dict.fromkeys(nics, 0)
    dealt = [(connection, _dealt(connection, nics, used)) for connection in network.connections]
    connections = [connection for _, several in dealt for connection in several]
    for host, copy in inside.items():
        vertices += [_inside(vertex, host, planes[host]) for vertex in copy.vertices]
        connections += [
            Connection(
                ends=(f"{host}.{connection.ends[0]}", f"{host}.{connection.ends[1]}"),
                link=connection.link,
                count=connection.count,
                bend=connection.bend,
            )
            for connection in copy.connections
        ]
    return Graph(
        name=name,
        vertices=tuple(vertices),
        connections=tuple(connections),
        provenance=provenance,
        listed=_from_doors(network, dealt),
        parts=(network, node) if isinstance(node, Graph) else (),
    )


def _from_doors(
    network: Graph, dealt: Sequence[tuple[Connection, Sequence[Connection]]]
) -> tuple[tuple[str, ...], ...]:
    """Returns the listed routes of a network between the NICs at which their first and last connections now end."""
    if not network.listed:
        return ()
    door = {}
    for before, several in dealt:
        for old, new in zip(before.ends, several[0].ends, strict=True):
            door[old, frozenset(before.ends)] = new
    return tuple(
        (door[route[0], frozenset(route[:2])], *route[1:-1], door[route[-1], frozenset(route[-2:])])
        for route in network.listed
    )


def _inside(vertex: Vertex, host: str, planes: Mapping[str, str]) -> Vertex:
    """Returns a vertex of the copy that replaces a host."""
    plane = planes.get(vertex.name, vertex.plane)
    plane = None if plane is None else f"{host}.{plane}"
    return dataclasses.replace(vertex, name=f"{host}.{vertex.name}", host=host, plane=plane)


def _dealt(connection: Connection, nics: Mapping[str, tuple[str, ...]], used: dict[str, int]) -> list[Connection]:
    """Returns the cables of a connection, each from a NIC to a switch or a NIC; counts each host's in `used`."""
    ends = [end for end in connection.ends if end in nics]
    ways = min(max((len(nics[end]) for end in ends), default=1), connection.count)
    dealt = []
    for number in range(ways):
        start, to = (
            f"{end}.{nics[end][(used[end] + number) % len(nics[end])]}" if end in nics else end
            for end in connection.ends
        )
        count = len(range(number, connection.count, ways))
        dealt.append(Connection(ends=(start, to), link=connection.link, count=count, bend=connection.bend))
    for end in ends:
        used[end] += connection.count
    return dealt
