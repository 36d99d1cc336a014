"""Statistics for summaries and comparisons: pure functions of numbers.

* A missing figure is None, never NaN: JSON has no NaN, and a missing figure must not look like a measured one.
* Distances and shares have no unit; times are seconds on the run's own clock.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95

Histogram = list[list[int]]
"""``[[value, count], …]``, values ascending"""


def finite(value: float | None) -> float | None:
    """Returns a finite number, or None for None, NaN and infinity.

    >>> finite(2.0), finite(float("nan")), finite(float("inf")), finite(None)
    (2.0, None, None, None)
    """
    return float(value) if value is not None and math.isfinite(value) else None


def student(free: Any) -> Any:
    """Returns the half-width of the 95 % interval in standard errors: Student's t for `free` degrees of freedom.

    >>> round(float(student(2)), 3)
    4.303
    """
    from scipy.special import stdtrit  # slow to import, so only when needed

    return stdtrit(free, (1 + CONFIDENCE) / 2)


def interval(values: Sequence[float]) -> dict[str, float]:
    """Returns the mean and its 95 % interval by Student's t, for at least two values.

    mean ± t(0.975, n − 1) · s / √n

    >>> {name: round(value, 3) for name, value in interval([1.0, 2.0, 3.0]).items()}
    {'mean': 2.0, 'low': -0.484, 'high': 4.484}
    """
    mean, count = statistics.fmean(values), len(values)
    half = float(student(count - 1)) * statistics.stdev(values) / math.sqrt(count)
    return {"mean": mean, "low": mean - half, "high": mean + half}


def histogram(values: Iterable[int]) -> Histogram:
    """Returns how often each value occurs.

    >>> histogram([3, 0, 3])
    [[0, 1], [3, 2]]
    """
    return [[int(value), count] for value, count in sorted(Counter(values).items())]


def counts(histogram: Histogram) -> dict[int, int]:
    """Returns a histogram as a mapping.

    >>> counts([[0, 1], [3, 2]])
    {0: 1, 3: 2}
    """
    return {bar[0]: bar[1] for bar in histogram}


def total_variation(first: Histogram, second: Histogram) -> float | None:
    """Returns the total-variation distance of two normalised histograms; None if one of them is empty.

    TV = ½ Σ_v |p(v) − q(v)|: 0 for equal distributions, 1 if they have no value in common.

    Args:
        first: a histogram.
        second: another one.

    >>> total_variation([[0, 5], [1, 5]], [[1, 2]])
    0.5
    """
    p, q = counts(first), counts(second)
    if not p or not q:
        return None
    sum_p, sum_q = sum(p.values()), sum(q.values())
    return sum(abs(p.get(value, 0) / sum_p - q.get(value, 0) / sum_q) for value in sorted(p.keys() | q.keys())) / 2


def smoothed(values: Sequence[float], window: int) -> NDArray[np.float64]:
    """Returns the trailing mean over the last `window` values, or over all values at the start.

    Args:
        values: the values.
        window: the number of values in a mean.

    Raises:
        ValueError: the window is smaller than 1.

    >>> smoothed([0.0, 1.0, 2.0, 6.0], window=3)
    array([0. , 0.5, 1. , 3. ])
    """
    if window < 1:
        raise ValueError(f"window={window}: a mean needs 1 value or more")
    return np.array(
        [np.mean(values[max(0, end - window) : end]) for end in range(1, len(values) + 1)], dtype=np.float64
    )
