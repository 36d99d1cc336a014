"""The noisy quadratic model: a learning problem of which everything is known, cheap enough for thousands of workers.

Theory. f(w) = Σ λ_i (w_i − w*_i)² / 2, with λ_i = i^−spectrum. Sample n adds the noise √c_i ξ_{n,i} to the gradient,
with c_i = noise · λ_i and ξ standard normal, so a batch of b samples has gradient noise of variance c_i / b. Under SGD
with rate η and g = ηλ, the mean m of w − w* and its variance V obey m' = (1 − g) m and V' = (1 − g)² V + η² c / b.

Rules of this file:

* The noise of sample n is a pure function of (seed, n), from a counter-based generator, so that batches may be cut in
  any way. Samples are numbered without end: noise that came back every epoch would not be independent.
* float64 throughout: the point is to compare runs to the last digits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from paceline.algorithms.job import OneByOne, Score
from paceline.algorithms.values import Layout, Samples, may_diverge
from paceline.workloads.models import LayerInfo, layout_of
from paceline.workloads.sampling import stream_start

Array = NDArray[np.float64]
PHILOX_WORDS = 4  # 64-bit numbers that Philox makes from one value of its counter


MOST_DIMENSIONS = 10_000_000
"""a batch of 32 samples of so many numbers takes 2.6 GB; provenance: ours"""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuadraticOptions:
    """The shape of the problem; defaults of spectrum and noise from Zhang et al., NeurIPS 2019 (λ_i = 1/i, c = λ)."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    dimensions: int = 64
    layers: int = 2
    """the dimensions are shared out among so many layers"""
    spectrum: float = 1.0
    """λ_i = i^−spectrum; 0 is the same curvature everywhere"""
    noise: float = 1.0
    """c_i / λ_i"""
    distance: float = 1.0
    """w_i − w*_i at the start, the same in every dimension"""
    population: int = 1024
    """samples that count as one epoch"""

    def problems(self) -> list[str]:
        """What is wrong with these values; empty if nothing."""
        least = {"dimensions": 1, "layers": 1, "noise": 0, "population": 1}
        found = [
            f"{name}: found {getattr(self, name)}, expected {low} or more"
            for name, low in least.items()
            if getattr(self, name) < low
        ]
        if self.dimensions > MOST_DIMENSIONS:
            found.append(f"dimensions: found {self.dimensions}, expected at most {MOST_DIMENSIONS}")
        if self.layers > self.dimensions > 0:
            found.append(f"layers: found {self.layers}, expected no more than the {self.dimensions} dimensions")
        return found


class Quadratic(OneByOne):
    """The noisy quadratic model as a learner; see the head of this file for the theory.

    >>> problem = Quadratic(seed=1, options=QuadraticOptions(dimensions=4, layers=1, noise=0.0))
    >>> start = problem.initial()
    >>> round(problem.evaluate(start).loss, 6) == round((1 + 1 / 2 + 1 / 3 + 1 / 4) / 2, 6)
    True
    >>> gradient, loss = problem.gradient(start, problem.load(Samples(worker=0, workers=1, index=0, count=32)))
    >>> bool(np.allclose(gradient, [1, 1 / 2, 1 / 3, 1 / 4]))
    True
    """

    def __init__(self, *, seed: int, options: QuadraticOptions) -> None:
        self.seed, self.options = seed, options
        self.curvature: Array = np.arange(1, options.dimensions + 1, dtype=np.float64) ** -options.spectrum
        self.noise_variance: Array = options.noise * self.curvature
        """c, of a single sample's gradient"""
        self.target: Array = np.random.default_rng(np.random.SeedSequence((seed, 0, 1))).standard_normal(
            options.dimensions
        )
        self._noise_scale = np.sqrt(self.noise_variance)
        sizes = [len(part) for part in np.array_split(self.curvature, options.layers)]
        self.layout: Layout = layout_of(tuple(LayerInfo(f"layer{number}", size) for number, size in enumerate(sizes)))

    @property
    def population(self) -> int:
        return self.options.population

    def initial(self) -> Array:
        """w* + distance, in every dimension."""
        return self.target + self.options.distance

    def sample_noise(self, first: int, count: int) -> Array:
        """ξ of samples `first` to `first + count − 1`, one row each, before it is scaled."""
        dimensions = self.options.dimensions
        steps = -(-dimensions // PHILOX_WORDS)  # of the counter, per sample
        raw = np.random.Philox(key=self.seed, counter=first * steps).random_raw(count * steps * PHILOX_WORDS)
        uniform = ((raw >> np.uint64(11)) + 0.5) * 2.0**-53  # never 0 or 1, where ndtri is infinite
        return np.asarray(ndtri(uniform.reshape(count, -1)[:, :dimensions]))

    def load(self, samples: Samples) -> Array:
        """The mean gradient noise of the batch."""
        noise: Array = self.sample_noise(stream_start(samples), samples.count).mean(axis=0)
        return self._noise_scale * noise

    @may_diverge
    def gradient(self, vector: Array, data: Array) -> tuple[Array, float]:
        """λ (w − w*) + noise, and the loss that it is the gradient of: f(w) + noise · (w − w*)."""
        offset = vector - self.target
        pull = self.curvature * offset
        return pull + data, float((0.5 * pull + data) @ offset)

    def layer_gradients(self, vector: Array, data: Array, ready: Callable[[str, Array], None]) -> float:
        """As `gradient`, handing over each layer's part, last layer first; returns the loss."""
        gradient, loss = self.gradient(vector, data)
        for layer in reversed(self.layout.layers):
            ready(layer.name, gradient[layer.part])
        return loss

    @may_diverge
    def evaluate(self, vector: Array) -> Score:
        """The risk f(w), without noise; there is no accuracy."""
        offset = vector - self.target
        return Score(float(0.5 * (self.curvature * offset) @ offset), None)
