"""Sets of time intervals: union, length, intersection.

Rules of this file: an interval is (start, end) with start ≤ end. A union is sorted and its intervals are disjoint.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

Interval = tuple[float, float]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Returns the union of intervals; those that touch become one.

    >>> union([(3.0, 4.0), (0.0, 1.0), (0.5, 2.0)])
    [(0.0, 2.0), (3.0, 4.0)]
    """
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


def length(united: Iterable[Interval]) -> float:
    """Returns the total length of a union."""
    return sum((end - start for start, end in united), 0.0)


def common(one: Sequence[Interval], other: Sequence[Interval]) -> list[Interval]:
    """Returns the intersection of two unions.

    Args:
        one: a union.
        other: a union.

    >>> common([(0.0, 2.0), (3.0, 4.0)], [(1.0, 3.5)])
    [(1.0, 2.0), (3.0, 3.5)]
    """
    found: list[Interval] = []
    here = there = 0
    while here < len(one) and there < len(other):
        start, end = max(one[here][0], other[there][0]), min(one[here][1], other[there][1])
        if start < end:
            found.append((start, end))
        if one[here][1] < other[there][1]:
            here += 1
        else:
            there += 1
    return found


def within(united: Sequence[Interval], at: float) -> int | None:
    """Returns the number of the interval of a union that contains a time, or None; ends are not contained.

    Args:
        united: a union.
        at: the time.

    >>> within([(0.0, 2.0), (3.0, 4.0)], 3.5), within([(0.0, 2.0)], 2.0)
    (1, None)
    """
    place = bisect_right(united, (at, float("inf"))) - 1
    return place if place >= 0 and at < united[place][1] else None
