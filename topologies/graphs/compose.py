"""A network of nodes: every host of a network is replaced by a whole node.

Which network card each device of a machine uses, and which cards have cables.

* A device uses the card that is fewest hops away. If several are as near, as on one PCIe switch, the devices with these
  cards share them in turn: device i of them uses card i modulo the number of cards. NCCL, UCX and MPI choose so by
  affinity (MEMORY high).
* If there are more cards than devices, device i uses cards i, i + d, i + 2 d … of them, d being the number of devices.
  They carry equal parts of its traffic, as EFA's plugin for NCCL stripes a message over the cards of one PCIe switch
  (FOUND aws-ofi-nccl, README, multi-rail), so they are one plane.
* A server and other processes at a socket spread their connections over the cards that are nearest to it.
* If there are fewer cables than cards, the nearest cards of different PCIe switches and sockets get them first, as
  machines with fewer cards are built.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from paceline.algorithms.core.errors import InputError
from paceline.topologies.graphs.graph import Connection, Graph, Vertex
from paceline.topologies.graphs.shortest_paths import FORWARDERS

Neighbours = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Cards:
    """The cards that messages to other machines pass, where several are as near.

    Args:
        own: the card of each device, or of each socket in machines without devices.
        near: the nearest cards of each socket.
    """

    own: Mapping[str, str]
    near: Mapping[str, tuple[str, ...]]


def cabled(node: Graph, cables: int) -> tuple[str, ...]:
    """Returns the cards of a node that get a cable each, in the node's order, if it has so many cables.

    A node without cards is connected at its first socket or device.

    Args:
        node: the node.
        cables: the number of its cables; the remaining ones of more than there are cards go to the same cards again.

    >>> from paceline.topologies.graphs.machines import nvswitch_node
    >>> cabled(nvswitch_node(), 2), cabled(nvswitch_node(), 4)
    (('nic0', 'nic4'), ('nic0', 'nic2', 'nic4', 'nic6'))
    """
    cards = node.of_kind("nic")
    if not cards:
        return (node.of_kind("host") or node.of_kind("device"))[:1]
    if cables >= len(cards):
        return cards
    beside = _neighbours(node)
    forwards = _forwarders(node)
    hops = {card: min(_spread(beside, forwards, card, node.endpoints).values(), default=0) for card in cards}
    places: dict[tuple[str, ...], list[str]] = {}
    for card in cards:
        places.setdefault(tuple(beside[card]), []).append(card)
    chosen: set[str] = set()
    layers = {(hops[card], number) for group in places.values() for number, card in enumerate(group)}
    for far, number in sorted(layers):
        layer = [group[number] for group in places.values() if number < len(group) and hops[group[number]] == far]
        left = min(cables - len(chosen), len(layer))
        chosen.update(layer[place * len(layer) // left] for place in range(left))
    return tuple(card for card in cards if card in chosen)


def striped_cards(node: Graph, doors: Collection[str]) -> dict[str, str]:
    """Returns the name of the plane of each card that carries a part of a device's traffic together with others.

    Args:
        node: the node.
        doors: its cards with cables.

    >>> from paceline.topologies.graphs.machines import pcie_tree
    >>> striped_cards(pcie_tree(switches=1, gpus_per_switch=1, nics=2), ["nic0", "nic1"])
    {'nic0': 'nic0+nic1', 'nic1': 'nic0+nic1'}
    """
    beside = _neighbours(node)
    bundle_of: dict[str, str] = {}
    for cards, devices in _shared(beside, _forwarders(node), node.of_kind("device"), doors).items():
        for number in range(len(devices)):
            together = cards[number :: len(devices)]
            if len(together) > 1:
                bundle_of |= dict.fromkeys(together, "+".join(together))
    return bundle_of


def cards_of(graph: Graph) -> Cards:
    """Returns the cards of all machines of a graph whose switches of one plane are one (`Graph.striped`).

    >>> from paceline.topologies.graphs.graph_registry import build
    >>> found = cards_of(build("dgx-h100", {"nodes": 2}).striped())
    >>> found.own["host0.gpu4"], found.own["host0.gpu5"], found.near["host1.cpu1"][-1]
    ('host0.nic4', 'host0.nic5', 'host1.nic7')
    """
    machine = {vertex.name: vertex.host for vertex in graph.vertices}
    kinds = {vertex.name: vertex.kind for vertex in graph.vertices}
    doors: dict[str, list[str]] = {}
    for connection in graph.connections:
        first_end, other_end = connection.ends
        if machine[first_end] != machine[other_end]:
            for end in connection.ends:
                host = machine[end]
                if kinds[end] == "nic" and host is not None and end not in doors.setdefault(host, []):
                    doors[host].append(end)
    several = {host: cards for host, cards in doors.items() if len(cards) > 1}
    if not several:
        return Cards({}, {})
    parts: dict[str | None, list[str]] = {}
    for vertex in graph.vertices:
        if vertex.host in several:
            parts.setdefault(vertex.host, []).append(vertex.name)
    order = {vertex.name: number for number, vertex in enumerate(graph.vertices)}
    beside, forwards = _neighbours(graph, within=machine), _forwarders(graph)
    own: dict[str, str] = {}
    near: dict[str, tuple[str, ...]] = {}
    for host, cards in several.items():
        cards.sort(key=order.__getitem__)
        sockets = [name for name in parts[host] if kinds[name] == "host"]
        ends = [name for name in parts[host] if kinds[name] == "device"] or sockets
        for group, members in _shared(beside, forwards, ends, cards).items():
            if len(group) > 1:
                own |= {name: group[number % len(group)] for number, name in enumerate(members)}
        near |= {
            name: group for group, members in _shared(beside, forwards, sockets, cards).items() for name in members
        }
    return Cards(own, {name: group for name, group in near.items() if len(group) > 1})


def _neighbours(graph: Graph, within: Mapping[str, str | None] | None = None) -> dict[str, list[str]]:
    """Returns the neighbours of each vertex, or only those of the same machine."""
    beside: dict[str, list[str]] = {vertex.name: [] for vertex in graph.vertices}
    for connection in graph.connections:
        end, other_end = connection.ends
        if within is None or within[end] == within[other_end]:
            beside[end].append(other_end)
            beside[other_end].append(end)
    return beside


def _forwarders(graph: Graph) -> Collection[str]:
    return {vertex.name for vertex in graph.vertices if vertex.kind in FORWARDERS}


def _spread(beside: Neighbours, forwards: Collection[str], start: str, ends: Collection[str]) -> dict[str, int]:
    """Returns the number of hops from a vertex to each of these ends, past vertices that forward."""
    wanted, known, edge = set(ends), {start: 0}, [start]
    while edge:
        later = []
        for here in edge:
            for other in beside[here] if here == start or here in forwards else ():
                if other not in known:
                    known[other] = known[here] + 1
                    later.append(other)
        edge = later
    return {end: known[end] for end in wanted if end in known}


def _shared(
    beside: Neighbours, forwards: Collection[str], members: Sequence[str], doors: Collection[str]
) -> dict[tuple[str, ...], list[str]]:
    """Returns the members that have the same nearest cards, by these cards; both in their order."""
    members_of: dict[tuple[str, ...], list[str]] = {}
    for member in members:
        hops = _spread(beside, forwards, member, doors)
        nearest = min(hops.values(), default=0)
        cards = tuple(card for card in doors if hops.get(card) == nearest)
        if cards:
            members_of.setdefault(cards, []).append(member)
    return members_of


MOST = 200_000
"""the maximum number of vertices of a composed graph"""


def compose(name: str, network: Graph, node: Graph | Mapping[str, Graph], provenance: str) -> Graph:
    """Returns the network with a copy of the node in place of each host.

    The cables of a host are distributed to the node's NICs in turn; fewer cables than NICs to those that `cabled`
    names. A node without NICs is connected at its first socket or device. NICs that share the traffic of one device are
    one plane (`striped_cards`). The vertex ``gpu0`` of a node becomes ``host3.gpu0``.

    Bisection: an upper bound, the cheaper of two cuts that do not divide nodes: the network's own, and separating half
    of the nodes where their devices reach the network.

    Args:
        name: the name of the new graph.
        network: a graph with hosts and without devices.
        node: replaces each host, or those that are named; the others remain.
        provenance: where the shape of the new graph comes from.

    >>> from paceline.topologies.graphs.network_graphs import star
    >>> from paceline.topologies.graphs.machines import dgx1
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
