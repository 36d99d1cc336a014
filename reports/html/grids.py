"""Converts tables to the tables of reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from paceline.reports.blocks import Table as BlockTable
from paceline.reports.html.report_parts import Grid

UNITS = {"s", "ms", "%"}
"""units that tables for a terminal write below the name of a column"""


def grid_of(table: Table | BlockTable, *, words: str = "", folded: bool = False) -> Grid:
    """Converts a table for a terminal.

    Args:
        table: the table.
        words: a sentence below it.
        folded: whether it is hidden until the reader opens it.
    """
    if isinstance(table, BlockTable):
        names = [f"{column.title}, {column.symbol}" if column.symbol else column.title for column in table.columns]
        texts = [[table.text(row, at) for at in range(len(names))] for row in range(len(table.rows))]
        numbers = frozenset(at for at, column in enumerate(table.columns) if column.numeric)
        return Grid(title=table.title, columns=names, rows=texts, words=words, numeric=numbers, folded=folded)
    columns = [_header(str(column.header)) for column in table.columns]
    cells = [[_plain(cell) for cell in column.cells] for column in table.columns]
    numeric = {at for at, column in enumerate(table.columns) if column.justify == "right"}
    return Grid(
        title=str(table.title or ""),
        columns=columns,
        rows=[list(row) for row in zip(*cells, strict=True)],
        words=words,
        numeric=frozenset(numeric),
        folded=folded,
    )


def _header(text: str) -> str:
    """Joins the lines of a header: the parts of a word, and a unit after a comma.

    >>> _header("stale-\\nness"), _header("wall\\ns"), _header("accu-\\nracy %"), _header("samples\\n/s")
    ('staleness', 'wall, s', 'accuracy, %', 'samples/s')
    """
    words = text.replace("-\n", "").replace("\n/", "/").split()
    return " ".join(words[:-1]) + f", {words[-1]}" if len(words) > 1 and words[-1] in UNITS else " ".join(words)


def _plain(cell: Any) -> str:
    text = cell.plain if isinstance(cell, Text) else str(cell)
    return text.replace("\n", " ").strip()


def facts(title: str, rows: Mapping[str, Any], **more: Any) -> Grid:
    """Returns a table of names and values.

    Args:
        title: says what the rows are.
        rows: values by name.
        more: further fields of the table.
    """
    return Grid(title=title, columns=["", ""], rows=[[name, str(value)] for name, value in rows.items()], **more)


def flat(mapping: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Returns the leaves of nested mappings by path; empty and missing values are left out.

    >>> flat({"a": {"b": 1, "c": None}, "d": [1, 2]})
    {'a.b': '1', 'd': '1, 2'}
    """
    found: dict[str, str] = {}
    for name, value in mapping.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{name}.")
        elif isinstance(value, Sequence) and not isinstance(value, str):
            if value and not any(isinstance(one, Mapping | list) for one in value):
                found[f"{prefix}{name}"] = ", ".join(map(str, value))
        elif value is not None and value != "":
            found[f"{prefix}{name}"] = str(value)
    return found
