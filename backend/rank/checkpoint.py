"""Checkpoints of a real run as they lie on disk: where they are, when one is whole, which one is the last.

    RUN/checkpoints/
        step-200/            a checkpoint, by steps of the keeper's role: all of theirs together where they step alone
            manifest.json    what it is of, the run's clock, the record's size at that time, checksums of all files
            rank0/ …         each rank's part
        record/rank0.stream  what each rank had recorded up to the last checkpoint

Rules of this file:

* A checkpoint is built under a hidden name and renamed when all of it is on the disk: what has the name is whole.
* The record is appended to; a checkpoint says how many bytes of it are its own. What stands behind them is of a
  checkpoint that did not come about, and is cut off.
* The manifest holds the checksums of all files, and its own. They are verified before anything is parsed; `check` reads
  everything that ranks will need, so damage ends the command before a rank has started.
* While a run lasts its folder is ``<run>-unfinished-<n>``; what is stored of the run takes the checkpoints over.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import xxhash

from paceline.algorithms.core.checksums import PIECE_BYTES, read_sealed, reading, sealed, verify
from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.values import Rank
from paceline.backend.posix.restricted_pickle import pieces
from paceline.backend.status.recorder import entries_in
from paceline.records.document import to_json
from paceline.records.learned import Kept
from paceline.records.store import CHECKPOINTS
from paceline.records.trace import Reads

if TYPE_CHECKING:
    from paceline.algorithms.core.operations import Handle

RECORD, MANIFEST = "record", "manifest.json"
RECORDED = "what a rank had recorded up to the checkpoint"
WHOLE = "a whole checkpoint"
NAME = re.compile(r"step-(\d+)")
FORMAT = 1
"""of what is written here; it grows when a reader of old checkpoints would be misled"""


class Mark(NamedTuple):
    """What a rank says of its part when that is on the disk."""

    written_s: float
    """on the run's clock"""
    granted: int
    """steps that it has been let into"""
    record_bytes: int
    record_checksum: str
    files: Mapping[str, str]
    """checksums of its part, by the paths of files in it"""


@dataclass(frozen=True, slots=True)
class Part:
    """What one rank needs to go on from a checkpoint."""

    state: Any
    """in which its program is entered again"""
    learned: Kept | None
    """of the keeper: the weights being learned"""
    age: int
    """local steps since the version last moved"""
    late_s: float
    """by how much its device was ever behind its pace"""
    reads: Reads | None
    """what it has asked of a file"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """How a run's checkpoints are made."""

    folder: Path
    """holds them, and the record up to the last one"""
    every: int
    """steps of the keeper's role"""
    keep: int
    """how many stay"""
    about: Mapping[str, Any]
    """what they are of, for the manifest: scenario, algorithm, seed"""

    def following(self, step: int) -> int:
        """The step of the first checkpoint after this one.

        >>> Saving(folder=Path(), every=10, keep=1, about={}).following(10)
        20
        """
        return (step // self.every + 1) * self.every

    def building(self, step: int) -> Path:
        """Where a checkpoint's parts are put until it is whole."""
        return self.folder / f".step-{step}"

    def last(self) -> Checkpoint | None:
        """The last whole one; None where there is none. What is left of one that did not come about is removed."""
        for left in self.folder.glob(".*"):
            shutil.rmtree(left, ignore_errors=True)
        made = steps_in(self.folder)
        return read(made[-1]) if made else None

    def commit(self, step: int, marks: Sequence[Mark]) -> None:
        """Gives a checkpoint its name, all of whose parts are on the disk, and removes those that are too old."""
        manifest = {
            "format": FORMAT,
            "step": step,
            "time_s": max(mark.written_s for mark in marks),
            "granted": [mark.granted for mark in marks],
            "record_bytes": [mark.record_bytes for mark in marks],
            "record_checksums": [mark.record_checksum for mark in marks],
            "files": [dict(mark.files) for mark in marks],
            "written": datetime.now(UTC).isoformat(timespec="seconds"),
            **self.about,
        }
        building, place = self.building(step), self.folder / f"step-{step}"
        with (building / MANIFEST).open("w", encoding="utf-8") as file:
            file.write(to_json(sealed(json.loads(to_json(manifest)))) + "\n")
            file.flush()
            os.fsync(file.fileno())
        sync(building)
        building.rename(place)
        sync(self.folder)
        for old in steps_in(self.folder)[: -self.keep]:
            leaving = old.rename(old.with_name(f".old-{old.name}"))  # half a checkpoint has no name of a whole one
            shutil.rmtree(leaving, ignore_errors=True)


def sync(folder: Path) -> None:
    """Puts the names in a folder on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A whole checkpoint."""

    path: Path
    manifest: Mapping[str, Any]

    @property
    def step(self) -> int:
        return int(self.manifest["step"])

    @property
    def time_s(self) -> float:
        """The run's clock when the last rank had written its part."""
        return float(self.manifest["time_s"])

    @property
    def ranks(self) -> int:
        return len(self.manifest["granted"])

    @property
    def granted(self) -> Sequence[int]:
        """Steps that each rank had been let into."""
        return list(self.manifest["granted"])

    def check(self) -> None:
        """Reads all that ranks need to go on from here; raises `InputError` where they could not."""
        for rank in map(Rank, range(self.ranks)):
            self.read(rank, placed=False)
            self.check_record(rank)

    def read(self, rank: Rank, *, placed: bool = True) -> tuple[Part, dict[Handle[Any], Any]]:
        """A rank's part, and what the handles in it were answered.

        Args:
            rank: whose part.
            placed: vectors are put where they were, such as on a GPU; otherwise they stay in the host's memory.

        Raises:
            InputError: it cannot be read, or is not as it was written.
        """
        from paceline.backend.rank.checkpoint_parts import (
            read_part,  # brings torch's checkpoints: a second that not every run needs
        )

        return read_part(self.path / f"rank{rank}", self.manifest["files"][rank], placed=placed)

    def copy_record(self, rank: Rank, stream: Path) -> None:
        """Copies what the rank had recorded up to the checkpoint; raises `InputError` where it is not there."""
        with stream.open("wb") as to:
            self._pass_record(rank, to.write)

    def check_record(self, rank: Rank) -> None:
        """Verifies the checksum of a rank's record first, and then reads its entries."""
        self._pass_record(rank, lambda _: None)
        source, size = self._record(rank)
        with reading(source, RECORDED), source.open("rb") as file:
            for piece in pieces(file, size):
                for _ in entries_in(piece):
                    pass

    def _pass_record(self, rank: Rank, take: Callable[[bytes], object]) -> None:
        """Shows `take` the bytes of a rank's record, up to the checkpoint."""
        source, size = self._record(rank)
        found, left = xxhash.xxh3_128(), size
        with reading(source, RECORDED):
            file = source.open("rb")
        with file:
            while left:
                with reading(source, RECORDED):
                    piece = file.read(min(left, PIECE_BYTES))
                if not piece:
                    raise InputError(f"{source}: found {size - left} bytes, expected {size}: {RECORDED}")
                found.update(piece)
                left -= len(piece)
                take(piece)
        verify(source, found.hexdigest(), self.manifest["record_checksums"][rank])

    def _record(self, rank: Rank) -> tuple[Path, int]:
        """Where a rank's record is, and how many bytes of it belong to this checkpoint."""
        return record_of(self.path.parent, rank), int(self.manifest["record_bytes"][rank])


def record_of(folder: Path, rank: Rank) -> Path:
    """The record that belongs to the checkpoints of a folder."""
    return folder / RECORD / f"rank{rank}.stream"


def steps_in(folder: Path) -> list[Path]:
    """The whole checkpoints of a folder, oldest first."""
    found = [(int(match[1]), entry) for entry in folder.glob("step-*") if (match := NAME.fullmatch(entry.name))]
    return [entry for _, entry in sorted(found)]


def find_last(place: Path) -> Checkpoint:
    """The last whole checkpoint of a run's folder, or the one that is this folder.

    Args:
        place: a run that train wrote, ended or failed; an unfinished one; or one checkpoint of either.

    Raises:
        InputError: there is none, or one of a later Paceline.
    """
    with reading(place, "the folder of a run, or a checkpoint"):
        alone, inside = (place / MANIFEST).exists(), steps_in(place / CHECKPOINTS)
    if alone:
        return read(place)
    if not inside:
        raise InputError(
            f"{place}: found no checkpoint there; expected the folder of a run of `paceline train` whose scenario has "
            "`train.checkpoint`, or one checkpoint of it"
        )
    return read(inside[-1])


def read(path: Path) -> Checkpoint:
    """The checkpoint that is this folder; raises `InputError` where its manifest cannot be read or is damaged."""
    place = path / MANIFEST
    manifest = read_sealed(place, f"the manifest of {WHOLE}")
    with reading(place, f"the manifest of {WHOLE}"):
        if manifest["format"] > FORMAT:
            raise InputError(f"{path}: format {manifest['format']} is of a later Paceline; this one reads {FORMAT}")
        found = Checkpoint(path, manifest)
        by_rank = [found.granted, *(manifest[key] for key in ("record_bytes", "record_checksums", "files"))]
        if len({len(one) for one in by_rank}) != 1 or not all(isinstance(files, dict) for files in manifest["files"]):
            raise ValueError("the lists of ranks do not agree")
        _ = found.step, found.time_s, dict(manifest["scenario"]), str(manifest["algorithm"])
        _ = [int(size) for size in (*found.granted, *manifest["record_bytes"])]
    return found
