"""A rank's part of a checkpoint on disk: vectors by torch's distributed checkpoint, everything else as a pickle.

Rules of this file:

* Vectors are not pickled: the pickle refers to them by number. A vector that occurs twice in the part is stored once.
* A handle is stored with the answer of its operation, so that a resumed program finds it completed.
* Pickles, including torch's own, are read with an allow-list (`Restricted`).
* A part has checksums of its files, which are verified before anything is parsed.
"""

from __future__ import annotations

import io
import os
import pickle
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from paceline.algorithms.core.checksums import checksum_of, checksums_in, reading, verify
from paceline.algorithms.core.operations import Handle
from paceline.algorithms.core.values import Rank
from paceline.backend.rank.checkpoint import RankPart, Restricted, sync

STATE, VECTORS = "state.pickle", "vectors"
NUMBERS = frozenset("biuf")
"""the kinds of NumPy types that torch has too"""


@contextmanager
def _alone() -> Iterator[None]:
    """Wraps calls of torch's checkpoints in a single process; raises `OSError` if they fail."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the missing process group is intended
            yield
    except CheckpointException as error:  # not a subclass of `Exception`, with a message two pages long
        causes = [cause for cause, _ in error.failures.values()]
        if isinstance(causes[0], OSError):
            raise causes[0] from error
        raise OSError("; ".join(map(str, causes))) from error


# --- writing ---------------------------------------------------------------------------------------------------------


class _PartPickler(pickle.Pickler):
    """Replaces vectors by references, and stores handles with their answers."""

    def __init__(self, file: IO[bytes], answer: Callable[[Handle[Any]], Any]) -> None:
        super().__init__(file, protocol=5)
        self.vectors: dict[str, torch.Tensor] = {}
        self._answer = answer
        self._names: dict[int, tuple[Any, Any]] = {}
        """by the vector's id: the vector, so that its id is not reused, and its name"""

    def persistent_id(self, value: Any) -> Any:
        if not _is_vector(value):
            return None
        if id(value) not in self._names:
            number = str(len(self._names))
            kind = str(value.device) if isinstance(value, torch.Tensor) else "numpy"
            self._names[id(value)] = value, (kind, number)
            self.vectors[number] = (
                value.detach().cpu() if isinstance(value, torch.Tensor) else torch.from_numpy(value.copy())
            )
        return self._names[id(value)][1]

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Handle):
            return answered, (int(value.rank), value.number, self._answer(value))
        return NotImplemented


def _is_vector(value: Any) -> bool:
    return isinstance(value, torch.Tensor) or (type(value) is np.ndarray and value.dtype.kind in NUMBERS)


def answered(rank: int, number: int, answer: Any) -> Handle[Any]:
    """Represents a handle and its answer in a pickle; `_Unpickler` reads it."""
    raise NotImplementedError("a part of a checkpoint is read by read_part")


def write_part(folder: Path, part: RankPart, answer: Callable[[Handle[Any]], Any]) -> dict[str, str]:
    """Writes a rank's part to a new folder; all of it is on disk when the function returns.

    Args:
        folder: the folder to create; the rest of a failed attempt is removed.
        part: the state to write.
        answer: returns the answer of a handle, whose operation is complete.

    Returns:
        The checksums of its files.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    skeleton = io.BytesIO()
    pickler = _PartPickler(skeleton, answer)
    pickler.dump(part)
    if pickler.vectors:
        writer = FileSystemWriter(folder / VECTORS, sync_files=True)
        with _alone():
            save(dict(pickler.vectors), storage_writer=writer, no_dist=True)
    with (folder / STATE).open("wb") as file:
        file.write(skeleton.getvalue())
        file.flush()
        os.fsync(file.fileno())
    sync(folder)
    return checksums_in(folder)


# --- reading ---------------------------------------------------------------------------------------------------------


class _Unpickler(Restricted):
    """Restores vectors, and collects the answers of handles."""

    def __init__(self, file: IO[bytes], vectors: dict[str, torch.Tensor], *, placed: bool) -> None:
        super().__init__(file)
        self._placed = placed
        self.answers: dict[Handle[Any], Any] = {}
        self._vectors: dict[Any, Any] = vectors
        self._made: dict[Any, Any] = {}

    def persistent_load(self, name: Any) -> Any:
        if name not in self._made:
            kind, number = name
            vector = self._vectors[number]
            self._made[name] = vector.numpy() if kind == "numpy" else vector.to(kind if self._placed else "cpu")
        return self._made[name]

    def find_class(self, module: str, name: str) -> Any:
        return self._answered if (module, name) == (__name__, answered.__name__) else super().find_class(module, name)

    def _answered(self, rank: int, number: int, answer: Any) -> Handle[Any]:
        handle: Handle[Any] = Handle(Rank(rank), number)
        self.answers[handle] = answer
        return handle


def read_part(
    folder: Path, checksums: Mapping[str, str], *, placed: bool = True
) -> tuple[RankPart, dict[Handle[Any], Any]]:
    """Reads a rank's part, and the answers of the handles in it.

    Args:
        folder: the folder of the part.
        checksums: the checksums of its files, as `write_part` returned them.
        placed: restores vectors to their devices, such as a GPU; otherwise they stay in host memory.

    Raises:
        InputError: a file is missing, damaged, or cannot be read.
    """
    what = "a whole part of a checkpoint"
    for name, expected in checksums.items():
        with reading(folder / name, what):
            verify(folder / name, checksum_of(folder / name), expected)
    vectors = {}
    if f"{VECTORS}/.metadata" in checksums:
        with reading(folder / VECTORS, what):
            vectors = _vectors(folder / VECTORS)
    with reading(folder / STATE, what), (folder / STATE).open("rb") as file:
        unpickler = _Unpickler(file, vectors, placed=placed)
        part = unpickler.load()
        if not isinstance(part, RankPart):
            raise TypeError(f"found {type(part).__name__}")
        return part, unpickler.answers


def _vectors(folder: Path) -> dict[str, torch.Tensor]:
    with (folder / ".metadata").open("rb") as file:  # torch reads it as an ordinary pickle, so check its content first
        metadata = Restricted(file).load()
    vectors = {
        name: torch.empty(kind.size, dtype=kind.properties.dtype) for name, kind in metadata.state_dict_metadata.items()
    }
    with _alone():
        load(vectors, storage_reader=FileSystemReader(folder), no_dist=True)
    return vectors
