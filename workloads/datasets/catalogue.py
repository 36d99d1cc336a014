"""The catalogue of data sets: shape and number of samples, and the files of each.

A folder is read completely once per process and stored as bytes, so that ranks that are forked later share it. The
counts are those of the complete sets, for scenarios that train nothing; a training uses the number of samples in the
files.
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
from paceline.workloads.datasets import dataset_files, sentences
from paceline.workloads.datasets.dataset_files import LoadedDataset, within
from paceline.workloads.reading.folder import ABOUT, TEST, TRAIN, RecordedDataset, recorded

RECORDS = "records"
"""the data set that is not loaded into memory"""
MANY = 1 << 30
"""assumed number of classes of a custom module before it is tried"""
HOME = "PACELINE_DATA"
"""the environment variable with the folder that contains a folder for each data set"""
INSTALLED = Path("/usr/share/datasets")
"""where Debian's packages put data sets, each in a folder of its name; FOUND: the files of dataset-fashion-mnist"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """A data set.

    Args:
        title: the name in a sentence.
        shape: shape of a sample; None: pictures are scaled to the model's shape; (): as in the folder.
        classes: number of classes; None: as in the folder.
        train: number of training samples.
        test: number of held-out samples.
        holds: description of the content of its folder; empty: it is bundled.
        source: where the data come from.
        package: the Debian package that installs the folder; empty: none.
        read: reads the folder, for a model with the given shape.
        item: type of the stored numbers of a sample.
        tokens: whether a sample is a text, and each of its tokens has the next one as its label.
    """

    name: str
    title: str
    shape: tuple[int, ...] | None = None
    classes: int | None = None
    train: int | None = None
    test: int | None = None
    holds: str = ""
    source: str
    package: str = ""
    read: Callable[[Path, Sequence[int]], LoadedDataset | RecordedDataset] | None = None
    item: str = "uint8"
    tokens: bool = False

    def fits(self, shape: Sequence[int], classes: int | None, *, tokens: bool | None = None) -> bool:
        """Whether a model for samples of this shape, with this number of classes, can learn the data set.

        A model of flat samples also accepts pictures with equally many numbers. It may have more classes than needed.

        Args:
            shape: shape of the model's samples.
            classes: number of the model's classes; None if it does not classify.
            tokens: whether the model takes tokens; None if unknown.

        >>> DATA["mnist"].fits((784,), 10), DATA["cifar100"].fits((3, 32, 32), 10)
        (True, False)
        """
        if classes is None or (self.classes or 0) > classes:
            return False
        if tokens is not None and tokens != self.tokens:
            return False
        if self.shape == ():
            return True
        if self.shape is None:
            return len(shape) == 3 and shape[0] in (1, 3)
        return tuple(shape) in (self.shape, (math.prod(self.shape),))

    @property
    def words(self) -> str:
        """Describes the shape of a sample and the number of classes."""
        if self.shape == ():
            return "what was converted, with its shape and classes"
        if self.shape is None:
            return "pictures brought to the model's size, a class for each folder"
        if self.tokens:
            return f"{self.shape[0]} tokens of {self.classes} kinds"
        return f"{' × '.join(map(str, self.shape))}, {self.classes} classes"


def _gathered(*sets: DataSet) -> dict[str, DataSet]:
    return {dataset.name: dataset for dataset in sets}


_IDX = ", ".join(dataset_files.NAMES) + ", each as it is or as .gz"
DATA = _gathered(
    DataSet(name="digits", title="the digits of scikit-learn", shape=(1, 8, 8), classes=10, train=1437, test=360,
        item="float64",
        source="with this package, from scikit-learn: UCI's optical recognition of handwritten digits, CC BY 4.0"),
    DataSet(name="mnist", title="MNIST", shape=(1, 28, 28), classes=10, train=60_000, test=10_000, holds=_IDX,
        read=lambda folder, _: dataset_files.read_idx_files(within(folder, "MNIST/raw")),
        source="LeCun, Cortes and Burges's MNIST page and its mirrors"),
    DataSet(name="fashion-mnist", title="Fashion-MNIST", shape=(1, 28, 28), classes=10, train=60_000, test=10_000,
        holds=_IDX,
        read=lambda folder, _: dataset_files.read_idx_files(within(folder, "FashionMNIST/raw")),
        package="dataset-fashion-mnist", source="Zalando's fashion-mnist repository, MIT licence"),
    DataSet(name="cifar10", title="CIFAR-10", shape=(3, 32, 32), classes=10, train=50_000, test=10_000,
        holds="cifar-10-python.tar.gz, or what is in it: data_batch_1 to data_batch_5 and test_batch",
        read=lambda folder, _: dataset_files.CIFAR10.read(folder),
        source="Krizhevsky's CIFAR page, the python version"),
    DataSet(name="cifar100", title="CIFAR-100", shape=(3, 32, 32), classes=100, train=50_000, test=10_000,
        holds="cifar-100-python.tar.gz, or what is in it: train and test",
        read=lambda folder, _: dataset_files.CIFAR100.read(folder),
        source="Krizhevsky's CIFAR page, the python version; its fine labels"),
    DataSet(name="sentences", title="generated sentences", shape=(sentences.CONTEXT,), classes=len(sentences.ALPHABET),
        train=sentences.TRAIN, test=sentences.TEST, item="int64", tokens=True,
        source="generated by this package: sentences of a grammar of known entropy, one token for each character"),
    DataSet(name="images", title="images of folders", read=dataset_files.read_folders,
        holds="train and test (or val), each with a folder a class of .png or .jpg files; or only folders of classes",
        source="your own, or any set that is handed out as folders of pictures, such as ImageNet"),
    DataSet(name=RECORDS, title="records of a file", shape=(), read=recorded,
        holds=f"{TRAIN}, {TEST} and {ABOUT}",
        source="paceline convert, which makes them of the others"),
)  # fmt: skip


def fitting(shape: Sequence[int], classes: int | None, *, tokens: bool | None = None) -> list[str]:
    """Returns the names of the data sets that a model can learn; the arguments are those of `DataSet.fits`."""
    return [name for name, dataset in DATA.items() if dataset.fits(shape, classes, tokens=tokens)]


def misfit(
    model: str, name: str, shape: Sequence[int], classes: int | None, *, tokens: bool | None = None
) -> list[str]:
    """Returns why a model cannot learn a data set, as ``dataset: found …, expected …``; empty if it can.

    Args:
        model: the model's name, for the message.
        name: the data set's name.
        shape: shape of the model's samples.
        classes: number of the model's classes; None if it does not classify.
        tokens: whether the model takes tokens; None if unknown.

    >>> misfit("lenet", "digits", (1, 28, 28), 10)  # doctest: +ELLIPSIS
    ["dataset: found 'digits' (1 × 8 × 8, 10 classes) for lenet, which takes 1 × 28 × 28 ...expected mnist, ..."]
    """
    fits = fitting(shape, classes, tokens=tokens)
    right = f"expected {', '.join(fits) or 'none: no data set has what the model takes'}"
    if name not in DATA:
        return [f"dataset: found {name!r}, {right}{near_miss(name, DATA)}"]
    if name in fits:
        return []
    takes = f"takes {' × '.join(map(str, shape))} and tells {classes or 'no'} classes apart"
    return [f"dataset: found {name!r} ({DATA[name].words}) for {model}, which {takes}; {right}"]


def unreadable(name: str, directory: str | None, shape: Sequence[int], classes: int) -> list[str]:
    """Returns the mistakes of a data set's folder, as ``data_dir: found …, expected …``.

    Args:
        name: as for `read`.
        directory: as for `read`.
        shape: as for `read`.
        classes: number of the model's classes.
    """
    if DATA[name].read is None:
        return [] if directory is None else [f"data_dir: found {directory!r}, expected none: {name} is bundled"]
    try:
        there = read(name, directory, shape).classes
    except InputError as error:
        return [f"data_dir: {error}"]
    few = f"data_dir: found {there} classes in it, expected at most the {classes} that the model tells apart"
    return [few] if there > classes else []


def read(name: str, directory: str | None, shape: Sequence[int]) -> LoadedDataset | RecordedDataset:
    """Reads the folder of a data set.

    Args:
        name: the data set's name, in `DATA`; it is not bundled.
        directory: the folder; None: the one of this name in the folder of the environment variable.
        shape: shape of the model's samples.

    Raises:
        InputError: the folder is wrong; the message has the expected content and its source.
    """
    known = DATA[name]
    folder = place_of(name, directory)
    try:
        return _read(name, folder.resolve(), () if known.shape else tuple(shape))
    except (InputError, OSError) as error:
        raise InputError(f"{error}; {_wanted(known)}") from error


def place_of(name: str, directory: str | None) -> Path:
    """Returns the folder of a data set.

    Args:
        name: the data set's name.
        directory: the folder, if given.

    Raises:
        InputError: there is no such folder.
    """
    known = DATA[name]
    wanted, home = _wanted(known), os.environ.get(HOME)
    if directory is not None:
        places = [Path(directory)]
    else:
        installed = [INSTALLED / name] if known.package else []
        places = [Path(home, name), *installed] if home is not None else installed
        if known.package:
            wanted = f"install it by apt-get install {known.package}, or give its folder as data_dir; {wanted}"
    if (folder := next((place for place in places if place.is_dir()), None)) is not None:
        return folder
    if directory is None and home is None:
        raise InputError(f"missing; expected the folder of {name}, or {HOME} set to its parent; {wanted}")
    looked = " or ".join(map(str, places))
    raise InputError(f"found no folder {looked}; {wanted}")


def _wanted(known: DataSet) -> str:
    return f"expected in it {known.holds} (from {known.source})"


@lru_cache(maxsize=2)
def _read(name: str, folder: Path, shape: tuple[int, ...]) -> LoadedDataset | RecordedDataset:
    reader = DATA[name].read
    assert reader is not None, "a bundled data set has no folder"
    return reader(folder, shape)
