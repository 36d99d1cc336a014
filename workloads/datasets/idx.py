"""IDX files, the format of MNIST: a magic number, sizes as big-endian 32-bit numbers, then bytes.

The magic number is two bytes of 0, the type of the numbers (8: unsigned bytes), and how many sizes follow: 2051 for
pictures, 2049 for labels. Source: the format's description on the MNIST page (LeCun, Cortes, Burges).
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from paceline.algorithms.core.errors import InputError
from paceline.workloads.datasets.dataset_files import Half, LoadedDataset, checked, content, each, existing_files

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


def read(folder: Path) -> LoadedDataset:
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
