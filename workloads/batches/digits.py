"""Handwritten digits: scikit-learn's 1797 pictures of 8 × 8, split and standardised.

The split does not depend on the seed, so that results of different seeds are about the same problem.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor

from paceline.workloads.batches.examples import Batch, Examples


@lru_cache(maxsize=1)
def digits() -> Examples:
    """Returns the digits: 80 % for training, 20 % held out, each class split the same (seed 0 in every run).

    Each pixel is standardised by its mean and deviation over the training part; pixels that are constant there stay 0.
    """
    pixels, labels = load_digits(return_X_y=True)
    parts = train_test_split(pixels, labels, test_size=0.2, stratify=labels, random_state=0)
    train, test, train_labels, test_labels = map(np.asarray, parts)
    mean, deviation = train.mean(axis=0), train.std(axis=0)
    changes = deviation > 0

    def standardised(part: np.ndarray) -> Tensor:
        return torch.tensor(np.where(changes, (part - mean) / np.where(changes, deviation, 1.0), 0.0))

    return Examples(
        train=Batch(standardised(train), torch.tensor(train_labels)),
        test=Batch(standardised(test), torch.tensor(test_labels)),
        classes=10,
    )
