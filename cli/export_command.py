"""``paceline export``: a stored run in the format of another program."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from paceline.algorithms.core.errors import InputError
from paceline.cli.options import HintingCommand, Only, RunArgument, read, value_of
from paceline.cli.output import Output
from paceline.records.figures import significant

MANY_SPANS = 100_000
"""DERIVED: a trace of 1.2 million spans took 24 s of processor time, so this many take two"""
OPENED: dict[str, str] = {
    "chrome": "open it at chrome://tracing, or https://ui.perfetto.dev, which sends it nowhere",
    "csv": "README.md in it gives the meaning and the unit of each column",
    "tensorboard": "show it with: tensorboard --logdir",
}


class ExportCommand(HintingCommand):
    """``export``, which names the format that replaced ``perfetto``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parses the arguments; raises `InputError` for a format that is no longer written."""
        if value_of("--format", args) == "perfetto":
            raise InputError("--format: found 'perfetto'; expected chrome, whose JSON Perfetto opens")
        return super().parse_args(ctx, args)


def export(
    run: RunArgument,
    form: Annotated[
        Literal["chrome", "csv", "tensorboard"],
        typer.Option("--format", help="The format; see above.", show_default=False),
    ],
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="The new file, or with csv and tensorboard the new folder. Default: the name of the run, in this "
            "folder.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[Output, Only("as_json", "quiet", "verbose")],
) -> None:
    """Write a stored run, simulated or measured, in the format of another program.

    \b
      chrome        a trace for ui.perfetto.dev and chrome://tracing: ranks and
                    lanes as tracks, counters, arrows from a message to its
                    application
      csv           all tables and figures, with a README of the units
      tensorboard   the curves of the run (needs paceline[tensorboard])

    Nothing is overwritten.

    \b
    Examples:
      paceline export runs/quickstart-async-sgd-1-simulated-1 --format chrome
      paceline export runs/my-agd-1-measured-1 --format chrome --out measured.json
      paceline export runs/my-agd-1-simulated-1 --format csv --out tables
    """
    from paceline.reports.blocks import Answer, Claim
    from paceline.reports.export.export_run import export_run

    found = read(run)
    if (spans := len(found.tables.spans)) >= MANY_SPANS:
        output.note(f"writing {spans:,} spans; a million of them take about half a minute")
    written = export_run(found, form, out)
    size = sum(file.stat().st_size for file in ([written] if written.is_file() else written.rglob("*")))
    answer = {"run": str(found.path), "format": form, "path": str(written), "bytes": size}
    output.give(Answer("Export", [Claim(f"{written}: {significant(size / 1e6)} MB")], lambda: answer))
    output.note(f"{OPENED[form]} {written}" if form == "tensorboard" else OPENED[form])
