"""Where a command's words go: figures to standard output, everything else to standard error.

Rules of this file: with ``--json`` exactly one JSON document is written to standard output; colours and progress bars
appear on terminals only.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from paceline.records.store import to_json
from paceline.reports.compare import Report, Stage


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

    def note(self, text: str) -> None:
        """Something good to know beside the answer."""
        if not self.quiet:
            self.err.print(text, markup=False, highlight=False, soft_wrap=True)

    @contextmanager
    def progress(self) -> Iterator[Stage]:
        """Bars for the stages of a long command; each stage is begun by calling what this answers with its name."""
        if self.quiet or not self.err.is_terminal:
            yield lambda _: None
            return
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[now]}"), TimeElapsedColumn())
        with Progress(*columns, console=self.err, transient=True) as bars:

            def begin(stage: str) -> Report:
                for earlier in bars.task_ids:
                    bars.update(earlier, completed=1.0, now="")
                task = bars.add_task(stage, total=1.0, now="")
                return lambda now, done: bars.update(task, completed=done, now=now)

            yield begin


def write_json(document: dict[str, Any]) -> None:
    """One JSON document to standard output, whatever that can show; a full disk is noticed here, not at exit."""
    sys.stdout.write(to_json(document, sys.stdout.encoding or "utf-8") + "\n")
    sys.stdout.flush()
