"""The base class of results: a table as `repr` and in notebooks, a data frame, a figure and a report.

A result shows the same tables as the command of the same name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


class Result(ABC):
    """What a public function returns."""

    @abstractmethod
    def _shown(self) -> Iterable[Any]:
        """Returns what is printed: the blocks of the answer."""

    @abstractmethod
    def frame(self) -> pd.DataFrame:
        """Returns the figures as a table; names of columns end in their unit."""

    @abstractmethod
    def plot(self) -> Figure:
        """Returns the figures drawn by matplotlib; ``figure.savefig(path)`` writes them."""

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
            InputError: the file exists and is no report.
        """
        from paceline.reports import html

        return html.write_report(self._report(html), Path(self._report_name if path is None else path))

    def __repr__(self) -> str:
        from paceline.reports.text import as_text

        return as_text(self._shown())

    def _repr_html_(self) -> str:
        from paceline.reports.html.document import html_of

        return html_of(map(_as_block, self._shown()))


def _as_block(part: Any) -> Any:
    """Returns a text or a table of rich as a block."""
    from rich.table import Table as RichTable

    from paceline.reports.blocks import Claim, Column, Table

    if isinstance(part, str):
        return Claim(part)
    if not isinstance(part, RichTable):
        return part
    columns = [Column(" ".join(str(column.header).split())) for column in part.columns]
    rows = zip(*([str(cell) for cell in column.cells] for column in part.columns), strict=True)
    return Table(str(part.title), columns, list(rows))
