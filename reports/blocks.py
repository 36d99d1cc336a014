"""Answers of commands, as values: an answer is a tuple of blocks, which renderers turn into text, HTML and pictures;
the JSON document of an answer is its `data`.

* A command chooses figures and rows. It formats no number: a cell holds a value, and its column holds the unit.
* A chart is described once, by its axes and series; the report and picture files draw the same description.
* This file imports nothing that takes time to import.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from paceline.records.figures import MISSING, PLAIN, Figure, Unit, number, signed_percent, significant, written

if TYPE_CHECKING:
    from paceline.reports.timeline_data import TimelineData

Tone = Literal["plain", "good", "fair", "bad", "faint", "strong"]
"""the meaning of a colour; renderers choose the colour"""


@dataclass(frozen=True, slots=True)
class Claim:
    """A paragraph of an answer, in words.

    Args:
        text: sentences; commands in backquotes are code.
        title: a heading above it; empty: none.
        verbatim: whether line breaks and spaces are kept, as in a scenario; a report then shows it in a fixed width.
        folded: whether a report shows only the title until the reader opens it.
    """

    text: str
    title: str = ""
    verbatim: bool = False
    folded: bool = False


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Args:
        title: its header.
        unit: the unit of its numbers, also written below the header; None: the cells are text.
        digits: significant digits of its numbers; None: those of the unit.
        signed: whether its numbers are relative differences, written in per cent with their signs.
        code: the name of the column in data frames and CSV files; by default the title.

    >>> from paceline.records.figures import STEP_TIME
    >>> column = Column.of(STEP_TIME)
    >>> column.title, column.symbol, column.code
    ('step', 'ms', 'step_s_mean')
    """

    title: str
    unit: Unit | None = None
    digits: int | None = None
    signed: bool = False
    code: str = ""

    @staticmethod
    def of(figure: Figure) -> Column:
        """Returns the column of a figure."""
        return Column(figure.header, figure.unit, figure.digits, code=figure.column)

    @property
    def numeric(self) -> bool:
        """Whether its cells are numbers, which are aligned to the right and never broken."""
        return self.unit is not None or self.signed

    @property
    def symbol(self) -> str:
        """The symbol below the header."""
        return self.unit.in_header if self.unit is not None else "%" if self.signed else ""


@dataclass(frozen=True, slots=True)
class TableCell:
    """A cell that says more than a value.

    Args:
        value: a number, an interval ``{mean, low, high}`` over seeds, a text, or None.
        unit: the unit, where it is not that of the column.
        digits: the digits, where they are not those of the column.
        low: the lower end of a range that is written below the value, such as that of similar predictions.
        high: its upper end.
        words: a text in place of a missing value, such as "3 of 5".
        tone: the meaning of its colour.
    """

    value: Any
    unit: Unit | None = None
    digits: int | None = None
    low: float | None = None
    high: float | None = None
    words: str = ""
    tone: Tone = "plain"


Row = Sequence[Any]
"""cells of a row: `TableCell`, numbers, intervals ``{mean, low, high}``, texts, or None"""


@dataclass(frozen=True, slots=True)
class Table:
    """A table.

    Args:
        title: what it shows.
        columns: its columns.
        rows: its rows, each with a cell for every column.
        keys: number of leading columns that identify a row; they are repeated where a table is continued.
        words: a sentence below it.
        folded: whether a report shows only the title until the reader opens it.
        tones: the tones of whole rows, by number.
    """

    title: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    keys: int = 1
    words: str = ""
    folded: bool = False
    tones: Mapping[int, Tone] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"{self.title}: found a row of {len(row)} cells, expected {len(self.columns)}")

    def text(self, row: int, column: int) -> str:
        """Returns the text of a cell; half of an interval and a range are on lines of their own.

        >>> from paceline.records.figures import STEP_TIME
        >>> cells = ("easgd", TableCell(0.0467, low=0.04, high=0.05))
        >>> table = Table("Runs", [Column("name"), Column.of(STEP_TIME)], [cells])
        >>> table.text(0, 0), table.text(0, 1)
        ('easgd', '46.7\\n40–50')
        """
        return text_of(self.rows[row][column], self.columns[column])

    def frame(self) -> Any:
        """Returns the values as a `pandas.DataFrame`, in SI units; an interval has two further columns for its ends."""
        import pandas as pd

        made: dict[str, list[Any]] = {}
        for at, column in enumerate(self.columns):
            name, values = column.code or column.title, [plain(row[at]) for row in self.rows]
            made[name] = [number(value) for value in values]
            if any(isinstance(value, Mapping) for value in values):
                for end in ("low", "high"):
                    made[f"{name}_{end}"] = [value[end] if isinstance(value, Mapping) else None for value in values]
        return pd.DataFrame(made)


def text_of(content: Any, column: Column) -> str:
    """Returns the text of a cell under a column.

    Args:
        content: the cell.
        column: its column.
    """
    cell = content if isinstance(content, TableCell) else TableCell(content)
    if cell.words:
        return cell.words
    if cell.value is None or isinstance(cell.value, str):
        return MISSING if cell.value is None else cell.value
    if isinstance(cell.value, bool):
        return "yes" if cell.value else "no"
    unit, digits = cell.unit or column.unit, column.digits if cell.digits is None else cell.digits
    if column.signed:
        half = "" if not isinstance(cell.value, Mapping) else f"\n±{50 * (cell.value['high'] - cell.value['low']):.1f}"
        return signed_percent(number(cell.value)) + half
    if unit is None:
        return significant(cell.value, digits or PLAIN.digits) if isinstance(cell.value, float) else str(cell.value)
    text = written(cell.value, unit, digits, between="\n")
    if cell.low is None or cell.high is None:
        return text
    return f"{text}\n{unit.text(cell.low, digits)}–{unit.text(cell.high, digits)}"


def plain(content: Any) -> Any:
    """Returns the value of a cell: a number, an interval, a text or None."""
    return content.value if isinstance(content, TableCell) else content


Scale = Literal["linear", "log", "category", "nines"]
"""of an axis; nines: the distance from 0 to 90 % is that from 90 to 99 %"""


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of a plot.

    Args:
        title: what it shows.
        unit: the unit of its values; None: they are texts or plain numbers.
        scale: how values are placed.
        zero: whether the axis begins at 0; not for a logarithmic one.
        ticks: the values that have a tick; None: the renderer chooses.

    >>> from paceline.records.figures import STEP_TIME
    >>> Axis.of(STEP_TIME).label
    'step time, ms'
    """

    title: str
    unit: Unit | None = None
    scale: Scale = "linear"
    zero: bool = True
    ticks: Sequence[Any] | None = None

    @staticmethod
    def of(figure: Figure, scale: Scale = "linear") -> Axis:
        """Returns the axis of a figure."""
        return Axis(figure.label, figure.unit, scale)

    @property
    def label(self) -> str:
        """The title with the unit."""
        return f"{self.title}, {self.unit.axis}" if self.unit is not None and self.unit.axis else self.title


Mark = Literal["line", "points", "bar", "step"]


@dataclass(frozen=True, slots=True)
class Series:
    """A line, a set of points or a set of bars.

    Args:
        name: its entry in the legend; series of one name share the entry.
        x: positions: numbers in SI units, or texts.
        y: values, numbers in SI units, or texts for horizontal bars; None or NaN where there is none.
        mark: how it is drawn.
        colour: series of the same colour key have the same colour; by default each name has its own. An activity of a
            rank has its own colour everywhere, and "faint" is that of lines to compare with.
        low: lower ends of a band around a line, or of error bars of points and bars.
        high: upper ends.
        style: solid, dashed, dotted or broad: a simulated line is dashed on a broad measured one; points are then large
            and open, and bars hatched.
        symbol: series of the same key have the same symbol at their points; by default the colour key.
        texts: what a reader sees when pointing at a value, in addition to the value.
        labels: what is written beside the values.
        legend: whether it has an entry in the legend.
    """

    name: str
    x: Sequence[Any]
    y: Sequence[Any]
    mark: Mark = "line"
    colour: str = ""
    low: Sequence[float | None] | None = None
    high: Sequence[float | None] | None = None
    style: Literal["solid", "dashed", "dotted", "broad"] = "solid"
    symbol: str = ""
    texts: Sequence[str] | None = None
    labels: Sequence[str] | None = None
    legend: bool = True

    @property
    def colour_key(self) -> str:
        """Decides its colour."""
        return self.colour or self.name


@dataclass(frozen=True, slots=True)
class Plot:
    """Axes with series.

    Args:
        x: the horizontal axis.
        y: the vertical axis.
        series: what is drawn, the first behind the others.
        stacked: whether bars at one position are stacked instead of beside each other.
        horizontal: whether bars are horizontal: their values are `x`, and `y` are the names of rows.
        colours: colour keys in the order of their colours; by default that of the series.
    """

    x: Axis
    y: Axis
    series: Sequence[Series]
    stacked: bool = False
    horizontal: bool = False
    colours: Sequence[str] = ()

    @property
    def colour_keys(self) -> list[str]:
        """The colour keys in the order of their colours."""
        return list(dict.fromkeys((*self.colours, *(series.colour_key for series in self.series))))


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart, of which the reader of a report may choose among several plots.

    Args:
        title: what it shows.
        words: how to read it.
        alt: its content for readers who cannot see it.
        plots: the plots by the name of the choice; a single one has an empty name.
        choice: what is chosen, such as "Horizontal axis".
        height: of the chart in a report, in pixels; 0: the renderer chooses by the number of bars.
    """

    title: str
    words: str
    alt: str
    plots: Mapping[str, Plot]
    choice: str = ""
    height: int = 0


@dataclass(frozen=True, slots=True)
class Timeline:
    """The activities of every rank of some runs against time, of which the reader selects one.

    Args:
        title: what it shows.
        words: how to read it.
        alt: its content for readers who cannot see it.
        runs: the data of each run.
    """

    title: str
    words: str
    alt: str
    runs: Sequence[TimelineData]


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawing as SVG that Paceline has made itself: a cluster, or the messages of a counterexample.

    Args:
        title: what it shows.
        words: how to read it.
        alt: its content for readers who cannot see it.
        svg: the drawing.
        text: the same in characters, 80 in a line at most, for terminals and notebooks; empty: they leave it out.
    """

    title: str
    words: str
    alt: str
    svg: str
    text: str = ""


Block = Claim | Table | Chart | Timeline | Picture


@dataclass(frozen=True, slots=True)
class ReportSection:
    """One tab of a report.

    Args:
        id: its name in links, letters and hyphens.
        title: its title.
        blocks: its content.
    """

    id: str
    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command found.

    Args:
        title: what was asked, with the name of the scenario.
        blocks: what the terminal prints, and the first section of a report begins with.
        data: the document that ``--json`` prints; made when it is asked for.
        subtitle: a line below the title of a report.
        sections: further sections of a report, made when a report is written.
        summary: further blocks of the first section of a report, which the terminal does not print.
        notes: what a reader should know beside the answer, such as warnings; a terminal prints them on standard error.
        parts: blocks that a terminal prints below the others; a report has a tab for each part.
    """

    title: str
    blocks: Sequence[Block]
    data: Callable[[], Mapping[str, Any]] = dict
    subtitle: str = ""
    sections: Callable[[], Sequence[ReportSection]] = tuple
    summary: Callable[[], Sequence[Block]] = tuple
    notes: Sequence[str] = ()
    parts: Sequence[ReportSection] = ()

    @property
    def printed(self) -> list[Block]:
        """What a terminal and a notebook print: its blocks, then those of its parts."""
        return [*self.blocks, *(block for part in self.parts for block in part.blocks)]

    def whole(self) -> list[ReportSection]:
        """Returns all sections of its report; the summary is first, and begins with what was found."""
        claims = [block for block in self.blocks if isinstance(block, Claim)]
        others = [block for block in self.blocks if not isinstance(block, Claim)]
        summary = [*claims, *others, *map(Claim, self.notes), *self.summary()]
        return [ReportSection("summary", "Summary", summary), *self.parts, *self.sections()]

    @property
    def tables(self) -> list[Table]:
        """Its tables."""
        return [block for block in self.blocks if isinstance(block, Table)]

    def csv(self) -> str:
        """Returns its main table, the first one, as CSV, with the values and names of columns of `Table.frame`.

        >>> from paceline.records.figures import STEP_TIME
        >>> table = Table("Runs", [Column("algorithm"), Column.of(STEP_TIME)], [("easgd", 0.0467)])
        >>> print(Answer("Runs", [table]).csv(), end="")
        algorithm,step_s_mean
        easgd,0.0467
        """
        table: str = self.tables[0].frame().to_csv(index=False, lineterminator="\n") if self.tables else ""
        return table

    @property
    def words(self) -> str:
        """Its claims, one below the other."""
        return "\n".join(block.text for block in self.blocks if isinstance(block, Claim))
