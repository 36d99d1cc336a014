"""Models and random examples that `benchmarks/cosimulation.py` and `benchmarks/together.py` time."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn

from paceline.workloads.batches.examples import Examples, LabelledBatch

CLASSES = 10


def mlp(*widths: int) -> nn.Module:
    """Returns dense layers with ReLU between them."""
    layers = [part for pair in pairwise(widths) for part in (nn.Linear(*pair), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def cnn() -> nn.Module:
    """Returns two convolutions and a dense layer for colour pictures of 32 × 32."""
    first = [nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    second = [nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(32 * 8 * 8, CLASSES))


def made_up(shape: tuple[int, ...], num_samples: int) -> Examples:
    """Returns random examples with inputs of this shape. The cost does not depend on their content."""
    source = torch.Generator().manual_seed(0)
    inputs = torch.randn(num_samples, *shape, generator=source)
    train = LabelledBatch(inputs, torch.randint(CLASSES, (num_samples,), generator=source))
    return Examples(train, train.at(slice(0, 256)), classes=CLASSES)
