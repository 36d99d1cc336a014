"""The places of a scenario's workers: on a named system, a graph in a file, or nodes on the hosts of a network."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from paceline.algorithms.core.errors import InputError
from paceline.scenarios.sections.referenced_files import graph_of
from paceline.topologies.cluster import Site, sites
from paceline.topologies.graphs.compose import compose
from paceline.topologies.graphs.graph import Graph
from paceline.topologies.graphs.graph_registry import build, parameters
from paceline.topologies.graphs.links import LinkModel, host_end


@dataclass(frozen=True)
class NodeLayout:
    """A graph and the machines on it that are used, with the places of their workers."""

    graph: Graph
    sites: tuple[Site, ...]


@lru_cache(maxsize=8)
def of_system(name: str, nodes: int | None) -> NodeLayout:
    """Returns a layout of a named system.

    Args:
        name: the system's name.
        nodes: number of nodes; None: the system's default.

    Raises:
        InputError: the system cannot be built with this number of nodes.

    >>> len(of_system("dgx1-v100", 2).sites)
    2
    """
    count = int(parameters(name)["nodes"]) if nodes is None else nodes
    graph = build(name, {"nodes": count})
    return NodeLayout(graph, tuple(sites(graph)[:count]))


def of_file(file: str, nodes: int | None) -> NodeLayout:
    """Returns a layout of the graph in a file.

    Args:
        file: the path of the file.
        nodes: number of machines to use, from the first; None: all.

    Raises:
        InputError: the file is wrong, or has fewer machines.
    """
    graph = graph_of(file)
    places = sites(graph)
    if nodes is not None and nodes > len(places):
        raise InputError(f"nodes: found {nodes}, expected at most {len(places)}, as many as there are in {file}")
    return NodeLayout(graph, tuple(places[:nodes]))


def of_nodes(network: Callable[[int], Graph], nodes: Sequence[tuple[Graph | None, int, int]]) -> NodeLayout:
    """Places nodes on the hosts of a network, in order.

    Args:
        network: returns a network with this number of hosts or more.
        nodes: for each kind of node its graph (None for a plain host), the workers of one, and the number of nodes.
    """
    each = [(inside, workers) for inside, workers, count in nodes for _ in range(count)]
    graph = network(len(each))
    hosts = graph.of_kind("host")
    insides = {host: inside for host, (inside, _) in zip(hosts, each, strict=False) if inside is not None}
    if insides:
        alike = set(map(id, insides.values())) if len(insides) == len(hosts) else set()
        whole = next(iter(insides.values())) if len(alike) == 1 else insides
        graph = compose(f"{graph.name}-of-nodes", graph, whole, f"{graph.provenance}; its nodes each say their own")
    site_of = {site.name: site for site in sites_of(graph)}
    placed = []
    for host, (inside, workers) in zip(hosts, each, strict=False):
        if inside is None:
            placed.append(Site(host, host, (host,) * workers, (None,) * workers))
        else:
            site = site_of[host]
            placed.append(dataclasses.replace(site, seats=site.seats[:workers], devices=site.devices[:workers]))
    return NodeLayout(graph, tuple(placed))


def with_own_links(star: Graph, links: Mapping[int, LinkModel]) -> Graph:
    """Returns a star in which some hosts have links of their own.

    Args:
        star: the star.
        links: the link of each such host, by the host's number.

    >>> from paceline.topologies.graphs.links import LINKS
    >>> graph = with_own_links(build("star", {"hosts": 3, "link": "wan-1g"}), {2: LINKS["wan-100m"]})
    >>> [wire.link.name for wire in graph.connections]
    ['wan-1g', 'wan-1g', 'wan-100m']
    """
    if not links:
        return star
    hosts = star.of_kind("host")
    own = {hosts[number]: host_end(link) for number, link in links.items()}
    wires = (
        dataclasses.replace(connection, link=own.get(connection.ends[1], connection.link))
        for connection in star.connections
    )
    return dataclasses.replace(star, connections=tuple(wires), bisection=None)


def with_cables(network: Graph, cards: Mapping[int, int]) -> Graph:
    """Returns a network in which some hosts have a cable for each of their network cards.

    Args:
        network: the network; hosts that are joined to several others keep their cables.
        cards: the number of cards of each such host, by the host's number.

    >>> graph = with_cables(build("star", {"hosts": 2, "link": "ib-ndr"}), {1: 8})
    >>> [wire.count for wire in graph.connections]
    [1, 8]
    """
    if not cards:
        return network
    hosts = network.of_kind("host")
    degree = Counter(end for connection in network.connections for end in connection.ends)
    counts = {hosts[number]: count for number, count in cards.items() if degree[hosts[number]] == 1}
    wires = (
        dataclasses.replace(connection, count=max(connection.count, *(counts.get(end, 1) for end in connection.ends)))
        for connection in network.connections
    )
    return dataclasses.replace(network, connections=tuple(wires), bisection=None)


def sites_of(graph: Graph) -> list[Site]:
    """Returns the machines of a graph that contain devices; empty if the graph has only hosts."""
    return sites(graph) if graph.of_kind("device") else []
