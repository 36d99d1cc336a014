"""The base class of results: a table as `repr` and in notebooks, a data frame, a figure and a report.

A result shows the same tables as the command of the same name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from html import escape
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.algorithms.core.errors import InputError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from rich.table import Table

    from paceline.reports.blocks import Table as BlockTable

HTML_REPORTS = "paceline.reports.html"


class Result(ABC):
    """What a public function returns."""

    @abstractmethod
    def frame(self) -> pd.DataFrame:
        """Returns the figures as a table; names of columns end in their unit."""

    @abstractmethod
    def plot(self) -> Figure:
        """Returns the figures drawn by matplotlib; ``figure.savefig(path)`` writes them."""

    @abstractmethod
    def _shown(self) -> Iterable[Any]:
        """Returns what is printed: tables and paragraphs."""

    @abstractmethod
    def _report(self, html: Any) -> Any:
        """Returns the report, made by the package `paceline.reports.html`."""

    @property
    @abstractmethod
    def _report_name(self) -> str:
        """The name of the report's file if none is given."""

    def report(self, path: str | Path | None = None) -> Path:
        """Writes the report, one HTML file that opens without a network.

        Args:
            path: the file; None: a name in the current folder. Only an earlier report is replaced.

        Returns:
            The file.

        Raises:
            InputError: the file exists and is no report, or this installation has no reports.
        """
        if find_spec(HTML_REPORTS) is None:
            raise InputError(f"report: found no package {HTML_REPORTS} in this installation of Paceline")
        html = import_module(HTML_REPORTS)
        written: Path = html.write_report(self._report(html), Path(self._report_name if path is None else path))
        return written

    def __repr__(self) -> str:
        from paceline.reports.text import as_text

        return as_text(self._shown())

    def _repr_html_(self) -> str:
        return "\n".join(f"<p>{escape(part)}</p>" if isinstance(part, str) else as_html(part) for part in self._shown())


def as_html(table: Table | BlockTable) -> str:
    """Returns a table as an HTML table; the first column is text, the others are numbers.

    Args:
        table: a table of blocks, or of rich.

    >>> from rich.table import Table
    >>> table = Table("name", "time (s)", title="A & B")
    >>> table.add_row("a", "1.5")
    >>> print(as_html(table))
    <table><caption>A &amp; B</caption>
    <tr><th>name</th><th>time (s)</th></tr>
    <tr><td>a</td><td>1.5</td></tr>
    </table>
    """
    from paceline.reports.blocks import Table as BlockTable

    rows: Iterable[Iterable[Any]]
    if isinstance(table, BlockTable):
        names = [f"{one.title}, {one.symbol}" if one.symbol else one.title for one in table.columns]
        rows = [[table.text(row, at) for at in range(len(names))] for row in range(len(table.rows))]
    else:
        names = [_plain(column.header) for column in table.columns]
        rows = zip(*(map(_plain, column.cells) for column in table.columns), strict=True)
    title = f"<caption>{escape(_plain(table.title))}</caption>" if table.title else ""
    head = "".join(f"<th>{_cell(name)}</th>" for name in names)
    body = [f"<tr>{''.join(f'<td>{_cell(cell)}</td>' for cell in row)}</tr>" for row in rows]
    return "\n".join([f"<table>{title}", f"<tr>{head}</tr>", *body, "</table>"])


def _cell(text: str) -> str:
    return escape(text).replace("\n", "<br>")


def _plain(content: Any) -> str:
    from rich.text import Text

    return content.plain if isinstance(content, Text) else Text.from_markup(str(content)).plain
