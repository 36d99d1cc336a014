"""``paceline check``: searches for a schedule under which a method breaks a guarantee."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.algorithms.core.errors import InputError
from paceline.checking.defaults import (
    EVERY_ORDER_MOST,
    EVERY_ORDER_STEPS,
    EVERY_ORDER_WORKERS,
    SCHEDULES,
    STEPS,
    WORKERS,
)
from paceline.cli import completing
from paceline.cli.options import Json, Quiet, output

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from paceline.algorithms.core.method import Method
    from paceline.checking.cases import Checked, Effort, Verdict, Violation
    from paceline.cli.output import Output

EXIT_VIOLATED = 1
ALL = "all"

Methods = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="METHOD...",
        help="Names of methods, your own as module:Class or path/to/file.py:Class, or [bold]all[/] for every built-in "
        "one.",
        show_default=False,
        autocompletion=completing.algorithms,
    ),
]
Schedules = Annotated[
    int | None,
    typer.Option(
        min=1,
        help=f"Schedules to try for each method; default: {SCHEDULES}, or {EVERY_ORDER_MOST} for each number of "
        "workers with --exhaustive.",
        show_default=False,
    ),
]
Seconds = Annotated[
    float | None,
    typer.Option(min=0.0, help="Time limit for each method, in seconds; default: none.", show_default=False),
]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=16,
        help=f"Largest number of workers; default: {WORKERS}, or {EVERY_ORDER_WORKERS} with --exhaustive.",
        show_default=False,
    ),
]
Steps = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=100,
        help=f"Steps of a worker, at most; default: {STEPS}, or exactly {EVERY_ORDER_STEPS} with --exhaustive. A tenth "
        "of the schedules has up to twice as many.",
        show_default=False,
    ),
]
CheckSeed = Annotated[int, typer.Option(min=0, help="Seed of the random schedules.")]
Exhaustive = Annotated[
    bool,
    typer.Option("--exhaustive", help="Try every inequivalent order of a small cluster instead of random schedules."),
]
Deaths = Annotated[
    bool,
    typer.Option(
        "--deaths",
        help="With --exhaustive: in each order, a worker also dies at each of its operations, if the method promises "
        "to survive that.",
    ),
]
SameAs = Annotated[
    str | None,
    typer.Option(
        "--same-as",
        metavar="METHOD",
        help="Also compare the weights at the end with those of this method: a name, or your own as file.py:Class. One "
        "that is not deterministic is compared with one worker only.",
        show_default=False,
        autocompletion=completing.algorithms,
    ),
]
ReplayFile = Annotated[
    Path | None,
    typer.Option(
        "--replay",
        metavar="FILE",
        help="Run this counterexample again; takes no METHOD. Exit status 0 if the guarantee holds now.",
        show_default=False,
        dir_okay=False,
    ),
]
Counterexamples = Annotated[
    Path,
    typer.Option(
        "--out",
        metavar="DIR",
        help="Folder for counterexamples: METHOD-GUARANTEE.json and .svg, which replace earlier ones.",
        file_okay=False,
    ),
]


def check(
    ctx: typer.Context,
    methods: Methods = None,
    schedules: Schedules = None,
    seconds: Seconds = None,
    workers: Workers = None,
    steps: Steps = None,
    seed: CheckSeed = 1,
    exhaustive: Exhaustive = False,
    deaths: Deaths = False,
    same_as: SameAs = None,
    replay: ReplayFile = None,
    out: Counterexamples = Path("counterexamples"),
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Search for a schedule under which a method breaks a guarantee.

    What a method computes may depend on the order in which messages arrive, on the
    speeds of the workers, and on when a run is stopped and resumed. A test sees few
    of these schedules. This command runs the method on a problem of eight weights
    under many: random clusters, orders of messages, speeds, latencies and stops. It
    checks what the method promises in guarantees, and what every method has to
    keep: no deadlock, every message is received, every gradient is applied once at
    most, the same case gives the same result, and more.

    A violation is reduced to the fewest ranks, steps and changes between ranks, told
    as a story, and saved. Exit status: 0 all guarantees hold, 1 one is violated, 2 the
    input is wrong.

    \b
    Examples:
      paceline check sync-easgd2
      paceline check my_method.py:MyMethod --schedules 10000
      paceline check all --seconds 20
      paceline check ssp --exhaustive --workers 2 --steps 2
      paceline check my_method.py:MyMethod --same-as sync-sgd
      paceline check async-sgd --exhaustive --deaths
      paceline check --replay counterexamples/my-method-no-deadlock.json
      python -m pdb -m paceline check --replay my-method-no-deadlock.json
    """
    to = output(ctx, as_json, quiet)
    if replay is not None:
        if methods:
            raise InputError(f"--replay: found {replay} and also {' '.join(methods)}; expected no METHOD with --replay")
        from paceline.cli.counterexample_display import replay_file

        if status := replay_file(replay, to):
            raise typer.Exit(status)
        return
    if deaths and not exhaustive:
        raise InputError("--deaths: found it without --exhaustive; random schedules contain deaths without this option")
    request = Request(
        exhaustive=exhaustive,
        deaths=deaths,
        schedules=schedules,
        seconds=seconds,
        workers=workers,
        steps=steps,
        seed=seed,
        same_as=None if same_as is None else _methods([same_as])[0],
    )
    results = list(_checked(_methods(methods or []), request, out, to))
    to.answer(results[0] if len(results) == 1 else {"results": results}, [])
    if any(one["verdict"] == "violated" for result in results for one in result["guarantees"]):
        raise typer.Exit(EXIT_VIOLATED)


@dataclass(frozen=True, kw_only=True)
class Request:
    """The options of the search."""

    exhaustive: bool
    deaths: bool
    schedules: int | None
    seconds: float | None
    workers: int | None
    steps: int | None
    seed: int
    same_as: Method | None = None

    @property
    def effort(self) -> Effort:
        """How much is tried."""
        from paceline.checking.cases import Effort

        every = self.exhaustive
        return Effort(
            schedules=self.schedules or (EVERY_ORDER_MOST if every else SCHEDULES),
            seconds=self.seconds,
            workers=self.workers or (EVERY_ORDER_WORKERS if every else WORKERS),
            steps=self.steps or (EVERY_ORDER_STEPS if every else STEPS),
            seed=self.seed,
            same_as=self.same_as,
        )


def _methods(names: list[str]) -> list[Method]:
    """Returns the methods with their default hyper-parameters; reports all mistakes together."""
    from paceline.algorithms import METHODS
    from paceline.algorithms.registry import built

    if not names:
        raise InputError("METHOD: found none, expected the name of a method, your own as file.py:Class, or all")
    found: list[Method] = []
    said: list[str] = []
    every = [one for name in names for one in (METHODS if name == ALL else [name])]
    for name in dict.fromkeys(every):
        try:
            found.append(built(name))
        except InputError as error:
            said.append(str(error))
        except Exception as error:  # of any kind: the constructor of a user's method
            said.append(f"method {name!r} cannot be created with its defaults: {type(error).__name__}: {error}")
    if said:
        raise InputError("\n".join(said))
    return found


def _checked(methods: Sequence[Method], request: Request, out: Path, to: Output) -> Iterator[dict[str, Any]]:
    """Checks the methods one after the other, prints what was found, and yields the JSON answers."""
    from paceline.checking.cases import check_method
    from paceline.reports.results.check_result import check_answer

    with to.progress() as begin:
        for method in methods:
            progress = begin(method.name) or _silent

            def report(violation: Violation, name: str = method.name) -> None:
                to.note(
                    f"{name}: {violation.guarantee} is violated; now making the schedule smaller: {violation.words}"
                )

            if request.exhaustive:
                from paceline.checking.cases.all_orders import check_all_orders

                found: Checked = check_all_orders(method, request.effort, progress, report, deaths=request.deaths)
            else:
                found = check_method(method, request.effort, progress, report)
            shown, files = _counterexamples(found, out)
            for part in [*_summary(found), *shown]:
                to.row(part)
            yield check_answer(found, files)


def _silent(_now: str, _done: float) -> None:
    """Receives the progress of a quiet command."""


def _counterexamples(found: Checked, folder: Path) -> tuple[list[RenderableType], dict[str, Path]]:
    """Writes the counterexamples; returns their stories for the terminal, and the files by guarantee."""
    parts: list[RenderableType] = []
    files: dict[str, Path] = {}
    for verdict in found.violated:
        from paceline.cli.counterexample_display import story_parts, write_files

        assert verdict.violation is not None, "that is what violated means"
        story, paths = write_files(verdict.violation, folder, f"{found.method.name}-{verdict.guarantee}")
        files[verdict.guarantee] = paths[0]
        parts += [*story_parts(story, paths), ""]
    return parts, files


def _summary(found: Checked) -> Iterator[RenderableType]:
    from rich.text import Text

    from paceline.reports.plain_table import plain_table

    title = f"{found.method.name}: {found.schedules:,} schedules in {found.seconds:.1f} s"
    table = plain_table(title, first="guarantee")
    table.add_column("verdict")
    table.add_column("schedules", justify="right")
    table.add_column("seconds", justify="right")
    table.add_column("worst value")
    for one in found.verdicts.values():
        style = {"violated": "bold red", "not checked": "dim"}.get(one.verdict, "")
        table.add_row(one.guarantee, Text(one.verdict, style), f"{one.schedules:,}", f"{one.seconds:.1f}", _worst(one))
    yield table
    yield from (Text(f"{one}") for one in getattr(found, "explored", ()))
    yield from (Text(f"worst found by directed search: {measured}") for measured, _ in found.extremes.values())
    yield from map(Text, found.coverage)
    yield ""


def _worst(verdict: Verdict) -> str:
    return "" if verdict.worst is None else str(verdict.worst)
