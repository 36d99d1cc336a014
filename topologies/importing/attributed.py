"""Graphs with attributes on vertices and edges: NetworkX node-link JSON and GraphML.

A vertex may have ``kind`` (device, host, switch, nic, memory; by default host) and ``host`` (the machine to which it
belongs). Other attributes are ignored. An edge has ``bandwidth``, or ``link``, the name of a link of our catalogue,
which also gives its latency; ``latency`` (by default 0 without ``link``) and ``count`` (parallel cables). In the
catalogue, a network link has the latency between two hosts under a switch: a hop from or to a switch has half of it,
and a hop between switches the latency of a switch. Quantities are text with a unit, or SI numbers; ``bytes_per_s`` and
``latency_s`` are other names for them. Equal parallel edges are one connection with several cables, and the two
directions of a directed graph are one full-duplex link. If they differ, the file is refused, since a link here is
equally fast in both directions.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from paceline.algorithms.core.checksums import parsed
from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.naming import near_miss
from paceline.topologies.graphs.graph import Graph, Kind
from paceline.topologies.graphs.links import LINKS, host_end, link_named, switch_hop
from paceline.topologies.importing import assembly
from paceline.topologies.importing.assembly import Wire, assemble, refuse

KINDS: tuple[Kind, ...] = get_args(Kind)
INSIDE = ("nvlink", "pcie", "shared-memory", "loopback")
END_TO_END = frozenset(name for name in LINKS if not name.startswith(INSIDE))
"""links of networks, whose latency in the catalogue is between two hosts under a switch"""


@dataclass(frozen=True, slots=True)
class Edge:
    """An edge as in a file, with a description of its place."""

    start: str
    end: str
    data: Mapping[str, Any]
    where: str


@dataclass(frozen=True, slots=True)
class Attributed:
    """The common content of both formats."""

    nodes: Sequence[tuple[str, Mapping[str, Any], str]]
    """name, attributes, and a description of the place"""
    edges: Sequence[Edge]
    directed: bool


def node_link(text: str, where: str, name: str) -> Graph:
    """Returns the graph that ``networkx.node_link_data`` wrote, with its edges under "edges" or "links".

    Args:
        text: the JSON text.
        where: the file, for messages.
        name: the name of the graph.

    Raises:
        InputError: lists all errors of the text.

    >>> text = '{"nodes": [{"id": 0}, {"id": 1}], "edges": [{"source": 0, "target": 1, "bandwidth": "10 Gbit/s"}]}'
    >>> node_link(text, "text", "pair").describe().bisection.bytes_per_s
    1250000000.0
    """
    document = parsed(text, where, "a node-link graph in JSON")
    keys = [key for key in ("edges", "links") if isinstance(document, dict) and isinstance(document.get(key), list)]
    if len(keys) != 1 or not isinstance(document.get("nodes"), list):
        raise InputError(
            f'{where}: is not a node-link graph; expected an object with lists "nodes" and "edges" (or "links")'
        )
    problems: list[str] = []
    nodes = []
    for number, node in enumerate(document["nodes"]):
        if isinstance(node, dict) and (spelled := _name(node.get("id"))) is not None:
            nodes.append((spelled, node, f"nodes[{number}] ({spelled})"))
        else:
            problems.append(f'nodes[{number}]: found {node!r}, expected an object with an "id"')
    edges = []
    for number, edge in enumerate(document[keys[0]]):
        ends = [_name(edge.get(key)) for key in ("source", "target")] if isinstance(edge, dict) else [None]
        if None in ends:
            problems.append(f'{keys[0]}[{number}]: found {edge!r}, expected an object with "source" and "target"')
        else:
            start, end = map(str, ends)
            edges.append(Edge(start, end, edge, f"{keys[0]}[{number}] ({start} to {end})"))
    refuse(where, problems)
    read = Attributed(nodes, edges, bool(document.get("directed")))
    return _graph(read, where, name, "NetworkX node-link JSON")


def graphml(text: str, where: str, name: str) -> Graph:
    """Returns the graph of a GraphML document.

    Args:
        text: the XML text.
        where: the file, for messages.
        name: the name of the graph.

    Raises:
        InputError: lists all errors of the text.

    >>> key = '<key id="b" for="edge" attr.name="bandwidth" attr.type="string"/>'
    >>> body = '<node id="a"/><node id="b"/><edge source="a" target="b"><data key="b">1 GB/s</data></edge>'
    >>> start = '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">'
    >>> graph = graphml(f'{start}{key}<graph edgedefault="undirected">{body}</graph></graphml>', "text", "pair")
    >>> graph.connections[0].bytes_per_s
    1000000000.0
    """
    root = assembly.parse(text, where)  # refuses invalid XML and entities, with the line
    ends = [(element, key) for element in root.walk() if element.local == "edge" for key in ("source", "target")]
    refuse(where, [f"line {end.line}: edge: {key}: missing" for end, key in ends if key not in end.attributes])
    import networkx as nx  # slow to import, so only when such a file is read

    try:
        read: Any = nx.read_graphml(io.BytesIO(text.encode()))
    except Exception as error:  # NetworkX does not catch the errors of its parser
        raise InputError(f"{where}: is not GraphML that NetworkX can read: {error}") from None
    nodes = [(str(node), data, f"node {node}") for node, data in read.nodes(data=True)]
    edges = [Edge(str(a), str(b), data, f"edge {a} to {b}") for a, b, data in read.edges(data=True)]
    return _graph(Attributed(nodes, edges, read.is_directed()), where, name, "GraphML")


def _name(value: object) -> str | None:
    """Returns a vertex's name: NetworkX accepts anything that can be a key, and writes tuples as lists."""
    if isinstance(value, list) and value:
        parts = [_name(part) for part in value]
        return None if None in parts else ".".join(map(str, parts))
    return str(value) if isinstance(value, str | int | float) and value != "" else None


def _graph(read: Attributed, where: str, name: str, form: str) -> Graph:
    problems: list[str] = []
    kinds: dict[str, Kind] = {}
    hosts: dict[str, str] = {}
    for node, data, place in read.nodes:
        if node in kinds:
            problems.append(f"{place}: a second vertex of this name")
        kind = data.get("kind", "host")
        if kind not in KINDS:
            expected = f"expected one of {', '.join(KINDS)}{near_miss(kind, KINDS)}"
            problems.append(f"{place}: kind: found {kind!r}, {expected}")
        kinds[node] = kind
        if isinstance(data.get("host"), str):
            hosts[node] = data["host"]
    known = set(kinds)
    edges_of: dict[frozenset[str], list[tuple[Edge, Wire]]] = {}
    for edge in read.edges:
        missing = [end for end in (edge.start, edge.end) if end not in known]
        if missing or edge.start == edge.end:
            problems.append(f"{edge.where}: {f'there is no {missing[0]}' if missing else 'joins a vertex to itself'}")
            continue
        wire = _wire(edge, kinds, problems)
        if wire is not None:
            edges_of.setdefault(frozenset((edge.start, edge.end)), []).append((edge, wire))
    wires = [_merged(several, read.directed, problems) for several in edges_of.values()]
    refuse(where, problems)
    silent = sum(wire.latency_s == 0 for wire in wires)
    assumed = [f"{silent} connections without a latency: 0"] if silent else []
    return assemble(name, where, kinds, wires, "; ".join([f"{form} ({where})", *assumed]), hosts=hosts, assumed=assumed)


def _wire(edge: Edge, kinds: Mapping[str, Kind], problems: list[str]) -> Wire | None:
    """Returns the connection of an edge; adds its errors to the problems."""
    data, before = edge.data, len(problems)
    named = None
    if data.get("link") is not None:
        try:
            named = link_named(str(data["link"]))
        except InputError as error:
            problems.append(f"{edge.where}: link: {error}")
    if named is not None and named.name in END_TO_END:
        ends = {kinds[edge.start], kinds[edge.end]}
        if ends == {"switch"}:
            named = switch_hop(named)
        elif "switch" in ends:
            named = host_end(named)
    across = _value(data, ("bandwidth", "bytes_per_s"), assembly.bytes_per_s, edge.where, problems)
    latency_s = _value(data, ("latency", "latency_s"), assembly.seconds, edge.where, problems)
    count = data.get("count", 1)
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= 1_000_000:
        problems.append(f"{edge.where}: count: found {count!r}, expected a whole number from 1")
    if across is None and named is None and len(problems) == before:
        problems.append(
            f"{edge.where}: bandwidth: missing, expected one such as '10 Gbit/s', or a link such as 'ib-edr'"
        )
    if len(problems) > before:
        return None
    if named is None:
        return Wire(edge.start, edge.end, across or 0.0, latency_s or 0.0, count)
    changed = across is not None or latency_s is not None
    return Wire(
        edge.start,
        edge.end,
        named.bytes_per_s if across is None else across,
        named.latency_s if latency_s is None else latency_s,
        count,
        None if changed else named.name,
        None if changed else named.provenance,
    )


def _value(data: Mapping[str, Any], keys: tuple[str, str], parse: Any, where: str, problems: list[str]) -> float | None:
    given = [key for key in keys if data.get(key) is not None]
    if len(given) > 1:
        problems.append(f"{where}: found both {given[0]} and {given[1]}, expected one of them")
    if not given:
        return None
    try:
        return float(parse(data[given[0]]))
    except ValueError as error:
        problems.append(f"{where}: {given[0]}: {error}")
        return None


def _merged(several: Sequence[tuple[Edge, Wire]], directed: bool, problems: list[str]) -> Wire:
    """Returns one connection for all edges between two vertices."""
    first_edge, first = several[0]
    if any((wire.bytes_per_s, wire.latency_s) != (first.bytes_per_s, first.latency_s) for _, wire in several):
        problems.append(f"{first_edge.where}: edges between these two differ; expected equal ones, each way as fast")
    back = sum(wire.count for edge, wire in several if edge.start != first_edge.start)
    there = sum(wire.count for edge, wire in several if edge.start == first_edge.start)
    if directed and back not in (0, there):
        problems.append(f"{first_edge.where}: {there} cables one way and {back} the other, expected as many")
    count = there if directed else there + back
    return Wire(first.start, first.end, first.bytes_per_s, first.latency_s, count, first.name, first.provenance)
