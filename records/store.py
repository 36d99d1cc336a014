"""Writing runs to disk and reading them back.

Rules of this file:

* A folder appears whole or not at all: it is built under a hidden name beside its place and then renamed.
* Nothing is ever overwritten; a taken name is an error, and `place` finds the next free one.
* What differs between two runs of the same scenario and seed (machine, dates, paths) is in ``run.json`` alone; tables
  and weights of a simulated run are the same byte for byte.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import tempfile
from collections.abc import Iterator
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

from paceline.algorithms.errors import InputError
from paceline.records.run import Run
from paceline.records.tables import OPTIONAL, SCHEMAS, Tables

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
            (building / "weights.safetensors").write_bytes(to_safetensors({"weights": vector}))
        for name, content in run.files.items():
            (building / name).parent.mkdir(parents=True, exist_ok=True)
            (building / name).write_bytes(content)
        (building / "run.json").write_text(to_json(describe(run)) + "\n", encoding="utf-8")
    if run.checkpoints is None:
        return dataclasses.replace(run, path=folder)
    moved = Path(shutil.move(run.checkpoints, folder / CHECKPOINTS))  # last: what fails before does not cost them
    if not any(run.checkpoints.parent.iterdir()):
        run.checkpoints.parent.rmdir()
    return dataclasses.replace(run, path=folder, checkpoints=moved)


def read_run(folder: Path) -> Run:
    """The run stored as `folder`; raises `InputError` where there is none, or one of a later Paceline."""
    try:
        record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        if (version := record["schema_version"]) > SCHEMA_VERSION:
            raise InputError(
                f"{folder}: schema_version {version} is of a later Paceline; this one reads {SCHEMA_VERSION}"
            )
        frames = {
            name: _read_table(folder, name)
            for name in SCHEMAS
            if name not in OPTIONAL or (folder / f"{name}.parquet").exists()
        }
    except (OSError, KeyError, TypeError, ValueError) as error:
        found = f"{type(error).__name__}: {error}"
        raise InputError(
            f"{folder}: no whole run there ({found}); give a folder that simulate or train wrote"
        ) from error
    weights = folder / "weights.safetensors"
    return Run(
        scenario=record["scenario"],
        name=record["name"],
        algorithm=record["algorithm"],
        seed=record["seed"],
        summary=record["summary"],
        tables=Tables(**frames),
        weights=from_safetensors(weights.read_bytes())["weights"] if weights.exists() else None,
        machine=record["machine"],
        versions=record["versions"],
        path=folder,
        checkpoints=folder / CHECKPOINTS if (folder / CHECKPOINTS).exists() else None,
    )


def _read_table(folder: Path, name: str) -> pd.DataFrame:
    """A table; a column that runs of its time did not have is null."""
    source = pa.BufferReader((folder / f"{name}.parquet").read_bytes())
    made: pd.DataFrame = pq.read_table(source, schema=SCHEMAS[name]).to_pandas()
    return made


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


@contextmanager
def numbered_folder(out: Path, stem: str) -> Iterator[NumberedFolder]:
    """As `new_folder`, named by `place` only when the block has ended: what took long to build finds a place."""
    made = NumberedFolder(_hidden(out, stem))
    try:
        yield made
        while made.path is None:
            folder = place(out, stem)
            try:
                _reveal(made.building, folder)
                made.path = folder
            except FileExistsError:  # somebody else took the name since; the next one is free
                continue
    finally:
        shutil.rmtree(made.building, ignore_errors=True)


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


def to_json(value: Any, encoding: str = "utf-8") -> str:
    """A JSON document that `encoding` can hold; raises `ValueError` rather than write NaN, which JSON does not have.

    >>> to_json("4 × P100"), to_json("4 × P100", "ascii")
    ('"4 × P100"', '"4 \\\\u00d7 P100"')
    """
    text = json.dumps(value, indent=2, allow_nan=False, default=_plain, ensure_ascii=False)
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return json.dumps(value, indent=2, default=_plain)
    return text


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{value!r} cannot be written as JSON")
