"""``paceline staleness``: the staleness of the gradients of stored runs, by every notion that applies."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from paceline.algorithms.core.errors import InputError
from paceline.cli.options import Only, read
from paceline.cli.output import Output


def staleness(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...", help="Folders that simulate, train or compare have stored, or the run.json in one."
        ),
    ],
    *,
    layer: Annotated[
        bool, typer.Option("--layer", help="Also show each layer, if the method applies layers one by one.")
    ] = False,
    over_time: Annotated[
        bool, typer.Option("--over-time", help="Also show twenty intervals of the run, in a table for each notion.")
    ] = False,
    why: Annotated[
        bool,
        typer.Option(
            "--why", help="Also show staleness against change of loss and, if recorded, the drift of workers."
        ),
    ] = False,
    figure: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FIGURE",
            help="Draw the distribution and its course to this file: .png, .svg or .pdf.",
            dir_okay=False,
        ),
    ] = None,
    output: Annotated[Output, Only("as_json", "quiet", "verbose")],
) -> None:
    """Show how stale gradients were in stored runs, simulated or measured: by update, rank, layer and over time.

    Papers call six quantities staleness. Which of them apply depends on the method:

    \b
      version lag       server updates from reading weights to applying
      exchange lag      the same of a centre, in elastic averaging
      iteration delay   steps between computing and applying, in replicas
      local-step age    local steps since the last average of all workers
      peer age          steps by which a peer's weights were older than one's own
      clock gap         steps ahead of the slowest worker: for every method

    For an asynchronous server, means over all updates have little information:
    they are about P - 1 at any speeds of the workers. Compare the ranks instead.
    The age of a gradient is the time in seconds from its start to its application.

    With --why, staleness is shown against the change of the loss. For the effect
    of single updates, simulate with --set record.loss_change=10: the loss is then
    measured just before and after every tenth update, in no virtual time;
    --set record.drift=1 measures the distances of workers between averages.

    \b
    Examples:
      paceline staleness runs/quickstart-async-sgd-1-simulated-1
      paceline staleness runs/quickstart-layerwise-agd-1-simulated-1 --layer
      paceline staleness runs/*-async-sgd-* --over-time --out staleness.png
      paceline simulate quickstart --set record.loss_change=5 && \\
          paceline staleness runs/quickstart-async-sgd-1-simulated-2 --why
      paceline staleness runs/quickstart-ssp-1-measured-1 --json
    """
    from paceline.reports import staleness as report

    staleness = [report.RunStaleness.of(read(path)) for path in runs]
    if figure is not None:
        from paceline.reports import png

        if figure.suffix not in {".svg", ".png", ".pdf"}:
            raise InputError(f"--out: found {figure.name!r}, expected a name that ends in .png, .svg or .pdf")
        figure.parent.mkdir(parents=True, exist_ok=True)
        png.save(report.figure_charts([run.run for run in staleness]), figure, columns=2)
    output.give(report.answer_of_staleness(staleness, layer=layer, over_time=over_time, why=why))
    if figure is not None:
        output.note(f"figure: {figure}")
