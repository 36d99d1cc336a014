"""Writes runs to disk and reads them.

* A folder is written atomically: it is built under a hidden name in the same parent folder and then renamed.
* Files are never overwritten. An existing name is an error, and `place` returns the next free name.
* ``run.json`` holds the checksums of all files, and its own. A reader verifies them before it parses a file.
* The error of a full disk names the folder that was being written.
* Everything that differs between two runs of the same scenario and seed (machine, dates, paths) is in ``run.json``;
  tables and weights of a simulated run are equal byte for byte.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import load as from_safetensors
from safetensors.numpy import save as to_safetensors

from paceline.algorithms.core.checksums import checksums_in, read_sealed, reading, sealed, verified
from paceline.algorithms.core.errors import InputError
from paceline.records.document import to_json
from paceline.records.run import Run
from paceline.records.tables import OPTIONAL, SCHEMAS, Tables

RUN_JSON, WEIGHTS = "run.json", "weights.safetensors"
WHOLE = "a complete run written by simulate or train"
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""the errors of a full disk"""
CHECKPOINTS = "checkpoints"
"""the folder of checkpoints inside the folder of a run"""
SCHEMA_VERSION = 1
"""the version of ``run.json`` and the tables; it increases with each incompatible change"""


def save(run: Run, out: Path) -> Run:
    """Stores a run as ``<scenario>-<algorithm>-<seed>-<kind>-<n>``.

    Args:
        run: the run.
        out: the parent folder.

    Returns:
        The run with its path.
    """
    stem = f"{slug(run.name)}-{slug(run.algorithm)}-{run.seed}-{run.kind}"
    while True:
        folder = place(out, stem)
        try:
            return write_run(folder, run)
        except FileExistsError:  # another process took the name since; try the next one
            continue


def write_run(folder: Path, run: Run) -> Run:
    """Stores a run as `folder`, atomically.

    Args:
        folder: the new folder.
        run: the run.

    Returns:
        The run with its path.

    Raises:
        FileExistsError: `folder` exists.
    """
    with new_folder(folder) as building:
        for name, schema in SCHEMAS.items():
            if name in OPTIONAL and not len(getattr(run.tables, name)):
                continue
            table = pa.Table.from_pandas(getattr(run.tables, name), schema=schema, preserve_index=False)
            with (building / f"{name}.parquet").open("wb") as file:  # Arrow may take a path for a URI
                pq.write_table(table.replace_schema_metadata(None), file)
        vector = as_array(run.weights)
        if vector is not None:
            (building / WEIGHTS).write_bytes(to_safetensors({"weights": vector}))
        for name, content in run.files.items():
            (building / name).parent.mkdir(parents=True, exist_ok=True)
            (building / name).write_bytes(content)
        record = sealed(json.loads(to_json({**describe(run), "files": checksums_in(building)})))
        (building / RUN_JSON).write_text(to_json(record) + "\n", encoding="utf-8")
    if run.checkpoints is None:
        return dataclasses.replace(run, path=folder)
    # checkpoints are moved last, so that an earlier failure does not lose them
    moved = Path(shutil.move(run.checkpoints, folder / CHECKPOINTS))
    if not any(run.checkpoints.parent.iterdir()):
        run.checkpoints.parent.rmdir()
    return dataclasses.replace(run, path=folder, checkpoints=moved)


def read_run(folder: Path) -> Run:
    """Reads the run stored as `folder`.

    Raises:
        InputError: there is no run, it was written by a later version of Paceline, or a file is missing or damaged.
    """
    record = read_sealed(folder / RUN_JSON, WHOLE)
    with reading(folder / RUN_JSON, WHOLE):
        if (version := record["schema_version"]) > SCHEMA_VERSION:
            raise InputError(
                f"{folder}: schema_version {version} is of a later Paceline; this one reads {SCHEMA_VERSION}"
            )
        files = dict(record["files"])
        frames = {
            name: _read_table(folder, name, files)
            for name in SCHEMAS
            if name not in OPTIONAL or f"{name}.parquet" in files
        }
        return Run(
            scenario=dict(record["scenario"]),
            name=record["name"],
            algorithm=record["algorithm"],
            seed=record["seed"],
            summary=record["summary"],
            tables=Tables(**frames),
            weights=_read_weights(folder, files) if WEIGHTS in files else None,
            machine=dict(record["machine"]),
            versions=dict(record["versions"]),
            path=folder,
            checkpoints=folder / CHECKPOINTS if (folder / CHECKPOINTS).exists() else None,
        )


def _read_table(folder: Path, name: str, files: Mapping[str, str]) -> pd.DataFrame:
    """Reads a table; columns that older runs do not have are null."""
    file = f"{name}.parquet"
    source = pa.BufferReader(verified(folder / file, files[file], WHOLE))
    with reading(folder / file, WHOLE):
        made: pd.DataFrame = pq.read_table(source, schema=SCHEMAS[name]).to_pandas()
    return made


def _read_weights(folder: Path, files: Mapping[str, str]) -> Any:
    content = verified(folder / WEIGHTS, files[WEIGHTS], WHOLE)
    with reading(folder / WEIGHTS, WHOLE):
        return from_safetensors(content)["weights"]


def describe(run: Run) -> dict[str, Any]:
    """Returns the content of ``run.json`` without checksums."""
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": run.kind,
        "name": run.name,
        "algorithm": run.algorithm,
        "seed": run.seed,
        "scenario": dict(run.scenario),
        "summary": run.summary,
        "versions": dict(run.versions),
        "machine": dict(run.machine),
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
    }


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yields a hidden folder, which is renamed to `folder` when the block succeeds and removed when it fails."""
    building = _hidden(folder.parent, folder.name)
    try:
        with naming(folder):
            yield building
            _reveal(building, folder)
    finally:
        shutil.rmtree(building, ignore_errors=True)


@dataclasses.dataclass(slots=True)
class NumberedFolder:
    """A folder that gets the next free number when it is complete."""

    building: Path
    path: Path | None = None
    """its final path, once it is complete"""
    keep: bool = False
    """whether to keep the unfinished folder if the block fails"""


@contextmanager
def numbered_folder(out: Path, stem: str, building: Path | None = None) -> Iterator[NumberedFolder]:
    """Yields a folder that is named ``stem-unfinished-N`` until the block succeeds, and ``stem-N`` from then on.

    If the block fails, the folder is removed, unless the block has set `keep`.

    Args:
        out: the parent folder.
        stem: the name without the number.
        building: an unfinished folder to continue; None: a new one.
    """
    made = NumberedFolder(_unfinished(out, stem) if building is None else building)
    try:
        with naming(out / stem):
            yield made
        while made.path is None:
            folder = place(out, stem)
            try:
                _reveal(made.building, folder)
                made.path = folder
            except FileExistsError:  # another process took the name since; try the next one
                continue
    finally:
        if not made.keep:
            shutil.rmtree(made.building, ignore_errors=True)


def _unfinished(out: Path, stem: str) -> Path:
    while True:
        folder = place(out, f"{stem}-unfinished")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:  # another process took the name since
            continue
        return folder


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Adds a path to the error of a full disk, because a failed write, unlike a failed open, does not name the file."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def _hidden(out: Path, name: str) -> Path:
    out.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=f".{name}-", dir=out))


def _reveal(building: Path, folder: Path) -> None:
    """Renames a hidden folder; raises `FileExistsError` if the name exists."""
    building.chmod(0o755)  # mkdtemp creates folders with 0o700, which other users could not read
    if folder.exists():  # renaming onto an empty folder would succeed
        raise FileExistsError(f"{folder} exists already; runs are never overwritten")
    try:
        building.rename(folder)
    except OSError as error:
        if folder.exists():  # it was created after the check
            raise FileExistsError(f"{folder} exists already; runs are never overwritten") from error
        raise


def place(out: Path, stem: str) -> Path:
    """Returns the first of ``out/stem-1``, ``out/stem-2``, … after all that exist.

    Args:
        out: the parent folder.
        stem: the name without the number.
    """
    taken = [
        int(match[1])
        for entry in out.glob(f"{stem}-*")
        if (match := re.fullmatch(re.escape(stem) + r"-(\d+)", entry.name))
    ]
    return out / f"{stem}-{max(taken, default=0) + 1}"


def slug(name: str) -> str:
    """Converts a name to a part of a file name.

    >>> slug("My scenario: 4 × P100")
    'My-scenario-4-P100'
    """
    return re.sub(r"[^\w.]+", "-", name, flags=re.ASCII).strip("-.") or "unnamed"


def as_array(vector: Any) -> np.ndarray[Any, Any] | None:
    """Returns the numbers of a vector as an array; None for a vector without numbers."""
    if isinstance(vector, np.ndarray):
        return np.ascontiguousarray(vector)
    if hasattr(vector, "detach"):  # a tensor; reading runs does not require torch
        return np.ascontiguousarray(vector.detach().cpu().numpy())
    return None
