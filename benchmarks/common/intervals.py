"""95 % intervals of a median, from order statistics."""

from __future__ import annotations

from collections.abc import Sequence

from scipy.stats import binom

from paceline.records.metrics import CONFIDENCE


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
