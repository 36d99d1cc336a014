"""The result of reading a data set, and functions of the readers of all formats.

Pictures stay bytes, as in the files; they are converted to numbers when a batch is drawn. Headers are compared with the
content of the files. All mistakes of a folder are reported together.

IDX files, the format of MNIST: a magic number, sizes as big-endian 32-bit numbers, then bytes.

The magic number is two bytes of 0, the type of the numbers (8: unsigned bytes), and how many sizes follow: 2051 for
pictures, 2049 for labels. Source: the format's description on the MNIST page (LeCun, Cortes, Burges).

CIFAR's python batches: pickled dictionaries with a matrix of bytes, one picture per row, and a list of labels.

A pickle can call any function, so only the functions that make an array of numbers are allowed. The batches are read
from the folder or from the downloaded archive. Source: the CIFAR page (Krizhevsky).

Folders of pictures: one folder per class, with the name of the class.

Classes are numbered in the order of their names; pictures are in the order of theirs. The held-out pictures are in
`test` or `val` beside `train`. If there are only classes, every fifth picture of each is held out, beginning with the
first: a fixed split. A picture is cropped to the model's aspect ratio around its centre, and then scaled to the model's
size.
"""

from __future__ import annotations

import gzip
import io
import math
import pickle
import tarfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

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


PICTURES, LABELS = 0x0803, 0x0801
TRAIN = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")
TEST = ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
NAMES = (*TRAIN, *TEST)
CLASSES, SIDE = 10, 28


def read_idx(path: Path, magic: int) -> NDArray[np.uint8]:
    """Reads the bytes of one file, in the shape of its header.

    Args:
        path: the file.
        magic: the expected magic number.

    Raises:
        InputError: the magic number differs, or the length does not match the sizes.
    """
    data = content(path)
    start = 4 + 4 * (magic & 0xFF)
    begins = int.from_bytes(data[:4], "big")
    if len(data) < start or begins != magic:
        kind = "pictures" if magic == PICTURES else "labels"
        raise InputError(
            f"{path}: found {len(data)} bytes that begin with {begins}, expected {magic}: IDX bytes of {kind}"
        )
    sizes = [int(size) for size in np.frombuffer(data[4:start], ">u4")]
    if len(data) - start != math.prod(sizes):
        words = " × ".join(map(str, sizes))
        raise InputError(f"{path}: found {len(data) - start} bytes, expected the {words} that its head says")
    return np.frombuffer(data, np.uint8, offset=start).reshape(sizes).copy()


def read_idx_files(folder: Path) -> LoadedDataset:
    """Reads the data set in a folder of the four files; raises `InputError` with all mistakes."""
    paths = existing_files(folder, NAMES, ending=".gz")
    magics = {name: PICTURES if "images" in name else LABELS for name in NAMES}
    parts = dict(zip(NAMES, each(NAMES, lambda name: read_idx(paths[name], magics[name])), strict=True))
    train, test = each((TRAIN, TEST), lambda names: _half(parts[names[0]], parts[names[1]], paths[names[0]]))
    return LoadedDataset(train, test, CLASSES)


def _half(pictures: NDArray[np.uint8], labels: NDArray[np.uint8], where: Path) -> Half:
    if pictures.shape[1:] != (SIDE, SIDE):
        size = " × ".join(map(str, pictures.shape[1:]))
        raise InputError(f"{where}: found pictures of {size}, expected {SIDE} × {SIDE}")
    return checked(Half(pictures[:, None], labels.astype(np.int64)), CLASSES, where)


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


ENDINGS = {".png", ".jpg", ".jpeg"}
HELD_OUT = ("test", "val")
EVERY = 5

Listed = list[tuple[Path, int]]
"""pictures, each with its class"""


def read_folders(folder: Path, shape: Sequence[int]) -> LoadedDataset:
    """Reads the pictures below a folder.

    Args:
        folder: contains ``train`` and ``test`` (or ``val``), or the classes themselves.
        shape: channels (1 or 3), height and width of the model's samples.

    Raises:
        InputError: the folder is wrong; with all mistakes.
    """
    train, test, classes = listed(folder)

    def half(listed: Listed) -> Half:
        pictures = each(listed, lambda entry: picture(entry[0], shape))
        return Half(np.array(pictures), np.array([label for _, label in listed], np.int64))

    first, second = each((train, test), half)
    return LoadedDataset(first, second, len(classes))


def listed(folder: Path) -> tuple[Listed, Listed, list[str]]:
    """Lists the training pictures, the held-out pictures and the classes; raises `InputError` with the mistakes."""
    if not (folder / "train").is_dir():
        classes = _classes(folder)
        train, test = _split(_pictures(folder, classes))
        if not train:
            raise InputError(
                f"found one picture of each class in {folder}, expected more: the first of each is held out"
            )
        return train, test, classes
    held_out = next((folder / name for name in HELD_OUT if (folder / name).is_dir()), None)
    if held_out is None:
        raise InputError(f"found {folder / 'train'} without test or val beside it")
    classes, others = _classes(folder / "train"), _classes(held_out)
    if classes != others:
        odd = sorted(set(classes) ^ set(others))
        raise InputError(f"found classes in one of {folder / 'train'} and {held_out} only: {some(odd)}")
    return _pictures(folder / "train", classes), _pictures(held_out, classes), classes


def _split(listed: Listed) -> tuple[Listed, Listed]:
    train: Listed = []
    test: Listed = []
    seen: Counter[int] = Counter()
    for path, label in listed:
        (train if seen[label] % EVERY else test).append((path, label))
        seen[label] += 1
    return train, test


def _classes(folder: Path) -> list[str]:
    classes = sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    if len(classes) < 2:
        raise InputError(f"found {some(classes)} in {folder}, expected a folder for each of two classes or more")
    return classes


def _pictures(folder: Path, classes: Sequence[str]) -> Listed:
    listed = [
        (path, label)
        for label, name in enumerate(classes)
        for path in sorted((folder / name).iterdir())
        if path.suffix.lower() in ENDINGS
    ]
    there = {label for _, label in listed}
    if empty := [name for label, name in enumerate(classes) if label not in there]:
        raise InputError(f"found no pictures ({', '.join(sorted(ENDINGS))}) of {some(empty)} in {folder}")
    return listed


def picture(path: Path, shape: Sequence[int]) -> NDArray[np.uint8]:
    """Reads a picture as channels × height × width.

    Args:
        path: the file.
        shape: channels, height and width.

    Raises:
        InputError: the file cannot be read as a picture.
    """
    from PIL import Image, ImageOps  # imported here, because only this reader needs it

    channels, height, width = shape
    try:
        with Image.open(path) as file:
            picture = ImageOps.fit(file.convert("L" if channels == 1 else "RGB"), (width, height))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise InputError(f"{path} cannot be read as a picture: {error}") from error
    return np.asarray(picture, np.uint8).reshape(height, width, channels).transpose(2, 0, 1)
