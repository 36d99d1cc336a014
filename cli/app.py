"""The commands and their options, as typer sees them.

Rules of this file:

* Only names, types and help are here; what a command does is in `actions`, imported when it is run, so that ``--help``
  does not wait for torch.
* Exit status: 0 done, 1 the run failed, 2 the input was wrong, 130 interrupted; `Guarded` alone decides.
"""

from __future__ import annotations

import errno
import io
import signal
import sys
import threading
import traceback
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import typer
from typer.core import TyperGroup

from paceline.algorithms.errors import InputError, PacelineError
from paceline.cli.topology import topology

EXIT_FAILED, EXIT_INPUT, EXIT_INTERRUPTED = 1, 2, 130

Listing = Literal["algorithms", "devices", "topologies", "models", "scenarios"]
NetworkName = Literal["local", "emulated"]
EngineName = Literal["local"]


class Guarded(TyperGroup):
    """Turns what went wrong into a message on standard error and an exit status."""

    def invoke(self, ctx: Any) -> Any:
        if threading.current_thread() is threading.main_thread():
            # a batch system's or `timeout`'s end is a Ctrl-C: nothing is left running, nothing half-written
            signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            _say("interrupted; nothing is left running")
            ctx.exit(EXIT_INTERRUPTED)
        except (PacelineError, OSError) as error:  # a full disk is nobody's bug
            if isinstance(error, OSError) and error.errno == errno.EPIPE:
                raise  # who reads has heard enough: typer ends quietly
            if ctx.meta.get("verbose"):
                _say(traceback.format_exc().rstrip())
            _say(f"error: {error}")
            ctx.exit(EXIT_INPUT if isinstance(error, InputError) else EXIT_FAILED)


def _say(text: str) -> None:
    typer.echo(text, err=True)


app = typer.Typer(
    name="paceline",
    cls=Guarded,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_show_locals=False,
)

Scenario = Annotated[
    str,
    typer.Argument(
        metavar="SCENARIO",
        help="A scenario file (YAML), the name of one that comes with Paceline ([bold]paceline list scenarios[/]), "
        "or the run.json of an earlier run.",
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
        metavar="A,B,…", help="Only these algorithms; others than the scenario's are added with their defaults."
    ),
]
Seed = Annotated[int | None, typer.Option(help="The seed, instead of the scenario's.", show_default=False)]
Seeds = Annotated[
    int | None,
    typer.Option(
        min=1, help="So many seeds, counted up from the first; `compare` then gives figures with 95 % intervals."
    ),
]
Out = Annotated[
    Path,
    typer.Option(metavar="DIR", help="Where the new folders are made; nothing in it is overwritten.", file_okay=False),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="The figures alone: no progress, no notes.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Also where each run is stored; tracebacks of failures.")
]
Pace = Annotated[
    bool | None,
    typer.Option(
        "--pace/--no-pace",
        help="Hold each step to the scenario's device time, or run as fast as this machine goes; "
        "without either, as the scenario says. Only paced runs can be compared so far.",
        show_default=False,
    ),
]
Network = Annotated[
    NetworkName | None,
    typer.Option(
        help="What the real messages cross: this machine; an emulated network is not there yet.", show_default=False
    ),
]
Vary = Annotated[
    list[str],
    typer.Option(
        metavar="PATH=VALUES",
        help="An axis of the grid: the values that a path takes; may be repeated, for all combinations.",
        show_default=False,
    ),
]
Engine = Annotated[
    EngineName, typer.Option(help="Where runs are made: in processes of this machine; nowhere else yet.")
]
Jobs = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Runs at a time; without it, one for each core. The answer does not depend on it.",
        show_default=False,
    ),
]
KeepRuns = Annotated[
    bool, typer.Option("--keep-runs", help="Keep each run's own record too, in runs/ within the sweep's folder.")
]
RUNS = Path("runs")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"paceline {metadata.version('paceline')}")
        raise typer.Exit


@app.callback()
def _paceline(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Which distributed SGD method, on which cluster, reaches the accuracy I need soonest? And is that prediction true?

    \b
    Examples:
      paceline compare quickstart         predict and measure, side by side
      paceline simulate quickstart        predict only
      paceline list algorithms            what there is
    """


@app.command()
def simulate(
    ctx: typer.Context,
    scenario: Scenario,
    changes: Set = None,
    algorithms: Algorithms = None,
    seed: Seed = None,
    seeds: Seeds = None,
    out: Out = RUNS,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Run a scenario in virtual time on its modelled cluster: one run per algorithm and seed.

    \b
    Examples:
      paceline simulate quickstart
      paceline simulate quickstart --algorithms sync-sgd,async-sgd --seeds 3
      paceline simulate my.yaml --set cluster.nodes[0].count=4 --set stop.epochs=5 --json
      paceline simulate runs/quickstart-agd-1-simulated-1/run.json
    """
    from paceline.cli import actions

    ask = actions.Ask(scenario, changes=changes or [], algorithms=algorithms, seed=seed, seeds=seeds, out=out)
    actions.simulate(ask, _output(ctx, as_json, quiet, verbose))


@app.command()
def train(
    ctx: typer.Context,
    scenario: Scenario,
    changes: Set = None,
    algorithms: Algorithms = None,
    seed: Seed = None,
    seeds: Seeds = None,
    pace: Pace = None,
    network: Network = None,
    out: Out = RUNS,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Run a scenario for real: one process per rank on this machine, with torch.distributed.

    \b
    Examples:
      paceline train quickstart
      paceline train quickstart --algorithms agd --set algorithms.agd.delay=2
      paceline train my.yaml --no-pace --seed 7 --json
    """
    from paceline.cli import actions

    ask = actions.Ask(
        scenario,
        changes=changes or [],
        algorithms=algorithms,
        seed=seed,
        seeds=seeds,
        out=out,
        pace=pace,
        network=network,
    )
    actions.train(ask, _output(ctx, as_json, quiet, verbose))


@app.command()
def compare(
    ctx: typer.Context,
    scenario: Scenario,
    changes: Set = None,
    algorithms: Algorithms = None,
    seed: Seed = None,
    seeds: Seeds = None,
    pace: Pace = None,
    network: Network = None,
    out: Out = RUNS,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Predict a scenario, measure it, and show both side by side, with what simpler models would have said.

    The prediction is of this machine: what messages cost here is probed first. Tables, a figure of accuracy against
    time and every run are kept.

    \b
    Examples:
      paceline compare quickstart
      paceline compare quickstart --seeds 3 --algorithms async-sgd,easgd
      paceline compare my.yaml --json > answer.json
    """
    from paceline.cli import actions

    ask = actions.Ask(
        scenario,
        changes=changes or [],
        algorithms=algorithms,
        seed=seed,
        seeds=seeds,
        out=out,
        pace=pace,
        network=network,
    )
    actions.compare(ask, _output(ctx, as_json, quiet, verbose))


@app.command()
def sweep(
    ctx: typer.Context,
    scenario: Scenario,
    vary: Vary,
    changes: Set = None,
    algorithms: Algorithms = None,
    seed: Seed = None,
    seeds: Seeds = None,
    engine: Engine = "local",  # noqa: ARG001  # the only one so far
    jobs: Jobs = None,
    keep_runs: KeepRuns = False,
    out: Out = RUNS,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Ask what if: simulate a scenario at every point of a grid, in parallel, and see what scales and what does not.

    Each --vary is an axis, PATH=VALUES with any path that --set takes; the grid
    is all combinations. VALUES stand apart by commas: 1,2,4 or eth-10g,ib-edr;
    1..8 is a range with both its ends; 1..64x2 doubles: 1, 2, 4 … 64. Quote what
    your shell would read itself: brackets, blanks, braces.

    A new folder holds one table (sweep.csv and sweep.parquet, the same: a row for
    each point, algorithm and seed), figures of speed-up, efficiency, throughput,
    staleness, communication and waiting, and sweep.json. Speed-up is samples per
    second over those of the same algorithm on the smallest cluster.

    \b
    Examples:
      paceline sweep quickstart --vary "cluster.nodes[1].count=1..8x2"
      paceline sweep my.yaml --vary "cluster.nodes[0].count=1..64x2" \\
          --vary cluster.network.link=eth-10g,ib-edr --algorithms sync-sgd,agd
      paceline sweep my.yaml --vary workload.batch_per_worker=8..128x2 --seeds 3
      paceline sweep my.yaml --vary algorithms.agd.delay=1..4 --algorithms agd
      paceline sweep my.yaml --vary "cluster.network.link=eth-1g,{latency: 2 us, \\
          bandwidth: 40 Gbit/s}" --jobs 2 --keep-runs --json
    """
    from paceline.cli import actions
    from paceline.cli.sweep import sweep as run

    ask = actions.Ask(scenario, changes=changes or [], algorithms=algorithms, seed=seed, seeds=seeds, out=out)
    run(ask, vary, _output(ctx, as_json, quiet, verbose), jobs=jobs, keep_runs=keep_runs)


@app.command("list")
def list_(
    ctx: typer.Context,
    kind: Annotated[Listing, typer.Argument(help="What to list.", show_default=False)],
    as_json: Json = False,
) -> None:
    """List what there is.

    \b
    Examples:
      paceline list algorithms
      paceline list scenarios --json
    """
    from paceline.cli import listing

    listing.show(kind, _output(ctx, as_json))


app.command()(topology)


@app.command()
def schema() -> None:
    """Print the JSON Schema of a scenario, for editors.

    \b
    Examples:
      paceline schema > scenario.schema.json
    """
    from paceline.cli import actions

    actions.schema()


def _output(ctx: typer.Context, as_json: bool, quiet: bool = False, verbose: bool = False) -> Any:
    from paceline.cli.output import Output

    ctx.meta["verbose"] = verbose
    return Output(as_json=as_json, quiet=quiet, verbose=verbose)


def main() -> None:
    """The entry point of the command."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a table is no reason to fail where a dash cannot be shown
    cast("Any", app)()
