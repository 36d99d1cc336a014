"""How the bandwidth of a link varies over time: a random process with mean 1 that multiplies the link's bandwidth.

The factor is redrawn at multiples of an interval and constant in between. Its law is floor + (1 − floor) · lognormal,
with mean 1, so that a link's bandwidth is its mean bandwidth, whatever the other settings are. The logarithm is an
autoregressive process of order 1 (AR(1), also called Gauss-Markov), which is stationary from the first interval on.
Nothing is drawn in advance: a process yields one factor after the other, as long as a run asks for them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass

STREAM = 23
"""separates these draws from others with the same seed"""
EVERY_S = 10.0
"""seconds between two redraws; INFERENCE: the interval at which studies of cloud networks sample bandwidth (Uta et al.,
NSDI 2020, from memory)"""
CORRELATION = 0.8
"""correlation of successive bandwidths; INFERENCE: congestion on wide-area paths lasts for about a minute. No published
value was found"""
FLOOR = 0.1
"""smallest factor; our choice: at cv 0.3, a lognormal without a floor falls below it once in 10¹⁴ draws"""
MOST_CV = 3.0
"""largest coefficient of variation; beyond it, a mean over a run says nothing, since rare large values dominate it"""


@dataclass(frozen=True, slots=True, kw_only=True)
class VariationModel:
    """The variation of a link's bandwidth over time.

    The factor of interval k is

        f_k = floor + (1 − floor) exp(σ z_k − σ²/2),   z_k = ρ z_(k−1) + √(1 − ρ²) ε_k,   ε_k ~ N(0, 1)

    with σ² = ln(1 + (cv / (1 − floor))²) and ρ = ln(1 + correlation (exp(σ²) − 1)) / σ². So f has mean 1, standard
    deviation `cv` and the correlation `correlation` between successive intervals, all exactly.

    Args:
        cv: the coefficient of variation: standard deviation over mean.
        every_s: the seconds between two redraws.
        correlation: the correlation of the bandwidths of two successive intervals, 0 or more and less than 1.
        floor: the smallest factor, 0 or more and less than 1.
        provenance: where the values come from.

    >>> varying = VariationModel(cv=0.3)
    >>> [round(factor, 2) for factor, _ in zip(varying.factors(seed=1, link="host0>switch"), range(4))]
    [1.31, 1.17, 1.29, 1.17]
    """

    cv: float
    every_s: float = EVERY_S
    correlation: float = CORRELATION
    floor: float = FLOOR
    provenance: str = "given in the scenario"

    @property
    def sigma(self) -> float:
        """The standard deviation of the logarithm of the lognormal part."""
        return math.sqrt(math.log1p((self.cv / (1.0 - self.floor)) ** 2))

    @property
    def log_correlation(self) -> float:
        """ρ: the correlation of successive logarithms, which is a little larger than that of successive factors."""
        squared = self.sigma**2
        return math.log1p(self.correlation * math.expm1(squared)) / squared

    def correlation_after(self, intervals: int) -> float:
        """Returns the correlation of the factors of two intervals that are so many intervals apart.

        >>> varying = VariationModel(cv=0.5, correlation=0.8)
        >>> round(varying.correlation_after(1), 12), round(varying.correlation_after(2), 3)
        (0.8, 0.643)
        """
        squared = self.sigma**2
        return math.expm1(squared * self.log_correlation**intervals) / math.expm1(squared)

    def factors(self, seed: int, link: str) -> Factors:
        """Returns the factor of each interval, without end.

        Args:
            seed: the seed of the run.
            link: the name of the link. Links with different names vary independently.
        """
        return Factors(self, seed, link)


BLOCK = 100_000
"""factors that are skipped at a time, so that their random numbers take little memory"""
FORGOTTEN = 1e-100
"""the share of an earlier logarithm in a later one that is far below the rounding of the later one"""


class Factors(Iterator[float]):
    """The factors of a link's successive intervals.

    >>> one, other = (VariationModel(cv=0.3, correlation=0.9).factors(1, "a-b") for _ in range(2))
    >>> one.skip(5000)
    >>> next(one) == [next(other) for _ in range(5001)][-1]
    True
    """

    def __init__(self, variation: VariationModel, seed: int, link: str) -> None:
        import numpy as np  # only a run draws; `paceline list topologies` starts faster without it

        key = int.from_bytes(hashlib.blake2b(link.encode(), digest_size=8).digest(), "big")
        self._generator = np.random.default_rng(np.random.SeedSequence((seed, STREAM, key)))
        self._floor, self._sigma, self._rho = variation.floor, variation.sigma, variation.log_correlation
        self._fresh = math.sqrt(1.0 - self._rho**2)
        self._z: float | None = None
        self._memory = math.ceil(math.log(FORGOTTEN) / math.log(self._rho)) if 0.0 < self._rho < 1.0 else 1
        """intervals after which a logarithm has no influence"""

    def __next__(self) -> float:
        drawn = float(self._generator.standard_normal())
        self._z = drawn if self._z is None else self._rho * self._z + self._fresh * drawn
        return self._floor + (1.0 - self._floor) * math.exp(self._sigma * self._z - self._sigma**2 / 2)

    def skip(self, count: int) -> None:
        """Leaves out factors that nobody needs; the later ones are the same as if they had been drawn one by one."""
        if count and self._z is None:
            next(self)
            count -= 1
        for first in range(0, count, BLOCK):
            drawn = self._generator.standard_normal(min(BLOCK, count - first))
            z = self._z or 0.0
            for fresh in drawn[-self._memory :].tolist():
                z = self._rho * z + self._fresh * fresh
            self._z = z
