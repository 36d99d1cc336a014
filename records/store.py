"""Writing runs to disk and reading them back.

Rules of this file:

* A folder appears whole or not at all: it is built under a hidden name beside its place and then renamed.
* Nothing is ever overwritten; a taken name is an error, and `place` finds the next free one.
* ``run.json`` holds the checksums of all files, and its own. A reader verifies them before it parses anything.
* An error of a full disk names the folder that was to be written.
* What differs between two runs of the same scenario and seed (machine, dates, paths) is in ``run.json`` alone; tables
  and weights of a simulated run are the same byte for byte.
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
from paceline.records.stored_run import Run
from paceline.records.tables import OPTIONAL, SCHEMAS, Tables

RUN_JSON, WEIGHTS = "run.json", "weights.safetensors"
WHOLE = "a whole run that simulate or train wrote"
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""the errors of a disk without room"""
CHECKPOINTS = "checkpoints"
"""the folder in a run's with what it can be gone on from"""
SCHEMA_VERSION = 1
"""of ``run.json`` and the tables beside it; it grows when a reader of old runs would be misled"""


def save(run: Run, out: Path) -> Run:
    """Stores the run under `out` as ``<scenario>-<algorithm>-<seed>-<kind>-<n>``; answers it with its path."""
    stem = f"{slug(run.name)}-{slug(run.algorithm)}-{run.seed}-{run.kind}"
    while True:
        folder = place(out, stem)
        try:
            return write_run(folder, run)
        except FileExistsError:  # somebody else took the name since; the next one is free
            continue


def write_run(folder: Path, run: Run) -> Run:
    """Stores the run as `folder`, whole or not at all; answers it with its path.

    Raises `FileExistsError` where there is something of that name already.
    """
    with new_folder(folder) as building:
        for name, schema in SCHEMAS.items():
            if name in OPTIONAL and not len(getattr(run.tables, name)):
                continue
            table = pa.Table.from_pandas(getattr(run.tables, name), schema=schema, preserve_index=False)
            with (building / f"{name}.parquet").open("wb") as file:  # of a name, Arrow would make a URI if it could
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
    moved = Path(shutil.move(run.checkpoints, folder / CHECKPOINTS))  # last: what fails before does not cost them
    if not any(run.checkpoints.parent.iterdir()):
        run.checkpoints.parent.rmdir()
    return dataclasses.replace(run, path=folder, checkpoints=moved)


def read_run(folder: Path) -> Run:
    """The run stored as `folder`.

    Raises:
        InputError: there is none, or one of a later Paceline, or a file is missing, damaged, or cannot be read.
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
    """A table; a column that runs of its time did not have is null."""
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
    """What ``run.json`` says."""
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
    """A hidden folder to build in; it gets its name when the block ends well and is removed when it does not."""
    building = _hidden(folder.parent, folder.name)
    try:
        with naming(folder):
            yield building
            _reveal(building, folder)
    finally:
        shutil.rmtree(building, ignore_errors=True)


@dataclasses.dataclass(slots=True)
class NumberedFolder:
    """A folder that gets the next free number when it is whole."""

    building: Path
    path: Path | None = None
    """where it stands, once it does"""
    keep: bool = False
    """whether to leave what there is of it where the block fails"""


@contextmanager
def numbered_folder(out: Path, stem: str) -> Iterator[NumberedFolder]:
    """A folder for something that takes long to build: ``stem-unfinished-N`` until it is whole, then ``stem-N``.

    Where the block fails it is removed, unless the block has asked to `keep` it.
    """
    made = NumberedFolder(_unfinished(out, stem))
    try:
        with naming(out / stem):
            yield made
        while made.path is None:
            folder = place(out, stem)
            try:
                _reveal(made.building, folder)
                made.path = folder
            except FileExistsError:  # another process took the name since; the next one is free
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
    """Adds a path to the error of a full disk: a write that fails, unlike opening a file, does not say where it was."""
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
    """Gives a hidden folder its name; raises `FileExistsError` where there is something of that name already."""
    building.chmod(0o755)  # mkdtemp gives 0o700, which would lock colleagues out
    if folder.exists():  # renaming onto an empty folder would succeed
        raise FileExistsError(f"{folder} is there already; runs are never overwritten")
    try:
        building.rename(folder)
    except OSError as error:
        if folder.exists():  # it came between the look and the renaming
            raise FileExistsError(f"{folder} is there already; runs are never overwritten") from error
        raise


def place(out: Path, stem: str) -> Path:
    """The first of ``out/stem-1``, ``out/stem-2``, … after all that are there."""
    taken = [
        int(match[1])
        for entry in out.glob(f"{stem}-*")
        if (match := re.fullmatch(re.escape(stem) + r"-(\d+)", entry.name))
    ]
    return out / f"{stem}-{max(taken, default=0) + 1}"


def slug(name: str) -> str:
    """A name as part of a file name.

    >>> slug("My scenario: 4 × P100")
    'My-scenario-4-P100'
    """
    return re.sub(r"[^\w.]+", "-", name, flags=re.ASCII).strip("-.") or "unnamed"


def as_array(vector: Any) -> np.ndarray[Any, Any] | None:
    """The numbers of a vector; None where it has none."""
    if isinstance(vector, np.ndarray):
        return np.ascontiguousarray(vector)
    if hasattr(vector, "detach"):  # a tensor; torch itself need not be there to read runs
        return np.ascontiguousarray(vector.detach().cpu().numpy())
    return None
