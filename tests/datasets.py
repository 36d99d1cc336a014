"""Tiny data sets in the true formats, written where a test needs them.

The pictures of a class are similar, so that they can be learned: each class has its own bright part, with some noise.
"""

from __future__ import annotations

import gzip
import pickle
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Pictures = NDArray[np.uint8]
Labels = NDArray[np.uint8]


def pictures(count: int, shape: tuple[int, ...], classes: int, seed: int) -> tuple[Pictures, Labels]:
    """Returns this many pictures and their labels, with the classes in turn."""
    generator = np.random.default_rng(seed)
    labels = (np.arange(count) % classes).astype(np.uint8)
    made = generator.integers(0, 60, (count, *shape)).astype(np.uint8)
    rows = np.array_split(np.arange(np.prod(shape)), classes)
    for picture, label in zip(made.reshape(count, -1), labels, strict=True):
        picture[rows[label]] += 180
    return made, labels


def write_idx(path: Path, data: NDArray[np.uint8]) -> None:
    """An IDX file of bytes, packed if its name ends in .gz."""
    head = struct.pack(f">BBBB{data.ndim}I", 0, 0, 8, data.ndim, *data.shape)
    with (gzip.open if path.suffix == ".gz" else open)(path, "wb") as file:
        file.write(head + data.tobytes())


def mnist(folder: Path, *, train: int = 60, test: int = 20, packed: bool = False) -> Path:
    """The four files of MNIST."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in (("train", train), ("t10k", test)):
        made, labels = pictures(count, (28, 28), 10, seed=count)
        ending = ".gz" if packed else ""
        write_idx(folder / f"{name}-images-idx3-ubyte{ending}", made)
        write_idx(folder / f"{name}-labels-idx1-ubyte{ending}", labels)
    return folder


def write_batch(path: Path, batch: dict[bytes, object]) -> None:
    """Writes a batch like the original ones: protocol 2, keys of bytes."""
    path.write_bytes(pickle.dumps(batch, protocol=2))


def cifar10(folder: Path, *, each: int = 20) -> Path:
    """Writes five training batches and one held-out batch."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed, name in enumerate([*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]):
        made, labels = pictures(each, (3, 32, 32), 10, seed)
        batch = {b"batch_label": name.encode(), b"labels": labels.tolist(), b"data": made.reshape(each, -1)}
        write_batch(folder / name, {**batch, b"filenames": [b"a.png"] * each})
    return folder


def cifar100(folder: Path, *, each: int = 200) -> Path:
    """Writes one training batch and one held-out batch."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed, name in enumerate(("train", "test")):
        made, labels = pictures(each, (3, 32, 32), 100, seed)
        coarse = (labels // 5).tolist()
        batch = {b"fine_labels": labels.tolist(), b"coarse_labels": coarse, b"data": made.reshape(each, -1)}
        write_batch(folder / name, {**batch, b"filenames": [b"a.png"] * each})
    return folder


def images(folder: Path, *, classes: int = 3, each: int = 5, size: tuple[int, int] = (40, 30)) -> Path:
    """Writes one folder per class, with colour pictures."""
    height, width = size
    made, labels = pictures(classes * each, (height, width, 3), classes, seed=1)
    for number, (picture, label) in enumerate(zip(made, labels, strict=True)):
        inside = folder / f"class{label}"
        inside.mkdir(parents=True, exist_ok=True)
        ending = "jpg" if number % 2 else "png"
        Image.fromarray(picture).save(inside / f"picture{number:03}.{ending}")
    return folder


WRITERS: dict[str, Callable[[Path], Path]] = {
    "mnist": mnist,
    "fashion-mnist": lambda folder: mnist(folder, packed=True),
    "cifar10": cifar10,
    "cifar100": cifar100,
    "images": images,
}
"""every data set that has files"""
