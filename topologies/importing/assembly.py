"""From the content of a file to a graph: the checks and the picture that all formats share.

All errors of a file are reported together, each with its place in the file. A graph must be connected, have at least
one device or host, and at most 200,000 vertices.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paceline.algorithms.core.errors import InputError
from paceline.topologies.graphs.graph import Connection, Graph, Kind, Place, Vertex
from paceline.topologies.graphs.links import LinkModel, LinkPiece

MOST = 200_000
"""the maximum number of vertices of a graph"""

UNLIMITED = 1e18
"""bytes per second of what does not limit flows"""

SHOWN = 20
"""how many errors are listed; the rest are counted"""


@dataclass(frozen=True, slots=True)
class Wire:
    """A connection as in a file."""

    start: str
    end: str
    bytes_per_s: float
    latency_s: float
    count: int = 1
    name: str | None = None
    """the name of its kind of link; without one it is named by its figures"""
    provenance: str | None = None
    bend: float = 0.0
    each: bool = False
    """whether it limits every single flow, and not all flows together"""


def refuse(where: str, problems: Sequence[str]) -> None:
    """Raises all errors as one `InputError`, if there are any."""
    if problems:
        more = [f"and {len(problems) - SHOWN} more like these"] if len(problems) > SHOWN else []
        raise InputError("\n".join([*(f"{where}: {problem}" for problem in problems[:SHOWN]), *more]))


def assemble(
    name: str,
    where: str,
    kinds: Mapping[str, Kind],
    wires: Sequence[Wire],
    provenance: str,
    hosts: Mapping[str, str] | None = None,
    at: Mapping[str, Place] | None = None,
    assumed: Sequence[str] = (),
) -> Graph:
    """Returns the graph of these vertices and connections, with a place for each vertex.

    Args:
        name: the name of the graph.
        where: the file, for messages.
        kinds: the kind of every vertex, by name.
        wires: the connections, at most one between two vertices.
        provenance: where it comes from, and which parts are approximated.
        hosts: the machine of a vertex, if it is known.
        at: the places of vertices in a picture, if the format defines them.
        assumed: what the file does not say, or what the graph approximates.

    Raises:
        InputError: the graph is empty, too large, not connected, or has no device or host.
    """
    if not kinds or len(kinds) > MOST:
        raise InputError(f"{where}: found {len(kinds)} vertices, expected 1 to {MOST}")
    if not {"device", "host"}.intersection(kinds.values()):
        raise InputError(f"{where}: has no device or host; expected a vertex of one of these kinds")
    import networkx as nx  # slow to import, so only when a graph is read

    from paceline.topologies.importing.places import places

    shape: nx.Graph[str] = nx.Graph()
    shape.add_nodes_from(kinds)
    shape.add_edges_from((wire.start, wire.end) for wire in wires)
    pieces = [sorted(piece) for piece in nx.connected_components(shape)]
    if len(pieces) > 1:
        pieces.sort(key=len)
        raise InputError(
            f"{where}: has {len(pieces)} parts that are not connected; the smallest contains {', '.join(pieces[0][:5])}"
        )
    at = at or places(shape, kinds)
    return Graph(
        name=name,
        vertices=tuple(
            Vertex(name=name, kind=kind, place=at[name], host=(hosts or {}).get(name)) for name, kind in kinds.items()
        ),
        connections=tuple(_connection(wire, where) for wire in wires),
        provenance=provenance,
        assumed=tuple(assumed),
    )


def _connection(wire: Wire, where: str) -> Connection:
    name = wire.name or f"{wire.bytes_per_s / 1e9:.4g}GBps-{wire.latency_s * 1e6:.4g}us"
    link = LinkModel(
        name=name,
        latency_s=wire.latency_s,
        bytes_per_s=wire.bytes_per_s,
        provenance=wire.provenance or f"as {where} gives it",
    )
    if wire.each:
        own = LinkPiece(math.inf, wire.latency_s, wire.bytes_per_s)
        link = dataclasses.replace(
            link, bytes_per_s=UNLIMITED, pieces=(own,), provenance=f"for each flow; {link.provenance}"
        )
    return Connection(ends=(wire.start, wire.end), link=link, count=wire.count, bend=wire.bend)
