"""Where the workers of a scenario sit: a named system, a file, or nodes put on a network's hosts in order."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from paceline.algorithms.core.errors import InputError
from paceline.scenarios.sections.referenced_files import graph_of
from paceline.topologies.cluster import Site, sites
from paceline.topologies.graphs.compose import compose
from paceline.topologies.graphs.graph import Graph
from paceline.topologies.graphs.graph_registry import build, parameters


@dataclass(frozen=True)
class Layout:
    """A graph and the machines on it that are used, with the seats of their workers."""

    graph: Graph
    sites: tuple[Site, ...]


@lru_cache(maxsize=8)
def of_system(name: str, nodes: int | None) -> Layout:
    """So many nodes of a named system, or as many as it has by default; raises `InputError`.

    >>> len(of_system("dgx1-v100", 2).sites)
    2
    """
    count = int(parameters(name)["nodes"]) if nodes is None else nodes
    graph = build(name, {"nodes": count})
    return Layout(graph, tuple(sites(graph)[:count]))


def of_file(file: str, nodes: int | None) -> Layout:
    """The first machines of a graph in a file, or all; raises `InputError`."""
    graph = graph_of(file)
    found = sites(graph)
    if nodes is not None and nodes > len(found):
        raise InputError(f"nodes: found {nodes}, expected at most {len(found)}, as many as there are in {file}")
    return Layout(graph, tuple(found[:nodes]))


def of_nodes(network: Callable[[int], Graph], nodes: Sequence[tuple[Graph | None, int, int]]) -> Layout:
    """Nodes on the hosts of a network, in order.

    Args:
        network: a network of so many hosts or more.
        nodes: of each kind of node its inside (None for a single host), how many workers one has, how many there are.
    """
    each = [(inside, workers) for inside, workers, count in nodes for _ in range(count)]
    graph = network(len(each))
    hosts = graph.of_kind("host")
    insides = {host: inside for host, (inside, _) in zip(hosts, each, strict=False) if inside is not None}
    if insides:
        alike = set(map(id, insides.values())) if len(insides) == len(hosts) else set()
        whole = next(iter(insides.values())) if len(alike) == 1 else insides
        graph = compose(f"{graph.name}-of-nodes", graph, whole, f"{graph.provenance}; its nodes each say their own")
    found = {site.name: site for site in sites_of(graph)}
    placed = []
    for host, (inside, workers) in zip(hosts, each, strict=False):
        if inside is None:
            placed.append(Site(host, host, (host,) * workers, (None,) * workers))
        else:
            site = found[host]
            placed.append(dataclasses.replace(site, seats=site.seats[:workers], devices=site.devices[:workers]))
    return Layout(graph, tuple(placed))


def sites_of(graph: Graph) -> list[Site]:
    """The machines of a graph that have insides, and none where it has only hosts."""
    return sites(graph) if graph.of_kind("device") else []
