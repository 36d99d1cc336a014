"""CIFAR's python batches: pickled dictionaries with a matrix of bytes, one picture per row, and a list of labels.

A pickle can call any function, so only the functions that make an array of numbers are allowed. The batches are read
from the folder or from the downloaded archive. Source: the CIFAR page (Krizhevsky).
"""

from __future__ import annotations

import io
import pickle
import tarfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from paceline.algorithms.core.errors import InputError
from paceline.workloads.datasets.dataset_files import (
    Half,
    LoadedDataset,
    checked,
    content,
    each,
    existing_files,
    within,
)

SHAPE = (3, 32, 32)


@dataclass(frozen=True, slots=True)
class Cifar:
    """The files of one of the two sets."""

    folder: str
    """the folder in the archive"""
    archive: str
    train: tuple[str, ...]
    test: str
    labels: bytes
    classes: int

    def read(self, folder: Path) -> LoadedDataset:
        """Reads a folder with the batches or the archive; raises `InputError` with all mistakes."""
        names = (*self.train, self.test)
        archive = folder / self.archive
        inside = within(folder, self.folder)
        if archive.is_file() and not any((inside / name).is_file() for name in names):
            packed = _unpacked(archive, names)
            *train, test = each(names, lambda name: self._half(packed[name], f"{archive}:{name}"))
        else:
            paths = existing_files(inside, names, ending="")
            *train, test = each(names, lambda name: self._half(content(paths[name]), str(paths[name])))
        return LoadedDataset(Half(*(np.concatenate(part) for part in zip(*train, strict=True))), test, self.classes)

    def _half(self, data: bytes, where: str) -> Half:
        batch = _unpickled(data, where)
        missing = [key.decode() for key in (b"data", self.labels) if key not in batch]
        if missing:
            raise InputError(f"{where}: found no {' and no '.join(missing)}, expected a batch of pictures with labels")
        rows = np.asarray(batch[b"data"])
        if rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != np.prod(SHAPE):
            size = " × ".join(map(str, rows.shape))
            raise InputError(f"{where}: found data of {size} {rows.dtype}, expected rows of 3072 bytes (uint8)")
        labels = np.asarray(batch[self.labels])
        if labels.dtype.kind not in "iu" or labels.ndim != 1:
            raise InputError(f"{where}: found {self.labels.decode()} that are no list of whole numbers")
        return checked(Half(rows.reshape(-1, *SHAPE), labels.astype(np.int64)), self.classes, where)


CIFAR10 = Cifar(
    folder="cifar-10-batches-py",
    archive="cifar-10-python.tar.gz",
    train=tuple(f"data_batch_{number}" for number in range(1, 6)),
    test="test_batch",
    labels=b"labels",
    classes=10,
)
CIFAR100 = Cifar(
    folder="cifar-100-python",
    archive="cifar-100-python.tar.gz",
    train=("train",),
    test="test",
    labels=b"fine_labels",
    classes=100,
)


def _unpacked(archive: Path, names: tuple[str, ...]) -> Mapping[str, bytes]:
    """Returns the members with these names in any folder of the archive; nothing is written."""
    members = {}
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                name = Path(member.name).name
                if name in names and (file := tar.extractfile(member)) is not None:
                    members[name] = file.read()
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise InputError(f"{archive} cannot be read: {error}") from error
    if missing := [name for name in names if name not in members]:
        raise InputError(f"found no {', '.join(missing)} in {archive}")
    return {name: members[name] for name in names}


def _text(text: str, encoding: str) -> bytes:
    """Decodes bytes as Python 3 writes them to a pickle for Python 2."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"text in {encoding}")
    return text.encode(encoding)


_ARRAY: Callable[..., Any] = np.ndarray((0,)).__reduce__()[0]  # type: ignore[assignment]  # makes an empty array
HARMLESS: dict[tuple[str, str], Any] = {
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _ARRAY for core in ("core", "_core")},
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _text,
}
"""the only functions that a batch may name"""


class _Numbers(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return HARMLESS[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which is no array of numbers") from None


def _unpickled(data: bytes, where: str) -> Mapping[bytes, Any]:
    try:
        batch = _Numbers(io.BytesIO(data), encoding="bytes").load()
    except Exception as error:  # a broken pickle can raise anything
        raise InputError(f"{where} cannot be unpickled: {error}") from error
    if not isinstance(batch, dict):
        raise InputError(f"{where}: found a {type(batch).__name__}, expected a batch: a dictionary")
    return batch
