"""A small learning problem with an exact optimum, and jobs on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.algorithms.core.job import Budget, Evaluation, Job, OneByOne
from paceline.algorithms.core.method import Method
from paceline.algorithms.core.values import Layer, Layout, Rank, Samples

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Bowl(OneByOne):
    """Worker i's loss is |w − centre(i)|² / 2, without noise: gradient w − centre(i), centre(i) = (1 + i, 2 + i, …).

    Float64 in two layers, so that every method runs on it. Accuracy is 1 / (1 + loss), which a stop rule can watch.
    """

    size: int = 4
    num_samples: int = 64

    @property
    def layout(self) -> Layout:
        half = self.size // 2
        return Layout((Layer("first", 0, half), Layer("second", half, self.size)))

    def initial(self) -> Vector:
        return np.zeros(self.size)

    def load(self, samples: Samples) -> Vector:
        return np.arange(self.size, dtype=np.float64) + samples.worker + 1.0

    def gradient(self, vector: Vector, data: Vector) -> tuple[Vector, float]:
        away = vector - data
        return away, float(away @ away) / 2

    def layer_gradients(self, vector: Vector, data: Vector, ready: Callable[[str, Vector], None]) -> float:
        gradient, loss = self.gradient(vector, data)
        for layer in reversed(self.layout.layers):
            ready(layer.name, gradient[layer.part])
        return loss

    def evaluate(self, vector: Vector) -> Evaluation:
        away = vector - (1.0 + np.arange(self.size))
        loss = float(away @ away) / 2
        return Evaluation(loss, 1 / (1 + loss))


def job_of(
    method: Method,
    workers: int = 2,
    *,
    steps: int | None = 4,
    nodes: Sequence[Sequence[int]] | None = None,
    learner: Any = None,
    seed: int = 0,
    batch: int | Sequence[int] = 8,
    **budget: Any,
) -> Job:
    """Returns a job of `method` in which the weights' owner takes `steps` steps; one worker per node unless `nodes` is
    given.
    """
    placed = [[Rank(rank) for rank in node] for node in nodes] if nodes else [[Rank(rank)] for rank in range(workers)]
    job = Job.of(method, placed, learner or Bowl(), batch=batch, budget=Budget(), seed=seed)
    return replace(job, budget=Budget(samples=None if steps is None else job.samples_in(steps), **budget))
