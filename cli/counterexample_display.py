"""Prints counterexamples: the story, the sequence diagram and the files, for `paceline check`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from paceline.cli.output import Output

if TYPE_CHECKING:
    from paceline.checking.cases import Violation
    from paceline.checking.counterexamples import Replayed, Story

KEPT, VIOLATED = 0, 1
"""exit status of a replay"""


def write_files(violation: Violation, folder: Path, name: str) -> tuple[Story, tuple[Path, ...]]:
    """Writes the counterexample ``NAME.json`` and its diagram ``NAME.svg``.

    Args:
        violation: the violated guarantee and its case, which is run once.
        folder: the folder, which is created.
        name: of both files.

    Returns:
        The story, and both paths.
    """
    from paceline.algorithms.core.files import write_whole
    from paceline.checking.counterexamples import save, svg_diagram

    path = folder / f"{name}.json"
    story = save(violation, path)
    picture = path.with_suffix(".svg")
    write_whole(picture, svg_diagram(story))
    return story, (path, picture)


def story_parts(story: Story, files: Sequence[Path] = ()) -> list[RenderableType]:
    """Returns what a terminal shows of a story: sentences, diagram, values and files.

    Args:
        story: the story.
        files: the files that contain it; the first one can be replayed.
    """
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
    title = Text(f"{story.method} violates ", style="bold")
    return title.append(story.guarantee, style="bold red").append(f": {story.first_words}", style="not bold")


def _sentences(story: Story) -> Table:
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


def replay_file(path: Path, shown: Output) -> int:
    """Runs a counterexample again, in this process, and prints what happens.

    The JSON answer is ``{"path", "guarantee", "violated", "same", "words", "changed", "others", "story"}``.

    Args:
        path: the file.
        shown: where the answer is printed.

    Returns:
        The exit status: 1 if the same guarantee is violated again, else 0.

    Raises:
        InputError: the file is no counterexample, or damaged.
    """
    from paceline.checking.counterexamples import load_counterexample, replay

    replayed = replay(load_counterexample(path))
    parts: list[RenderableType] = [] if replayed.story is None else [*story_parts(replayed.story), ""]
    shown.answer(_answer(path, replayed), [*parts, Text(replayed.words)])
    return KEPT if replayed.violation is None else VIOLATED


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
