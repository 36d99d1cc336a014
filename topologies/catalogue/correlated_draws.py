"""Uniform draws that are correlated over the steps of a rank and between the ranks of a host (a Gaussian copula).

    z(rank, t) = √c · a(host, t) + √(1 − c) · a(rank, t)         between ranks
    a(t) = √(1 − ρ²) · Σ ρ^k · ε(t − k),  k = 0 … K               between steps: an AR(1) process
    u = Φ(z)

Rules of this file: ε are independent standard normal numbers, drawn in blocks, so that a draw is a pure function of
(seed, rank, host, step). K is where ρ^K has fallen below `NEGLIGIBLE`. Rank correlations r are those of the file; the
normal numbers have correlations 2 · sin(π · r / 6) (K. Pearson, 1907, for normal pairs: MEMORY high).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

STREAM = 13
"""separates these draws from others with the same seed"""
BLOCK = 256
"""steps per block"""
NEGLIGIBLE = 1e-3
"""the weight from which on earlier steps are left out"""
LARGEST = 0.97
"""the largest correlation between steps; then the sum has 227 terms, fewer than a block"""


def uniform(seed: int, rank: int, host: int, step: int, *, between_steps: float, between_ranks: float) -> float:
    """Returns a number that is uniformly distributed from 0 to 1.

    Args:
        seed: the seed of the run.
        rank: the rank.
        host: the host of the rank, whose ranks are correlated with each other.
        step: the step, from 0.
        between_steps: the rank correlation of successive steps.
        between_ranks: the rank correlation of two ranks of a host in one step; below 0 counts as 0.

    >>> one = uniform(1, 0, 0, 5, between_steps=0.5, between_ranks=0.9)
    >>> other = uniform(1, 1, 0, 5, between_steps=0.5, between_ranks=0.9)
    >>> 0 < one < 1, one != other, abs(one - other) < 0.5
    (True, True, True)
    """
    steps, ranks = normal_correlation(between_steps), max(0.0, normal_correlation(between_ranks))
    block, place = divmod(step, BLOCK)
    own = float(_process(seed, (0, rank), steps, block)[place])
    if not ranks:
        return _probability(own)
    common = float(_process(seed, (1, host), steps, block)[place])
    return _probability(math.sqrt(ranks) * common + math.sqrt(1 - ranks) * own)


def normal_correlation(rank_correlation: float) -> float:
    """Returns the correlation of normal numbers with a rank correlation: 2 · sin(π · r / 6).

    >>> normal_correlation(1.0), normal_correlation(0.0)
    (1.0, 0.0)
    """
    return round(2 * math.sin(math.pi * rank_correlation / 6), 12)


def _probability(normal: float) -> float:
    return 0.5 * math.erfc(-normal / math.sqrt(2))


@lru_cache(maxsize=4096)
def _process(seed: int, whose: tuple[int, int], rho: float, block: int) -> np.ndarray:
    """Returns a block of an AR(1) process."""
    rho = min(LARGEST, max(-LARGEST, rho))
    if not rho:
        return _normal(seed, whose, block + 1)
    terms = math.ceil(math.log(NEGLIGIBLE) / math.log(abs(rho)))
    weights = rho ** np.arange(terms + 1)
    past = np.concatenate([_normal(seed, whose, block), _normal(seed, whose, block + 1)])
    summed: np.ndarray = np.convolve(past, weights)[BLOCK : 2 * BLOCK]
    return summed / math.sqrt(float(np.sum(weights**2)))


@lru_cache(maxsize=4096)
def _normal(seed: int, whose: tuple[int, int], block: int) -> np.ndarray:
    return np.random.default_rng(np.random.SeedSequence((seed, STREAM, *whose, block))).standard_normal(BLOCK)
