"""The parts of a report: sections, which contain charts, timelines, tables, pictures and texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paceline.reports.timeline_data import TimelineData


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A plotly chart.

    Args:
        title: says what one sees.
        words: a sentence below it that says what it means.
        alt: the alternative text, with the main figures.
        variants: the figure of plotly, or several by their label, of which the reader selects one.
        choice: what the reader selects, for a chart with several variants.
        height: pixels.
    """

    title: str
    words: str
    alt: str
    variants: Mapping[str, Any]
    choice: str = ""
    height: int = 380


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The activities of every rank of some runs, of which the reader selects one."""

    title: str
    words: str
    alt: str
    runs: Sequence[TimelineData]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A table; cells of `numeric` columns are aligned to the right.

    Args:
        title: says what the rows are.
        columns: the headers, with units.
        rows: the cells.
        words: a sentence below it.
        numeric: positions of columns of numbers.
        folded: whether the table is hidden until the reader opens it.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: str = ""
    numeric: frozenset[int] = frozenset()
    folded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A drawing as SVG, which Paceline has made itself."""

    title: str
    words: str
    alt: str
    svg: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verbatim:
    """A text of fixed width, such as a scenario."""

    title: str
    text: str
    folded: bool = False


Part = Chart | Timeline | Grid | Picture | Verbatim


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One tab of a report.

    Args:
        id: unique in the report; letters and hyphens.
        title: the label of the tab.
        words: paragraphs at the top.
        parts: charts, tables and so on, in their order.
    """

    id: str
    title: str
    words: Sequence[str] = ()
    parts: Sequence[Part] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A report: a title, a line below it, and its sections."""

    title: str
    subtitle: str
    sections: Sequence[Section] = field(default_factory=tuple)
