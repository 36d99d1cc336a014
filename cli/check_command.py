"""``paceline check``: searches for a schedule under which a method breaks a guarantee."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from paceline.algorithms.core.errors import InputError
from paceline.checking.defaults import (
    EVERY_ORDER_MOST,
    EVERY_ORDER_STEPS,
    EVERY_ORDER_WORKERS,
    FOLDER,
    SCHEDULES,
    SEED,
    STEPS,
    WORKERS,
)
from paceline.cli.options import EXIT_FAILED, Only, complete_algorithms
from paceline.cli.output import Output


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """The options that are arguments of `paceline.check`."""

    schedules: Annotated[
        int | None,
        typer.Option(
            min=1,
            help=f"Schedules to try for each method; default: {SCHEDULES}, or {EVERY_ORDER_MOST} for each number of "
            "workers with --exhaustive.",
        ),
    ] = None
    seconds: Annotated[
        float | None, typer.Option(min=0.0, help="Time limit for each method, in seconds; default: none.")
    ] = None
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=16,
            help=f"Largest number of workers; default: {WORKERS}, or {EVERY_ORDER_WORKERS} with --exhaustive.",
        ),
    ] = None
    steps: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=100,
            help=f"Steps of a worker, at most; default: {STEPS}, or exactly {EVERY_ORDER_STEPS} with --exhaustive. A "
            "tenth of the schedules has up to twice as many.",
        ),
    ] = None
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random schedules.")] = SEED
    exhaustive: Annotated[
        bool,
        typer.Option(
            "--exhaustive", help="Try every inequivalent order of a small cluster instead of random schedules."
        ),
    ] = False
    deaths: Annotated[
        bool,
        typer.Option(
            "--deaths",
            help="With --exhaustive: in each order, a worker also dies at each of its operations, if the method "
            "promises to survive that.",
        ),
    ] = False
    same_as: Annotated[
        str | None,
        typer.Option(
            metavar="METHOD",
            help="Also compare the weights at the end with those of this method: a name, or your own as file.py:Class. "
            "One that is not deterministic is compared with one worker only.",
            autocompletion=complete_algorithms,
        ),
    ] = None


def check(
    *,
    methods: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="METHOD...",
            help="Names of methods, your own as module:Class or path/to/file.py:Class, or [bold]all[/] for every "
            "built-in one.",
            autocompletion=complete_algorithms,
        ),
    ] = None,
    search: SearchOptions,
    replay: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Run this counterexample again; takes no METHOD. Exit status 0 if the guarantee holds now.",
            dir_okay=False,
        ),
    ] = None,
    out: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            help="Folder for counterexamples: METHOD-GUARANTEE.json and .svg, which replace earlier ones.",
            file_okay=False,
        ),
    ] = Path(FOLDER),
    output: Annotated[Output, Only("as_json", "quiet")],
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
    if replay is not None:
        if methods:
            raise InputError(f"--replay: found {replay} and also {' '.join(methods)}; expected no METHOD with --replay")
        from paceline.checking.counterexamples import load_counterexample
        from paceline.checking.counterexamples import replay as run_again
        from paceline.reports.check_answer import answer_of_replay

        replayed = run_again(load_counterexample(replay))
        output.give(answer_of_replay(replayed))
        if replayed.violation is not None:
            raise typer.Exit(EXIT_FAILED)
        return
    if search.deaths and not search.exhaustive:
        raise InputError("--deaths: found it without --exhaustive; random schedules contain deaths without this option")
    if not methods:
        raise InputError("METHOD: found none, expected the name of a method, your own as file.py:Class, or all")
    from paceline.checking.cases import Violation
    from paceline.reports.check_result import CheckResult
    from paceline.reports.check_result import check as checked

    def report(name: str, violation: Violation) -> None:
        output.note(f"{name}: {violation.guarantee} is violated; now making the schedule smaller: {violation.words}")

    def done(result: CheckResult) -> None:
        for block in result.answer().printed:
            output.row(block)

    with output.progress() as stage:
        results = checked(methods, **asdict(search), out=out, stage=stage, report=report, done=done)
    answer = results.answer()
    output.give(answer, streamed=len(answer.printed))
    if not results.holds:
        raise typer.Exit(EXIT_FAILED)
