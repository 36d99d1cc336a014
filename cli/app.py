"""The commands and their options, for typer.

Rules of this file:

* Only names, types and help are here. The implementation of a command is in `actions`, which is imported when the
  command runs, so that ``--help`` does not import torch.
* Exit status: 0 done, 1 the run failed, 2 the input was wrong, 130 interrupted. Only `Guarded` sets it. An error that
  nobody foresaw is 1, in one sentence that names a file with the traceback.
"""

from __future__ import annotations

import errno
import io
import os
import shlex
import signal
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import typer
from typer.core import TyperGroup

from paceline.algorithms.core.errors import InputError, MethodWarning, PacelineError
from paceline.backend.transports.launch_environment import GLOO_THREAD, RANK_THREAD, SaidElsewhere
from paceline.cli.calibrate_command import calibrate
from paceline.cli.check_command import check
from paceline.cli.compare_command import compare
from paceline.cli.convert_command import convert
from paceline.cli.doctor_command import doctor
from paceline.cli.explain_command import explain
from paceline.cli.export_command import ExportCommand, export
from paceline.cli.init_command import init
from paceline.cli.option_hints import HintingCommand, ScenarioCommand, help_text
from paceline.cli.options import (
    RUNS,
    Algorithms,
    Engine,
    Json,
    Machine,
    Network,
    Out,
    Pace,
    Quiet,
    Replay,
    Report,
    Resume,
    Scenario,
    ScenarioOrRun,
    Seed,
    Seeds,
    Set,
    Slurm,
    TensorBoard,
    Verbose,
    Watch,
    WatchMachine,
    output,
)
from paceline.cli.plan_command import plan
from paceline.cli.report_command import report as report_command
from paceline.cli.reproduce_command import reproduce
from paceline.cli.runs_command import runs
from paceline.cli.show_command import show
from paceline.cli.staleness_command import staleness
from paceline.cli.sweep_command import sweep
from paceline.cli.topology_command import topology

EXIT_FAILED, EXIT_INPUT, EXIT_INTERRUPTED = 1, 2, 130

MOST_LETTERS = 200
"""of the message of an unforeseen error; the whole is in its report"""
Listing = Literal["algorithms", "devices", "links", "topologies", "models", "datasets", "scenarios", "storage"]


class Guarded(TyperGroup):
    """Converts errors to a message on standard error and an exit status."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.help = help_text(self.help)

    def invoke(self, ctx: Any) -> Any:
        if threading.current_thread() is threading.main_thread():
            # SIGTERM of a batch system or of `timeout` is handled like Ctrl-C, so that all processes are ended
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
                signal.signal(signal.SIGINT, signal.default_int_handler)  # replaces the handler of `main`
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            _say("\n".join(["interrupted; nothing is left running", *getattr(interrupt, "__notes__", ())]))
            _end_at_once(EXIT_INTERRUPTED)
            ctx.exit(EXIT_INTERRUPTED)
        except (PacelineError, OSError) as error:  # an OSError such as a full disk is no bug
            if isinstance(error, OSError) and error.errno == errno.EPIPE:
                raise  # the reader of the pipe has closed it: typer exits silently
            if not isinstance(error, SaidElsewhere):
                if ctx.meta.get("verbose"):
                    _say(traceback.format_exc().rstrip())
                _say(f"error: {_words(error)}")
            status = EXIT_INPUT if isinstance(error, InputError) else EXIT_FAILED
            _end_at_once(status)
            ctx.exit(status)
        except (Exception, SystemExit) as error:  # SystemExit: a method of the user's own that calls sys.exit
            if isinstance(error, typer.Abort) or hasattr(error, "exit_code"):
                raise  # typer's own; it does not export all of their classes
            if isinstance(error.__context__, BrokenPipeError):
                raise  # rich's way to end silently when the reader of the pipe has closed it
            _say(unforeseen(error))
            _end_at_once(EXIT_FAILED)
            ctx.exit(EXIT_FAILED)


def _end_at_once(status: int) -> None:
    """Ends the process immediately if a thread waits in gloo, as the process would wait for that thread forever."""
    if any(thread.name in (RANK_THREAD, GLOO_THREAD) for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _words(error: PacelineError | OSError) -> str:
    """Returns the message of an error; for an error of a file with its path and with notes on stored runs."""
    if isinstance(error, PacelineError) or error.filename is None:
        return str(error)
    return "\n".join([f"{os.fsdecode(error.filename)}: {error.strerror}", *getattr(error, "__notes__", ())])


def unforeseen(error: BaseException) -> str:
    """Returns a sentence on an error that no command expects, with the file in which its traceback is now.

    The file also has what a report of the mistake needs: the command, the folder and the versions of packages.

    Args:
        error: the error.
    """
    what = f"{type(error).__name__}: {error}".splitlines()[0] if str(error) else type(error).__name__
    said = f"error: Paceline failed where it should not: {what if len(what) <= MOST_LETTERS else what[:MOST_LETTERS]}"
    try:
        from paceline.records.machine import package_versions

        versions = "\n".join(f"{name} {version}" for name, version in package_versions().items())
        with tempfile.NamedTemporaryFile("w", prefix="paceline-error-", suffix=".txt", delete=False) as file:
            file.write(f"command: {shlex.join(sys.argv)}\nfolder: {Path.cwd()}\n\n{versions}\n\n")
            file.write("".join(traceback.format_exception(error)))
    except Exception:  # a full disk, or no memory: the sentence is said in any case
        return f"{said}; no report could be written"
    return f"{said}; please report it with the file {file.name}"


def _say(text: str) -> None:
    typer.echo(text, err=True)


app = typer.Typer(
    name="paceline",
    cls=Guarded,
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_show_locals=False,
)


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
    """Predict which distributed SGD method reaches an accuracy soonest on a cluster, and measure whether that is true.

    \b
    Examples:
      paceline compare quickstart         predict and measure, side by side
      paceline simulate quickstart        predict only
      paceline list algorithms            list the methods
    """


@app.command(cls=ScenarioCommand)
def simulate(
    ctx: typer.Context,
    scenario: Scenario,
    changes: Set = None,
    algorithms: Algorithms = None,
    seed: Seed = None,
    seeds: Seeds = None,
    machine: Machine = None,
    engine: Engine = "auto",
    report: Report = True,
    out: Out = RUNS,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Run a scenario in virtual time on its modelled cluster: one run per algorithm and seed.

    All runs and a report of them are stored: throughput, shares of time, a timeline of every rank, learning, staleness.

    \b
    Examples:
      paceline simulate quickstart
      paceline simulate quickstart --algorithms sync-sgd,async-sgd --seeds 3
      paceline simulate my.yaml --set cluster.nodes[0].count=4 --set stop.epochs=5
      paceline simulate runs/quickstart-agd-1-simulated-1/run.json
      paceline simulate my.yaml --machine machine.yaml   # of paceline calibrate
    """
    from paceline.cli import actions

    ask = actions.Ask(
        scenario, changes=changes or [], algorithms=algorithms, seed=seed, seeds=seeds, out=out, machine=machine
    )
    actions.simulate(ask, output(ctx, as_json, quiet, verbose), engine, with_report=report)


@app.command(cls=ScenarioCommand)
def train(
    ctx: typer.Context,
    scenario: ScenarioOrRun = None,
    changes: Set = None,
    algorithms: Algorithms = None,
    seed: Seed = None,
    seeds: Seeds = None,
    pace: Pace = None,
    network: Network = None,
    resume: Resume = None,
    watch: Watch = False,
    machine: WatchMachine = None,
    tensorboard: TensorBoard = False,
    replay: Replay = None,
    out: Out = RUNS,
    slurm: Slurm = False,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Run a scenario for real: one process per rank, with torch.distributed.

    The command starts the ranks on this machine. If `torchrun`, `srun` or `mpirun` has started the command, each of
    its processes is a rank, on one host or on several.

    \b
    Examples:
      paceline train quickstart
      paceline train quickstart --algorithms agd --set algorithms.agd.delay=2
      paceline train my.yaml --no-pace --seed 7 --json
      paceline train my.yaml --set train.checkpoint.every='100 updates'
      paceline train --resume runs/my-sync-sgd-7-measured-1 --set stop.epochs=20
      paceline train my.yaml --watch --machine machine.yaml
      paceline train my.yaml --tensorboard --verbose
      paceline train --replay runs/quickstart-async-sgd-1-measured-1
      torchrun --standalone --nproc-per-node=5 --no-python paceline train my.yaml
      paceline train my.yaml --slurm > my.sh
    """
    from paceline.cli import actions, train_command

    shown = output(ctx, as_json, quiet, verbose)
    watching = train_command.Watching(tensorboard=tensorboard, predicted=watch, machine=machine)
    watching.check(scenario, replay)
    if replay is not None:
        if not train_command.replay(replay, shown):
            raise typer.Exit(EXIT_FAILED)
        return
    ask = actions.Ask(
        train_command.scenario_of(scenario, resume),
        changes=changes or [],
        algorithms=algorithms,
        seed=seed,
        seeds=seeds,
        out=out,
        pace=pace,
        network=network,
        resume=resume,
    )
    if slurm:
        train_command.slurm(ask, [argument for argument in sys.argv[1:] if argument != "--slurm"])
    else:
        train_command.train(ask, shown, watching)


app.command(cls=ScenarioCommand)(compare)


@app.command("list", cls=HintingCommand)
def list_(
    ctx: typer.Context,
    kind: Annotated[Listing, typer.Argument(help="What to list.", show_default=False)],
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Only these; algorithms with all that is known of them."),
    ] = None,
    as_json: Json = False,
) -> None:
    """List algorithms, devices, links, topologies, models, data sets, scenarios or storage.

    With names of algorithms, their hyper-parameters, defaults and guarantees are shown.

    \b
    Examples:
      paceline list algorithms
      paceline list algorithms diloco
      paceline list scenarios --json
    """
    from paceline.cli import listing

    listing.show(kind, names or [], output(ctx, as_json))


app.command(cls=ScenarioCommand)(calibrate)
app.command(cls=HintingCommand)(check)
app.command(cls=HintingCommand)(convert)
app.command(cls=HintingCommand)(doctor)
app.command(cls=ScenarioCommand)(explain)
app.command(cls=ExportCommand)(export)
app.command(cls=HintingCommand)(init)
app.command(cls=ScenarioCommand)(plan)
app.command("report", cls=HintingCommand)(report_command)
app.command(cls=HintingCommand)(reproduce)
app.command(cls=HintingCommand)(runs)
app.command(cls=HintingCommand)(show)
app.command(cls=HintingCommand)(staleness)
app.command(cls=ScenarioCommand)(sweep)
app.command(cls=HintingCommand)(topology)


@app.command(cls=HintingCommand)
def schema(
    *,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the reference page of the documentation.")
    ] = False,
) -> None:
    """Print the JSON Schema of a scenario, for editors.

    \b
    Examples:
      paceline schema > scenario.schema.json
      paceline schema --markdown > docs/scenario-reference.md
    """
    from paceline.cli import actions

    actions.schema(markdown=markdown)


def _as_note(formatted: Callable[..., str]) -> Callable[..., str]:
    """Returns how warnings are printed: those about a user's method as a note, without a place in this package."""

    def words(message: Any, category: type[Warning], *place: Any, **more: Any) -> str:
        note = issubclass(category, MethodWarning)
        return f"note: {message}\n" if note else formatted(message, category, *place, **more)

    return words


def main() -> None:
    """The entry point of the command."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # prints tables even if the encoding lacks a character
    warnings.formatwarning = _as_note(warnings.formatwarning)
    try:
        cast("Any", app)()
    except Exception as error:  # outside all commands, such as in an import
        _say(unforeseen(error))
        sys.exit(EXIT_FAILED)
