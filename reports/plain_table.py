"""The style of all tables. It imports only rich, so that commands without figures can show a table."""

from __future__ import annotations

from rich import box
from rich.table import Table


def plain_table(title: str, *, first: str = "algorithm") -> Table:
    """Returns an empty table in the common style, with its first column."""
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        header_style="",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    table.add_column(first, no_wrap=True)
    return table
