"""Trees of switches: leaf–spine and fat tree. The rules are those of `network_graphs`."""

from __future__ import annotations

from paceline.algorithms.core.errors import InputError
from paceline.topologies.graphs.graph import Bisection, Connection, Graph, Vertex
from paceline.topologies.graphs.links import LinkModel
from paceline.topologies.graphs.network_graphs import FAMILY, MOST, hop, spread_out, whole
from paceline.topologies.graphs.wires import host_end, link_named, switch_hop


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
