"""Changes stored files and updates their checksums, so that the checks after the checksums are tested."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from paceline.algorithms.core.checksums import CHECKSUM, checksum_of, checksums_in, sealed
from paceline.workloads.reading.file import RecordFile, checksums_of
from paceline.workloads.reading.folder import ABOUT, TEST, TRAIN, checksums_beside


def rewrite(path: Path, change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> None:
    """Changes a sealed JSON document, in place or by replacing it, and seals it again."""
    document = json.loads(path.read_text(encoding="utf-8"))
    del document[CHECKSUM]
    changed = change(document)
    path.write_text(json.dumps(sealed(document if changed is None else changed)), encoding="utf-8")


def seal_run(folder: Path) -> None:
    """Writes the current checksums of a run's files."""
    files = {name: checksum for name, checksum in checksums_in(folder).items() if name != "run.json"}
    rewrite(folder / "run.json", lambda record: record | {"files": files})


def seal_records(folder: Path) -> None:
    """Writes the current checksums of a data set's records, headers and descriptions."""

    def alter(about: dict[str, Any]) -> None:
        for name in (TRAIN, TEST):
            file = RecordFile.open(folder / name)
            beside = checksums_beside(folder / name)
            beside.write_bytes(checksums_of(np.load(folder / name)).astype("<u8").tobytes())
            about[name.removesuffix(".npy")] |= {"header": file.header_checksum(), "checksums": checksum_of(beside)}

    rewrite(folder / ABOUT, alter)


def flip(path: Path, at: int) -> None:
    """Changes one bit of a file."""
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)
