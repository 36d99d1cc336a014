"""Common parts of the runs of `benchmarks/shared.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from paceline.algorithms.core.job import Evaluation, OneByOne
from paceline.algorithms.core.values import Layer, Layout, Samples
from paceline.records.trace import Schedule


@dataclass(frozen=True)
class Flat(OneByOne):
    """A learner without cost: its gradient is constant."""

    size: int
    num_samples: int = 1000

    @property
    def layout(self) -> Layout:
        return Layout((Layer("all", 0, self.size),))

    def initial(self) -> Any:
        return np.ones(self.size, np.float32)

    def load(self, samples: Samples) -> Any:
        return None

    def gradient(self, vector: Any, data: Any) -> tuple[Any, float]:
        return vector, 0.0

    def layer_gradients(self, vector: Any, data: Any, ready: Callable[[str, Any], None]) -> float:
        ready("all", vector)
        return 0.0

    def evaluate(self, vector: Any) -> Evaluation:
        return Evaluation(0.0, None)


def never() -> Schedule:
    """A schedule without evaluations."""
    return Schedule(every=float("inf"))
