"""Finds stored runs by the ``run.json`` in their folders; their tables are not read.

Rules of this file: a run is a folder with a ``run.json``, in one of the given folders or given itself. A damaged
``run.json`` is reported with the reason, and the other runs are still found.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from paceline.algorithms.core.checksums import read_sealed
from paceline.algorithms.core.errors import InputError
from paceline.records.store import RUN_JSON, WHOLE


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A stored run, without its tables.

    Args:
        path: its folder.
        record: the content of its ``run.json``.
    """

    path: Path
    record: Mapping[str, Any] = field(repr=False)

    @property
    def scenario(self) -> str:
        """The name of its scenario."""
        return str(self.record["name"])

    @property
    def algorithm(self) -> str:
        """The label of its algorithm."""
        return str(self.record["algorithm"])

    @property
    def method(self) -> str | None:
        """The name of its method; None if the record has none."""
        algorithms = self.record["scenario"].get("algorithms") or [{}]
        return algorithms[0].get("name") if isinstance(algorithms[0], Mapping) else None

    @property
    def seed(self) -> int:
        """Its seed."""
        return int(self.record["seed"])

    @property
    def kind(self) -> str:
        """Whether it is simulated or measured."""
        return str(self.record["kind"])

    @property
    def summary(self) -> Mapping[str, Any]:
        """Its figures."""
        summary: Mapping[str, Any] = self.record["summary"]
        return summary

    @property
    def written(self) -> datetime:
        """When it was stored."""
        return datetime.fromisoformat(self.record["written"])

    def bytes(self) -> int:
        """Returns the size of its folder, with checkpoints and logs."""
        return sum(file.lstat().st_size for file in self.path.rglob("*") if not file.is_dir())


@dataclass(frozen=True, slots=True)
class Found:
    """Stored runs, the earliest first, and folders whose ``run.json`` is damaged, each with the reason."""

    runs: list[StoredRun]
    damaged: list[tuple[Path, str]]


KEYS = ("name", "algorithm", "seed", "kind", "summary", "scenario", "written", "versions", "machine")
"""the keys of ``run.json`` that every run has"""


def find_runs(places: Iterable[Path]) -> Found:
    """Finds the stored runs in several places.

    Args:
        places: folders of runs, folders in which runs are stored, or ``run.json`` files.

    Raises:
        InputError: places that do not exist, all together.
    """
    folders: dict[Path, None] = {}
    missing = []
    for place in places:
        folder = place.parent if place.name == RUN_JSON else place
        if (folder / RUN_JSON).is_file():
            folders[folder] = None
        elif folder.is_dir():
            folders |= dict.fromkeys(sorted(file.parent for file in folder.glob(f"*/{RUN_JSON}")))
        else:
            missing.append(f"{place}: found no folder of this name; expected a stored run, or a folder of stored runs")
    if missing:
        raise InputError("\n".join(missing))
    runs, damaged = [], []
    for folder in folders:
        try:
            runs.append(_read(folder))
        except InputError as error:
            damaged.append((folder, str(error)))
    return Found(sorted(runs, key=lambda run: (run.written, str(run.path))), damaged)


def _read(folder: Path) -> StoredRun:
    record = read_sealed(folder / RUN_JSON, WHOLE)
    if lacking := [key for key in KEYS if key not in record]:
        raise InputError(f"{folder / RUN_JSON}: found no {', '.join(lacking)}; expected {WHOLE}")
    return StoredRun(folder, record)
