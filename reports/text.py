"""Renders blocks as text for a terminal, a log or the `repr` of a result.

* No digit, column or name is cut. Columns that do not fit the width continue in a second table, in which the columns
  that identify a row are repeated; long names and sentences continue on the next line.
* Charts and timelines need a report, so they are not printed; pictures only if they have a text.
"""

from __future__ import annotations

import io
import itertools
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table as RichTable
from rich.text import Text

from paceline.reports.blocks import Block, Chart, Claim, Column, Picture, Row, Table, TableCell, Timeline, text_of

STYLES = {"plain": "", "good": "green", "fair": "yellow", "bad": "red", "faint": "dim", "strong": "bold"}
"""the style of each tone"""
NARROWEST = 24
"""characters to which a column of text is narrowed before columns continue in a second table; provenance: ours"""
REPR_WIDTH = 120
"""characters of a line in the `repr` of a result"""


def printed(blocks: Iterable[Block | RenderableType]) -> Iterator[RenderableType]:
    """Yields what a terminal shows of blocks: tables, claims as text, and pictures in characters.

    Args:
        blocks: the blocks of an answer.
    """
    for block in blocks:
        if not isinstance(block, Chart | Timeline) and (not isinstance(block, Picture) or block.text):
            yield rendered(block)


def rendered(block: Block | RenderableType) -> RenderableType:
    """Returns what a terminal shows of a table, a claim or a picture; what is no block stays as it is."""
    if isinstance(block, Table):
        return TableView(block)
    if isinstance(block, Picture):
        block = Claim(block.text, block.title, verbatim=True)
    if isinstance(block, Claim):
        text = Text(block.text, no_wrap=block.verbatim, overflow="fold")
        return Group(heading(block.title), text, Text()) if block.title else text
    assert not isinstance(block, Chart | Timeline), "a terminal shows no charts"
    return block


def as_text(blocks: Iterable[Block | RenderableType], width: int = REPR_WIDTH) -> str:
    """Returns blocks as plain text.

    Args:
        blocks: the blocks of an answer.
        width: characters of a line.

    >>> from paceline.records.figures import STEP_TIME
    >>> print(as_text([Table("Runs", [Column("algorithm"), Column.of(STEP_TIME)], [("easgd", 0.0467)])]))
    Runs
               step
    algorithm    ms
    ───────────────
    easgd      46.7
    """
    file = io.StringIO()
    console = Console(file=file, width=width, color_system=None, highlight=False, markup=False, emoji=False)
    for part in printed(blocks):
        console.print(part, crop=False)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()).strip("\n")


@dataclass(frozen=True, slots=True)
class TableView:
    """A table that arranges its columns for the width of the console."""

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yields the table, and below it the columns that do not fit beside the others."""
        table = self.table
        gap, parts = arranged(table, options.max_width)
        for number, (columns, widths) in enumerate(parts):
            yield heading(table.title + ", continued" * (number > 0))
            made = empty(table, columns, widths, gap)
            for at in range(len(table.rows)):
                made.add_row(*cells(table, at, columns, widths), style=STYLES[table.tones.get(at, "plain")])
            wide = max(options.max_width, sum(widths) + gap * len(widths))
            yield from console.render(made, options.update(width=wide))
            yield Text()
        if table.words:
            yield Text(f"{table.words}\n")


def arranged(table: Table, width: int) -> tuple[int, list[tuple[list[int], list[int]]]]:
    """Returns the space between columns, and the columns of each part of a table with their widths, in characters.

    Two spaces are between columns, or one if all columns then fit.

    Args:
        table: the table.
        width: characters of a line.

    >>> table = Table("Names", [Column("name"), Column("a"), Column("b")], [("x" * 10, "y" * 30, "z" * 30)])
    >>> arranged(table, 80), arranged(table, 40)
    ((2, [([0, 1, 2], [10, 30, 30])]), (1, [([0, 1], [10, 29]), ([0, 2], [10, 29])]))
    """
    natural = [natural_width(table, at) for at in range(len(table.columns))]
    gap = 2 if sum(natural) + 2 * (len(natural) - 1) <= width else 1
    narrow = [
        size if column.numeric else min(size, NARROWEST) for size, column in zip(natural, table.columns, strict=True)
    ]
    keys = list(range(table.keys))
    parts: list[list[int]] = [list(keys)]
    for at in range(table.keys, len(natural)):
        row = [*parts[-1], at]
        if sum(narrow[key] for key in row) + gap * (len(row) - 1) > width and len(parts[-1]) > len(keys):
            parts.append([*keys, at])
        else:
            parts[-1].append(at)
    return gap, [(part, _widened(part, natural, narrow, width - gap * (len(part) - 1))) for part in parts]


def _widened(part: Sequence[int], natural: Sequence[int], narrow: Sequence[int], width: int) -> list[int]:
    """Returns the widths of columns: those of text share what numbers leave, up to their natural width."""
    widths = [narrow[at] for at in part]
    left = width - sum(widths)
    for place in sorted(range(len(part)), key=lambda place: natural[part[place]] - widths[place]):
        wanting = sum(natural[at] > size for at, size in zip(part, widths, strict=True))
        added = min(natural[part[place]] - widths[place], max(0, left) // max(1, wanting))
        widths[place] += added
        left -= added
    return widths


def natural_width(table: Table, column: int) -> int:
    """Returns the characters of a column in which nothing is broken but its header, between words."""
    own = table.columns[column]
    header = [len(word) for word in (*own.title.split(), own.symbol)]
    lines = (line for row in range(len(table.rows)) for line in table.text(row, column).splitlines())
    return max(itertools.chain(header, map(len, lines)), default=0)


def header(column: Column, width: int) -> str:
    """Returns a header: its words on as few lines as fit, and the symbol of the unit on the last line.

    >>> header(Column("staleness of ranks"), 9)
    'staleness\\nof ranks'
    """
    lines = [""]
    for word in column.title.split():
        longer = f"{lines[-1]} {word}".strip()
        if len(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return "\n".join(line for line in (*lines, column.symbol) if line)


def heading(title: str) -> Text:
    """Returns the title of a table, which may be longer than its lines."""
    return Text(title, style="bold", overflow="fold")


def empty(table: Table, columns: Sequence[int], widths: Sequence[int], gap: int, *, grows: bool = False) -> RichTable:
    """Returns a table of rich without rows, in the common style; its columns may grow if `grows`."""
    made = RichTable(
        header_style="", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, gap - 1, 0, 0), show_edge=False,
    )  # fmt: skip
    made.show_header = any(table.columns[at].title for at in columns)
    for at, width in zip(columns, widths, strict=True):
        column = table.columns[at]
        made.add_column(
            Text(header(column, width)), justify="right" if column.numeric else "left", overflow="fold",
            width=None if grows else width, min_width=width, no_wrap=column.numeric,
        )  # fmt: skip
    return made


def cells(table: Table, row: int, columns: Sequence[int], widths: Sequence[int] = ()) -> Iterator[Text]:
    """Yields the cells of some columns of a row; long texts are broken between words and at hyphens."""
    for at, width in itertools.zip_longest(columns, widths):
        content, text = table.rows[row][at], table.text(row, at)
        tone = content.tone if isinstance(content, TableCell) else "plain"
        if width is not None and not table.columns[at].numeric:
            text = "\n".join(broken(line, width) for line in text.splitlines())
        yield Text(text, style=STYLES[tone])


def broken(line: str, width: int) -> str:
    """Returns a line on as many lines as it needs, each indented like the first.

    >>> broken("  post-local-sgd with momentum", 16)
    '  post-local-sgd\\n  with momentum'
    """
    indent = " " * (len(line) - len(line.lstrip()))
    return (
        "\n".join(textwrap.wrap(line, width, subsequent_indent=indent, drop_whitespace=True))
        if len(line) > width
        else line
    )


class RowByRow:
    """A table that is printed row by row, for commands that take minutes.

    Columns are as wide as figures of the usual size; a longer figure shifts only its own row.

    Args:
        table: the table without rows.
        example: a row that is as wide as rows usually are.
        width: characters of a line.
    """

    def __init__(self, table: Table, example: Row, width: int) -> None:
        self._table = table
        likely = replace(table, rows=[example])
        self._gap, ((self._columns, self._widths), *self._later) = arranged(likely, width)
        self._rows: list[Row] = []

    def add(self, row: Row) -> RenderableType:
        """Adds a row, and returns what is printed now: the row, and before the first one the header."""
        self._rows.append(row)
        table = replace(self._table, rows=[row])
        made = empty(table, self._columns, self._widths, self._gap, grows=True)
        made.show_header = len(self._rows) == 1
        made.add_row(*cells(table, 0, self._columns))
        own = (max(natural_width(table, at), size) for at, size in zip(self._columns, self._widths, strict=True))
        line = _Unbroken(made, sum(own) + self._gap * len(self._columns))
        return Group(heading(table.title), line) if made.show_header else line

    @property
    def later(self) -> list[Table]:
        """The columns that did not fit beside the others, as tables for the end."""
        return [
            replace(
                self._table,
                title=f"{self._table.title}, continued",
                columns=[self._table.columns[at] for at in columns],
                rows=[[row[at] for at in columns] for row in self._rows],
            )
            for columns, _ in self._later
        ]


@dataclass(frozen=True, slots=True)
class _Unbroken:
    """A row that may be wider than the console, because its figures are; nothing of it is cut."""

    table: RichTable
    width: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from console.render(self.table, options.update(width=max(options.max_width, self.width)))


__all__ = ["RowByRow", "TableView", "as_text", "printed", "text_of"]


def markdown_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Returns the lines of a Markdown table.

    >>> markdown_table(("a", "b"), [["1", "x|y"]])
    ['| a | b |', '| --- | --- |', '| 1 | x\\\\|y |']
    """
    cells = [headers, ["---"] * len(headers), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return [f"| {' | '.join(row)} |" for row in cells]


def markdown_of(block: Block) -> str:
    """Returns a claim or a table in Markdown; other blocks have none.

    >>> from paceline.records.figures import COUNT
    >>> from paceline.reports.blocks import Column
    >>> print(markdown_of(Table("Runs", [Column("name"), Column("rows", COUNT)], [("easgd", 3)])))
    | name | rows |
    | --- | --- |
    | easgd | 3 |
    """
    if isinstance(block, Claim):
        return block.text
    if not isinstance(block, Table):
        return ""
    headers = [f"{column.title}, {column.symbol}" if column.symbol else column.title for column in block.columns]
    rows = [
        [" ".join(block.text(row, column).split("\n")) for column in range(len(block.columns))]
        for row in range(len(block.rows))
    ]
    return "\n".join([*markdown_table(headers, rows), *(["", block.words] if block.words else [])])
