"""Where a command's words go: figures to standard output, everything else to standard error.

Rules of this file: with ``--json`` exactly one JSON document is written to standard output; colours and progress bars
appear on terminals only.
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
    from paceline.reports.comparison.compare import Report, Stage

LINE_S = 10.0
"""how often a stage says how far it is, where there is no terminal to show it on"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Standard output and standard error, as the options ask for them."""

    as_json: bool = False
    quiet: bool = False
    verbose: bool = False
    out: Console = field(default_factory=Console)
    err: Console = field(default_factory=lambda: Console(stderr=True))

    def answer(self, document: dict[str, Any], shown: Sequence[RenderableType]) -> None:
        """The command's answer: as one JSON document, or as a person likes to read it."""
        if self.as_json:
            write_json(document)
            return
        for part in shown:
            self.out.print(part, markup=False, highlight=False) if isinstance(part, str) else self.out.print(part)

    def row(self, shown: RenderableType) -> None:
        """A part of the answer that is ready before the rest; a JSON answer is one document at the end."""
        if not self.as_json:
            self.out.print(shown)

    def end_of_rows(self) -> None:
        """The blank line below a table."""
        self.row("")

    def note(self, text: str) -> None:
        """Something good to know beside the answer."""
        if not self.quiet:
            self.err.print(text, markup=False, highlight=False, soft_wrap=True)

    @contextmanager
    def aside(self) -> Iterator[Callable[[int, str], None] | None]:
        """What takes the lines that ranks write, where they are to be seen: only if the user wants to see everything.

        Without that, warnings of ranks are not shown either while this lasts; how many there were is said at its end.
        """
        if self.verbose:
            yield lambda rank, line: self.note(f"rank {rank}: {line}")
            return
        shown, count = warnings.showwarning, 0

        def hide(*_: Any, **__: Any) -> None:
            nonlocal count
            count += 1

        # a filter that makes errors of warnings still does
        warnings.showwarning = hide
        try:
            yield None
        finally:
            warnings.showwarning = shown
        if count:
            self.note(f"{count} warning{'s' * (count > 1)} of ranks: see logs/ of the runs, or give --verbose")

    @contextmanager
    def progress(self) -> Iterator[Stage]:
        """Bars for the stages of a long command; each stage is begun by calling what this answers with its name.

        Where standard error is no terminal, a line now and then.
        """
        if self.quiet:
            yield lambda _: None
            return
        if not self.err.is_terminal:
            yield self._lines
            return
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[now]}"), TimeElapsedColumn())
        # rows go to standard output meanwhile: above the bar on a terminal, and never to standard error instead
        with Progress(*columns, console=self.err, transient=True, redirect_stdout=self.out.is_terminal) as bars:

            def begin(stage: str) -> Report:
                for earlier in bars.task_ids:
                    bars.update(earlier, completed=1.0, now="")
                task = bars.add_task(stage, total=1.0, now="")
                return lambda now, done: bars.update(task, completed=done, now=now)

            yield begin

    def _lines(self, stage: str) -> Report:
        """Says how far a stage is, every `LINE_S` seconds."""
        said_s = time.monotonic()

        def report(now: str, done: float) -> None:
            nonlocal said_s
            if time.monotonic() - said_s >= LINE_S:
                said_s = time.monotonic()
                self.note(f"{stage}: {now}, {done:.0%}")

        return report


def write_json(document: dict[str, Any]) -> None:
    """One JSON document to standard output, whatever that can show; a full disk is noticed here, not at exit."""
    sys.stdout.write(to_json(document, sys.stdout.encoding or "utf-8") + "\n")
    sys.stdout.flush()
