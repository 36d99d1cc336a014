"""Exact counts of integer values by rank, and a histogram of durations, both with a memory that does not grow with time.

`array.array` is used because single elements are read and written faster than those of NumPy arrays, and NumPy can
change the same memory without a copy.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
RESOLUTION = 2048
"""bins of the histogram of durations for each factor of e, so a bin is 0.05 % wide; provenance: ours"""


def view(column: array[Any]) -> NDArray[Any]:
    """Returns a NumPy array that shares the memory of an array.

    Args:
        column: an array of type "d" or "q".
    """
    return np.frombuffer(column, dtype=np.float64 if column.typecode == "d" else np.int64)


class RankedCounts:
    """Values with a rank: the histogram of all, and number, sum and maximum for each rank.

    Args:
        ranks: number of ranks.

    >>> counts = RankedCounts(2)
    >>> counts.add(0, 3)
    >>> counts.add_arrays(np.array([0, 1, 1]), np.array([1, 0, 3]))
    >>> sorted(counts.histogram.items()), counts.number.tolist(), counts.total.tolist(), counts.most.tolist()
    ([(0, 1), (1, 1), (3, 2)], [2, 2], [4, 3], [3, 3])
    """

    __slots__ = ("histogram", "most", "number", "total")

    def __init__(self, ranks: int) -> None:
        self.histogram: Counter[int] = Counter()
        self.number, self.total = array("q", bytes(8 * ranks)), array("q", bytes(8 * ranks))
        self.most = array("q", [-1]) * ranks

    def add(self, rank: int, value: int) -> None:
        """Counts one value.

        Args:
            rank: its rank.
            value: the value, at least 0.
        """
        self.histogram[value] += 1
        self.number[rank] += 1
        self.total[rank] += value
        if value > self.most[rank]:
            self.most[rank] = value

    def add_arrays(self, ranks: Integers, values: Integers) -> None:
        """Counts many values.

        Args:
            ranks: the rank of each value.
            values: the values, at least 0.
        """
        if not len(values):
            return
        found, times = np.unique(values, return_counts=True)
        for value, count in zip(found.tolist(), times.tolist(), strict=True):
            self.histogram[value] += count
        size = len(self.number)
        number, total = view(self.number), view(self.total)
        number += np.bincount(ranks, minlength=size)
        np.add.at(total, ranks, values)
        np.maximum.at(view(self.most), ranks, values)


class DurationHistogram:
    """A histogram of durations on a logarithmic scale; quantiles have a relative error of at most half a bin, 0.025 %.

    >>> durations = DurationHistogram()
    >>> for seconds in (0.5, 1.0, 2.0):
    ...     durations.add(seconds)
    >>> durations.quantiles([0.5])
    [1.0]
    """

    __slots__ = ("_bins", "number", "total_s")

    def __init__(self) -> None:
        self._bins: Counter[int | None] = Counter()
        self.number, self.total_s = 0, 0.0

    def add(self, seconds: float) -> None:
        """Counts one duration.

        Args:
            seconds: the duration, at least 0.
        """
        self._bins[round(math.log(seconds) * RESOLUTION) if seconds > 0 else None] += 1
        self.number += 1
        self.total_s += seconds

    def add_array(self, seconds: Floats) -> None:
        """Counts many durations.

        Args:
            seconds: the durations, at least 0.
        """
        positive = seconds[seconds > 0]
        found, times = np.unique(np.rint(np.log(positive) * RESOLUTION).astype(np.int64), return_counts=True)
        for place, count in zip(found.tolist(), times.tolist(), strict=True):
            self._bins[place] += count
        if len(positive) < len(seconds):
            self._bins[None] += len(seconds) - len(positive)
        self.number += len(seconds)
        self.total_s += float(seconds.sum())

    def quantiles(self, shares: list[float]) -> list[float]:
        """Returns quantiles, interpolated between neighbours as `numpy.percentile` does.

        Args:
            shares: the share below each quantile, 0 … 1.
        """
        bins = sorted(self._bins.items(), key=lambda item: -math.inf if item[0] is None else item[0])
        values = np.array([0.0 if place is None else math.exp(place / RESOLUTION) for place, _ in bins])
        ends = np.cumsum([count for _, count in bins])
        found = []
        for share in shares:
            position = share * (self.number - 1)
            below, above = (
                values[np.searchsorted(ends, at, side="right")] for at in (math.floor(position), math.ceil(position))
            )
            found.append(float(below + (above - below) * (position - math.floor(position))))
        return found
