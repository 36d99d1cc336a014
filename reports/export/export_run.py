"""Writes a stored run in the format of another program, under a name that does not exist yet."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pandas as pd

from paceline.algorithms.core.errors import InputError, Mistakes
from paceline.records import Run
from paceline.records.document import flat
from paceline.records.store import naming, new_folder
from paceline.records.tables import FORMS
from paceline.reports.export.chakra import check_chakra, write_chakra
from paceline.reports.export.chrome import write_chrome
from paceline.reports.export.loggers import check_package, write_tensorboard

Format = Literal["chakra", "chrome", "csv", "tensorboard"]
ENDS: dict[Format, str] = {
    "chakra": "-chakra",
    "chrome": ".trace.json",
    "csv": "-csv",
    "tensorboard": "-tensorboard",
}
"""the ends of the default names; all but chrome's are folders"""
README, SUMMARY = "README.md", "summary.csv"


def export_run(run: Run, form: Format, out: Path | None = None) -> Path:
    """Writes a stored run in a format.

    Args:
        run: the run, read from a folder.
        form: the format.
        out: the new file or folder; None: the name of the run's folder with the end of the format, in the working
            folder.

    Returns:
        The new file or folder.

    Raises:
        InputError: the new name exists, a package is missing, or a trace is asked for of a run without its tables.
    """
    if run.path is None:
        raise InputError("found a run that is not stored; expected one from paceline.records.store.read_run")
    target = Path(f"{run.path.resolve().name}{ENDS[form]}") if out is None else out
    _check(run, form, target)
    if form == "chrome":
        with _new_file(target) as building, building.open("w", encoding="utf-8") as file:
            write_chrome(run, file)
        return target
    with new_folder(target) as building:
        if form == "chakra":
            write_chakra(run, building, run.path.resolve().name)
        elif form == "csv":
            _write_csv(run, building)
        else:
            write_tensorboard(run, building)
    return target


def _check(run: Run, form: Format, target: Path) -> None:
    """Raises `InputError` with all reasons for which nothing can be written."""
    with Mistakes() as mistakes:
        if target.exists():
            mistakes.append(
                f"--out: found {str(target)!r}, which exists; expected a new name, since nothing is overwritten"
            )
        if form == "chrome" and run.tables.spans.empty and run.tables.updates.empty:
            mistakes.append(
                f"{run.path}: found a run without spans and updates; expected a run with them: run the scenario again "
                "with --set records=full, or take --format csv"
            )
        if form == "chakra":
            with mistakes.noted():
                check_chakra(run)
        if form == "tensorboard":
            with mistakes.noted():
                check_package("tensorboard", "--format tensorboard")


@contextmanager
def _new_file(path: Path) -> Iterator[Path]:
    """Yields a hidden file, which gets its name when the block succeeds and is removed when it fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as folder:
        building = Path(folder) / path.name
        with naming(path):
            yield building
        if path.exists():
            raise FileExistsError(f"{path} exists already; nothing is overwritten")
        building.rename(path)


# --- CSV files ------------------------------------------------------------------------------------------------------


def _write_csv(run: Run, folder: Path) -> None:
    """Writes the tables, the summary and the README into an empty folder.

    A missing value is an empty cell, numbers have all their digits, and empty tables have no file.
    """
    tables = {name: getattr(run.tables, name) for name in FORMS}
    written = {name: table for name, table in tables.items() if len(table)}
    for name, table in written.items():
        table.to_csv(folder / f"{name}.csv", index=False)
    figures = pd.DataFrame(flat(run.summary), columns=["figure", "value"])
    figures.to_csv(folder / SUMMARY, index=False)
    (folder / README).write_text(_readme(run, written), encoding="utf-8")


def _readme(run: Run, tables: Mapping[str, pd.DataFrame]) -> str:
    """Returns the page about the files of these tables, with the meaning and the unit of each column."""
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
