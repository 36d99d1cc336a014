"""Checkpoints of a real run on disk: their layout, when one is complete, and which one is the latest.

    RUN/checkpoints/
        step-200/            a checkpoint, by steps of the weights' owner: of all owners together if they step alone
            manifest.json    its description, the run's clock, the record's size at that time, checksums of all files
            rank0/ …         the part of each rank
        record/rank0.stream  each rank's record up to the latest checkpoint

Rules of this file:

* A checkpoint is built under a hidden name and renamed when all of it is on disk, so a folder with the final name is
  complete.
* The record is appended to, and a checkpoint states how many bytes of it belong to it. Bytes after these are from a
  checkpoint that was not completed, and are cut off.
* The manifest contains the checksums of all files and its own. They are verified before anything is parsed; `check`
  reads everything that ranks will need, so damage ends the command before a rank has started.
* A pickle can run any code when it is read, and a checkpoint may come from an untrusted source. So pickles are read
  with an allow-list: dataclasses, named tuples and enums of modules that are already imported, and the functions with
  which NumPy and torch rebuild arrays. Anything else is refused before it is called.
* During a run its folder is ``<run>-unfinished-<n>``; the stored run takes the checkpoints over.
"""

from __future__ import annotations

import dataclasses
import io
import json
import os
import pickle
import re
import resource
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import xxhash

from paceline.algorithms.core.checksums import PIECE_BYTES, read_sealed, reading, sealed, verify
from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.values import Rank
from paceline.backend.status.recorder import entries_in
from paceline.records.document import to_json
from paceline.records.learned import Kept
from paceline.records.store import CHECKPOINTS
from paceline.records.trace import Reads

if TYPE_CHECKING:
    from paceline.algorithms.core.operations import Handle


def _storage(data: bytes) -> Any:
    return torch.load(io.BytesIO(data), weights_only=True)


ALLOWED: dict[tuple[str, str], Any] = {
    ("torch.storage", "_load_from_bytes"): _storage,  # torch's own function would read a pickle without the allow-list
}
BUILDERS = {
    ("builtins", "set"),
    ("builtins", "frozenset"),
    ("builtins", "bytearray"),
    ("collections", "OrderedDict"),
    ("collections", "Counter"),
    ("collections", "deque"),
    ("pathlib", "PosixPath"),
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    ("numpy._core.multiarray", "scalar"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.numeric", "_frombuffer"),
    ("torch", "Size"),
    ("torch.serialization", "_get_layout"),
    ("torch._utils", "_rebuild_tensor_v2"),
}


SPARE_BYTES, GROWTH = 2**30, 32
"""memory that reading may take: so much, and so many times the file; Python's small objects are 20 times as large"""


class Restricted(pickle.Unpickler):
    """Reads a pickle of plain values; raises `UnpicklingError` for anything else."""

    def __init__(self, file: Any, **options: Any) -> None:
        super().__init__(file, **options)
        self._file = file

    def load(self) -> Any:
        with memory_limit(SPARE_BYTES + GROWTH * _size(self._file)):
            return super().load()

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in ALLOWED:
            return ALLOWED[module, name]
        if (module, name) == (__name__, "Part"):  # as checkpoints name it that were made before it was renamed
            return RankPart
        value = getattr(sys.modules.get(module), name, None)
        if (module, name) in BUILDERS or isinstance(value, torch.dtype) or _is_value(value):
            return value
        raise pickle.UnpicklingError(f"found {module}.{name}, which no checkpoint holds")


def _size(file: Any) -> int:
    """The bytes of a file, or of a buffer in memory."""
    return len(file.getbuffer()) if isinstance(file, io.BytesIO) else os.fstat(file.fileno()).st_size


def _is_value(value: Any) -> bool:
    if not isinstance(value, type):
        return False
    return (
        dataclasses.is_dataclass(value)
        or issubclass(value, Enum)
        or (issubclass(value, tuple) and hasattr(value, "_fields"))
    )


def pieces(file: io.BufferedReader, size: int) -> Iterator[Any]:
    """Yields the pieces in the first `size` bytes of a rank's record; a damaged record raises errors of many types."""
    while file.tell() < size:
        yield Restricted(file).load()
    if file.tell() > size:
        raise EOFError(f"found a piece that ends at byte {file.tell()}, expected {size}")


PAGE = os.sysconf("SC_PAGE_SIZE")


@contextmanager
def memory_limit(more_bytes: int) -> Iterator[None]:
    """Makes allocations fail with `MemoryError` that need more than so many bytes beyond what is allocated now.

    The limit holds for address space and for all threads. Without it, Linux grants a damaged file's request for tens of
    gigabytes and kills a process later, perhaps another one.

    >>> with memory_limit(2**30):
    ...     bytearray(2**40)
    Traceback (most recent call last):
    MemoryError
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    allocated = int(Path("/proc/self/statm").read_text().split()[0]) * PAGE
    wanted = allocated + more_bytes
    resource.setrlimit(resource.RLIMIT_AS, (wanted if soft == resource.RLIM_INFINITY else min(soft, wanted), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


RECORD, MANIFEST = "record", "manifest.json"
RECORDED = "what a rank had recorded up to the checkpoint"
WHOLE = "a whole checkpoint"
NAME = re.compile(r"step-(\d+)")
FORMAT = 1
"""version of the format; it increases when a reader of old checkpoints would be misled"""


class Mark(NamedTuple):
    """A rank's report after its part is on disk."""

    written_s: float
    """time on the run's clock"""
    granted: int
    """steps that the rank has been granted"""
    record_bytes: int
    record_checksum: str
    files: Mapping[str, str]
    """checksums of its part, by the paths of its files"""


@dataclass(frozen=True, slots=True)
class RankPart:
    """The state that one rank needs to resume from a checkpoint."""

    state: Any
    """the state with which its program is entered again"""
    learned: Kept | None
    """at the weights' owner: the weights being learned"""
    age: int
    """local steps since the version last changed"""
    late_s: float
    """the longest delay of its device behind the modelled time, in seconds"""
    reads: Reads | None
    """what it has requested from a file"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """How the checkpoints of a run are made."""

    folder: Path
    """contains them, and the record up to the latest one"""
    every: int
    """steps of the weights' owner between two checkpoints"""
    keep: int
    """how many checkpoints remain"""
    about: Mapping[str, Any]
    """entries for the manifest: scenario, algorithm, seed"""

    def following(self, step: int) -> int:
        """Returns the step of the first checkpoint after this step.

        >>> Saving(folder=Path(), every=10, keep=1, about={}).following(10)
        20
        """
        return (step // self.every + 1) * self.every

    def building(self, step: int) -> Path:
        """Returns the folder in which a checkpoint's parts are written until it is complete."""
        return self.folder / f".step-{step}"

    def last(self) -> Checkpoint | None:
        """Returns the latest complete checkpoint, or None, and removes the rest of incomplete ones."""
        for left in self.folder.glob(".*"):
            shutil.rmtree(left, ignore_errors=True)
        made = steps_in(self.folder)
        return read(made[-1]) if made else None

    def commit(self, step: int, marks: Sequence[Mark]) -> None:
        """Gives a checkpoint its final name after all its parts are on disk, and removes the oldest ones."""
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
            leaving = old.rename(old.with_name(f".old-{old.name}"))  # a checkpoint in removal has no final name
            shutil.rmtree(leaving, ignore_errors=True)


def sync(folder: Path) -> None:
    """Writes the names in a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint."""

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
        """The steps that each rank had been granted."""
        return list(self.manifest["granted"])

    def check(self) -> None:
        """Reads everything that ranks need to resume; raises `InputError` if something is missing or damaged."""
        for rank in map(Rank, range(self.ranks)):
            self.read(rank, placed=False)
            self.check_record(rank)

    def read(self, rank: Rank, *, placed: bool = True) -> tuple[RankPart, dict[Handle[Any], Any]]:
        """Reads a rank's part, and the answers of the handles in it.

        Args:
            rank: the rank of the part.
            placed: restores vectors to their devices, such as a GPU; otherwise they stay in host memory.

        Raises:
            InputError: it cannot be read, or differs from what was written.
        """
        from paceline.backend.rank.checkpoint_parts import (
            read_part,  # imports torch's checkpoints, which takes a second that not every run needs
        )

        return read_part(self.path / f"rank{rank}", self.manifest["files"][rank], placed=placed)

    def copy_record(self, rank: Rank, stream: Path) -> None:
        """Copies what the rank had recorded up to the checkpoint; raises `InputError` if it is missing."""
        with stream.open("wb") as to:
            self._pass_record(rank, to.write)

    def check_record(self, rank: Rank) -> None:
        """Verifies the checksum of a rank's record and then reads its entries."""
        self._pass_record(rank, lambda _: None)
        source, size = self._record(rank)
        with reading(source, RECORDED), source.open("rb") as file:
            for piece in pieces(file, size):
                for _ in entries_in(piece):
                    pass

    def _pass_record(self, rank: Rank, take: Callable[[bytes], object]) -> None:
        """Passes the bytes of a rank's record up to the checkpoint to `take`."""
        source, size = self._record(rank)
        checksum, left = xxhash.xxh3_128(), size
        with reading(source, RECORDED):
            file = source.open("rb")
        with file:
            while left:
                with reading(source, RECORDED):
                    piece = file.read(min(left, PIECE_BYTES))
                if not piece:
                    raise InputError(f"{source}: found {size - left} bytes, expected {size}: {RECORDED}")
                checksum.update(piece)
                left -= len(piece)
                take(piece)
        verify(source, checksum.hexdigest(), self.manifest["record_checksums"][rank])

    def _record(self, rank: Rank) -> tuple[Path, int]:
        """Returns the path of a rank's record and how many bytes of it belong to this checkpoint."""
        return record_of(self.path.parent, rank), int(self.manifest["record_bytes"][rank])


def record_of(folder: Path, rank: Rank) -> Path:
    """Returns the path of a rank's record in a folder of checkpoints."""
    return folder / RECORD / f"rank{rank}.stream"


def steps_in(folder: Path) -> list[Path]:
    """Returns the complete checkpoints of a folder, oldest first."""
    numbered = [(int(match[1]), entry) for entry in folder.glob("step-*") if (match := NAME.fullmatch(entry.name))]
    return [entry for _, entry in sorted(numbered)]


def find_last(place: Path) -> Checkpoint:
    """Returns the latest complete checkpoint of a run's folder, or the checkpoint in this folder itself.

    Args:
        place: the folder of a run of `train`, ended, failed or unfinished; or one checkpoint of it.

    Raises:
        InputError: there is none, or it was written by a later Paceline.
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
    """Reads the checkpoint in this folder; raises `InputError` if its manifest is damaged or cannot be read."""
    place = path / MANIFEST
    manifest = read_sealed(place, f"the manifest of {WHOLE}")
    with reading(place, f"the manifest of {WHOLE}"):
        if manifest["format"] > FORMAT:
            raise InputError(f"{path}: format {manifest['format']} is of a later Paceline; this one reads {FORMAT}")
        checkpoint = Checkpoint(path, manifest)
        by_rank = [checkpoint.granted, *(manifest[key] for key in ("record_bytes", "record_checksums", "files"))]
        if len({len(entries) for entries in by_rank}) != 1 or not all(
            isinstance(files, dict) for files in manifest["files"]
        ):
            raise ValueError("the lists of ranks do not agree")
        _ = checkpoint.step, checkpoint.time_s, dict(manifest["scenario"]), str(manifest["algorithm"])
        _ = [int(size) for size in (*checkpoint.granted, *manifest["record_bytes"])]
    return checkpoint
