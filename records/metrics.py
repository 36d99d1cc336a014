"""Figures that summaries and comparisons are made of: pure functions of numbers.

Rules of this file:

* What cannot be said is None, never NaN: JSON has no NaN, and a missing figure must not look like a measured one.
* Distances and shares are without unit; times are seconds on the run's own clock.
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
"""``[[value, count], …]``, values rising"""


def finite(value: float | None) -> float | None:
    """The number, or None where there is none.

    >>> finite(2.0), finite(float("nan")), finite(float("inf")), finite(None)
    (2.0, None, None, None)
    """
    return float(value) if value is not None and math.isfinite(value) else None


def student(free: Any) -> Any:
    """How many standard errors on either side make the 95 % interval: Student's t for so many degrees of freedom.

    >>> round(float(student(2)), 3)
    4.303
    """
    from scipy.special import stdtrit  # slow to import: only where an interval is asked for

    return stdtrit(free, (1 + CONFIDENCE) / 2)


def interval(values: Sequence[float]) -> dict[str, float]:
    """Mean and 95 % interval by Student's t, for two values or more.

    mean ± t(0.975, n − 1) · s / √n

    >>> {name: round(value, 3) for name, value in interval([1.0, 2.0, 3.0]).items()}
    {'mean': 2.0, 'low': -0.484, 'high': 4.484}
    """
    mean, count = statistics.fmean(values), len(values)
    half = float(student(count - 1)) * statistics.stdev(values) / math.sqrt(count)
    return {"mean": mean, "low": mean - half, "high": mean + half}


def histogram(values: Iterable[int]) -> Histogram:
    """How often each value occurs.

    >>> histogram([3, 0, 3])
    [[0, 1], [3, 2]]
    """
    return [[int(value), count] for value, count in sorted(Counter(values).items())]


def counts(histogram: Histogram) -> dict[int, int]:
    """A histogram as a mapping.

    >>> counts([[0, 1], [3, 2]])
    {0: 1, 3: 2}
    """
    return {bar[0]: bar[1] for bar in histogram}


def total_variation(one: Histogram, other: Histogram) -> float | None:
    """Total-variation distance of two histograms, each taken as a distribution; None where one of them is empty.

    TV = ½ Σ_v |p(v) − q(v)|: 0 where they agree, 1 where they have no value in common.

    >>> total_variation([[0, 5], [1, 5]], [[1, 2]])
    0.5
    """
    p, q = counts(one), counts(other)
    if not p or not q:
        return None
    sum_p, sum_q = sum(p.values()), sum(q.values())
    return sum(abs(p.get(value, 0) / sum_p - q.get(value, 0) / sum_q) for value in sorted(p.keys() | q.keys())) / 2


def smoothed(values: Sequence[float], window: int) -> NDArray[np.float64]:
    """Trailing mean over the last `window` values, over as many as there are at the start.

    >>> smoothed([0.0, 1.0, 2.0, 6.0], window=3)
    array([0. , 0.5, 1. , 3. ])
    """
    if window < 1:
        raise ValueError(f"window={window}: a mean needs 1 value or more")
    return np.array(
        [np.mean(values[max(0, end - window) : end]) for end in range(1, len(values) + 1)], dtype=np.float64
    )
