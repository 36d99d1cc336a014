"""The base class of results: a table as `repr` and in notebooks, a data frame, a figure and a report.

A result shows the same tables as the command of the same name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from paceline.reports.blocks import Answer


class Result(ABC):
    """What a public function returns."""

    @abstractmethod
    def answer(self) -> Answer:
        """Returns the answer of the command of the same name: tables, claims and charts."""

    @abstractmethod
    def frame(self) -> pd.DataFrame:
        """Returns the figures as a table; names of columns end in their unit."""

    @abstractmethod
    def plot(self) -> Figure:
        """Returns the figures drawn by matplotlib; ``figure.savefig(path)`` writes them."""

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
        from paceline.reports.html import write_report

        return write_report(self._reported(), Path(self._report_name if path is None else path))

    def _reported(self) -> Answer:
        """Returns the answer with the sections that only a report has."""
        return self.answer()

    def __repr__(self) -> str:
        from paceline.reports.text import as_text

        return as_text(self.answer().printed)

    def _repr_html_(self) -> str:
        from paceline.reports.html import html_of

        return html_of(self.answer().printed)
