"""Converts a data set of the catalogue to record files, which `reading.folder` describes.

Records are written in chunks; pictures in folders are read one by one, so that they need not fit in memory. The
training data are shuffled once, by a seed, before they are written: a contiguous reader shuffles only nearby records,
while folders of pictures, for example, are ordered by class. The held-out data keep their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from paceline.algorithms.core.checksums import checksum_of
from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.files import replacing
from paceline.algorithms.core.naming import near_miss
from paceline.workloads.batches.examples import Standardised, digits, histogram
from paceline.workloads.datasets import DATA, RECORDS, LoadedDataset, place_of, read, unreadable
from paceline.workloads.datasets.dataset_files import Listed, listed, picture
from paceline.workloads.models.zoo import USUAL
from paceline.workloads.reading.file import Records, records_of, write_records
from paceline.workloads.reading.folder import (
    ABOUT,
    TEST,
    TRAIN,
    About,
    Normalisation,
    Written,
    checksums_beside,
    write_about,
)
from paceline.workloads.reading.orders import Places
from paceline.workloads.sampling import shuffled

CHUNK = 16 << 20
"""approximate bytes per write; provenance: ours"""
SIZES = "a number of pixels, height x width, or channels x height x width with 1 or 3 channels: 224, 48x64 or 1x28x28"

Progress = Callable[[str, float], None]
"""called with the name of the current file and its written fraction, from 0 to 1"""


@dataclass(frozen=True, slots=True)
class FilePart:
    """The content of one file."""

    count: int
    at: Callable[[Places], Records]
    """returns the samples at these positions"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A data set to convert."""

    name: str
    shape: tuple[int, ...]
    classes: int
    class_names: tuple[str, ...] | None = None
    train: FilePart
    test: FilePart


def convertible() -> list[str]:
    """Returns the names of the data sets that can be converted."""
    return [name for name, dataset in DATA.items() if name != RECORDS and not dataset.tokens]  # a record has one label


def find_source(name: str, data_dir: str | None, size: str | None) -> Source:
    """Finds a data set to convert.

    Args:
        name: the data set's name, in `convertible`.
        data_dir: its folder; None: bundled, or from the environment variable (see `catalogue.read`).
        size: size for pictures in folders; see `SIZES`.

    Raises:
        InputError: there is no such data set, or its folder or the size is wrong.
    """
    if name not in (known := convertible()):
        raise InputError(f"DATA: found {name!r}, expected one of {', '.join(known)}{near_miss(name, known)}")
    if name == "images":
        return _folders(data_dir, USUAL if size is None else sized(size))
    if size is not None:
        raise InputError(f"--size: found {size!r} for {name}, expected none: its samples have a size")
    if DATA[name].read is None:
        return _digits(data_dir)
    try:
        there = read(name, data_dir, ())
    except InputError as error:
        raise InputError(f"--data-dir: {error}") from error
    assert isinstance(there, LoadedDataset), "only records are not loaded"
    train, test = (FilePart(len(half.labels), partial(_chosen, *half)) for half in (there.train, there.test))
    return Source(name=name, shape=there.train.pictures.shape[1:], classes=there.classes, train=train, test=test)


def convert(source: Source, out: Path, *, seed: int | None = 1, progress: Progress = lambda _, __: None) -> About:
    """Writes a data set to a folder as record files.

    Args:
        source: the data set, from `find_source`.
        out: the existing folder; each file is written atomically, `dataset.json` last.
        seed: seed of the order of the training data; None: they keep their order.
        progress: called with the current file and its written fraction.

    Returns:
        The content of `dataset.json`.

    Raises:
        InputError: a picture cannot be read.
    """
    dtype = source.train.at(np.arange(1)).dtype
    order = np.arange(source.train.count) if seed is None else shuffled(source.train.count, seed, 0)
    counts = torch.zeros(source.shape[0], 256, dtype=torch.int64)
    pictures = dtype["inputs"].base == np.uint8

    def counted(chunk: Records) -> None:
        if pictures:
            counts.add_(histogram(torch.from_numpy(np.ascontiguousarray(chunk["inputs"]))))

    train = _write(out / TRAIN, source.train, dtype, order, counted, partial(progress, TRAIN))
    places = np.arange(source.test.count)
    test = _write(out / TEST, source.test, dtype, places, lambda _: None, partial(progress, TEST))
    about = About(
        name=source.name,
        source=DATA[source.name].source,
        shape=source.shape,
        classes=source.classes,
        class_names=source.class_names,
        normalisation=_normalisation(counts) if pictures else None,
        shuffled=seed,
        train=train,
        test=test,
    )
    write_about(about, out / ABOUT)
    return about


def sized(text: str) -> tuple[int, int, int]:
    """Parses channels, height and width; see `SIZES`.

    >>> sized("32"), sized("48x64"), sized("1x28x28")
    ((3, 32, 32), (3, 48, 64), (1, 28, 28))
    """
    try:
        numbers = [int(part) for part in text.split("x")]
    except ValueError:
        numbers = []
    sizes = {1: (3, *numbers * 2), 2: (3, *numbers), 3: (*numbers,)}.get(len(numbers), (0,))
    if len(sizes) != 3 or min(sizes) < 1 or sizes[0] not in (1, 3):
        raise InputError(f"--size: found {text!r}, expected {SIZES}")
    return sizes


def _digits(data_dir: str | None) -> Source:
    if wrong := unreadable("digits", data_dir, (), 10):
        raise InputError(f"--{wrong[0].replace('data_dir', 'data-dir', 1)}")
    known = digits()
    parts = [[tensor.numpy() for tensor in half] for half in (known.train, known.test)]
    train, test = (FilePart(len(labels), partial(_chosen, inputs, labels)) for inputs, labels in parts)
    return Source(name="digits", shape=parts[0][0].shape[1:], classes=10, train=train, test=test)


def _folders(data_dir: str | None, shape: tuple[int, int, int]) -> Source:
    try:
        *halves, names = listed(place_of("images", data_dir))
    except InputError as error:
        raise InputError(f"--data-dir: {error}") from error
    train, test = (FilePart(len(half), partial(_pictures, half, shape)) for half in halves)
    return Source(name="images", shape=shape, classes=len(names), class_names=tuple(names), train=train, test=test)


def _chosen(inputs: NDArray[Any], labels: NDArray[np.int64], places: Places) -> Records:
    return records_of(inputs[places], labels[places])


def _pictures(half: Listed, shape: Sequence[int], places: Places) -> Records:
    chosen = [half[place] for place in places]
    pictures = np.array([picture(path, shape) for path, _ in chosen])
    return records_of(pictures, np.array([label for _, label in chosen]))


def _write(
    path: Path,
    part: FilePart,
    dtype: np.dtype[np.void],
    order: Places,
    seen: Callable[[Records], None],
    progress: Callable[[float], None],
) -> Written:
    """Writes one file; `seen` is called with every chunk."""
    size = max(1, CHUNK // dtype.itemsize)

    def chunks() -> Iterator[Records]:
        for first in range(0, part.count, size):
            progress(first / part.count)
            chunk = part.at(order[first : first + size])
            seen(chunk)
            yield chunk
        progress(1.0)

    sums = write_records(path, chunks(), count=part.count, dtype=dtype)
    beside = checksums_beside(path)
    with replacing(beside) as hidden:
        hidden.write_bytes(sums.records.astype("<u8").tobytes())
    return Written(part.count, path.stat().st_size, sums.sha256, sums.header, checksum_of(beside))


def _normalisation(counts: torch.Tensor) -> Normalisation:
    by = Standardised.counted(counts, ())
    return Normalisation(tuple(by.mean.flatten().tolist()), tuple(by.deviation.flatten().tolist()))
