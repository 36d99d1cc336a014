"""Options of several commands, their completion by the shell, and the hints on options that a command does not have."""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.markup import escape
from typer.core import TyperCommand

from paceline.algorithms.core.errors import InputError

if TYPE_CHECKING:
    from paceline.cli.output import Output
    from paceline.records import Run

EXIT_FAILED, EXIT_INPUT, EXIT_INTERRUPTED = 1, 2, 130
RUNS = Path("runs")
NetworkName = Literal["local", "emulated"]
EngineName = Literal["auto", "events", "cohort"]


def complete_scenarios(incomplete: str) -> list[str]:
    """Returns the names of shipped scenarios with this beginning."""
    from paceline.scenarios.values.text import SHIPPED

    return [name for name in SHIPPED if name.startswith(incomplete)]


def complete_algorithms(incomplete: str) -> list[str]:
    """Completes the last name of a comma-separated list."""
    from paceline.algorithms import METHODS
    from paceline.algorithms.own import offers
    from paceline.algorithms.synonyms import ALIASES

    before, comma, last = incomplete.rpartition(",")
    known = dict.fromkeys([*METHODS, *offers(), *ALIASES])
    return [f"{before}{comma}{name}" for name in known if name.startswith(last)]


def complete_topologies(incomplete: str) -> list[str]:
    """Returns the names of cluster graphs with this beginning."""
    from paceline.topologies.graphs.graph_registry import TOPOLOGIES

    return [name for name in TOPOLOGIES if name.startswith(incomplete)]


def complete_data(incomplete: str) -> list[str]:
    """Returns the names of data sets with this beginning."""
    from paceline.workloads.datasets import DATA

    return [name for name in DATA if name.startswith(incomplete)]


def complete_papers(incomplete: str) -> list[str]:
    """Returns the short names of papers, and the names of claims, with this beginning."""
    from paceline.papers.core.registry import PAPERS, claims_named

    return [name for name in [*PAPERS, *(claim.name for claim in claims_named())] if name.startswith(incomplete)]


def complete_stored_runs(incomplete: str) -> list[str]:
    """Returns the folders of runs with this beginning: in the given folder, or in runs/ if none is given."""
    given = Path(incomplete)
    folder = given if incomplete.endswith("/") else given.parent
    if folder == Path():
        folder = Path("runs")
    try:
        names = sorted(str(path.parent) for path in folder.glob("*/run.json"))
    except OSError:  # a folder that may not be read has no names to offer
        return []
    return [name for name in names if name.startswith(incomplete) or Path(name).name.startswith(incomplete)]


def scenario_argument(metavar: str = "[SCENARIO]", more: str = "") -> Any:
    """Returns the argument SCENARIO.

    Args:
        metavar: its name in the help.
        more: what follows its description.
    """
    return typer.Argument(
        metavar=metavar,
        help="A scenario file (YAML), the name of one that comes with Paceline ([bold]paceline list scenarios[/]), "
        f"or the run.json of an earlier run{more}.",
        show_default=False,
        autocompletion=complete_scenarios,
    )


Scenario = Annotated[str, scenario_argument("SCENARIO")]
RunArgument = Annotated[
    Path,
    typer.Argument(
        metavar="RUN",
        help="A folder that simulate, train or compare has stored, or the run.json in it.",
        show_default=False,
        autocompletion=complete_stored_runs,
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
        autocompletion=complete_algorithms,
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
Csv = Annotated[
    bool,
    typer.Option("--csv", help="Print the main table as CSV on standard output, in SI units; not allowed with --json."),
]
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


def split_names(text: str | None) -> list[str]:
    """Returns the names in ``A,B,…``.

    >>> split_names("sync-sgd, agd"), split_names(None)
    (['sync-sgd', 'agd'], [])
    """
    return [name for part in (text or "").split(",") if (name := part.strip())]


def names_in(text: str | None) -> list[str] | None:
    """Returns the names in ``--algorithms``; None for those of the scenario."""
    if text is not None and not split_names(text):
        raise InputError(f"--algorithms: found {text!r}, expected names such as sync-sgd,async-sgd")
    return None if text is None else split_names(text)


def output(
    ctx: typer.Context, as_json: bool, quiet: bool = False, verbose: bool = False, *, as_csv: bool = False
) -> Output:
    """Returns the output of a command, as its options request.

    Args:
        ctx: the command's context.
        as_json: the option ``--json``.
        quiet: the option of this name.
        verbose: the option of this name.
        as_csv: the option ``--csv``.

    Raises:
        InputError: both formats are requested.
    """
    from paceline.cli.output import Output

    if as_json and as_csv:
        raise InputError("--csv: found beside --json, expected one of them")
    ctx.meta["verbose"] = verbose
    return Output(as_json=as_json, as_csv=as_csv, quiet=quiet, verbose=verbose)


def folder_of(path: Path) -> Path:
    """Returns the folder of a run that is given by its folder or its run.json."""
    return path.parent if path.name == "run.json" else path


def read(path: Path) -> Run:
    """Reads a stored run.

    Args:
        path: its folder, or the run.json in it.

    Raises:
        InputError: there is no run, or it is damaged.
    """
    from paceline.records.store import read_run

    return read_run(folder_of(path))


def help_text(docstring: str | None) -> str | None:
    """Returns a command's docstring as typer's rich help has to receive it.

    Typer keeps the line breaks of the source and wraps what is longer than the terminal once more, so the lines of a
    paragraph are joined. It reads square brackets as markup, so they are escaped: a docstring has no markup.

    Args:
        docstring: paragraphs with an empty line between them; one that begins with a line ``\\b`` keeps its lines.
    """
    if docstring is None:
        return None
    paragraphs = inspect.cleandoc(docstring).split("\n\n")
    joined = (part if part.startswith("\b") else part.replace("\n", " ") for part in paragraphs)
    return escape("\n\n".join(joined))


class HintingCommand(TyperCommand):
    """A command that suggests one of its options for an unknown one."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.help = help_text(self.help)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parses the arguments.

        Raises:
            InputError: for an unknown option, if there is a suggestion.
        """
        given = list(args)  # the parser consumes `args`
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            if type(error).__name__ != "NoSuchOption":  # typer does not export its class, nor always take click's
                raise
            name = str(error.option_name)  # type: ignore[attr-defined]
            if not (hint := self.hint(name, given)):
                raise
            raise InputError(f"No such option: {name}{hint}") from error

    def hint(self, name: str, args: Sequence[str]) -> str:
        """Returns a suggestion for an unknown option, to follow its name; empty if there is none.

        Args:
            name: the unknown option, with its dashes.
            args: all arguments of the command, for subclasses.
        """
        from paceline.scenarios.values.key_hints import key_hint

        options = [option.lstrip("-") for each in self.params for option in each.opts if option.startswith("--")]
        key = name.lstrip("-").replace("-", "_")
        found = key_hint(key, [option.replace("-", "_") for option in options]).replace(f"({key} was", "(it was")
        return re.sub(r"\w+(?=[?)])", lambda right: f"--{right[0].replace('_', '-')}", found, count=1)


class ScenarioCommand(HintingCommand):
    """A command that runs a scenario: it suggests keys of the scenario, too."""

    def hint(self, name: str, args: Sequence[str]) -> str:
        """Returns the option, or ``--set`` with the path in the scenario, that an unknown option may mean."""
        from paceline.scenarios.resolution.key_paths import key_paths, suggestion
        from paceline.scenarios.resolution.schema import Scenario
        from paceline.scenarios.values.key_hints import COMMON, WORLD_SIZE

        key = name.lstrip("-").replace("-", "_")
        path = suggestion(key, key_paths(Scenario))
        if path is None:
            return super().hint(name, args)
        words = WORLD_SIZE if COMMON.get(key.lower()) == "nodes" else ""
        change = shlex.quote(f"{path}={value_of(name, args)}")
        return f"{words}; this is a key of the scenario: --set {change}"


def value_of(name: str, args: Sequence[str]) -> str:
    """Returns the value that an option was given with; VALUE if none follows."""
    for position, argument in enumerate(args):
        option, equals, value = argument.partition("=")
        if option == name and equals:
            return value
        if option == name and position + 1 < len(args) and not args[position + 1].startswith("--"):
            return args[position + 1]
    return "VALUE"
