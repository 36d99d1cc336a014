"""95 % intervals: Student's t for differences of two methods paired by seed, and order statistics for a median."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import binom

from paceline.records.metrics import CONFIDENCE, interval


@dataclass(frozen=True, slots=True)
class Difference:
    """The mean of ours − theirs, its interval, and the mean relative to theirs."""

    mean: float
    low: float
    high: float
    relative: float | None
    """None if the mean of theirs is 0"""


def difference(ours: Sequence[float], theirs: Sequence[float]) -> Difference:
    """Returns the mean of ours − theirs, paired by seed, with its 95 % confidence interval.

    Args:
        ours: One figure for each seed.
        theirs: The figures of the same seeds, in the same order.

    Raises:
        ValueError: If there are fewer than two pairs, which have no interval.

    >>> found = difference([1.0, 2.0, 3.0], [1.0, 1.0, 1.0])
    >>> found.mean, round(found.low, 3), round(found.high, 3)
    (1.0, -1.484, 3.484)
    >>> difference([2.0, 3.0], [1.0, 2.0])  # always the same
    Difference(mean=1.0, low=1.0, high=1.0, relative=0.6666666666666666)
    """
    less = np.subtract(ours, theirs).tolist()
    if len(less) < 2:
        raise ValueError(f"found {len(less)} pair; expected 2 or more, or there is no interval")
    found, scale = interval(less), float(np.mean(theirs))
    return Difference(**found, relative=found["mean"] / scale if scale else None)


def between(values: Sequence[float]) -> tuple[float, float]:
    """Returns the narrowest pair of order statistics that contains the median with 95 %.

    With too few values it is the range of all of them.

    >>> between([5.0, 1.0, 2.0]), between(list(map(float, range(9))))
    ((1.0, 5.0), (1.0, 7.0))
    """
    ordered, count = sorted(values), len(values)
    inner = [k for k in range((count + 1) // 2) if 1 - 2 * binom.cdf(k, count, 0.5) >= CONFIDENCE]
    cut = max(inner, default=0)
    return ordered[cut], ordered[count - 1 - cut]
