"""Resamples of seeds, and 95 % intervals from them for few seeds.

Rules of this file:

* The percentile interval of a bootstrap is too narrow for few values: it lacks the factor √(n/(n−1)) of the standard
  deviation and takes quantiles of the normal distribution for those of Student's t. The expanded percentile interval
  corrects both by taking quantiles farther outside.
* Up to `ALL_OF` seeds, all resamples are enumerated with their probabilities, so that nothing is random. Of more seeds,
  `DRAWN` resamples are drawn, always the same.

Source: T. Hesterberg, "What Teachers Should Know About the Bootstrap", The American Statistician 69 (2015), on the
expanded percentile interval. MEMORY high; a test measures how often the interval contains the true place.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations_with_replacement
from math import factorial, prod, sqrt
from typing import Any

import numpy as np

from paceline.records.metrics import student

ALL_OF = 6
"""most seeds of which all resamples are taken: 462 of six"""
DRAWN = 20_000
"""resamples of more seeds; INFERENCE: the outer quantile of 7 seeds is then that of 80 resamples"""


def tail(count: int) -> float:
    """Returns the probability below the lower end of an expanded 95 % percentile interval.

    Φ(−√(n/(n−1)) · t(0.975, n−1))

    Args:
        count: n, the number of values that are resampled, at least 2.

    >>> round(tail(5), 5), round(tail(100), 4)
    (0.00095, 0.0231)
    """
    from scipy.special import ndtr

    return float(ndtr(-sqrt(count / (count - 1)) * student(count - 1)))


def enough(count: int) -> bool:
    """Returns whether resamples of so many values reach as far as the ends of an interval.

    The rarest resample, n times the same value, has the probability n^−n. DERIVED: below 5 values this is more than
    `tail`, so that the ends of the interval would be beyond all resamples.

    >>> [count for count in range(1, 8) if enough(count)]
    [5, 6, 7]
    """
    return count > 1 and count**-count <= tail(count)


@lru_cache(maxsize=8)
def resamples(count: int) -> tuple[Any, Any]:
    """Returns the weights of the values in each resample, and the probability of each resample.

    Args:
        count: number of values.

    Returns:
        An array (resamples, values), whose rows have the sum 1, and an array (resamples,) with the sum 1.
    """
    if count > ALL_OF:
        drawn = np.random.default_rng(0).multinomial(count, np.full(count, 1 / count), size=DRAWN)
        return drawn / count, np.full(DRAWN, 1 / DRAWN)
    rows = [np.bincount(chosen, minlength=count) for chosen in combinations_with_replacement(range(count), count)]
    ways = [factorial(count) / prod(factorial(int(times)) for times in row) for row in rows]
    return np.array(rows) / count, np.array(ways) / float(count) ** count


def interval_ends(values: Sequence[float] | Any, probabilities: Any, below: float) -> tuple[float, float]:
    """Returns the quantiles `below` and 1 − `below` of a discrete distribution, which may have infinite values.

    Args:
        values: the values.
        probabilities: their probabilities.
        below: probability of each end.

    >>> interval_ends([3.0, 1.0, 2.0], np.array([0.25, 0.25, 0.5]), 0.25)
    (1.0, 2.0)
    """
    order = np.argsort(values, kind="stable")
    up_to = np.cumsum(np.asarray(probabilities)[order])
    rounding = 1e-12  # of the sum of probabilities
    low, high = (int(np.searchsorted(up_to, level - rounding)) for level in (below, 1 - below))
    found = np.asarray(values, dtype=float)[order]
    return float(found[low]), float(found[min(high, len(found) - 1)])
