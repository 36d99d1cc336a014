"""Handwritten digits: scikit-learn's 1797 pictures of 8 × 8, split and standardised.

* The split does not depend on the seed, so that results of different seeds are about the same problem.
* The file of this package has the pictures as scikit-learn splits them, because importing it takes longer than many
  runs. A test compares the file with scikit-learn.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import resources
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paceline.workloads.batches.examples import Examples, LabelledBatch

FILE = "digits.npz"
"""FOUND UCI's optical recognition of handwritten digits (CC BY 4.0), as `sklearn.datasets.load_digits` returns it, in
the two parts of `train_test_split(pixels, labels, test_size=0.2, stratify=labels, random_state=0)`: ``train``,
``train_labels``, ``test``, ``test_labels``, as bytes; ``train_places`` and ``test_places`` are their places there"""


def pixels_and_labels() -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Returns all digits in the order of UCI's file: 1797 × 64 pixels from 0 to 16, and the labels.

    >>> pixels, labels = pixels_and_labels()
    >>> pixels.shape, labels[:10].tolist()
    ((1797, 64), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    """
    parts = _file()
    order = np.argsort(np.concatenate([parts["train_places"], parts["test_places"]]))
    pixels = np.concatenate([parts["train"], parts["test"]])
    return pixels[order], np.concatenate([parts["train_labels"], parts["test_labels"]])[order]


def _file() -> dict[str, NDArray[Any]]:
    with resources.files("paceline.workloads").joinpath("tables", FILE).open("rb") as file, np.load(file) as parts:
        return dict(parts)


@lru_cache(maxsize=1)
def digits() -> Examples:
    """Returns the digits: 80 % for training, 20 % held out, each class split the same (seed 0 in every run).

    Each pixel is standardised by its mean and deviation over the training part; pixels that are constant there stay 0.
    """
    parts = _file()
    train, test = (parts[name].astype(np.float64) for name in ("train", "test"))
    labels = [torch.tensor(parts[name].astype(np.int64)) for name in ("train_labels", "test_labels")]
    mean, deviation = train.mean(axis=0), train.std(axis=0)
    changes = deviation > 0

    def standardised(part: NDArray[np.float64]) -> Tensor:
        return torch.tensor(np.where(changes, (part - mean) / np.where(changes, deviation, 1.0), 0.0))

    return Examples(
        train=LabelledBatch(standardised(train), labels[0]),
        test=LabelledBatch(standardised(test), labels[1]),
        classes=10,
    )
