"""What the commands of this folder share: options, rounds in turn, processes of their own, tables and JSON documents.

A command is a function from its options to an `Answer`. `run_command` parses the options, runs it, and prints tables or
JSON. The exit status is 1 if a figure missed its limit, 2 for a mistake in the options, 130 after Ctrl-C.

Only ratios of times that were measured in turn, in one run of a command, are comparable: other programs disturb both
sides of such a ratio alike.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from scipy.stats import binom

from paceline.algorithms.core.errors import InputError, PacelineError
from paceline.records.document import to_json
from paceline.records.machine import OtherLoad, machine_facts, package_versions
from paceline.records.metrics import CONFIDENCE

A = TypeVar("A")
K = TypeVar("K")
Cells = Mapping[str, str | Callable[[Any], str]]
"""the columns of a table: a heading, and a format (see `cell`) or a function of the row"""
CORES = len(os.sched_getaffinity(0))
WIDTH = 150
"""columns of tables in a file or a pipe"""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command found.

    Args:
        figures: the JSON document.
        shown: tables and lines.
        right: whether all figures keep their limits.
    """

    figures: dict[str, Any]
    shown: Sequence[RenderableType]
    right: bool = True


def run_command(
    about: str | None,
    body: Callable[[argparse.Namespace], Answer],
    options: Callable[[argparse.ArgumentParser], object],
    arguments: Sequence[str] | None = None,
) -> int:
    """Runs a command and returns its exit status.

    Args:
        about: its help.
        body: returns its answer. It may report a mistake by `InputError`, and another failure by `PacelineError`.
        options: adds its options to a parser that has those of all commands.
        arguments: the command line; default: that of the process.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    options(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--markdown", action="store_true", help="print tables for a page of the documentation")
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write the JSON document to a file")
    given = parser.parse_args(arguments)
    if given.out and not given.out.resolve().parent.is_dir():
        parser.error(f"--out: there is no folder {given.out.resolve().parent}")
    try:
        with OtherLoad() as other:
            answer = body(given)
    except KeyboardInterrupt:
        say("stopped")
        return 130
    except PacelineError as error:
        say(f"error: {error}")
        return 2 if isinstance(error, InputError) else 1
    facts = {"other_load": other.share, "machine": machine_facts(), "versions": package_versions()}
    document = to_json({**facts, **answer.figures})
    if given.out:
        given.out.write_text(document + "\n", encoding="utf-8")
    if given.json:
        print(document)
    else:
        console = Console(width=None if sys.stdout.isatty() else WIDTH)
        for part in answer.shown:
            if given.markdown and isinstance(part, Table):
                part.box, part.title = box.MARKDOWN, None
            console.print(part, highlight=False, markup=False, soft_wrap=isinstance(part, str))
        console.print(f"{CORES} cores; other programs took {other.share:.0%} of them.", highlight=False)
    return 0 if answer.right else 1


def of_groups(groups: Mapping[str, Callable[[argparse.Namespace], Answer]], options: argparse.Namespace) -> Answer:
    """Returns the answers of the groups that the option --only names, as one."""
    answers = {name: groups[name](options) for name in options.only}
    shown = [part for answer in answers.values() for part in answer.shown]
    figures = {name: answer.figures for name, answer in answers.items()}
    return Answer(figures, shown, all(answer.right for answer in answers.values()))


def say(line: str) -> None:
    """Prints a line about progress, or an error."""
    print(line, file=sys.stderr, flush=True)


def names_of(known: Collection[str]) -> Callable[[str], list[str]]:
    """Returns the type of an option whose value is some of these names, with commas between them."""

    def parsed(text: str) -> list[str]:
        names = text.split(",")
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(f"unknown {', '.join(unknown)}; there are {', '.join(known)}")
        return names

    return parsed


def numbers(text: str) -> list[int]:
    """Returns the whole numbers of an option's value, with commas between them."""
    return [int(part) for part in text.split(",")]


def at_least(least: int) -> Callable[[str], int]:
    """Returns the type of an option that is a count."""

    def parsed(text: str) -> int:
        if int(text) < least:
            raise argparse.ArgumentTypeError(f"found {text}, expected {least} or more")
        return int(text)

    return parsed


# --- measuring --------------------------------------------------------------------------------------------------------


def in_turn(ways: Mapping[K, Callable[[], A]], rounds: int, what: str = "") -> dict[K, list[A]]:
    """Runs every way once in each round, which begins with another way than the last one; returns the results of each.

    >>> in_turn({"a": lambda: 1, "b": lambda: 2}, 2)
    {'a': [1, 1], 'b': [2, 2]}
    """
    results: dict[K, list[A]] = {way: [] for way in ways}
    order = list(ways)
    for number in range(rounds):
        for way in order[number % len(order) :] + order[: number % len(order)]:
            results[way].append(ways[way]())
        if what:
            say(f"{what}: round {number + 1} of {rounds}")
    return results


def between(values: Sequence[float]) -> tuple[float, float]:
    """Returns the narrowest pair of order statistics that contains the median with 95 %.

    With too few values it is the range of all of them.

    >>> between([5.0, 1.0, 2.0]), between(list(map(float, range(9))))
    ((1.0, 5.0), (1.0, 7.0))
    """
    ordered, count = sorted(values), len(values)
    inner = [k for k in range((count + 1) // 2) if 1 - 2 * binom.cdf(k, count, 0.5) >= CONFIDENCE]
    cut = max(inner, default=0)
    return ordered[cut], ordered[count - 1 - cut]


def ratio(first: Sequence[float], second: Sequence[float]) -> dict[str, float]:
    """Returns the median over the rounds of second / first, with its 95 % interval (of few rounds the range).

    >>> ratio([1.0, 2.0, 4.0], [2.0, 2.0, 4.0])
    {'ratio': 1.0, 'low': 1.0, 'high': 2.0}
    """
    ratios = [b / a for a, b in zip(first, second, strict=True)]
    low, high = between(ratios)
    return {"ratio": median(ratios), "low": low, "high": high}


def peak_bytes() -> int:
    """Returns the largest resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@dataclass(slots=True)
class Stages:
    """CPU seconds of named pieces of work, and the memory that they added."""

    cpu_s: dict[str, float] = field(default_factory=dict)
    wall_s: float = 0.0
    before_bytes: int = field(default_factory=peak_bytes)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Adds the CPU and wall time of the block."""
        cpu_s, wall_s = time.process_time(), time.monotonic()
        yield
        self.cpu_s[name] = self.cpu_s.get(name, 0.0) + time.process_time() - cpu_s
        self.wall_s += time.monotonic() - wall_s

    @property
    def added_bytes(self) -> int:
        """Largest resident memory beyond that at the beginning."""
        return peak_bytes() - self.before_bytes


def alone(work: Callable[..., A], *arguments: Any) -> A:
    """Runs a function of a module in a new process, whose memory holds nothing else."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, arguments)


# --- showing ----------------------------------------------------------------------------------------------------------


def table(title: str, rows: Iterable[Mapping[str, Any]], cells: Cells) -> Table:
    """Returns rows as a table; columns of numbers are to the right."""
    shown = Table(title=title, title_justify="left", box=None)
    for heading, form in cells.items():
        shown.add_column(heading, justify="left" if isinstance(form, str) and not set("*:") & set(form) else "right")
    for row in rows:
        shown.add_row(*(cell(row, form) if isinstance(form, str) else form(row) for form in cells.values()))
    return shown


def cell(row: Mapping[str, Any], form: str) -> str:
    """Returns a value of a row as text. A form is a key, a factor, and a format, of which the last two may be missing.

    >>> cell({"step_s": 0.0125}, "step_s*1e3:.1f"), cell({"step_s": None}, "step_s*1e3:.1f"), cell({"ok": True}, "ok")
    ('12.5', '–', 'yes')
    """
    name, _, form = form.partition(":")
    key, _, factor = name.partition("*")
    value = row.get(key)
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return format(float(factor) * value if factor else value, form) if factor or form else str(value)
