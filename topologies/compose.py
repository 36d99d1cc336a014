"""A network of nodes: every host of a network is replaced by a whole node."""

from __future__ import annotations

import dataclasses

from paceline.algorithms.errors import InputError
from paceline.topologies.graph import Bisection, Connection, Graph
from paceline.topologies.measures import bisection, least_cut

MOST = 200_000
"""vertices of the largest graph that is composed"""


def compose(name: str, network: Graph, node: Graph, provenance: str) -> Graph:
    """The network with a copy of the node in place of each host.

    The cables of a host are dealt out to the node's NICs in turn; a node without NICs is joined at its first socket or
    device. What was ``gpu0`` is now ``host3.gpu0``.

    Bisection: an upper bound, the cheaper of two cuts that keep nodes whole: the network's own, and cutting half of the
    nodes off where their devices reach the network.

    Args:
        name: of the whole.
        network: a graph with hosts and without devices.
        node: what stands in place of each host.
        provenance: where the shape of the whole comes from.

    >>> from paceline.topologies.networks import star
    >>> from paceline.topologies.nodes import dgx1
    >>> cluster = compose("pair", star(hosts=2, link="ib-edr", cables=4), dgx1(), "an example")
    >>> len(cluster.endpoints), cluster.describe().diameter_hops, cluster.describe().bisection.bytes_per_s / 1e9
    (16, 6, 47.6)
    """
    hosts = network.of_kind("host")
    if not hosts or network.of_kind("device"):
        raise InputError(f"network: found {network.name}, which has no hosts to replace; expected a network of hosts")
    if len(hosts) * len(node.vertices) > MOST:
        raise InputError(f"hosts: found {len(hosts)} of {len(node.vertices)} vertices, expected at most {MOST} in all")
    nics = node.of_kind("nic") or (node.of_kind("host") or node.of_kind("device"))[:1]
    replaced = set(hosts)
    vertices = [vertex for vertex in network.vertices if vertex.name not in replaced]
    connections = [one for connection in network.connections for one in _dealt(connection, replaced, nics)]
    for host in hosts:
        vertices += [dataclasses.replace(vertex, name=f"{host}.{vertex.name}", host=host) for vertex in node.vertices]
        connections += [
            dataclasses.replace(one, ends=(f"{host}.{one.ends[0]}", f"{host}.{one.ends[1]}"))
            for one in node.connections
        ]
    cables = max(one.count for one in network.connections if replaced.intersection(one.ends))
    return Graph(
        name=name,
        vertices=tuple(vertices),
        connections=tuple(connections),
        provenance=provenance,
        bisection=_bisection(network, node, nics[:cables]),
        parts=(network, node),
    )


def _dealt(connection: Connection, hosts: set[str], nics: tuple[str, ...]) -> list[Connection]:
    """The cables of a connection, each from NIC to switch or from NIC to NIC."""
    if not hosts.intersection(connection.ends):
        return [connection]
    dealt = []
    for number, nic in enumerate(nics[: connection.count]):
        one, other = (f"{end}.{nic}" if end in hosts else end for end in connection.ends)
        count = len(range(number, connection.count, len(nics)))
        dealt.append(dataclasses.replace(connection, ends=(one, other), count=count))
    return dealt


def _bisection(network: Graph, node: Graph, nics: tuple[str, ...]) -> Bisection:
    across = (network.bisection or bisection(network)).bytes_per_s
    if across is None:
        return Bisection(None, "one node has no halves")
    if not set(nics).intersection(node.endpoints):  # what computes sits behind NICs, which may be slower than cables
        across = min(across, len(network.endpoints) // 2 * least_cut(node, node.endpoints, nics))
    return Bisection(across, "upper bound: the cheapest cut that keeps nodes whole")
