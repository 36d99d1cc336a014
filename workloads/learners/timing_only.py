"""A learner for timing only: weights and gradients have a size but no numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from paceline.algorithms.core.job import Evaluation, OneByOne
from paceline.algorithms.core.values import Layout, Null, Samples


@dataclass(frozen=True, slots=True)
class TimingOnly(OneByOne):
    """A learner without numbers. Losses are NaN and there is no accuracy.

    Args:
        layout: the layers, which determine the size of the vectors.
        num_samples: number of samples in one epoch.
        item_bytes: bytes of one number, 4 or 8.
    """

    layout: Layout
    num_samples: int
    item_bytes: int = 4

    def initial(self) -> Null:
        return Null(self.layout.size, self.item_bytes)

    def load(self, samples: Samples) -> None:
        """Returns no data."""

    def gradient(self, vector: Null, data: None) -> tuple[Null, float]:
        return vector, math.nan

    def layer_gradients(self, vector: Null, data: None, ready: Callable[[str, Null], None]) -> float:
        for layer in reversed(self.layout.layers):
            ready(layer.name, vector[layer.part])
        return math.nan

    def evaluate(self, vector: Null) -> Evaluation:
        return Evaluation(math.nan, None)
