"""The noisy quadratic model: a learning problem with known answers, cheap enough for thousands of workers.

Theory. f(w) = Σ λ_i (w_i − w*_i)² / 2. Sample n adds the noise √c_i ξ_{n,i} to the gradient, with ξ standard normal, so
a batch of b samples has gradient noise of variance c_i / b. Under SGD with rate η and g = ηλ, the mean m of w − w* and
its variance V obey m' = (1 − g) m and V' = (1 − g)² V + η² c / b. More exact results: docs/quadratic.md.

The noise of sample n is a pure function of (seed, n), so that the division into batches is free (see `noise.py`).
Sample numbers are not repeated: noise that repeats every epoch would not be independent.

Gradient noise of an infinite stream of samples: independent standard normal rows with cheap means over batches.

Theory (Lévy's construction). Take the mean of 2^l samples, of variance 2^−l, and an independent detail of the same
variance. Their sum and their difference are independent, of variance 2^−(l−1): the means of the two halves. So the mean
over a group is drawn first, and the parts of a group only when they are needed.

A sample's noise is a pure function of the seed, the dimensions and the sample's number, by a counter-based generator; a
mean over samples is the mean of their noise, up to rounding, however they are divided into batches. A batch takes one
row for each aligned power of two in it: one for 32 samples, two for 48. Rows are drawn in blocks, and recent blocks are
cached, since workers at about the same step use neighbouring rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from paceline.algorithms.core.job import Evaluation, OneByOne
from paceline.algorithms.core.values import Layout, Samples, may_diverge
from paceline.workloads.models.layer_tables import LayerInfo, layout_of
from paceline.workloads.sampling import stream_start

TOP = 5
"""groups of 2^TOP samples are drawn as one row; a batch of 32 is the default of scenarios"""
BLOCK_NUMBERS = 2048
"""numbers per block of at least two rows; provenance: ours, 13 µs for the generator and 18 µs for its numbers"""
KEPT_BYTES = 32 * 2**20
"""bytes of cached blocks, at least `FEWEST_BLOCKS`; provenance: ours, 30 steps of 1,024 workers in 64 dimensions"""
FEWEST_BLOCKS = 8


class Noise:
    """The noise of a seed.

    Args:
        seed: the seed.
        dimensions: numbers of a row.

    >>> noise = Noise(seed=1, dimensions=3)
    >>> rows = [noise.mean(number, 1) for number in range(5, 48)]
    >>> bool(np.allclose(noise.mean(5, 43), np.mean(rows, axis=0), rtol=0, atol=1e-15))
    True
    """

    def __init__(self, *, seed: int, dimensions: int) -> None:
        self.seed, self.dimensions = seed, dimensions
        self._height = 2 * max(1, BLOCK_NUMBERS // (2 * dimensions))
        """number of rows of a block, even"""
        kept = KEPT_BYTES // (8 * dimensions * self._height)
        self._block = lru_cache(maxsize=max(FEWEST_BLOCKS, kept))(self._drawn)

    def mean(self, first: int, count: int) -> Array:
        """Returns the mean over samples `first` to `first + count − 1` as a new array."""
        total = sum(2**level * self._row(level, number) for level, number in _pieces(first, count))
        return np.asarray(total) / count

    def means(self, starts: NDArray[np.int64], count: int) -> Array | None:
        """Returns the means over several batches as rows, each with the bits of `mean`.

        Args:
            starts: the number of each batch's first sample.
            count: samples of each batch.

        Returns:
            The rows; None unless every batch is one aligned group.
        """
        level = count.bit_length() - 1
        if count != 2**level or level > TOP or (starts % count).any():
            return None
        blocks, places = np.divmod(starts // count, self._height)
        rows = np.empty((len(starts), self.dimensions))
        for block in np.unique(blocks).tolist():
            in_block = blocks == block
            rows[in_block] = self._block(level, block)[places[in_block]]
        means: Array = 2**level * rows / count
        return means

    def _row(self, level: int, number: int) -> Array:
        """Returns the mean over the group with this number of 2^level samples."""
        block, place = divmod(number, self._height)
        row: Array = self._block(level, block)[place]
        return row

    def _drawn(self, level: int, block: int) -> Array:
        """Returns a block of consecutive rows of a level."""
        counter = np.array([0, 0, block, level], dtype=np.uint64)
        generator = np.random.Generator(np.random.Philox(key=self.seed, counter=counter))
        if level == TOP:
            top: Array = generator.standard_normal((self._height, self.dimensions)) * 2.0 ** (-TOP / 2)
            return top
        half = self._height // 2
        above = self._block(level + 1, block // 2)[half * (block % 2) :][:half]
        detail = generator.standard_normal((half, self.dimensions)) * 2.0 ** (-(level + 1) / 2)
        halves: Array = np.stack([above + detail, above - detail], axis=1)
        return halves.reshape(self._height, self.dimensions)


def _pieces(first: int, count: int) -> Iterator[tuple[int, int]]:
    """Divides a range into aligned pieces of 2^level samples; yields the level and the number of each.

    >>> list(_pieces(5, 43))  # 5, 6 and 7, 8 to 15, 16 to 31, 32 to 47
    [(0, 5), (1, 3), (3, 1), (4, 1), (4, 2)]
    """
    while count > 0:
        level = min(TOP, count.bit_length() - 1)
        if first:
            level = min(level, (first & -first).bit_length() - 1)
        yield level, first >> level
        first, count = first + 2**level, count - 2**level


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
