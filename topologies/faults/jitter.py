"""Jitter: the random factor by which a step takes longer or shorter than its device's time.

A factor is a pure function of (seed, rank, step): simulated and paced real runs draw the same one, in any order. Every
distribution has mean 1, so that jitter never makes a device faster or slower on average.

Drawing one number at a time from SciPy costs tens of microseconds. So each rank's factors are drawn in blocks, each
with a generator of its own, and blocks are cached. A block that leaves the cache is drawn again with the same values.

Jitter of many ranks at once: the factors of one step for all of them, bit for bit those of `Jitter.factor`.

The factors of a rank come in blocks, each from a generator of its own. Creating the generator takes far longer than
drawing the block. So the initial states of all generators of a block are computed at once, by NumPy's published
algorithm of `SeedSequence` (O'Neill's `seed_seq_fe128`) on arrays, and one generator is set to one after the other. If
the first state is not NumPy's own, the generators are created one by one.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from math import inf
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
def _block(jitter: Jitter, seed: int, rank: int, block: int) -> Factors:
    return jitter_rows(jitter, seed, [rank], block, BLOCK).ravel()


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


Words = NDArray[np.uint32]
Factors = NDArray[np.float64]

POOL = 4
"""words of the pool of a `SeedSequence`"""
INIT_A, MULT_A = 0x43B0D7E5, 0x931E8875
INIT_B, MULT_B = 0x8B51F9DD, 0x58F38DED
MIX_LEFT, MIX_RIGHT = 0xCA01F9DD, 0x4973F715
SHIFT = np.uint32(16)
"""constants of `SeedSequence`: FOUND numpy/random/bit_generator.pyx"""
PCG_MULTIPLIER = 0x2360ED051FC65DA44385DF649FCCF645
"""FOUND numpy/random/src/pcg64/pcg64.h"""
WORD = 2**32
MASK = 2**128 - 1
AT_ONCE = 4096
"""ranks that are drawn before their numbers are sorted by step; provenance: ours, 8 MB"""
FEW = 8
"""places whose generators are created sooner than their states are computed together"""


class BlocksOfRanks:
    """Numbers of many ranks, one for each step, which are drawn in blocks of `BLOCK` steps.

    Args:
        rows: draws the first numbers of the blocks of some ranks, one row for each: `rows(ranks, block, length)`.
        ranks: the ranks.
        steps: how many steps are probably asked for, if that is known; others are drawn when they are.

    >>> import functools
    >>> jitter = Jitter.of("lognorm", sigma=0.3)
    >>> blocks = BlocksOfRanks(functools.partial(jitter_rows, jitter, 1), range(9))
    >>> [float(blocks.of_step(300)[rank]) == jitter.factor(1, rank, 300) for rank in (0, 8)]
    [True, True]
    """

    def __init__(
        self, rows: Callable[[Sequence[int], int, int], Factors], ranks: Sequence[int], steps: int | None = None
    ) -> None:
        self._rows, self._ranks = rows, ranks
        self._steps = inf if steps is None else steps
        self._block, self._by_step = -1, np.empty((0, len(ranks)))

    def of_step(self, step: int) -> Factors:
        """Returns the number of each rank in a step."""
        block, place = divmod(step, BLOCK)
        if block != self._block or place >= len(self._by_step):
            length = int(min(BLOCK, self._steps - block * BLOCK))
            length = BLOCK if place >= length else length
            if len(self._by_step) != length:
                self._by_step = np.empty((length, len(self._ranks)))
            for at in range(0, len(self._ranks), AT_ONCE):
                rows = self._rows(self._ranks[at : at + AT_ONCE], block, length)
                self._by_step[:, at : at + len(rows)] = rows.T
            self._block = block
        numbers: Factors = self._by_step[place]
        return numbers


def jitter_rows(jitter: Jitter, seed: int, ranks: Sequence[int], block: int, length: int) -> Factors:
    """Returns the first factors of the blocks of some ranks, one row for each; the distribution is not "none".

    Args:
        jitter: the distribution.
        seed: the seed of the run.
        ranks: the ranks.
        block: the number of the block: the factors are those of the steps from `BLOCK` · `block` on.
        length: how many factors, at most `BLOCK`.
    """
    if jitter.distribution == "lognorm" and {name for name, _ in jitter.parameters} <= {"s", "sigma"}:
        rows = normal_rows(seed, STREAM, ranks, block, length)
        ((_, shape),) = jitter.parameters  # as scipy.stats.lognorm draws them: exp(s · normal) · 1 + 0
        rows *= shape
        np.exp(rows, out=rows)
    else:  # only normal numbers are drawn one after the other
        each = generators(seed, STREAM, ranks, block)
        if jitter.values:
            return np.stack([generator.choice(jitter.values, size=BLOCK)[:length] for generator in each])
        drawn = law(jitter)
        rows = np.stack([drawn.rvs(size=BLOCK, random_state=generator)[:length] for generator in each])
    rows /= _mean(jitter)
    rows[rows < 0] = 0.0
    return rows


def normal_rows(seed: int, stream: int, places: Sequence[int], block: int | None, length: int) -> Factors:
    """Returns the first standard normal numbers of the generator of each place, one row for each.

    Args:
        seed: the seed of the run.
        stream: tells draws for one purpose from those for others.
        places: ranks or nodes.
        block: the number of the block; None: without this word of the sequence.
        length: how many numbers of each place.
    """
    rows = np.empty((len(places), length))
    for row, generator in zip(rows, generators(seed, stream, places, block), strict=True):
        generator.standard_normal(out=row)
    return rows


def generators(seed: int, stream: int, places: Sequence[int], block: int | None) -> Iterator[np.random.Generator]:
    """Yields the generator of ``SeedSequence((seed, stream, place, block))`` for each place.

    It may be one generator that is set to one state after the other, so draw from it before the next is taken.

    Args:
        seed: the seed of the run.
        stream: tells draws for one purpose from those for others.
        places: ranks or nodes.
        block: the number of the block; None: without this word of the sequence.

    >>> numbers = [float(generator.standard_normal()) for generator in generators(1, 2, range(20), 0)]
    >>> numbers[5] == float(np.random.default_rng(np.random.SeedSequence((1, 2, 5, 0))).standard_normal())
    True
    """
    rest = () if block is None else (block,)

    def sequence(place: int) -> np.random.SeedSequence:
        return np.random.SeedSequence((seed, stream, place, *rest))

    together = len(places) > FEW and 0 <= seed < WORD and max(*places, *rest) < WORD
    states = _states(seed, stream, places, block or 0) if together else iter(())
    if together and (first := next(states)) == np.random.PCG64(sequence(places[0])).state:
        generator = np.random.Generator(np.random.PCG64(0))
        for state in chain([first], states):
            generator.bit_generator.state = state
            yield generator
    else:
        yield from (np.random.default_rng(sequence(place)) for place in places)


def _states(seed: int, stream: int, places: Sequence[int], block: int) -> Iterator[dict[str, Any]]:
    """Yields the state of ``PCG64(SeedSequence((seed, stream, place, block)))`` for each place, all below 2³²."""
    entropy = [np.full(len(places), part, dtype=np.uint32) for part in (seed, stream, 0, block)]
    entropy[2] = np.asarray(places, dtype=np.uint32)
    words = _generated(_mixed(entropy), 8)
    high, low, high_inc, low_inc = ((words[at] | (words[at + 1] << np.uint64(32))).tolist() for at in (0, 2, 4, 6))
    for state_high, state_low, inc_high, inc_low in zip(high, low, high_inc, low_inc, strict=True):
        inc = (((inc_high << 64 | inc_low) << 1) | 1) & MASK
        state = ((inc + (state_high << 64 | state_low)) * PCG_MULTIPLIER + inc) & MASK
        yield {"bit_generator": "PCG64", "state": {"state": state, "inc": inc}, "has_uint32": 0, "uinteger": 0}


def _mixed(entropy: Sequence[Words]) -> list[Words]:
    """Returns the pools of the sequences with these words of entropy."""
    constant = INIT_A

    def hashed(words: Words) -> Words:
        nonlocal constant
        words = words ^ np.uint32(constant)
        constant = constant * MULT_A % WORD
        words = words * np.uint32(constant)
        return words ^ (words >> SHIFT)

    pool = [hashed(words) for words in entropy]
    for source in range(POOL):
        for target in range(POOL):
            if source != target:
                both = np.uint32(MIX_LEFT) * pool[target] - np.uint32(MIX_RIGHT) * hashed(pool[source])
                pool[target] = both ^ (both >> SHIFT)
    return pool


def _generated(pool: Sequence[Words], count: int) -> list[NDArray[np.uint64]]:
    """Returns the words that the pools generate."""
    constant, generated = INIT_B, []
    for at in range(count):
        words = pool[at % POOL] ^ np.uint32(constant)
        constant = constant * MULT_B % WORD
        words = words * np.uint32(constant)
        generated.append((words ^ (words >> SHIFT)).astype(np.uint64))
    return generated
