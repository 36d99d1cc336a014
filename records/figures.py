"""How figures are written: the number of digits, for every table, sentence and label."""

from __future__ import annotations

import math


def significant(value: float, digits: int = 3) -> str:
    """Returns a number with so many significant digits, without an exponent where people read numbers without one.

    Python's format ``g`` turns 1,787 with three digits into ``1.79e+03``. Here a number with more digits before its
    point is written as a whole number with separators, up to a million million; only what is larger, or below 0.0001,
    has an exponent.

    Args:
        value: the number, in the unit that is written behind it.
        digits: significant digits; trailing zeros are left out.

    >>> [significant(value) for value in (0.00042, 0.0412, 2.0, 999.7, 1787.4, 2.3e15)]
    ['0.00042', '0.0412', '2', '1,000', '1,787', '2.3e+15']
    >>> significant(62918.25, 4), significant(float("nan"))
    ('62,918', 'nan')
    """
    text = f"{value:.{digits}g}"
    return f"{value:,.0f}" if "e+" in text and math.isfinite(value) and abs(value) < 1e12 else text
