"""From the content of a file to a graph: the checks and the picture that all formats share.

All errors of a file are reported together, each with its place in the file. A graph must be connected, have at least
one device or host, and at most 200,000 vertices.

Parses bandwidths and latencies in files.

A number without a unit is in SI units, bytes per second or seconds. ``B`` is a byte and ``b`` or ``bit`` a bit; k, M,
G, T, P, E are powers of 1000, and with an ``i`` powers of 1024. The spellings are those of SimGrid (``125MBps``,
``50us``) and of our scenarios (``10 Gbit/s``).

XML as a tree whose elements have line numbers.

A document type may be declared and is not fetched; entities are refused, since a few lines of them can expand to
gigabytes or include other files.

The default places of a graph's vertices in a picture.

Devices, or hosts without devices, are at the bottom, and vertices k hops away from them in row k above. The order of
each row follows the neighbours below, so that trees look like trees. If many connections are inside rows (rings, tori,
dragonflies, meshes of GPUs) there are no rows: distances in the picture follow distances in the graph (Kamada and Kawai
1989), or, for more than 150 vertices, forces between neighbours (Fruchterman and Reingold 1991). More than 1,500
vertices are never drawn, and are only put apart.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from xml.parsers import expat

from paceline.algorithms.core.errors import InputError
from paceline.topologies.graphs.graph import Connection, Graph, Kind, Place, Vertex
from paceline.topologies.graphs.links import LinkModel, LinkPiece

if TYPE_CHECKING:
    import networkx as nx  # slow to import, so only when a graph is read

NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
QUANTITY = re.compile(rf"\s*({NUMBER})\s*(.*?)\s*", re.ASCII)
RATE_UNIT = re.compile(r"([kKMGTPE]?)(i?)(B|b|bit|Byte|byte)(?:ps|/s)")
POWERS = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
TIME_UNITS = {
    "": "1", "s": "1", "ms": "1e-3", "us": "1e-6", "µs": "1e-6", "μs": "1e-6", "ns": "1e-9", "ps": "1e-12",
    "m": "60", "min": "60", "h": "3600", "d": "86400", "w": "604800",
}  # fmt: skip
NOTHING = Decimal("NaN")


def bytes_per_s(value: object) -> float:
    """Parses a bandwidth and returns bytes per second; raises `ValueError` with the expected form.

    >>> bytes_per_s("125MBps"), bytes_per_s("10 Gbit/s"), bytes_per_s("1 KiBps"), bytes_per_s(5e9)
    (125000000.0, 1250000000.0, 1024.0, 5000000000.0)
    >>> bytes_per_s("fast")
    Traceback (most recent call last):
    ValueError: found 'fast', expected a bandwidth above 0, such as '10 Gbit/s', '1.25GBps' or bytes per second
    """
    number, unit = _split(value)
    scale = Decimal(1)
    if unit:
        match = RATE_UNIT.fullmatch(unit)
        if match is None:
            scale = NOTHING
        else:
            scale = Decimal(1024 if match[2] else 1000) ** POWERS[match[1]] / (8 if match[3] in {"b", "bit"} else 1)
    held = float(number * scale)
    if not (math.isfinite(held) and held > 0):
        raise ValueError(
            f"found {value!r}, expected a bandwidth above 0, such as '10 Gbit/s', '1.25GBps' or bytes per second"
        )
    return held


def seconds(value: object) -> float:
    """Parses a latency and returns seconds; raises `ValueError` with the expected form.

    >>> seconds("50us"), seconds("1.5 ms"), seconds(0)
    (5e-05, 0.0015, 0.0)
    """
    number, unit = _split(value)
    held = float(number * Decimal(TIME_UNITS.get(unit, "NaN")))
    if not (math.isfinite(held) and held >= 0):
        raise ValueError(f"found {value!r}, expected a latency of 0 or more, such as '1.5 us', '50us' or seconds")
    return held


def _split(value: object) -> tuple[Decimal, str]:
    """Returns the exact decimal number and the text after it."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return NOTHING, ""
    match = QUANTITY.fullmatch(str(value))
    return (Decimal(match[1]), match[2]) if match and len(match[1]) < 40 else (NOTHING, "")


@dataclass(frozen=True, slots=True)
class Element:
    """An element, with the line on which it begins."""

    tag: str
    attributes: Mapping[str, str]
    line: int
    children: list[Element] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    """the text between its children"""

    @property
    def text(self) -> str:
        """The text inside, without that of its children."""
        return " ".join(self.pieces)

    @property
    def local(self) -> str:
        """The tag without the prefix of its name space."""
        return self.tag.rpartition(":")[2]

    def walk(self) -> Iterator[Element]:
        """Yields this element and all below it, in the document's order."""
        yield self
        for child in self.children:
            yield from child.walk()


def parse(text: str, where: str) -> Element:
    """Returns the root of a document; raises `InputError` with the line if it is not valid.

    >>> parse("<a><b c='1'/></a>", "file").children[0].attributes
    {'c': '1'}
    >>> parse("<a><b></a>", "file")
    Traceback (most recent call last):
    paceline.algorithms.core.errors.InputError: file: line 1: not valid XML: mismatched tag
    """
    parser = expat.ParserCreate()
    parser.buffer_text = True
    root = Element("", {}, 0)
    stack = [root]

    def begin(tag: str, attributes: dict[str, str]) -> None:
        if len(stack) > 200:
            raise InputError(f"{where}: line {parser.CurrentLineNumber}: more than 200 elements inside each other")
        stack[-1].children.append(Element(tag, attributes, parser.CurrentLineNumber))
        stack.append(stack[-1].children[-1])

    def end(_: str) -> None:
        stack.pop()

    def words(text: str) -> None:
        if text.strip():
            stack[-1].pieces.append(text.strip())

    def entity(*_: object) -> None:
        raise InputError(f"{where}: line {parser.CurrentLineNumber}: declares an entity, which is refused")

    parser.StartElementHandler = begin
    parser.EndElementHandler = end
    parser.CharacterDataHandler = words
    parser.EntityDeclHandler = entity
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        raise InputError(f"{where}: line {error.lineno}: not valid XML: {expat.ErrorString(error.code)}") from None
    return root.children[0]


GAP = 1.2
RISE = 2.0
LEVEL = 0.1
"""the largest number of connections inside rows, as a share of the vertices, for which rows are used"""

DRAWN = 1500
EXACT = 150
"""the largest number of vertices for which distances are used, at a cost that grows with its cube"""


def places(graph: nx.Graph[str], kinds: Mapping[str, Kind]) -> dict[str, Place]:
    """Returns a place for every vertex; the same graph gives the same places."""
    import networkx as nx

    if len(graph) == 1:
        return dict.fromkeys(graph, (0.0, 0.0))
    computing = [name for name, kind in kinds.items() if kind == "device"]
    computing = computing or [name for name, kind in kinds.items() if kind == "host"]
    height = nx.multi_source_dijkstra_path_length(graph, set(computing), weight=None)
    level = sum(height[start] == height[end] for start, end in graph.edges)
    return _rows(graph, height) if level <= LEVEL * len(graph) else _free(graph)


def _free(graph: nx.Graph[str]) -> dict[str, Place]:
    """Places vertices by distances or forces; leaves of one vertex are around it, away from the centre."""
    import networkx as nx

    core = graph.subgraph([name for name, degree in graph.degree if degree > 1] or list(graph))
    if len(core) == 1:
        positions: Mapping[str, Any] = dict.fromkeys(core, (0.0, 0.0))
    elif len(core) <= EXACT:
        positions = nx.kamada_kawai_layout(core)
    elif len(core) > DRAWN:
        positions = nx.circular_layout(core)
    else:
        positions = nx.spring_layout(core, seed=0, iterations=60)
    lengths = sorted(math.dist(positions[start], positions[end]) for start, end in core.edges)
    fan = max((sum(other not in core for other in graph[name]) for name in core), default=0)
    scale = (1.6 + min(1.6, 0.3 * fan)) / max(lengths[len(lengths) // 10], 1e-3) if lengths else 1.0
    at = {name: (float(x) * scale, float(y) * scale) for name, (x, y) in positions.items()}
    middle = sum(x for x, _ in at.values()) / len(at), sum(y for _, y in at.values()) / len(at)
    for name in list(core):
        leaves = [other for other in graph[name] if other not in core]
        out = math.atan2(at[name][1] - middle[1], at[name][0] - middle[0])
        for number, leaf in enumerate(leaves):
            turn = min(2.4, 0.6 * (len(leaves) - 1)) * (number / (len(leaves) - 1) - 0.5 if len(leaves) > 1 else 0.0)
            at[leaf] = (at[name][0] + math.cos(out + turn), at[name][1] + math.sin(out + turn))
    return at


def _rows(graph: nx.Graph[str], height: Mapping[str, float]) -> dict[str, Place]:
    """Places vertices row by row from below; in a row by the mean place of the neighbours in the rows beneath."""
    import networkx as nx

    rows: dict[int, list[str]] = {}
    for name in graph:
        rows.setdefault(int(height[name]), []).append(name)
    top = max(rows)
    order = {name: number for number, name in enumerate(nx.dfs_preorder_nodes(graph, rows[top][0]))}
    x: dict[str, float] = {}
    for level in sorted(rows):
        mean = {name: _mean([x[other] for other in graph[name] if other in x], order[name]) for name in rows[level]}
        row = sorted(rows[level], key=lambda name: (mean[name], order[name]))
        x |= dict(zip(row, _apart([mean[name] for name in row]), strict=True))
    rise = max(RISE, 0.1 * GAP * max(map(len, rows.values())))
    return {name: (x[name], height[name] * rise) for name in graph}


def _mean(values: list[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else float(otherwise)


def _apart(wanted: list[float]) -> list[float]:
    """Returns the places nearest to these, in this order, with at least a gap between neighbours.

    >>> [round(x, 3) for x in _apart([5.0, 5.0, 9.0])]
    [4.6, 5.8, 8.6]
    """
    placed: list[float] = []
    for at in wanted:
        placed.append(max(at, placed[-1] + GAP) if placed else at)
    shift = sum(at - is_at for at, is_at in zip(wanted, placed, strict=True)) / len(placed)
    return [at + shift for at in placed]


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
    link: LinkModel | None = None
    """the link itself, with its medium and its costs to processors, if it is one of the catalogue"""


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
    import networkx as nx

    from paceline.topologies.importing.assembly import places

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
    if wire.link is not None:
        return Connection(ends=(wire.start, wire.end), link=wire.link, count=wire.count, bend=wire.bend)
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
