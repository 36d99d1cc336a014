"""The noisy quadratic model: a learning problem with known answers, cheap enough for thousands of workers.

Theory. f(w) = Σ λ_i (w_i − w*_i)² / 2. Sample n adds the noise √c_i ξ_{n,i} to the gradient, with ξ standard normal, so
a batch of b samples has gradient noise of variance c_i / b. Under SGD with rate η and g = ηλ, the mean m of w − w* and
its variance V obey m' = (1 − g) m and V' = (1 − g)² V + η² c / b. More exact results: docs/quadratic.md.

The noise of sample n is a pure function of (seed, n), so that the division into batches is free (see `noise.py`).
Sample numbers are not repeated: noise that repeats every epoch would not be independent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from paceline.algorithms.core.job import Evaluation, OneByOne
from paceline.algorithms.core.values import Layout, Samples, may_diverge
from paceline.workloads.learners.noise import Noise
from paceline.workloads.models.layer_tables import LayerInfo, layout_of
from paceline.workloads.sampling import stream_start

Array = NDArray[np.float64]

LARGEST = 1e15
"""largest value of an option; its square is still far from the largest float"""
MOST_DIMENSIONS = 10_000_000
"""a vector of this length takes 80 MB, and noise is stored in blocks of at least two; provenance: ours"""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuadraticOptions:
    """The shape of the problem; defaults of spectrum and noise from Zhang et al., NeurIPS 2019 (λ_i = 1/i, c = λ)."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    dimensions: int = 64
    layers: int = 2
    """number of layers, among which the dimensions are distributed"""
    spectrum: float = 1.0
    """λ_i = i^−spectrum; 0: equal curvatures"""
    curvatures: tuple[float, ...] = ()
    """instead of the spectrum: the λ, each for an equal share of the dimensions, in this order"""
    noise: float = 1.0
    """c_i / λ_i"""
    variance: float | None = None
    """instead of c_i = noise λ_i: c, equal in all dimensions"""
    distance: float = 1.0
    """w_i − w*_i at the start, equal in all dimensions"""
    link: float | None = None
    """risk at which the substitute for accuracy, 1 / (1 + risk / link), is 0.5; None: there is no accuracy"""
    num_samples: int = 1024
    """number of samples in one epoch"""

    def problems(self) -> list[str]:
        """Returns the mistakes in these values."""
        least = {"dimensions": 1, "layers": 1, "noise": 0, "num_samples": 1}
        problems = [
            f"{name}: found {getattr(self, name)}, expected {low} or more"
            for name, low in least.items()
            if not low <= getattr(self, name) < np.inf
        ]
        for name in ("spectrum", "distance"):
            if not isfinite(getattr(self, name)):
                problems.append(f"{name}: found {getattr(self, name)}, expected a number")
        for name in ("layers", "spectrum", "noise", "variance", "distance", "link", "num_samples"):
            if LARGEST < abs(getattr(self, name) or 0) < np.inf:
                problems.append(f"{name}: found {getattr(self, name):g}, expected at most {LARGEST:g}")
        if self.dimensions > MOST_DIMENSIONS:
            problems.append(f"dimensions: found {self.dimensions}, expected at most {MOST_DIMENSIONS}")
        if self.layers > self.dimensions > 0:
            problems.append(f"layers: found {self.layers}, expected no more than the {self.dimensions} dimensions")
        return problems + self._problems_of_choices()

    def _problems_of_choices(self) -> list[str]:
        """Returns the mistakes in the optional values."""
        problems = []
        if len(self.curvatures) > self.dimensions > 0:
            count = len(self.curvatures)
            problems.append(f"curvatures: found {count}, expected no more than the {self.dimensions} dimensions")
        if bad := [curvature for curvature in self.curvatures if not 0 <= curvature < np.inf]:
            problems.append(f"curvatures: found {bad[0]}, expected 0 or more")
        if self.variance is not None and not 0 <= self.variance < np.inf:
            problems.append(f"variance: found {self.variance}, expected 0 or more")
        if self.link is not None and not 0 < self.link < np.inf:
            problems.append(f"link: found {self.link}, expected a risk above 0")
        return problems

    def curvature(self) -> Array:
        """λ."""
        if not self.curvatures:
            return np.arange(1, self.dimensions + 1, dtype=np.float64) ** -self.spectrum
        shares = np.array_split(np.empty(self.dimensions), len(self.curvatures))
        return np.repeat(np.asarray(self.curvatures, dtype=np.float64), [len(share) for share in shares])


class Quadratic(OneByOne):
    """The noisy quadratic model as a learner; see the top of this file for the theory.

    Gradients are computed one by one: stacked, 64 of them in 64 dimensions took 4.4 µs each instead of 6.3, but in
    1000 dimensions 30 instead of 9; an update takes about a hundred.

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
        self.curvature: Array = options.curvature()
        self.noise_variance: Array = options.noise * self.curvature
        """c, the variance of a single sample's gradient"""
        if options.variance is not None:
            self.noise_variance = np.full(options.dimensions, options.variance)
        self.target: Array = np.random.default_rng(np.random.SeedSequence((seed, 0, 1))).standard_normal(
            options.dimensions
        )
        self._noise = Noise(seed=seed, dimensions=options.dimensions)
        self._noise_scale = np.sqrt(self.noise_variance)
        sizes = [len(part) for part in np.array_split(self.curvature, options.layers)]
        self.layout: Layout = layout_of(tuple(LayerInfo(f"layer{number}", size) for number, size in enumerate(sizes)))

    @property
    def num_samples(self) -> int:
        return self.options.num_samples

    def initial(self) -> Array:
        """Returns w* + distance, in every dimension."""
        return self.target + self.options.distance

    def load(self, samples: Samples) -> Array:
        """Returns the mean gradient noise of the batch."""
        return self._noise_scale * self._noise.mean(stream_start(samples), samples.count)

    @may_diverge
    def gradient(self, vector: Array, data: Array) -> tuple[Array, float]:
        """Returns λ (w − w*) + noise and its loss f(w) + noise · (w − w*).

        Args:
            vector: w, float64, shape (dimensions,).
            data: the noise, same shape.
        """
        offset = vector - self.target
        pull = self.curvature * offset
        return pull + data, float(np.vecdot(0.5 * pull + data, offset))

    @may_diverge
    def stacked_gradients(self, vectors: Array, starts: NDArray[np.int64], count: int) -> tuple[Array, Array] | None:
        """Computes the gradients of many ranks, each with the bits of `gradient`.

        Args:
            vectors: w of all, shape (dimensions,), or of each, shape (ranks, dimensions).
            starts: the number of each batch's first sample.
            count: samples of each batch.

        Returns:
            The gradients as rows, and the losses; None if the noise has to be drawn batch by batch.
        """
        if (means := self._noise.means(starts, count)) is None:
            return None
        data, offset = self._noise_scale * means, vectors - self.target
        pull = self.curvature * offset
        mean = data + 0.5 * pull
        return pull + data, np.vecdot(mean, offset)

    def layer_gradients(self, vector: Array, data: Array, ready: Callable[[str, Array], None]) -> float:
        """Like `gradient`, but calls `ready` with each layer's part, last layer first; returns the loss."""
        gradient, loss = self.gradient(vector, data)
        for layer in reversed(self.layout.layers):
            ready(layer.name, gradient[layer.part])
        return loss

    @may_diverge
    def evaluate(self, vector: Array) -> Evaluation:
        """Returns the risk f(w), without noise, and the accuracy given by the link."""
        offset = vector - self.target
        risk, half = float(0.5 * np.vecdot(self.curvature * offset, offset)), self.options.link
        return Evaluation(risk, None if half is None else half / (half + risk))
