"""Draws a cluster graph: vertices at the places given by the builder, links coloured by kind, fast links broad.

A composed graph is drawn as its parts: the network with one mark for each node, and beside it one node. Graphs that are
too large to be legible are rejected. All names of a row of vertices stand on one side of their marks, that where
the fewest lines, marks and names cross them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.files import replacing
from paceline.records.figures import significant
from paceline.reports.palette import FAINT, INK, PALETTE
from paceline.topologies.graphs.graph import Connection, Description, Graph, Kind, Place, Vertex
from paceline.topologies.graphs.links import LinkModel

LEGIBLE = 1500
"""number of vertices of the largest part that is drawn"""

NAMED = 48
"""largest number of vertices of a part with names"""

COUNTED = 24
"""largest number of connections of several links with their number beside them; the legend always has it"""

SHAPES: dict[Kind, tuple[str, str, float]] = {
    "device": ("s", "#0072B2", 1.0),
    "host": ("s", "#8FB8D6", 1.0),
    "switch": ("o", "#333333", 1.0),
    "nic": ("D", "#CC79A7", 0.72),
    "memory": ("h", "#009E73", 1.1),
}
"""marker, colour and relative size"""

COLOURS = (PALETTE[1], PALETTE[2], PALETTE[5], PALETTE[4], PALETTE[7], PALETTE[3], PALETTE[0])
BOX = {"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none"}
"""background of counts, which are drawn on a line"""

Side = tuple[int, int]
NAME_SIDES: tuple[Side, ...] = ((0, -1), (0, 1), (1, 0), (-1, 0), (1, -1), (1, 1), (-1, -1), (-1, 1))
"""right or left, and above or below: below first"""
LETTER, HEIGHT, GAP = 4.0, 8.0, 2.5  # points
"""width of a character of a name, height of a line, and distance between a mark and its name"""
SAMPLES = 40
"""number of points of a line that are tested for being inside a name"""
Points = NDArray[np.float64]

HALO = [withStroke(linewidth=2.0, foreground="white")]
"""margin around names, so that lines do not touch them"""

EDGE = 0.05
"""inches between the left edge of the picture and its content"""

SIDES = 4.0, 13.0
"""sizes of the smallest and the largest panel, in inches"""


def draw(graph: Graph, figures: Description, path: Path) -> None:
    """Writes the picture.

    Args:
        graph: the cluster graph.
        figures: its figures, for the title.
        path: the file; its ending selects the format, svg or png.

    Raises:
        InputError: the ending is another one, or the graph is too large to be legible.
    """
    if path.suffix not in {".svg", ".png"}:
        raise InputError(f"--out: found {path.name!r}, expected a name that ends in .svg or .png")
    figure = picture(graph, figures)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as hidden, rc_context({"svg.hashsalt": graph.name}):  # the same graph gives the same bytes
        figure.savefig(hidden, metadata={"Date": None} if path.suffix == ".svg" else None)


def picture(graph: Graph, figures: Description) -> Figure:
    """Draws one panel for each part, with the figures above and the kinds of links below.

    Args:
        graph: the cluster graph.
        figures: its figures, for the title.
    """
    parts = graph.parts or (graph,)
    for part in parts:
        if len(part.vertices) > LEGIBLE:
            raise InputError(
                f"{graph.name}: a picture of {len(part.vertices)} nodes cannot be read; expected at most {LEGIBLE}, so "
                "choose smaller parameters"
            )
    sizes = [_size(part) for part in parts]
    stacked = len(parts) > 1 and sizes[0][0] > 2 * sizes[0][1]
    wide, tall = (max, sum) if stacked else (sum, max)
    width, height = max(6.5, wide(size[0] for size in sizes)), tall(size[1] for size in sizes)
    colours = _colours(parts)
    rows = -(-len(colours) // (3 if width > 9 else 2)) + -(-len(_kinds(parts)) // 5)
    figure = Figure(figsize=(width, height + 1.0 + 0.25 * rows), dpi=130, layout="constrained")
    if stacked:
        panels = figure.subplots(len(parts), 1, squeeze=False, height_ratios=[size[1] for size in sizes])[:, 0]
    else:
        panels = figure.subplots(1, len(parts), squeeze=False, width_ratios=[size[0] for size in sizes])[0]
    for axes, part in zip(panels, parts, strict=True):
        _panel(axes, part, colours)
    if graph.parts:
        panels[0].set_title("the network; each square is a node", loc="left", fontsize=10, color=INK)
        panels[1].set_title("inside a node", loc="left", fontsize=10, color=INK)
    figure.suptitle(_title(figures), x=EDGE / width, ha="left", fontsize=11, color=INK)
    _legend(figure, parts, colours, 3 if width > 9 else 2)
    return figure


def _title(figures: Description) -> str:
    across = figures.bisection.bytes_per_s
    cut = "no halves" if across is None else f"bisection {across / 1e9:g} GB/s one way"
    counted = f"{figures.nodes} nodes, {figures.links} links, diameter {figures.diameter_hops}, {cut}"
    return f"{figures.name}\n{counted}"


def _kinds(parts: Sequence[Graph]) -> list[Kind]:
    return [kind for kind in SHAPES if any(part.of_kind(kind) for part in parts)]


def _colours(parts: Sequence[Graph]) -> dict[str, str]:
    names = dict.fromkeys(connection.link.name for part in parts for connection in part.connections)
    return {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(names)}


def _extent(graph: Graph) -> tuple[float, float, float, float]:
    """Returns left, right, low and high of the vertices and of bent connections."""
    places = {vertex.name: vertex.place for vertex in graph.vertices}
    bows = [_middle(connection, places) for connection in graph.connections if connection.bend]
    xs, ys = zip(*places.values(), *bows, strict=True)
    return min(xs), max(xs), min(ys), max(ys)


def _middle(connection: Connection, places: dict[str, Place]) -> Place:
    """Returns the middle of a connection as drawn."""
    (x1, y1), (x2, y2) = (places[end] for end in connection.ends)
    bow = (connection.bend or 0.0) / 2
    return (x1 + x2) / 2 + bow * (y2 - y1), (y1 + y2) / 2 - bow * (x2 - x1)


def _size(graph: Graph) -> tuple[float, float]:
    """Returns the size of the panel in inches: an inch per unit, within the limits."""
    left, right, low, high = _extent(graph)
    wide, tall = right - left + 1.6, high - low + 1.6
    scale = min(1.0, SIDES[1] / wide, SIDES[1] * 0.7 / tall)
    return max(SIDES[0], wide * scale), max(2.6, tall * scale)


def _panel(axes: Axes, graph: Graph, colours: dict[str, str]) -> None:
    left, right, low, high = _extent(graph)
    inches = _size(graph)
    unit = min(1.0, inches[0] / (right - left + 1.6), inches[1] / (high - low + 1.6))
    places, room = {vertex.name: vertex.place for vertex in graph.vertices}, _nearest(graph)
    named = len(graph.vertices) <= NAMED
    counted = sum(connection.count > 1 for connection in graph.connections) <= COUNTED
    for connection in graph.connections:
        _line(axes, connection, places, colours[connection.link.name], _width(connection, graph), counted)
    for vertex in graph.vertices:
        _mark(axes, vertex, _mark_size(vertex, 72 * unit * room[vertex.kind]))
    if named:
        _names(axes, graph, 72 * unit, room)
    axes.set_aspect("equal", anchor="NW")  # aligns the titles of the panels
    axes.set_axis_off()
    axes.set_xlim(left - 0.8, right + 0.8)
    axes.set_ylim(low - 0.8, high + 0.8)
    axes.autoscale_view()


def _nearest(graph: Graph) -> dict[Kind, float]:
    """Returns the distance between neighbours in the densest row of each kind."""
    rows: dict[tuple[Kind, float], list[float]] = {}
    for vertex in graph.vertices:
        rows.setdefault((vertex.kind, round(vertex.place[1], 3)), []).append(vertex.place[0])
    nearest: dict[Kind, float] = dict.fromkeys(SHAPES, 1.0)
    for (kind, _), row in rows.items():
        row.sort()
        gaps = [after - before for before, after in pairwise(row) if after - before > 0.1]
        nearest[kind] = min([nearest[kind], *gaps])
    return nearest


def _width(connection: Connection, graph: Graph) -> float:
    """Returns the line width in points: 1 for the slowest connection, more for faster ones, thin if there are many."""
    slowest = min(connection.bytes_per_s for connection in graph.connections)
    broad = min(5.0, 1.0 + 0.9 * math.log2(connection.bytes_per_s / slowest))
    return broad * min(1.0, max(0.3, math.sqrt(60 / len(graph.connections))))


def _line(
    axes: Axes, connection: Connection, places: dict[str, Place], colour: str, width: float, counted: bool
) -> None:
    (x1, y1), (x2, y2) = (places[end] for end in connection.ends)
    if connection.bend is None:  # only its two ends, pointing away from each other
        for (x, y), (other_x, other_y) in (((x1, y1), (x2, y2)), ((x2, y2), (x1, y1))):
            away = math.hypot(x - other_x, y - other_y) / 0.55
            ends = [x, x + (x - other_x) / away], [y, y + (y - other_y) / away]
            axes.plot(*ends, color=colour, linewidth=width, linestyle=(0, (1.5, 1)), zorder=1)
        return
    style = f"arc3,rad={connection.bend}"
    axes.add_patch(
        FancyArrowPatch(
            (x1, y1), (x2, y2), arrowstyle="-", connectionstyle=style, color=colour, linewidth=width,
            shrinkA=0, shrinkB=0, alpha=0.85, zorder=1,
        )
    )  # fmt: skip
    if connection.count > 1 and counted:
        text = f"×{connection.count}"
        axes.text(
            *_middle(connection, places), text, fontsize=7, ha="center", va="center", color=INK, bbox=BOX, zorder=2
        )


def _mark_size(vertex: Vertex, room: float) -> float:
    """Returns the size of a mark, up to half of the points between neighbours."""
    return SHAPES[vertex.kind][2] * min(21.0, max(3.5, room / 2))


def _mark(axes: Axes, vertex: Vertex, points: float) -> None:
    shape, colour, _ = SHAPES[vertex.kind]
    axes.plot(
        *vertex.place, shape, color=colour, markersize=points, markeredgecolor="white",
        markeredgewidth=min(1.0, points / 12), zorder=3,
    )  # fmt: skip


def _names(axes: Axes, graph: Graph, unit: float, room: Mapping[Kind, float]) -> None:
    """Draws numbers inside the marks, and names beside them if they fit between neighbours."""
    places = {vertex.name: vertex.place for vertex in graph.vertices}
    marks, named = [], []
    for vertex in graph.vertices:
        points = _mark_size(vertex, unit * room[vertex.kind])
        at = vertex.place[0] * unit, vertex.place[1] * unit
        marks.append((at, points))
        stem = vertex.name.rstrip("0123456789.")
        number = vertex.name.removeprefix(stem)
        if number and points >= 13:  # the number inside, the rest beside
            ink = INK if vertex.kind in {"host", "nic"} else "white"
            axes.text(*vertex.place, number, va="center", ha="center", fontsize=7, zorder=4, color=ink, gid="number")
        beside = stem if number and points >= 13 else vertex.name
        if len(beside) * LETTER <= unit * room[vertex.kind]:
            named.append(Named((vertex.kind, stem, round(vertex.place[1], 3)), at, points, beside))
    chosen = sides(named, marks, points_of(graph.connections, places, unit))
    for group in named:
        left, right, low, high = group.box(chosen[group.row])
        offset = (left + right) / 2 - group.at[0], (low + high) / 2 - group.at[1]
        axes.annotate(
            group.text, (group.at[0] / unit, group.at[1] / unit), xytext=offset, textcoords="offset points",
            va="center", ha="center", fontsize=6.5, color=INK, zorder=4, path_effects=HALO, gid="name",
        )  # fmt: skip


def _label(link: LinkModel, parts: Sequence[Graph]) -> str:
    """Returns the name of a link, its bandwidth, and the number of parallel links."""
    counts = {
        connection.count for part in parts for connection in part.connections if connection.link.name == link.name
    }
    several = "" if counts == {1} else f", {'–'.join(str(n) for n in sorted({min(counts), max(counts)}))} side by side"
    return f"{link.name}: {significant(link.bytes_per_s / 1e9, 4)} GB/s{several}"


def _legend(figure: Figure, parts: Sequence[Graph], colours: dict[str, str], columns: int) -> None:
    links = {connection.link.name: connection.link for part in parts for connection in part.connections}
    lines = [
        Line2D([], [], color=colour, linewidth=2.5, label=_label(links[name], parts))
        for name, colour in colours.items()
    ]
    marks = [
        Line2D([], [], linestyle="none", marker=SHAPES[kind][0], color=SHAPES[kind][1], markersize=8, label=kind)
        for kind in _kinds(parts)
    ]
    figure.legend(
        handles=[*marks, *lines], loc="outside lower left", ncols=columns, fontsize=8, frameon=False, labelcolor=INK,
        edgecolor=FAINT, borderaxespad=0.45, borderpad=0.0,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Named:
    """A mark with a name beside it."""

    row: tuple[Any, ...]
    """the row; marks of one row have their names on one side"""
    at: Place
    size: float
    text: str

    def box(self, side: Side) -> tuple[float, float, float, float]:
        """Returns left, right, low and high of the name."""
        (x, y), (across, up) = self.at, side
        away, wide = self.size / 2 + GAP, LETTER * len(self.text)
        middle_x = x + across * (away + wide / 2 if not up else self.size / 4 + wide / 2)
        middle_y = y + up * (away + HEIGHT / 2)
        return middle_x - wide / 2, middle_x + wide / 2, middle_y - HEIGHT / 2, middle_y + HEIGHT / 2


def sides(named: Sequence[Named], marks: Iterable[tuple[Place, float]], lines: Points) -> dict[tuple[Any, ...], Side]:
    """Returns the side of each row on which its names are crossed least.

    Args:
        named: the marks that have names.
        marks: the place and the size of every mark.
        lines: points of all lines, shape (n, 2).

    >>> marks = [Named("row", (0.0, 0.0), 10.0, "gpu"), Named("row", (90.0, 0.0), 10.0, "gpu")]
    >>> sides(marks, [], np.array([[0.0, -11.0]]))
    {'row': (0, 1)}
    """
    rows: dict[tuple[Any, ...], list[Named]] = {}
    for label in named:
        rows.setdefault(label.row, []).append(label)
    taken = [(x - size / 2, x + size / 2, y - size / 2, y + size / 2) for (x, y), size in marks]
    chosen = {}
    for row, members in rows.items():
        costs = [sum(_crossed(member.box(side), taken, lines) for member in members) for side in NAME_SIDES]
        chosen[row] = NAME_SIDES[int(np.argmin(costs))]
        taken += [member.box(chosen[row]) for member in members]
    return chosen


def _crossed(box: tuple[float, float, float, float], taken: Sequence[tuple[float, ...]], lines: Points) -> float:
    """Returns how much is in a box: points of lines, and marks and names, which count more."""
    left, right, low, high = box
    x, y = lines[:, 0], lines[:, 1]
    inside = np.count_nonzero((x > left - 1) & (x < right + 1) & (y > low) & (y < high))
    others = np.array(taken).reshape(-1, 4)
    apart = (others[:, 1] <= left) | (others[:, 0] >= right) | (others[:, 3] <= low) | (others[:, 2] >= high)
    return float(inside + 1000 * np.count_nonzero(~apart))


def points_of(connections: Iterable[Connection], places: Mapping[str, Place], unit: float) -> Points:
    """Returns points along every connection as drawn: a quadratic curve whose middle is displaced by the bend."""
    part = np.linspace(0.0, 1.0, SAMPLES)[:, None]
    crossed = [np.empty((0, 2))]
    for connection in connections:
        first, last = (np.array(places[end]) for end in connection.ends)
        along = last - first
        control = (first + last) / 2 + (connection.bend or 0.0) * np.array([along[1], -along[0]])
        curve = (1 - part) ** 2 * first + 2 * part * (1 - part) * control + part**2 * last
        if connection.bend is None:  # only its two ends, pointing away from each other
            away = 0.55 * part * along / np.hypot(*along)
            curve = np.concatenate([first - away, last + away])
        crossed.append(curve * unit)
    return np.concatenate(crossed)
