"""Jitter: the random factor by which a step takes longer or shorter than its device's time.

A factor is a pure function of (seed, rank, step): simulated and paced real runs draw the same one, in any order. Every
distribution has mean 1, so that jitter never makes a device faster or slower on average.

Drawing one number at a time from SciPy costs tens of microseconds. So each rank's factors are drawn in blocks, each
with a generator of its own, and blocks are cached. A block that leaves the cache is drawn again with the same values.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.naming import near_miss

# The import of `scipy.stats` takes longer than most simulations of times, so the lognormal law is written here. It has
# the methods of a distribution of `scipy.stats` that jitter uses, and the same bits as `scipy.stats.lognorm`.


class LogNormal:
    """The law of exp(s · normal), with location 0 and scale 1.

    Args:
        s: the standard deviation of the logarithm; the law exists if it is above 0.

    >>> round(LogNormal(0.3).mean(), 4)
    1.046
    """

    def __init__(self, s: float) -> None:
        self.s = s

    def support(self) -> tuple[float, float]:
        """Returns the smallest and the largest value; NaN, as SciPy does, where there is no such law."""
        return (0.0, math.inf) if self.s > 0 else (math.nan, math.nan)

    def mean(self) -> float:
        """Returns the mean, the square root of exp(s²); infinity where that is too large."""
        with np.errstate(over="ignore"):
            return float(np.sqrt(np.exp(np.float64(self.s) * np.float64(self.s))))

    def cdf(self, value: float) -> float:
        """Returns the probability of values up to this one."""
        if value <= 0:
            return 0.0
        from scipy.special import ndtr  # slow to import, so only when needed

        return float(ndtr(math.log(value) / self.s))

    def ppf(self, q: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the values below which a draw falls with these probabilities."""
        from scipy.special import ndtri

        quantiles: NDArray[np.float64] = np.exp(self.s * ndtri(q))
        return quantiles

    def rvs(self, size: int, random_state: np.random.Generator) -> NDArray[np.float64]:
        """Returns random values, drawn as `scipy.stats.lognorm` draws them."""
        draws: NDArray[np.float64] = np.exp(self.s * random_state.standard_normal(size))
        return draws


STREAM = 7
"""separates these draws from others with the same seed"""
BLOCK = 256
"""steps per block"""
NEGLIGIBLE = 1e-9
"""how much probability a distribution may have below 0; such a draw counts as 0"""
LARGEST = 1e15
"""the largest parameter; SciPy overflows beyond it"""
COMMON_NAMES = {"lognorm": {"sigma": "s"}, "gamma": {"shape": "a"}, "weibull_min": {"shape": "c"}}
"""usual names of parameters for which SciPy has a letter"""


@dataclass(frozen=True, slots=True)
class Jitter:
    """Jitter with a distribution of `scipy.stats`, scaled to mean 1; create it with `Jitter.of`.

    >>> distribution = Jitter.of("lognorm", sigma=0.3)
    >>> distribution.factor(seed=1, rank=0, step=5) == distribution.factor(seed=1, rank=0, step=5)
    True
    >>> NO_JITTER.factor(seed=1, rank=0, step=5)
    1.0
    """

    distribution: str
    parameters: tuple[tuple[str, float], ...] = ()
    values: tuple[float, ...] = ()
    """equally likely factors, if the distribution was measured"""

    @staticmethod
    def measured(values: Sequence[float]) -> Jitter:
        """Returns the jitter of equally likely factors, scaled to mean 1; one factor is no jitter.

        >>> sorted({Jitter.measured([2.0, 4.0, 6.0]).factor(1, 0, step) for step in range(20)})
        [0.5, 1.0, 1.5]
        """
        if len(values) < 2:
            return NO_JITTER
        mean = math.fsum(values) / len(values)
        return Jitter("measured", values=tuple(float(value) / mean for value in values))

    @staticmethod
    def of(distribution: str, **parameters: float) -> Jitter:
        """Returns the jitter of this distribution, with SciPy's names of parameters or usual ones (``sigma`` of
        ``lognorm``).

        Raises:
            InputError: the distribution or a parameter is unknown, a parameter is missing, or the distribution has no
                finite mean above 0 or takes values below 0.

        >>> Jitter.of("lognormal", sigma=0.3)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        paceline...InputError: distribution: unknown distribution 'lognormal' (did you mean lognorm?)
        >>> Jitter.of("pareto", b=1.0)
        Traceback (most recent call last):
        paceline.algorithms.core.errors.InputError: distribution: pareto with b = 1.0 has no finite mean to scale to 1
        """
        if distribution == NO_JITTER.distribution and not parameters:
            return NO_JITTER
        _check_names(distribution, parameters)
        jitter = Jitter(distribution, tuple(sorted((name, float(value)) for name, value in parameters.items())))
        _check_distribution(jitter)
        return jitter

    def factor(self, seed: int, rank: int, step: int) -> float:
        """Returns the factor of one step of one rank.

        Args:
            seed: the seed of the run.
            rank: the rank.
            step: the step, from 0.

        Returns:
            The step's time divided by the device's time.
        """
        if self.distribution == "none":
            return 1.0
        block, place = divmod(step, BLOCK)
        return float(_block(self, seed, rank, block)[place])

    def factors_of_block(self, seed: int, rank: int, block: int) -> np.ndarray:
        """Returns the factors of a rank's `BLOCK` steps from step `BLOCK` · `block` on; the distribution is not "none".

        Args:
            seed: the seed of the run.
            rank: the rank.
            block: the number of the block.
        """
        return _block(self, seed, rank, block)

    def factors(self, seed: int, rank: int, steps: int) -> np.ndarray:
        """Returns the factors of a rank's first `steps` steps as an array, equal to those of `factor`.

        Args:
            seed: the seed of the run.
            rank: the rank.
            steps: the number of steps.

        Returns:
            Float64 array of shape (steps,).

        >>> distribution = Jitter.of("gamma", shape=4.0)
        >>> bool(distribution.factors(1, 0, 300)[299] == distribution.factor(seed=1, rank=0, step=299))
        True
        """
        if self.distribution == "none":
            return np.ones(steps)
        blocks = [_block(self, seed, rank, block) for block in range(-(-steps // BLOCK))]
        return np.concatenate([np.empty(0), *blocks])[:steps]

    def quantiles(self, count: int) -> tuple[float, ...]:
        """Returns the middle of each of `count` slices of equal probability, scaled to mean 1, smallest first.

        >>> [round(value, 2) for value in Jitter.of("expon", loc=1.0, scale=1.0).quantiles(4)]
        [0.59, 0.77, 1.03, 1.61]
        """
        if self.distribution == "none":
            return (1.0,)
        values = law(self).ppf((np.arange(count) + 0.5) / count)
        return tuple(float(value) for value in values / values.mean())


NO_JITTER = Jitter("none")
"""every step takes exactly its device's time"""


def _stats() -> Any:
    """Imports `scipy.stats`, which takes more than a second, only for laws that need it."""
    import scipy.stats

    return scipy.stats


@lru_cache(maxsize=1)
def distributions() -> tuple[str, ...]:
    """Returns the names of SciPy's continuous distributions.

    >>> "lognorm" in distributions()
    True
    """
    stats = _stats()
    return tuple(name for name in sorted(dir(stats)) if isinstance(getattr(stats, name), stats.rv_continuous))


@lru_cache(maxsize=64)
def scipy_law(jitter: Jitter) -> Any:
    """Returns the distribution of `scipy.stats` with the parameters of a jitter; not scaled."""
    return getattr(_stats(), jitter.distribution)(**_scipy_parameters(jitter))


def cumulative(jitter: Jitter, values: np.ndarray) -> np.ndarray:
    """Returns the probability that a jitter, not scaled, is at most each value; `scipy_law` takes 1 ms to make."""
    probabilities: np.ndarray = getattr(_stats(), jitter.distribution).cdf(values, **_scipy_parameters(jitter))
    return probabilities


def _scipy_parameters(jitter: Jitter) -> dict[str, float]:
    names = COMMON_NAMES.get(jitter.distribution, {})
    return {names.get(name, name): value for name, value in jitter.parameters}


@lru_cache(maxsize=64)
def law(jitter: Jitter) -> Any:
    """Returns the distribution of a jitter, not scaled; `lognorm` does without importing `scipy.stats`."""
    if jitter.distribution == "lognorm" and [name for name, _ in jitter.parameters] in (["s"], ["sigma"]):
        return LogNormal(jitter.parameters[0][1])
    return scipy_law(jitter)


@lru_cache(maxsize=64)
def _mean(jitter: Jitter) -> float:
    return float(law(jitter).mean())


@lru_cache(maxsize=16_384)  # 32 MB when full; ranks run apart by less than a block or two
def _block(jitter: Jitter, seed: int, rank: int, block: int) -> np.ndarray:
    generator = np.random.default_rng(np.random.SeedSequence((seed, STREAM, rank, block)))
    if jitter.values:
        return generator.choice(jitter.values, size=BLOCK)
    draws: np.ndarray = law(jitter).rvs(size=BLOCK, random_state=generator) / _mean(jitter)
    draws[draws < 0] = 0.0
    return draws


def _check_names(distribution: str, parameters: dict[str, float]) -> None:
    if distribution != "lognorm" and distribution not in distributions():
        hint = near_miss(distribution, distributions(), "any continuous distribution of scipy.stats, or none")
        raise InputError(f"distribution: unknown distribution {distribution!r}{hint}")
    shapes = _shapes(distribution)
    common = COMMON_NAMES.get(distribution, {})
    words = [next((word for word, letter in common.items() if letter == shape), shape) for shape in shapes]
    known = [*words, *(shape for shape in shapes if shape not in words), "loc", "scale"]
    for name, value in parameters.items():
        if name not in known:
            hint = near_miss(name, known, "it has " + ", ".join(known))
            raise InputError(f"{name}: {distribution} has no such parameter{hint}")
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= LARGEST:
            raise InputError(f"{name}: found {value!r}, expected a finite number")
    for word, shape in zip(words, shapes, strict=True):
        if (word in parameters) + (shape in parameters and shape != word) != 1:
            raise InputError(f"{word}: {distribution} needs this parameter once")


def _shapes(distribution: str) -> list[str]:
    """Returns SciPy's names of the shape parameters of a distribution."""
    if distribution == "lognorm":
        return ["s"]
    return [name.strip() for name in (getattr(_stats(), distribution).shapes or "").split(",") if name.strip()]


def _check_distribution(jitter: Jitter) -> None:
    words = ", ".join(f"{name} = {value}" for name, value in jitter.parameters)
    described = f"{jitter.distribution} with {words}" if words else jitter.distribution
    try:
        with warnings.catch_warnings():  # SciPy may warn before it refuses a parameter; the error below is enough
            warnings.simplefilter("ignore")
            distribution = law(jitter)
            support, mean, below = distribution.support(), _mean(jitter), float(distribution.cdf(0.0))
    except (ArithmeticError, ValueError) as error:
        raise InputError(f"distribution: {described} is no distribution; SciPy says: {error}") from error
    if any(math.isnan(bound) for bound in support):
        raise InputError(f"distribution: {described} is no distribution; SciPy refuses these parameters")
    if not math.isfinite(mean):
        raise InputError(f"distribution: {described} has no finite mean to scale to 1")
    if mean <= 0:
        raise InputError(f"distribution: {described} has mean {mean:g}; a factor of time needs one above 0")
    if below > NEGLIGIBLE:
        raise InputError(
            f"distribution: {described} is below 0 with probability {below:.2g}; no step takes a negative time, "
            "so choose a distribution of positive numbers, such as lognorm, gamma or truncnorm"
        )
