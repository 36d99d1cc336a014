"""The data sets that are known by name: what a sample is, how many there are, which files belong where.

Rules of this file: what is in a folder is read once a process, whole, and kept as bytes, so that ranks forked later
share it. Counts here are those of the complete sets, for scenarios in which nothing is trained; what is trained counts
the samples that are there.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.naming import near_miss
from paceline.workloads.datasets import cifar, folders, idx
from paceline.workloads.datasets.dataset_files import Loaded, within
from paceline.workloads.reading.folder import ABOUT, TEST, TRAIN, Recorded, recorded

RECORDS = "records"
"""the data set that stays in its files"""
MANY = 1 << 30
"""classes that a user's module may tell apart, for all that is known before it is tried"""
HOME = "PACELINE_DATA"
"""the environment variable that names the folder of all data sets, each in a folder of its name"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """A data set.

    Args:
        shape: of a sample; None: the pictures are brought to the model's; (): whatever is in the folder.
        classes: how many; None: as many as there are in the folder.
        train: samples to learn from.
        test: samples held out.
        holds: what its folder holds, in words; empty: it is bundled.
        source: where it comes from.
        read: reads its folder; given too is the shape that a model takes.
        item: what the numbers of a sample are, as they are kept.
    """

    name: str
    shape: tuple[int, ...] | None = None
    classes: int | None = None
    train: int | None = None
    test: int | None = None
    holds: str = ""
    source: str
    read: Callable[[Path, Sequence[int]], Loaded | Recorded] | None = None
    item: str = "uint8"

    def fits(self, shape: Sequence[int], classes: int | None) -> bool:
        """Whether a model that takes samples of this shape, and tells so many classes apart, can learn it.

        A model of flat samples takes pictures too, with as many numbers. It may know more classes than there are.

        >>> DATA["mnist"].fits((784,), 10), DATA["cifar100"].fits((3, 32, 32), 10)
        (True, False)
        """
        if classes is None or (self.classes or 0) > classes:
            return False
        if self.shape == ():
            return True
        if self.shape is None:
            return len(shape) == 3 and shape[0] in (1, 3)
        return tuple(shape) in (self.shape, (math.prod(self.shape),))

    @property
    def words(self) -> str:
        """What a sample is, and how many classes there are."""
        if self.shape == ():
            return "what was converted, with its shape and classes"
        if self.shape is None:
            return "pictures brought to the model's size, a class for each folder"
        return f"{' × '.join(map(str, self.shape))}, {self.classes} classes"


def _gathered(*sets: DataSet) -> dict[str, DataSet]:
    return {one.name: one for one in sets}


_IDX = ", ".join(idx.NAMES) + ", each as it is or as .gz"
DATA = _gathered(
    DataSet(name="digits", shape=(1, 8, 8), classes=10, train=1437, test=360, item="float64",
        source="scikit-learn, which brings it along: UCI's optical recognition of handwritten digits, CC BY 4.0"),
    DataSet(name="mnist", shape=(1, 28, 28), classes=10, train=60_000, test=10_000, holds=_IDX,
        read=lambda folder, _: idx.read(within(folder, "MNIST/raw")),
        source="LeCun, Cortes and Burges's MNIST page and its mirrors"),
    DataSet(name="fashion-mnist", shape=(1, 28, 28), classes=10, train=60_000, test=10_000, holds=_IDX,
        read=lambda folder, _: idx.read(within(folder, "FashionMNIST/raw")),
        source="Zalando's fashion-mnist repository, MIT licence"),
    DataSet(name="cifar10", shape=(3, 32, 32), classes=10, train=50_000, test=10_000,
        holds="cifar-10-python.tar.gz, or what is in it: data_batch_1 to data_batch_5 and test_batch",
        read=lambda folder, _: cifar.CIFAR10.read(folder),
        source="Krizhevsky's CIFAR page, the python version"),
    DataSet(name="cifar100", shape=(3, 32, 32), classes=100, train=50_000, test=10_000,
        holds="cifar-100-python.tar.gz, or what is in it: train and test",
        read=lambda folder, _: cifar.CIFAR100.read(folder),
        source="Krizhevsky's CIFAR page, the python version; its fine labels"),
    DataSet(name="images", read=folders.read,
        holds="train and test (or val), each with a folder a class of .png or .jpg files; or only folders of classes",
        source="your own, or any set that is handed out as folders of pictures, such as ImageNet"),
    DataSet(name=RECORDS, shape=(), read=recorded,
        holds=f"{TRAIN}, {TEST} and {ABOUT}",
        source="paceline convert, which makes them of the others"),
)  # fmt: skip


def fitting(shape: Sequence[int], classes: int | None) -> list[str]:
    """The data sets that a model of these can learn; see `DataSet.fits`."""
    return [name for name, one in DATA.items() if one.fits(shape, classes)]


def misfit(model: str, name: str, shape: Sequence[int], classes: int | None) -> list[str]:
    """Why a model cannot learn the data set of this name, as ``data: found …, expected …``; empty if it can.

    Args:
        model: its name, for the message.
        name: of the data set.
        shape: of the samples that the model takes.
        classes: that it tells apart at most; None: none.

    >>> misfit("lenet", "digits", (1, 28, 28), 10)  # doctest: +ELLIPSIS
    ["dataset: found 'digits' (1 × 8 × 8, 10 classes) for lenet, which takes 1 × 28 × 28 ...expected mnist, ..."]
    """
    fits = fitting(shape, classes)
    right = f"expected {', '.join(fits) or 'none: no data set has what the model takes'}"
    if name not in DATA:
        return [f"dataset: found {name!r}, {right}{near_miss(name, DATA)}"]
    if name in fits:
        return []
    takes = f"takes {' × '.join(map(str, shape))} and tells {classes or 'no'} classes apart"
    return [f"dataset: found {name!r} ({DATA[name].words}) for {model}, which {takes}; {right}"]


def unreadable(name: str, directory: str | None, shape: Sequence[int], classes: int) -> list[str]:
    """What is wrong with a data set's folder, as ``data_dir: found …, expected …``.

    Args:
        name, directory, shape: as of `read`.
        classes: that the model tells apart at most.
    """
    if DATA[name].read is None:
        return [] if directory is None else [f"data_dir: found {directory!r}, expected none: {name} is bundled"]
    try:
        there = read(name, directory, shape).classes
    except InputError as error:
        return [f"data_dir: {error}"]
    few = f"data_dir: found {there} classes in it, expected at most the {classes} that the model tells apart"
    return [few] if there > classes else []


def read(name: str, directory: str | None, shape: Sequence[int]) -> Loaded | Recorded:
    """What is in the folder of a data set.

    Args:
        name: in `DATA`, and not bundled.
        data_dir: the folder; None: the one of this name in the folder that the environment variable names.
        shape: of the samples that a model takes.

    Raises:
        InputError: saying what is wrong with the folder, what belongs there and where it comes from.
    """
    known = DATA[name]
    folder = place_of(name, directory)
    try:
        return _read(name, folder.resolve(), () if known.shape else tuple(shape))
    except (InputError, OSError) as error:
        raise InputError(f"{error}; {_wanted(known)}") from error


def place_of(name: str, directory: str | None) -> Path:
    """The folder of a data set; raises `InputError` where there is none."""
    wanted = _wanted(DATA[name])
    if directory is None and HOME not in os.environ:
        raise InputError(f"missing; expected the folder of {name}, or {HOME} set to its parent; {wanted}")
    folder = Path(os.environ.get(HOME, ""), name) if directory is None else Path(directory)
    if not folder.is_dir():
        raise InputError(f"found no folder {folder}; {wanted}")
    return folder


def _wanted(known: DataSet) -> str:
    return f"expected in it {known.holds} (from {known.source})"


@lru_cache(maxsize=2)
def _read(name: str, folder: Path, shape: tuple[int, ...]) -> Loaded | Recorded:
    reader = DATA[name].read
    assert reader is not None, "a bundled data set has no folder"
    return reader(folder, shape)
