"""``paceline check``: searches for a schedule under which a method breaks a guarantee."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
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
from paceline.cli.options import Json, Quiet, complete_algorithms, output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

    from paceline.checking.cases import Checked, Violation
    from paceline.checking.counterexamples import Replayed, Story
    from paceline.cli.output import Output

EXIT_VIOLATED = 1

Methods = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="METHOD...",
        help="Names of methods, your own as module:Class or path/to/file.py:Class, or [bold]all[/] for every built-in "
        "one.",
        show_default=False,
        autocompletion=complete_algorithms,
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
        autocompletion=complete_algorithms,
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
        if replay_file(replay, to):
            raise typer.Exit(EXIT_VIOLATED)
        return
    if deaths and not exhaustive:
        raise InputError("--deaths: found it without --exhaustive; random schedules contain deaths without this option")
    if not methods:
        raise InputError("METHOD: found none, expected the name of a method, your own as file.py:Class, or all")
    from paceline.reports.blocks import Answer
    from paceline.reports.check_result import blocks_of_method, check_document, methods_of, remarks
    from paceline.reports.check_result import check as checked

    compared = None if same_as is None else methods_of(same_as)[0]
    answers: list[dict[str, Any]] = []
    with to.progress() as begin:
        for method in methods_of(methods):
            (found,) = checked(
                method,
                schedules=schedules,
                seconds=seconds,
                workers=workers,
                steps=steps,
                seed=seed,
                exhaustive=exhaustive,
                deaths=deaths,
                same_as=compared,
                progress=begin(method.name) or (lambda *_: None),
                report=partial(_say_violation, method.name, to),
            )
            shown, files = _counterexamples(found, out)
            answers.append(check_document(found, files))
            for part in [*blocks_of_method(answers[-1], method.name, remarks(found)), "", *shown]:
                to.row(part)
    document = answers[0] if len(answers) == 1 else {"results": answers}
    to.give(Answer("Guarantees", (), lambda: document))
    if any(guarantee["verdict"] == "violated" for answer in answers for guarantee in answer["guarantees"]):
        raise typer.Exit(EXIT_VIOLATED)


def _say_violation(name: str, to: Output, violation: Violation) -> None:
    to.note(f"{name}: {violation.guarantee} is violated; now making the schedule smaller: {violation.words}")


def _counterexamples(found: Checked, folder: Path) -> tuple[list[RenderableType], dict[str, Path]]:
    """Writes the counterexamples; returns their stories for the terminal, and the files by guarantee."""
    from paceline.reports.check_result import write_files

    parts: list[RenderableType] = []
    files: dict[str, Path] = {}
    for verdict in found.violated:
        assert verdict.violation is not None, "that is what violated means"
        story, paths = write_files(verdict.violation, folder, f"{found.method.name}-{verdict.guarantee}")
        files[verdict.guarantee] = paths[0]
        parts += [*story_parts(story, paths), ""]
    return parts, files


def story_parts(story: Story, files: Sequence[Path] = ()) -> list[RenderableType]:
    """Returns what a terminal shows of a story: sentences, diagram, values and files.

    Args:
        story: the story.
        files: the files that contain it; the first one can be replayed.
    """
    from rich.text import Text

    from paceline.checking.counterexamples import text_diagram

    parts: list[RenderableType] = [_title(story), Text(story.setting), "", _sentences(story), ""]
    parts.append(Text(text_diagram(story), no_wrap=True, overflow="crop"))
    if story.differences:
        parts += ["", Text("Values", style="bold"), *(Text(f"  {one.text}") for one in story.differences)]
    if files:
        parts += ["", Text(f"written to {', '.join(map(str, files))}; run it again with:")]
        parts.append(Text(f"  paceline check --replay {files[0]}", no_wrap=True))
    return parts


def _title(story: Story) -> Text:
    from rich.text import Text

    title = Text(f"{story.method} violates ", style="bold")
    return title.append(story.guarantee, style="bold red").append(f": {story.first_words}", style="not bold")


def _sentences(story: Story) -> Table:
    from rich.table import Table
    from rich.text import Text

    timed = any(sentence.time_s is not None for sentence in story.sentences)
    table = Table(box=None, pad_edge=False, padding=(0, 1), show_header=False)
    table.add_column(justify="right", style="dim", no_wrap=True)
    if timed:
        table.add_column(justify="right", style="dim", no_wrap=True)
    table.add_column(ratio=1, overflow="fold")
    table.add_column(style="dim", overflow="fold")
    for sentence in story.sentences:
        words = Text(f"{sentence.subject}: ").append(
            sentence.words, style="red" if sentence.label.startswith("✗") else ""
        )
        times = ["" if sentence.time_s is None else f"{sentence.time_s:g} s"] * timed
        table.add_row(f"{sentence.number}.", *times, words, Text(sentence.line))
        if story.left_out and sentence.number == story.left_out_after:
            table.add_row("", *[""] * timed, Text(story.gap, style="dim"), "")
    return table


def replay_file(path: Path, shown: Output) -> bool:
    """Runs a counterexample again, in this process, and prints what happens.

    The JSON answer is ``{"path", "guarantee", "violated", "same", "words", "changed", "others", "story"}``.

    Args:
        path: the file.
        shown: where the answer is printed.

    Returns:
        Whether a guarantee is violated again.

    Raises:
        InputError: the file is no counterexample, or damaged.
    """
    from paceline.checking.counterexamples import load_counterexample, replay
    from paceline.reports.blocks import Answer, Claim

    replayed = replay(load_counterexample(path))
    for part in [] if replayed.story is None else [*story_parts(replayed.story), ""]:
        shown.row(part)
    shown.give(Answer(replayed.words, [Claim(replayed.words)], lambda: _answer(path, replayed)))
    return replayed.violation is not None


def _answer(path: Path, replayed: Replayed) -> dict[str, Any]:
    return {
        "path": str(path),
        "guarantee": replayed.counterexample.violation.guarantee,
        "violated": replayed.violation is not None,
        "same": replayed.same,
        "words": replayed.words,
        "changed": list(replayed.changed),
        "others": [{"guarantee": other.guarantee, "words": other.words} for other in replayed.others],
        "story": None if replayed.story is None else asdict(replayed.story),
    }
