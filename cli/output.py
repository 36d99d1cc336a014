"""The output of a command: figures on standard output, everything else on standard error.

Rules of this file: with ``--json`` exactly one JSON document is written to standard output; colours and progress bars
appear only on terminals.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType

from paceline.records.document import to_json

if TYPE_CHECKING:
    from paceline.reports.comparison.predict import Report, Stage

LINE_S = 10.0
"""seconds between two progress lines of a stage, if standard error is no terminal"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Standard output and standard error, as the options request."""

    as_json: bool = False
    quiet: bool = False
    verbose: bool = False
    out: Console = field(default_factory=Console)
    err: Console = field(default_factory=lambda: Console(stderr=True))

    def answer(self, document: dict[str, Any], shown: Sequence[RenderableType]) -> None:
        """Prints the command's answer.

        Args:
            document: the answer with ``--json``.
            shown: tables and texts of the answer otherwise.
        """
        if self.as_json:
            write_json(document)
            return
        for part in shown:
            self.out.print(part, markup=False, highlight=False) if isinstance(part, str) else self.out.print(part)

    def row(self, shown: RenderableType) -> None:
        """Prints a part of the answer before the rest is ready; does nothing with ``--json``."""
        if not self.as_json:
            self.out.print(shown)

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

        def hide(*_: Any, **__: Any) -> None:
            nonlocal count
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
    def progress(self) -> Iterator[Stage]:
        """Shows progress bars for the stages of a long command; yields a function that begins a stage by its name.

        If standard error is no terminal, it prints a line from time to time.
        """
        if self.quiet:
            yield lambda _: None
            return
        if not self.err.is_terminal:
            yield self._lines
            return
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[now]}"), TimeElapsedColumn())
        # rows still go to standard output: above the bar on a terminal, and never to standard error
        with Progress(*columns, console=self.err, transient=True, redirect_stdout=self.out.is_terminal) as bars:

            def begin(stage: str) -> Report:
                for earlier in bars.task_ids:
                    bars.update(earlier, completed=1.0, now="")
                task = bars.add_task(stage, total=1.0, now="")
                return lambda now, done: bars.update(task, completed=done, now=now)

            yield begin

    def _lines(self, stage: str) -> Report:
        """Prints the progress of a stage every `LINE_S` seconds."""
        said_s = time.monotonic()

        def report(now: str, done: float) -> None:
            nonlocal said_s
            if time.monotonic() - said_s >= LINE_S:
                said_s = time.monotonic()
                self.note(f"{stage}: {now}, {done:.0%}")

        return report


def write_json(document: dict[str, Any]) -> None:
    """Writes one JSON document to standard output in any encoding; a full disk is detected here, not at exit."""
    sys.stdout.write(to_json(document, sys.stdout.encoding or "utf-8") + "\n")
    sys.stdout.flush()
