"""``paceline topology``: describes and draws a cluster graph, by its name or from a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.algorithms.core.errors import InputError
from paceline.cli.options import Json, complete_topologies

if TYPE_CHECKING:
    from paceline.reports.blocks import Table
    from paceline.topologies.graphs.graph import Description, Graph

PICTURES = Path("runs")


def topology(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME|FILE",
            help="One of [bold]paceline list topologies[/], which also shows parameters, or a file: the text of "
            "nvidia-smi topo -m, NetworkX node-link JSON, GraphML or SimGrid platform XML.",
            show_default=False,
            autocompletion=complete_topologies,
        ),
    ],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PARAMETER=VALUE", help="Change a parameter; may be repeated."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File of the picture, .svg or .png; default: runs/NAME.svg, or no picture with --json.",
            dir_okay=False,
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the figures: no notes.")] = False,
) -> None:
    """Describe and draw a cluster graph: nodes, links, diameter, bisection bandwidth.

    \b
    Examples:
      paceline topology dgx1-v100 --out dgx1.png
      paceline topology fat-tree --set k=8 --set link=ib-edr
      paceline topology leaf-spine --set leaves=2 --set node=dgx1
      paceline topology cori-knl --set nodes=384 --json
      nvidia-smi topo -m > mine.txt; paceline topology mine.txt --set link=nvlink3
      paceline topology platform.xml --out platform.png
    """
    from paceline.cli.output import Output

    output = Output(as_json=as_json, quiet=quiet)
    graph = _graph(name, dict(map(_pair, settings or [])))
    figures = graph.describe()
    if out is not None or not output.as_json:
        from paceline.reports.picture import draw

        path = out or PICTURES / f"{graph.name}.svg"
        try:
            draw(graph, figures, path)
            output.note(f"picture: {path}")
        except InputError as error:
            if out is not None:
                raise
            output.note(f"no picture: {error}")  # the picture was not requested, so this is no error
    output.answer(answer(figures), [] if output.as_json else [_table(graph, figures)])


def _graph(name: str, settings: Mapping[str, str]) -> Graph:
    """Returns the graph with this name, or in the file of this name."""
    from paceline.topologies.graphs.graph_registry import TOPOLOGIES, build
    from paceline.topologies.importing import load

    path = Path(name)
    if name in TOPOLOGIES or not (path.suffix or path.is_file() or "/" in name):
        return build(name, settings)
    return load(path, settings)


def answer(figures: Description) -> dict[str, Any]:
    """Returns the figures for a JSON answer."""
    return {
        "name": figures.name,
        "nodes": figures.nodes,
        "links": figures.links,
        "diameter_hops": figures.diameter_hops,
        "bisection_Bps": figures.bisection.bytes_per_s,
    }


def _pair(setting: str) -> tuple[str, str]:
    key, equals, value = setting.partition("=")
    if not equals or not key.strip():
        raise InputError(f"--set: found {setting!r}, expected parameter=value, such as hosts=16")
    return key.strip(), value.strip()


def _table(graph: Graph, figures: Description) -> Table:
    from paceline.records.figures import BYTES_PER_SECOND, DURATION
    from paceline.reports.blocks import Column, Table

    across = figures.bisection.bytes_per_s
    kinds = {kind: len(graph.of_kind(kind)) for kind in ("device", "host", "switch", "nic", "memory")}
    rows = [
        ("nodes", f"{figures.nodes}: " + ", ".join(f"{kind} {n}" for kind, n in kinds.items() if n)),
        ("links", str(figures.links)),
        ("diameter", f"{figures.diameter_hops} hops"),
        ("bisection", "none" if across is None else f"{BYTES_PER_SECOND.text(across)} one way"),
        ("  how found", figures.bisection.method),
        ("shape", graph.provenance),
    ]
    for name, link in {one.link.name: one.link for one in graph.connections}.items():
        rate = BYTES_PER_SECOND.text(link.piece(float("inf")).bytes_per_s)
        rows.append((name, f"{rate}, {DURATION.text(link.latency_s)}; {link.provenance}"))
    return Table(figures.name, [Column(""), Column("")], rows)
