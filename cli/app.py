"""All commands, and how their errors are printed.

* A command is in the file of its name, or of what it is about: its options, and what it calls. What is slow to import
  is imported when the command runs, so that ``--help`` does not import torch.
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
from typing import Annotated, Any, cast

import typer
from typer.core import TyperGroup

from paceline.algorithms.core.errors import InputError, MethodWarning, PacelineError
from paceline.backend.transports.launchers import GLOO_THREAD, RANK_THREAD, SaidElsewhere
from paceline.cli.catalogue_commands import list_, topology
from paceline.cli.check_command import check
from paceline.cli.compare_command import compare
from paceline.cli.convert_command import convert
from paceline.cli.fidelity_command import fidelity
from paceline.cli.init_command import init
from paceline.cli.machine_commands import calibrate, doctor
from paceline.cli.options import (
    EXIT_FAILED,
    EXIT_INPUT,
    EXIT_INTERRUPTED,
    HintingCommand,
    ScenarioCommand,
    help_text,
    with_options_of_groups,
)
from paceline.cli.output import write_json
from paceline.cli.plan_command import plan
from paceline.cli.report_command import report as report_command
from paceline.cli.reproduce_command import reproduce
from paceline.cli.runs_command import ExportCommand, export, runs, show
from paceline.cli.simulate_command import explain, simulate
from paceline.cli.staleness_command import staleness
from paceline.cli.sweep_command import sweep
from paceline.cli.train_command import train
from paceline.cli.validate_command import validate

MOST_LETTERS = 200
"""of the message of an unforeseen error; the whole is in its report"""


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


COMMANDS: dict[str, tuple[Callable[..., None], type[HintingCommand]]] = {
    "simulate": (simulate, ScenarioCommand),
    "train": (train, ScenarioCommand),
    "compare": (compare, ScenarioCommand),
    "list": (list_, HintingCommand),
    "calibrate": (calibrate, ScenarioCommand),
    "check": (check, HintingCommand),
    "convert": (convert, HintingCommand),
    "doctor": (doctor, HintingCommand),
    "explain": (explain, ScenarioCommand),
    "export": (export, ExportCommand),
    "fidelity": (fidelity, HintingCommand),
    "init": (init, HintingCommand),
    "plan": (plan, ScenarioCommand),
    "report": (report_command, HintingCommand),
    "reproduce": (reproduce, HintingCommand),
    "validate": (validate, HintingCommand),
    "runs": (runs, HintingCommand),
    "show": (show, HintingCommand),
    "staleness": (staleness, HintingCommand),
    "sweep": (sweep, ScenarioCommand),
    "topology": (topology, HintingCommand),
}
for _name, (_command, _class) in COMMANDS.items():
    app.command(_name, cls=_class)(with_options_of_groups(_command))


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
    from paceline.scenarios import json_schema

    if markdown:
        from paceline.scenarios.resolution.reference import reference_page

        sys.stdout.write(reference_page(json_schema()))
    else:
        write_json(json_schema())


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
