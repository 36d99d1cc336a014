"""Figures that summaries and comparisons are made of: pure functions of numbers.

Rules of this file:

* What cannot be said is None, never NaN: JSON has no NaN, and a missing figure must not look like a measured one.
* Distances and shares are without unit; times are seconds on the run's own clock.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

Histogram = list[list[int]]
"""``[[value, count], …]``, values rising"""


def finite(value: float | None) -> float | None:
    """The number, or None where there is none.

    >>> finite(2.0), finite(float("nan")), finite(float("inf")), finite(None)
    (2.0, None, None, None)
    """
    return float(value) if value is not None and math.isfinite(value) else None


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
