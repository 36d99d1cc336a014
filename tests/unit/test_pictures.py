"""Pictures of cluster graphs: names are beside their marks, and cover neither marks nor each other."""

from itertools import combinations
from typing import Any

import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.transforms import Bbox

from paceline.reports.picture import picture
from paceline.topologies.graphs.graph import Graph
from paceline.topologies.graphs.graph_registry import TOPOLOGIES, build
from tests.thorough import sampled


def drawn(graph: Graph) -> list[Axes]:
    figure = picture(graph, graph.describe())
    canvas: Any = FigureCanvasAgg(figure)  # which matplotlib leaves untyped
    canvas.draw()
    return list(figure.axes)


def boxes(axes: Axes) -> tuple[list[Bbox], list[Bbox]]:
    """Returns the boxes of names beside marks, and of marks."""
    names = [text.get_window_extent() for text in axes.texts if text.get_gid() == "name"]
    scale = axes.figure.get_dpi() / 72
    marks = []
    lines: list[Any] = list(axes.lines)  # the place of a marker is typed as anything that makes an array
    for line in lines:
        if line.get_marker() in {"s", "o", "D", "h"}:
            x, y = axes.transData.transform((line.get_xdata()[0], line.get_ydata()[0]))
            half = line.get_markersize() * scale / 2
            marks.append(Bbox.from_extents(x - half, y - half, x + half, y + half))
    return names, marks


@pytest.mark.parametrize("name", sampled(sorted(TOPOLOGIES), sorted(TOPOLOGIES)[::3]))
def test_names_cover_neither_marks_nor_each_other(name: str) -> None:
    for axes in drawn(build(name, {})):
        names, marks = boxes(axes)
        assert not [(one, mark) for one in names for mark in marks if one.shrunk(0.9, 0.9).overlaps(mark)]
        assert not [(one, other) for one, other in combinations(names, 2) if one.overlaps(other)]


@pytest.mark.parametrize("name", ["dgx1-p100", "minsky", "star"])
def test_names_of_hosts_devices_and_nics_stand_beside_lines(name: str) -> None:
    """A name below its mark was crossed by the line that leads down from it."""
    graph = build(name, {})
    for axes, part in zip(drawn(graph), graph.parts or (graph,), strict=True):
        free = {text for text in axes.texts if text.get_gid() == "name" and text.get_text() not in {"switch", "pcie"}}
        places = {vertex.name: vertex.place for vertex in part.vertices}
        straight = [[places[end] for end in one.ends] for one in part.connections if one.bend == 0.0]
        for text in free:
            box = text.get_window_extent()
            for ends in straight:
                (x1, y1), (x2, y2) = axes.transData.transform(ends)
                along = [(x1 + (x2 - x1) * part / 400, y1 + (y2 - y1) * part / 400) for part in range(401)]
                assert not any(box.contains(*point) for point in along), text.get_text()


def test_titles_of_panels_stand_on_one_line() -> None:
    network, inside = drawn(build("minsky", {}))
    heights = [axes.get_position().y1 for axes in (network, inside)]
    assert heights[0] == pytest.approx(heights[1])
