"""Options of several commands, their completion by the shell, and the hints on options that a command does not have.

* An option of several commands is described once. Options that belong together are the fields of a frozen dataclass,
  `ScenarioOptions` here and `Output` in `output`; a command takes the group as one value, all of it or `Only` a part.
"""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast, get_args, get_origin, get_type_hints

import typer
from rich.markup import escape
from typer.core import TyperCommand

from paceline.algorithms.core.errors import InputError

if TYPE_CHECKING:
    from paceline.records import Run
    from paceline.scenarios import Scenario as ValidScenario

EXIT_FAILED, EXIT_INPUT, EXIT_INTERRUPTED = 1, 2, 130
RUNS = Path("runs")
REPLACED = {"--tensorboard": "--log tensorboard"}
"""options of earlier versions, and what replaced them"""


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
    from paceline.papers.reproduce import PAPERS, claims_named

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
        autocompletion=complete_scenarios,
    )


Scenario = Annotated[str, scenario_argument("SCENARIO")]
RunArgument = Annotated[
    Path,
    typer.Argument(
        metavar="RUN",
        help="A folder that simulate, train or compare has stored, or the run.json in it.",
        autocompletion=complete_stored_runs,
    ),
]
LOGGERS = ("mlflow", "tensorboard", "wandb")
Loggers = Annotated[
    str | None,
    typer.Option(
        "--log",
        metavar="A,B,…",
        help="Log curves and figures of the runs with these: tensorboard (event files in the folders of the runs), "
        "wandb, mlflow (where WANDB_MODE or MLFLOW_TRACKING_URI says, or in --out). Simulated and measured runs have "
        "the same curves, for one chart. Needs paceline\\[wandb] and so on.",
        autocompletion=lambda incomplete: [name for name in LOGGERS if name.startswith(incomplete)],
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(min=1, help="Number of parallel runs; default: one per core. The answer does not depend on it."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioOptions:
    """The options that change a scenario."""

    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="Change a value of the scenario; may be repeated."),
    ] = None
    algorithms: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,…",
            help="Run only these algorithms; those that the scenario lacks get their defaults. Your own methods are "
            "module:Class or path/to/file.py:Class.",
            autocompletion=complete_algorithms,
        ),
    ] = None
    seed: Annotated[int | None, typer.Option(help="The seed, instead of the scenario's.")] = None
    seeds: Annotated[
        int | None,
        typer.Option(min=1, help="Number of seeds, counted up from the first; figures then have 95 % intervals."),
    ] = None
    pace: Annotated[
        bool | None,
        typer.Option(
            "--pace/--no-pace",
            help="Pace each step to the scenario's device time, or run as fast as this machine can; "
            "default: as in the scenario.",
        ),
    ] = None
    network: Annotated[
        Literal["local", "emulated"] | None,
        typer.Option(
            help="The network of real messages: this machine only, or a network of the scenario's links, emulated "
            "between network namespaces (needs root; see docs/emulation.md)."
        ),
    ] = None
    machine: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A machine that [bold]paceline calibrate[/] measured: predict unpaced runs on hosts like it.",
        ),
    ] = None

    def read(self, scenario: str | Mapping[str, Any]) -> ValidScenario:
        """Returns the changed and validated scenario.

        Args:
            scenario: the argument SCENARIO, or a scenario that was read before.

        Raises:
            InputError: the scenario or a change is wrong.
        """
        from paceline.scenarios import load

        return load(scenario, self.all_changes(), algorithms=self.names())

    def all_changes(self) -> list[str]:
        """Returns the changes, including those that have an option of their own."""
        pace = None if self.pace is None else "device" if self.pace else "none"
        own = {
            "seed": self.seed,
            "seeds": self.seeds,
            "train.pace": pace,
            "train.network": self.network,
            "cluster.machine": self.machine,
        }
        return [*(self.changes or ()), *(f"{path}={value}" for path, value in own.items() if value is not None)]

    def names(self) -> list[str] | None:
        """Returns the requested algorithms; None for those of the scenario."""
        if self.algorithms is not None and not split_names(self.algorithms):
            raise InputError(f"--algorithms: found {self.algorithms!r}, expected names such as sync-sgd,async-sgd")
        return None if self.algorithms is None else split_names(self.algorithms)


def given(scenario: str | None, options: Any, **others: Any) -> list[str]:
    """Returns the names of the arguments and options that were given, as a user writes them.

    Args:
        scenario: the argument SCENARIO.
        options: a group of options.
        others: further options, by the name of their parameter.

    >>> given("quickstart", ScenarioOptions(changes=["seed=2"], pace=False), budget=None)
    ['SCENARIO', '--set', '--pace']
    """
    names = {"scenario": "SCENARIO", "changes": "--set"}
    values = {"scenario": scenario, **{field.name: getattr(options, field.name) for field in fields(options)}, **others}
    return [names.get(name, f"--{name}") for name, value in values.items() if value not in (None, [])]


class Only:
    """Says which options of a group a command has, as in ``Annotated[ScenarioOptions, Only("changes", "seed")]``.

    Args:
        names: the names of their fields.
    """

    def __init__(self, *names: str) -> None:
        self.names = names


def with_options_of_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Returns a command as typer needs it: with each option of its groups as a parameter.

    A group is a frozen dataclass whose fields are annotated as typer's parameters are. So an option of several commands
    is described once, and they receive it in one value.

    Args:
        command: a function with parameters of typer, and with groups, all or `Only` some of their options.

    >>> def command(*, steps: int, options: Annotated[ScenarioOptions, Only("seed", "seeds")]) -> None:
    ...     print(steps, options.seed, options.seeds)
    >>> list(inspect.signature(with_options_of_groups(command)).parameters)
    ['steps', 'seed', 'seeds']
    >>> with_options_of_groups(command)(steps=2, seed=7, seeds=None)
    2 7 None
    """
    groups: dict[str, tuple[type, list[str]]] = {}
    parameters = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        group, *marks = get_args(parameter.annotation) or (parameter.annotation,)
        if not is_dataclass(group):
            parameters.append(parameter.replace(kind=parameter.KEYWORD_ONLY))
            continue
        hints = get_type_hints(group, include_extras=True)
        defaults = {each.name: each.default for each in fields(group) if get_origin(hints[each.name]) is Annotated}
        names = [name for mark in marks if isinstance(mark, Only) for name in mark.names] or list(defaults)
        parameters += [
            inspect.Parameter(name, parameter.KEYWORD_ONLY, default=defaults[name], annotation=hints[name])
            for name in names
        ]
        groups[parameter.name] = cast("type", group), names

    @wraps(command)
    def grouping(**values: Any) -> None:
        for name, (group, names) in groups.items():
            values[name] = group(**{each: values.pop(each) for each in names})
        command(**values)

    grouping.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return grouping


def split_names(text: str | None) -> list[str]:
    """Returns the names in ``A,B,…``.

    >>> split_names("sync-sgd, agd"), split_names(None)
    (['sync-sgd', 'agd'], [])
    """
    return [name for part in (text or "").split(",") if (name := part.strip())]


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

    def invoke(self, ctx: Any) -> Any:
        """Runs the command; whoever prints its error knows whether the output is verbose."""
        ctx.meta["verbose"] = ctx.params.get("verbose", False)
        return super().invoke(ctx)

    def hint(self, name: str, args: Sequence[str]) -> str:
        """Returns a suggestion for an unknown option, to follow its name; empty if there is none.

        Args:
            name: the unknown option, with its dashes.
            args: all arguments of the command, for subclasses.
        """
        if name in REPLACED:
            return f"; it is now {REPLACED[name]}"
        from paceline.scenarios.values.key_hints import key_hint

        options = [option.lstrip("-") for each in self.params for option in each.opts if option.startswith("--")]
        key = name.lstrip("-").replace("-", "_")
        hint = key_hint(key, [option.replace("-", "_") for option in options]).replace(f"({key} was", "(it was")
        return re.sub(r"\w+(?=[?)])", lambda right: f"--{right[0].replace('_', '-')}", hint, count=1)


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
