"""A data set as record files: a folder of `train.npy`, `test.npy` and `dataset.json`, which describes the two.

Each of the two has a file with the checksums of its records, eight bytes each. `dataset.json` has the checksums of
these files, of the two headers, and its own. The files must be consistent. Headers and checksums are read here, but no
records.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from paceline.algorithms.core.checksums import read_sealed, sealed
from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.files import write_whole
from paceline.workloads.reading.file import RecordFile, read_checksums

TRAIN, TEST, ABOUT = "train.npy", "test.npy", "dataset.json"
VERSION: Literal[1] = 1
"""format version of dataset.json; it increases with incompatible changes"""


@dataclass(frozen=True, slots=True)
class Normalisation:
    """Mean and deviation of each channel of pictures, which convert bytes to numbers of mean 0 and deviation 1."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Written:
    """The size and checksums of one of the two files when it was written."""

    records: int
    bytes: int
    sha256: str
    header: str
    """the checksum of the bytes before the first record"""
    checksums: str
    """the checksum of the file with the checksums of records"""


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """The content of `dataset.json`.

    Args:
        format: format version.
        name: name of the data set.
        source: where it comes from.
        shape: shape of a sample's inputs.
        classes: number of classes.
        class_names: names of the classes, if they have any.
        labels: description of the labels.
        normalisation: conversion of bytes to numbers; None: inputs are not converted.
        shuffled: seed of the order of `train.npy`; None: it was not shuffled.
        train, test: the files.
    """

    format: Literal[1] = VERSION
    name: str
    source: str
    shape: tuple[int, ...]
    classes: int
    class_names: tuple[str, ...] | None = None
    labels: Literal["classes"] = "classes"
    normalisation: Normalisation | None
    shuffled: int | None
    train: Written
    test: Written


@dataclass(frozen=True, slots=True, eq=False)
class RecordedDataset:
    """A data set whose samples are not loaded, compared by identity."""

    about: About
    train: RecordFile
    test: RecordFile

    @property
    def classes(self) -> int:
        return self.about.classes

    @property
    def num_samples(self) -> int:
        """Number of training samples."""
        return self.train.num_samples


def recorded(folder: Path, shape: Sequence[int] = ()) -> RecordedDataset:
    """Opens the data set in a folder.

    Args:
        folder: a folder of `paceline convert`.
        shape: shape of a sample for a model; (): any. Flat samples and pictures of equally many numbers are compatible.

    Raises:
        InputError: a file is missing or truncated, the files are not consistent, or samples have another shape.
    """
    about = _about(folder / ABOUT)
    files = [_file(folder / name, said, about) for name, said in ((TRAIN, about.train), (TEST, about.test))]
    if shape and not _fits(about.shape, shape):
        actual, expected = (" × ".join(map(str, dimensions)) for dimensions in (about.shape, shape))
        raise InputError(f"found samples of {actual} in {folder}, expected {expected}: what the model takes")
    return RecordedDataset(about, *files)


def _about(path: Path) -> About:
    document = read_sealed(path, "the description of a data set that `paceline convert` wrote")
    try:
        about = TypeAdapter(About).validate_python(document)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the whole"
        raise InputError(f"{path}: {place} is not as expected: {first['msg']}") from error
    channels = {about.shape[0] if len(about.shape) == 3 else 0}
    known = about.normalisation
    if known is not None and {len(known.mean), len(known.deviation)} != channels:
        actual = f"{len(known.mean)} means and {len(known.deviation)} deviations"
        raise InputError(f"{path}: found {actual}, expected one for each channel of channels × height × width")
    return about


def _file(path: Path, said: Written, about: About) -> RecordFile:
    file = RecordFile.open(path)
    if file.num_samples != said.records or file.shape != about.shape:
        actual, expected = (
            f"{count:,} records of {' × '.join(map(str, shape))}"
            for count, shape in ((file.num_samples, file.shape), (said.records, about.shape))
        )
        raise InputError(f"found {actual} in {path}, expected the {expected} that {ABOUT} says")
    if file.header_checksum() != said.header:
        raise InputError(f"the header of {path} is damaged: its checksum is not the one in {ABOUT}; convert it again")
    return replace(file, checksums=read_checksums(checksums_beside(path), said.checksums, file.num_samples))


def checksums_beside(path: Path) -> Path:
    """Returns the path of the checksums of a file's records.

    >>> checksums_beside(Path("train.npy"))
    PosixPath('train.checksums')
    """
    return path.with_suffix(".checksums")


def write_about(about: About, path: Path) -> None:
    """Writes `dataset.json`."""
    document = sealed(TypeAdapter(About).dump_python(about, mode="json"))
    write_whole(path, json.dumps(document, indent=2) + "\n")


def _fits(kept: Sequence[int], taken: Sequence[int]) -> bool:
    flat = len(kept) == 1 or len(taken) == 1
    return tuple(kept) == tuple(taken) or (flat and math.prod(kept) == math.prod(taken))
