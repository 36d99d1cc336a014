"""The output of a command: figures on standard output, everything else on standard error.

Rules of this file: with ``--json`` exactly one JSON document is written to standard output, with ``--csv`` one table;
colours and progress bars appear only on terminals.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType

from paceline.records.document import to_json

if TYPE_CHECKING:
    from paceline.cli.progress import BeginStage
    from paceline.reports.blocks import Answer, Block


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Standard output and standard error, as the options request."""

    as_json: bool = False
    as_csv: bool = False
    quiet: bool = False
    verbose: bool = False
    out: Console = field(default_factory=Console)
    err: Console = field(default_factory=lambda: Console(stderr=True))

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
            for part in printed(answer.blocks[streamed:]):
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
