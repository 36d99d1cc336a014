"""What reading a data set gives, and what the readers of all formats share.

Rules of this file:

* Pictures stay bytes, as they are in the files; they become numbers when a batch is chosen.
* What a file says of itself is checked against what is in it. All that is wrong with a folder is said at once.
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
"""names or mistakes that a message shows; of more, it says how many"""
Thing = TypeVar("Thing")
Value = TypeVar("Value")


class Half(NamedTuple):
    """One half of a data set: what is learned from, or what is held out."""

    pictures: NDArray[np.uint8]
    """samples × channels × height × width"""
    labels: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """A data set in memory; equal to itself only."""

    train: Half
    test: Half
    classes: int

    @property
    def num_samples(self) -> int:
        """Samples to learn from."""
        return len(self.train.labels)


def some(things: Sequence[object], between: str = ", ") -> str:
    """
    >>> some("abcdefgh"), some([])
    ('a, b, c, d, e, and 3 more', 'nothing')
    """
    more = [f"and {len(things) - SHOWN} more"] if len(things) > SHOWN else []
    return between.join([*map(str, things[:SHOWN]), *more]) or "nothing"


def within(folder: Path, inner: str) -> Path:
    """The folder inside this one that unpacking leaves behind, if it is there; else the folder itself."""
    return folder / inner if (folder / inner).is_dir() else folder


def found(folder: Path, names: Iterable[str], *, ending: str) -> dict[str, Path]:
    """The files of these names, each as it is or packed, with this ending.

    Raises:
        InputError: with the names that are missing, and what is there.
    """
    paths = {name: folder / name if (folder / name).is_file() else folder / (name + ending) for name in names}
    if missing := [name for name, path in paths.items() if not path.is_file()]:
        beside = sorted(path.name for path in folder.iterdir())
        raise InputError(f"found no {some(missing)} in {folder} (there is {some(beside)})")
    return paths


def content(path: Path) -> bytes:
    """What is in a file, unpacked if it is gzipped; raises `InputError` where that cannot be."""
    try:
        packed = path.read_bytes()
        return gzip.decompress(packed) if path.suffix == ".gz" else packed
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} cannot be read: {error}") from error


def each(things: Iterable[Thing], read: Callable[[Thing], Value]) -> list[Value]:
    """What reading each gives; raises one `InputError` with the mistakes of all of them."""
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
    """The half; raises `InputError` if it is empty, or labels do not belong to its pictures."""
    pictures, labels = half
    if not len(pictures) or len(pictures) != len(labels):
        raise InputError(f"{where}: found {len(pictures)} pictures and {len(labels)} labels, expected a label for each")
    if labels.min() < 0 or labels.max() >= classes:
        raise InputError(f"{where}: found labels {labels.min()} to {labels.max()}, expected 0 to {classes - 1}")
    return half
