"""``paceline list`` and ``paceline topology``: what Paceline knows by name, and cluster graphs also from files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from paceline.algorithms.core.errors import InputError
from paceline.cli.options import RUNS, Only, complete_topologies
from paceline.cli.output import Output

Listing = Literal[
    "algorithms", "devices", "links", "topologies", "models", "datasets", "scenarios", "storage", "systems"
]


def list_(
    kind: Annotated[Listing, typer.Argument(help="What to list.")],
    *,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Only these; algorithms with all that is known of them."),
    ] = None,
    output: Annotated[Output, Only("as_json", "as_csv")],
) -> None:
    """List algorithms, devices, links, topologies, models, data sets, scenarios, storage or systems.

    Systems are chips and networks on which published steps test predictions, with
    their number and errors.
    With names of algorithms, their hyper-parameters, defaults and guarantees are shown.

    \b
    Examples:
      paceline list algorithms
      paceline list algorithms diloco
      paceline list scenarios --json
    """
    from paceline.reports.catalogue_answer import listing

    output.give(listing(kind, names or []))


def topology(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME|FILE",
            help="One of [bold]paceline list topologies[/], which also shows parameters, or a file: the text of "
            "nvidia-smi topo -m, NCCL topology XML, hwloc XML, Slurm's topology.conf, NetworkX node-link "
            "JSON, GraphML or SimGrid platform XML.",
            autocompletion=complete_topologies,
        ),
    ],
    *,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="PARAMETER=VALUE", help="Change a parameter; may be repeated.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File of the picture, .svg or .png; default: runs/NAME.svg, or no picture with --json.",
            dir_okay=False,
        ),
    ] = None,
    output: Annotated[Output, Only("as_json")],
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
    shown = replace(output, quiet=quiet)
    from paceline.reports.catalogue_answer import topology_answer
    from paceline.topologies.importing import named_graph

    graph = named_graph(name, dict(map(_pair, settings or [])))
    figures = graph.describe()
    if out is not None or not output.as_json:
        from paceline.reports.picture import draw

        path = out or RUNS / f"{graph.name}.svg"
        try:
            draw(graph, figures, path)
            shown.note(f"picture: {path}")
        except InputError as error:
            if out is not None:
                raise
            shown.note(f"no picture: {error}")  # the picture was not requested, so this is no error
    shown.give(topology_answer(graph, figures))


def _pair(setting: str) -> tuple[str, str]:
    key, equals, value = setting.partition("=")
    if not equals or not key.strip():
        raise InputError(f"--set: found {setting!r}, expected parameter=value, such as hosts=16")
    return key.strip(), value.strip()
