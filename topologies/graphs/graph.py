"""Cluster graphs: vertices and the links between them.

Read this first, then `network_graphs`, `machines`, `compose` and `systems`.

* A graph is a value: vertices (devices, hosts, switches, NICs, memories) and the connections between them. A connection
  is `count` equal parallel links; every link is full duplex. `bytes_per_s` is always of one direction, and the same in
  both, except for links with a faster download: these lead from a switch, their first end, to a node.
* The end points of a graph are its devices or, if it has none, its hosts.
* The builder of a graph also defines the place of each vertex in a picture, since it depends on the family of graphs.
* Functions of NetworkX are called on `Graph.nx` and are not repeated here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from paceline.topologies.graphs.links import LinkModel, VariationModel

if TYPE_CHECKING:
    import networkx as nx

Kind = Literal["device", "host", "switch", "nic", "memory"]
Place = tuple[float, float]
Ends = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Vertex:
    """A vertex at which links end."""

    name: str
    kind: Kind
    place: Place
    """its place in a picture; 1 is a suitable distance between neighbours"""
    host: str | None = None
    """the host to which it belongs, in a graph composed of a network and nodes"""
    device: str | None = None
    """its device, by its name in the catalogue; None if there is none or it is not known"""
    plane: str | None = None
    """switches of one plane carry equal parts of every transfer, as in hardware: they act as one"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Several equal parallel links between two vertices."""

    ends: Ends
    link: LinkModel
    count: int = 1
    bend: float | None = 0.0
    """how far a picture bends it, as a fraction of its length; None: only its two ends are drawn"""

    @property
    def bytes_per_s(self) -> float:
        """The bandwidth of all its links together, in one direction."""
        return self.count * self.link.bytes_per_s

    def bytes_per_s_from(self, end: str) -> float:
        """Returns the bandwidth of all its links together in the direction from one of its ends to the other."""
        download = self.link.download_bytes_per_s
        return self.bytes_per_s if download is None or end != self.ends[0] else self.count * download

    def flow_bytes_per_s_from(self, end: str) -> float:
        """Returns the bandwidth of a single large flow in the direction from one of its ends to the other."""
        own = self.count * self.link.piece(float("inf")).bytes_per_s if self.link.pieces else float("inf")
        return min(own, self.bytes_per_s_from(end))


@dataclass(frozen=True, slots=True)
class Bisection:
    """Bytes per second, one way, across the worst split of the end points into halves; None for one end point."""

    bytes_per_s: float | None
    method: str
    """how it was determined: by a formula, by an exact search, or as a bound"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """The main figures of a graph."""

    name: str
    nodes: int
    links: int
    diameter_hops: int
    bisection: Bisection


@dataclass(frozen=True, kw_only=True)
class Graph:
    """A cluster, or a part of one, as a graph.

    >>> from paceline.topologies.graphs.network_graphs import star
    >>> graph = star(hosts=4, link="eth-10g")
    >>> figures = graph.describe()
    >>> figures.nodes, figures.links, figures.diameter_hops, figures.bisection.bytes_per_s
    (5, 4, 2, 2300000000.0)
    >>> graph.nx.edges["switch", "host0"]["connection"].link.name
    'eth-10g'
    """

    name: str
    vertices: tuple[Vertex, ...]
    connections: tuple[Connection, ...]
    provenance: str
    """where the shape comes from; each link has its own provenance"""
    assumed: tuple[str, ...] = ()
    """what was assumed or approximated when it was read from a file"""
    bisection: Bisection | None = None
    """the result of the family's formula; without one it is searched for"""
    all_alike: bool = False
    """whether the graph is the same from every vertex, so that one search finds the diameter"""
    listed: tuple[tuple[str, ...], ...] = ()
    """routes that messages take, whatever the shortest path is: for two hosts, one each way, all vertices in order"""
    parts: tuple[Graph, ...] = ()
    """the network and the node of which it was composed"""

    @cached_property
    def network_cards(self) -> Mapping[str | None, Sequence[str]]:
        """The names of the network cards of each host."""
        cards: dict[str | None, list[str]] = {}
        for vertex in self.vertices:
            if vertex.kind == "nic":
                cards.setdefault(vertex.host, []).append(vertex.name)
        return cards

    @cached_property
    def bytes_per_s_by_medium(self) -> Mapping[str, Mapping[str, float]]:
        """The bandwidth of the links of each vertex together, by their medium."""
        rates_of: dict[str, dict[str, float]] = {}
        for connection in self.connections:
            for end in set(connection.ends):
                rates = rates_of.setdefault(end, {})
                rates[connection.link.medium] = rates.get(connection.link.medium, 0.0) + connection.bytes_per_s
        return rates_of

    @cached_property
    def nx(self) -> nx.Graph[str]:
        """The same graph in NetworkX, with `vertex` and `connection` as attributes."""
        import networkx as nx

        graph: nx.Graph[str] = nx.Graph(name=self.name)
        for vertex in self.vertices:
            graph.add_node(vertex.name, vertex=vertex, kind=vertex.kind)
        for connection in self.connections:
            graph.add_edge(*connection.ends, connection=connection, bytes_per_s=connection.bytes_per_s)
        return graph

    def striped(self) -> Graph:
        """Returns the same graph with each plane of switches as one switch, as it carries traffic.

        >>> from paceline.topologies.graphs.machines import nvswitch_node
        >>> node = nvswitch_node(gpus=2, links_per_gpu=12, switches=6)
        >>> len(node.of_kind("switch")), len(node.striped().of_kind("switch"))
        (7, 2)
        """
        planes = {vertex.name: vertex.plane for vertex in self.vertices if vertex.plane is not None}
        if not planes:
            return self
        vertices = {name: vertex for vertex in self.vertices if (name := planes.get(vertex.name, vertex.name))}
        connections: dict[Ends, Connection] = {}
        for connection in self.connections:
            start, end = connection.ends
            ends = planes.get(start, start), planes.get(end, end)
            before = connections.get(ends)
            count = connection.count + (before.count if before else 0)
            connections[ends] = dataclasses.replace(connection, ends=ends, count=count)
        return dataclasses.replace(
            self,
            vertices=tuple(dataclasses.replace(vertex, name=name, plane=None) for name, vertex in vertices.items()),
            connections=tuple(connections.values()),
            listed=tuple(tuple(planes.get(name, name) for name in route) for route in self.listed),
            bisection=None,
        )

    @cached_property
    def varying(self) -> Mapping[Ends, VariationModel]:
        """The connections of the striped graph whose bandwidth varies over time; parallel links vary together."""
        if all(connection.link.variation is None for connection in self.connections):
            return {}
        variations = ((connection.ends, connection.link.variation) for connection in self.striped().connections)
        return {ends: variation for ends, variation in variations if variation is not None}

    def with_variation(self, variation: VariationModel | None) -> Graph:
        """Returns the same graph, in which the bandwidth of every link of the medium `network` varies in one way.

        Args:
            variation: how; None: it does not vary.
        """
        if variation is None and not self.varying:
            return self
        links = {connection.link for connection in self.connections if connection.link.medium == "network"}
        varied = {link: dataclasses.replace(link, variation=variation) for link in links}
        connections = (
            dataclasses.replace(connection, link=varied.get(connection.link, connection.link))
            for connection in self.connections
        )
        return dataclasses.replace(self, connections=tuple(connections))

    @cached_property
    def endpoints(self) -> tuple[str, ...]:
        """The end points: the devices, or the hosts of a graph without devices."""
        return self.of_kind("device") or self.of_kind("host")

    def of_kind(self, kind: Kind) -> tuple[str, ...]:
        """Returns the names of all vertices of a kind, in order."""
        return tuple(vertex.name for vertex in self.vertices if vertex.kind == kind)

    def describe(self) -> Description:
        """Returns the numbers of vertices and links, the diameter and the bisection bandwidth."""
        from paceline.topologies.graphs import measures

        return Description(
            name=self.name,
            nodes=len(self.vertices),
            links=sum(connection.count for connection in self.connections),
            diameter_hops=measures.diameter_hops(self),
            bisection=self.bisection or measures.bisection(self),
        )
