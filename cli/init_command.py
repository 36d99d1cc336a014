"""``paceline init``: a commented scenario to begin with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from paceline.algorithms.core.errors import Mistakes
from paceline.cli.options import Only, complete_algorithms, split_names
from paceline.cli.output import Output

DEFAULT_FILE = Path("scenario.yaml")
ClusterKind = Annotated[
    Literal["described", "gpu-nodes", "fat-tree", "dgx1", "cori-knl"],
    typer.Option("--cluster", help="The kind of cluster; see above."),
]


def init(
    file: Annotated[
        Path, typer.Argument(metavar="[FILE]", help="The new file; an existing file is never overwritten.")
    ] = DEFAULT_FILE,
    *,
    cluster: ClusterKind = "described",
    algorithms: Annotated[
        str,
        typer.Option(
            metavar="A,B,…",
            help="The algorithms. Your own methods are module:Class or path/to/file.py:Class.",
            autocompletion=complete_algorithms,
        ),
    ] = "sync-sgd,async-sgd,easgd",
    output: Annotated[Output, Only("as_json", "quiet")],
) -> None:
    """Write a commented scenario to begin with. It is valid as it is: run it, then change it.

    \b
      described   four workers on devices that you describe, which learn digits;
                  compare can run it on this machine
      gpu-nodes   four nodes of four GPUs, joined by InfiniBand
      fat-tree    sixteen nodes with a GPU each on a fat tree
      dgx1        the eight P100s of one DGX-1
      cori-knl    sixteen Knights Landing nodes of a supercomputer

    \b
    Examples:
      paceline init my.yaml
      paceline init my.yaml --cluster fat-tree --algorithms sync-sgd,diloco
    """
    from paceline.algorithms.core.files import write_whole
    from paceline.reports.blocks import Answer, Claim
    from paceline.scenarios import load
    from paceline.scenarios.resolution.new_scenario import new_scenario, valid_name

    names = split_names(algorithms)
    text = ""
    with Mistakes() as mistakes:
        if file.exists():
            mistakes.append(f"found {str(file)!r}, which exists; expected a new name: nothing is overwritten")
        if file.suffix not in (".yaml", ".yml"):
            mistakes.append(f"found {str(file)!r}; expected a name that ends in .yaml")
        if not file.parent.is_dir():
            mistakes.append(f"found no folder {str(file.parent)!r}; expected one")
        with mistakes.noted():
            text = new_scenario(valid_name(file.stem), cluster, names)
            if not mistakes:
                load(text)  # methods may have demands on clusters
    write_whole(file, text)
    document = {"path": str(file), "cluster": cluster, "algorithms": names}
    output.give(Answer("New scenario", [Claim(f"{file} written")], lambda: document))
    output.note(f"next: paceline simulate {file}")
