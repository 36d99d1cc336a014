"""The lognormal law without `scipy.stats`, whose import takes longer than most simulations of times.

It has the methods of a distribution of `scipy.stats` that jitter uses, and the same bits as `scipy.stats.lognorm`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


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
