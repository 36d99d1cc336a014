"""The tables of a stored run as CSV files, with a page that gives the meaning and the unit of each column.

A missing value is an empty cell, numbers have all their digits, and empty tables have no file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from paceline.records import Run
from paceline.records.document import flat
from paceline.records.tables import FORMS

README, SUMMARY = "README.md", "summary.csv"


def write_csv(run: Run, folder: Path) -> None:
    """Writes the tables, the summary and the README into a folder.

    Args:
        run: the run.
        folder: an empty folder.
    """
    tables = {name: getattr(run.tables, name) for name in FORMS}
    written = {name: table for name, table in tables.items() if len(table)}
    for name, table in written.items():
        table.to_csv(folder / f"{name}.csv", index=False)
    figures = pd.DataFrame(flat(run.summary), columns=["figure", "value"])
    figures.to_csv(folder / SUMMARY, index=False)
    (folder / README).write_text(readme(run, written), encoding="utf-8")


def readme(run: Run, tables: Mapping[str, pd.DataFrame]) -> str:
    """Returns the page about the files.

    Args:
        run: the run.
        tables: the tables that have files.
    """
    lines = [
        f"# {run.name}: {run.algorithm}, seed {run.seed}, {run.kind}",
        "",
        "Written by `paceline export --format csv`. A missing value is an empty cell.",
        "Columns whose names end in `_s` hold seconds.",
        "",
        f"`{SUMMARY}` holds the figures of the run: the path of each figure in `run.json`, and its value.",
    ]
    for name, table in tables.items():
        form = FORMS[name]
        lines += ["", f"## {name}.csv", "", f"{len(table)} rows: {form.rows}.", "", "| column | meaning, unit |"]
        lines += ["|---|---|", *(f"| {column} | {meaning} |" for column, _, meaning in form.columns)]
    return "\n".join(lines) + "\n"
