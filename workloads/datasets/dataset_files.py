"""The result of reading a data set, and functions of the readers of all formats.

Pictures stay bytes, as in the files; they are converted to numbers when a batch is drawn. Headers are compared with the
content of the files. All mistakes of a folder are reported together.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from paceline.algorithms.core.errors import InputError

SHOWN = 5
"""largest number of names or mistakes in a message; it counts the others"""
Thing = TypeVar("Thing")
Value = TypeVar("Value")


class Half(NamedTuple):
    """One part of a data set: the training data or the held-out data."""

    pictures: NDArray[np.uint8]
    """samples × channels × height × width"""
    labels: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class LoadedDataset:
    """A data set in memory, compared by identity."""

    train: Half
    test: Half
    classes: int

    @property
    def num_samples(self) -> int:
        """Number of training samples."""
        return len(self.train.labels)


def some(things: Sequence[object], between: str = ", ") -> str:
    """
    >>> some("abcdefgh"), some([])
    ('a, b, c, d, e, and 3 more', 'nothing')
    """
    more = [f"and {len(things) - SHOWN} more"] if len(things) > SHOWN else []
    return between.join([*map(str, things[:SHOWN]), *more]) or "nothing"


def within(folder: Path, inner: str) -> Path:
    """Returns the inner folder that unpacking makes, if it exists; else the folder itself.

    Args:
        folder: the data set's folder.
        inner: the name of the inner folder.
    """
    return folder / inner if (folder / inner).is_dir() else folder


def existing_files(folder: Path, names: Iterable[str], *, ending: str) -> dict[str, Path]:
    """Finds the files with these names, each unpacked or packed with this ending.

    Args:
        folder: the data set's folder.
        names: names of unpacked files.
        ending: ending of packed files.

    Raises:
        InputError: files are missing; with their names, and the existing files.
    """
    paths = {name: folder / name if (folder / name).is_file() else folder / (name + ending) for name in names}
    if missing := [name for name, path in paths.items() if not path.is_file()]:
        beside = sorted(path.name for path in folder.iterdir())
        raise InputError(f"found no {some(missing)} in {folder} (there is {some(beside)})")
    return paths


def content(path: Path) -> bytes:
    """Returns the content of a file, unpacked if it is gzipped; raises `InputError` if it cannot be read."""
    try:
        packed = path.read_bytes()
        return gzip.decompress(packed) if path.suffix == ".gz" else packed
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} cannot be read: {error}") from error


def each(things: Iterable[Thing], read: Callable[[Thing], Value]) -> list[Value]:
    """Reads all things; raises one `InputError` with the mistakes of all of them.

    Args:
        things: what to read, such as paths.
        read: reads one of them.
    """
    values, wrong = [], []
    for thing in things:
        try:
            values.append(read(thing))
        except InputError as error:
            wrong.append(str(error))
    if wrong:
        raise InputError(some(wrong, "; "))
    return values


def checked(half: Half, classes: int, where: object) -> Half:
    """Checks a part of a data set and returns it.

    Args:
        half: the part.
        classes: number of classes.
        where: the file or folder, for messages.

    Raises:
        InputError: the part is empty, or its labels do not match the pictures or classes.
    """
    pictures, labels = half
    if not len(pictures) or len(pictures) != len(labels):
        raise InputError(f"{where}: found {len(pictures)} pictures and {len(labels)} labels, expected a label for each")
    if labels.min() < 0 or labels.max() >= classes:
        raise InputError(f"{where}: found labels {labels.min()} to {labels.max()}, expected 0 to {classes - 1}")
    return half
