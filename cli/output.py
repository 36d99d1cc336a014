"""The output of a command: figures on standard output, everything else on standard error.

With ``--json`` exactly one JSON document is written to standard output, with ``--csv`` one table;
colours and progress bars appear only on terminals.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, RenderableType

from paceline.algorithms.core.errors import InputError, MethodWarning
from paceline.cli.options import RUNS
from paceline.records.document import to_json

if TYPE_CHECKING:
    from paceline.cli.progress import BeginStage
    from paceline.reports.blocks import Answer, Block


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Where and how a command answers, as its options request.

    Raises:
        InputError: both formats are requested.
    """

    report: Annotated[
        bool,
        typer.Option(
            "--report/--no-report",
            envvar="PACELINE_REPORT",
            help="Write a report, one HTML file with charts and tables, or leave it out.",
        ),
    ] = True
    folder: Annotated[
        Path,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Folder for the new folders of runs; nothing in it is overwritten.",
            file_okay=False,
        ),
    ] = RUNS
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")] = False
    as_csv: Annotated[
        bool,
        typer.Option(
            "--csv", help="Print the main table as CSV on standard output, in SI units; not allowed with --json."
        ),
    ] = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the figures: no progress, no notes.")] = False
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Also print where runs are stored, times of collectives, and tracebacks."),
    ] = False
    out: Console = field(default_factory=Console)
    err: Console = field(default_factory=lambda: Console(stderr=True))

    def __post_init__(self) -> None:
        if self.as_json and self.as_csv:
            raise InputError("--csv: found beside --json, expected one of them")

    def make_folder(self) -> None:
        """Makes the folder for records, so that a problem with it is found before anything runs."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryDirectory(prefix=".", dir=self.folder).cleanup()
        except OSError as error:
            problem = f"found {str(self.folder)!r}, where nothing can be written ({error.strerror})"
            raise InputError(f"--out: {problem}; expected a folder for records") from error

    def give(self, answer: Answer, *, streamed: int = 0) -> None:
        """Prints a command's answer, and its notes on standard error.

        Args:
            answer: the answer.
            streamed: the number of its first blocks that `row` has printed already.
        """
        from paceline.reports.text import printed

        if self.as_json:
            write_json(answer.data())
        elif self.as_csv:
            write(answer.csv())
        else:
            for part in printed(answer.printed[streamed:]):
                self.row(part)
        for text in dict.fromkeys(answer.notes):
            self.note(f"note: {text}")

    def row(self, shown: Block | RenderableType) -> None:
        """Prints a part of the answer before the rest is ready; does nothing with ``--json`` and ``--csv``."""
        if self.as_json or self.as_csv:
            return
        if isinstance(shown, str):
            self.out.print(shown, markup=False, highlight=False)
            return
        from paceline.reports.text import rendered

        # nothing is cropped: what is too wide continues on the next line
        self.out.print(rendered(shown), crop=False)

    def end_of_rows(self) -> None:
        """Prints the blank line below a table."""
        self.row("")

    def note(self, text: str) -> None:
        """Prints a note on standard error."""
        if not self.quiet:
            self.err.print(text, markup=False, highlight=False, soft_wrap=True)

    @contextmanager
    def aside(self) -> Iterator[Callable[[int, str], None] | None]:
        """Yields a function that prints lines of ranks, if the output is verbose, and else None.

        Without verbose output the warnings of ranks are hidden during the block, and counted at its end.
        """
        if self.verbose:
            yield lambda rank, line: self.note(f"rank {rank}: {line}")
            return
        shown, count = warnings.showwarning, 0

        def hide(message: Any, category: type[Warning], *place: Any, **more: Any) -> None:
            nonlocal count
            if issubclass(category, MethodWarning):  # of the user's method, before any rank starts
                shown(message, category, *place, **more)
            else:
                count += 1

        # filters that convert warnings to errors still work
        warnings.showwarning = hide
        try:
            yield None
        finally:
            warnings.showwarning = shown
        if count:
            self.note(f"{count} warning{'s' * (count > 1)} of ranks: see logs/ of the runs, or give --verbose")

    @contextmanager
    def progress(self) -> Iterator[BeginStage]:
        """Shows the progress of a long command; yields a function that begins a stage by its name.

        On a terminal each stage, and each run of a stage with several, has a bar. Otherwise a line is printed from
        time to time.
        """
        from paceline.cli.progress import bars, lines, silent

        if self.quiet:
            yield silent
        elif not self.err.is_terminal:
            yield lines(self.note)
        else:
            # rows still go to standard output: above the bars on a terminal, and never to standard error
            with bars(self.err, redirect_stdout=self.out.is_terminal) as begin:
                yield begin


def write_json(document: Mapping[str, Any]) -> None:
    """Writes one JSON document to standard output in any encoding."""
    write(to_json(document, sys.stdout.encoding or "utf-8") + "\n")


def write(text: str) -> None:
    """Writes a text to standard output; a full disk is detected here, not at exit."""
    sys.stdout.write(text)
    sys.stdout.flush()
