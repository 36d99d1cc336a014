"""Options of several commands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from paceline.cli import completing

if TYPE_CHECKING:
    from paceline.cli.output import Output

NetworkName = Literal["local", "emulated"]
EngineName = Literal["auto", "events", "cohort", "compiled"]

Scenario = Annotated[
    str,
    typer.Argument(
        metavar="SCENARIO",
        help="A scenario file (YAML), the name of one that comes with Paceline ([bold]paceline list scenarios[/]), "
        "or the run.json of an earlier run.",
        show_default=False,
        autocompletion=completing.scenarios,
    ),
]
ScenarioOrRun = Annotated[
    str | None,
    typer.Argument(
        metavar="[SCENARIO]",
        help="A scenario file (YAML), the name of one that comes with Paceline ([bold]paceline list scenarios[/]), "
        "or the run.json of an earlier run. Default with --resume: that of the run; not allowed with --replay.",
        show_default=False,
        autocompletion=completing.scenarios,
    ),
]
Resume = Annotated[
    Path | None,
    typer.Option(
        metavar="RUN",
        help="Resume from the last checkpoint of this run, or from this checkpoint. Only [bold]stop[/] and "
        "[bold]train.checkpoint[/] of its scenario may be changed.",
        show_default=False,
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Change a value of the scenario; may be repeated."),
]
Algorithms = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,…",
        help="Run only these algorithms; those that the scenario lacks get their defaults. Your own methods are "
        "module:Class or path/to/file.py:Class.",
        autocompletion=completing.algorithms,
    ),
]
Seed = Annotated[int | None, typer.Option(help="The seed, instead of the scenario's.", show_default=False)]
Seeds = Annotated[
    int | None,
    typer.Option(min=1, help="Number of seeds, counted up from the first; figures then have 95 % intervals."),
]
Machine = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="A machine that [bold]paceline calibrate[/] measured: predict unpaced runs on hosts like it.",
        show_default=False,
    ),
]
Out = Annotated[
    Path,
    typer.Option(
        metavar="DIR", help="Folder for the new folders of runs; nothing in it is overwritten.", file_okay=False
    ),
]
Report = Annotated[
    bool,
    typer.Option(
        "--report/--no-report",
        envvar="PACELINE_REPORT",
        help="Write a report, one HTML file with charts and tables, or leave it out.",
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Number of parallel runs; default: one per core. The answer does not depend on it.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only the figures: no progress, no notes.")]
Verbose = Annotated[
    bool,
    typer.Option("--verbose", "-v", help="Also print where runs are stored, times of collectives, and tracebacks."),
]
Engine = Annotated[
    EngineName,
    typer.Option(
        help="The interpreter: event by event, or vectorised over ranks (cohort) where the run allows it; auto chooses "
        "by the number of ranks. The records are the same.",
    ),
]
Pace = Annotated[
    bool | None,
    typer.Option(
        "--pace/--no-pace",
        help="Pace each step to the scenario's device time, or run as fast as this machine can; "
        "default: as in the scenario.",
        show_default=False,
    ),
]
Network = Annotated[
    NetworkName | None,
    typer.Option(
        help="The network of real messages: this machine only, or a network of the scenario's links, emulated between "
        "network namespaces (needs root; see docs/emulation.md).",
        show_default=False,
    ),
]
Replay = Annotated[
    Path | None,
    typer.Option(
        "--replay",
        metavar="RUN",
        help="Repeat a recorded real run in the order of its record, and compare the weights bit for bit; "
        "takes no scenario. Exit status 1 if they differ.",
        show_default=False,
    ),
]
TensorBoard = Annotated[
    bool,
    typer.Option(
        "--tensorboard",
        help="Write TensorBoard event files: in --out during a run, in tensorboard/ of its folder afterwards. "
        "Needs paceline\\[tensorboard].",
    ),
]
Watch = Annotated[
    bool,
    typer.Option(
        "--watch",
        help="Predict the runs first, then show predicted and measured progress, the time left, and ranks that are "
        "slower than predicted.",
    ),
]
WatchMachine = Annotated[
    Path | None,
    typer.Option(
        "--machine",
        metavar="FILE",
        help="With --watch: predict with the costs of this machine, which [bold]paceline calibrate[/] measured; "
        "default: the scenario's devices and links.",
        show_default=False,
    ),
]
Slurm = Annotated[
    bool, typer.Option("--slurm", help="Print a Slurm script that runs this on as many nodes as the cluster has.")
]
RUNS = Path("runs")


def output(ctx: typer.Context, as_json: bool, quiet: bool = False, verbose: bool = False) -> Output:
    """Returns the output of a command, as its options request.

    Args:
        ctx: the command's context.
        as_json: the option ``--json``.
        quiet: the option of this name.
        verbose: the option of this name.
    """
    from paceline.cli.output import Output

    ctx.meta["verbose"] = verbose
    return Output(as_json=as_json, quiet=quiet, verbose=verbose)
