"""Exact counts of integer values by rank, and a histogram of durations; their memory does not grow with time.

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
MOST_COUNTED = 65_536
"""range of values up to which an array has an element for each; provenance: ours, 0.5 MB"""


def view(column: array[Any]) -> NDArray[Any]:
    """Returns a NumPy array that shares the memory of an array.

    Args:
        column: an array of type "d" or "q".
    """
    return np.frombuffer(column, dtype=np.float64 if column.typecode == "d" else np.int64)


def places(ranks: Integers) -> slice | Integers:
    """Returns a slice for ranks that follow each other, because NumPy is several times as fast with slices.

    Args:
        ranks: some ranks.

    >>> places(np.array([2, 3, 4])), places(np.array([0, 2]))
    (slice(2, 5, None), array([0, 2]))
    """
    if not len(ranks):
        return ranks
    first, last = int(ranks[0]), int(ranks[-1])
    if last - first + 1 != len(ranks) or (np.diff(ranks) != 1).any():
        return ranks
    return slice(first, last + 1)


def alike(values: Integers) -> bool:
    """Returns whether all values are equal; without values they are not."""
    return bool(len(values)) and bool((values == values[0]).all())


def counted(values: Integers) -> tuple[list[int], list[int]]:
    """Returns the different values, in ascending order, and how often each occurs.

    Args:
        values: the values; small ranges are counted without sorting.

    >>> counted(np.array([7, 5, 7]))
    ([5, 7], [1, 2])
    """
    lowest, highest = int(values.min()), int(values.max())
    if lowest == highest:
        return [lowest], [len(values)]
    if highest - lowest > MOST_COUNTED:
        distinct, times = np.unique(values, return_counts=True)
    else:
        every = np.bincount(values - lowest)
        distinct = np.flatnonzero(every)
        times, distinct = every[distinct], distinct + lowest
    return distinct.tolist(), times.tolist()


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
        for value, count in zip(*counted(values), strict=True):
            self.histogram[value] += count
        number, total, most = view(self.number), view(self.total), view(self.most)
        if isinstance(at := places(ranks), slice):
            number[at] += 1
            total[at] += values
            np.maximum(most[at], values, out=most[at])
        else:
            number += np.bincount(ranks, minlength=len(number))
            np.add.at(total, ranks, values)
            np.maximum.at(most, ranks, values)


class DurationHistogram:
    """A histogram of durations on a logarithmic scale; quantiles have a relative error of at most half a bin, 0.025 %.

    >>> durations = DurationHistogram()
    >>> for seconds in (0.5, 1.0, 2.0):
    ...     durations.add(seconds)
    >>> durations.quantiles([0.5])
    [1.0]
    """

    __slots__ = ("_bins", "_first", "_many", "number", "total_s")

    def __init__(self) -> None:
        self._bins: Counter[int | None] = Counter()
        self._first, self._many = 0, np.zeros(0, dtype=np.int64)
        """the counts of arrays: the number of the first bin, and those of this bin and the following ones"""
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
        if not len(seconds):
            return
        positive = seconds if seconds.min() > 0 else seconds[seconds > 0]
        if len(positive):
            bins = np.log(positive)
            bins *= RESOLUTION
            self._count(np.rint(bins, out=bins).astype(np.int64))
        if len(positive) < len(seconds):
            self._bins[None] += len(seconds) - len(positive)
        self.number += len(seconds)
        self.total_s += float(seconds.sum())

    def _count(self, bins: Integers) -> None:
        lowest, highest = int(bins.min()), int(bins.max())
        first = min(self._first, lowest) if len(self._many) else lowest
        end = max(self._first + len(self._many), highest + 1)
        if end - first > MOST_COUNTED:
            for place, count in zip(*counted(bins), strict=True):
                self._bins[place] += count
            return
        if end - first > len(self._many):
            many = np.zeros(end - first, dtype=np.int64)
            many[self._first - first :][: len(self._many)] = self._many
            self._first, self._many = first, many
        self._many[lowest - first : highest + 1 - first] += np.bincount(bins - lowest)

    def quantiles(self, shares: list[float]) -> list[float]:
        """Returns quantiles, interpolated between neighbours as `numpy.percentile` does.

        Args:
            shares: the share below each quantile, 0 … 1.
        """
        every = self._bins.copy()
        for place in np.flatnonzero(self._many).tolist():
            every[self._first + place] += int(self._many[place])
        bins = sorted(every.items(), key=lambda item: -math.inf if item[0] is None else item[0])
        values = np.array([0.0 if place is None else math.exp(place / RESOLUTION) for place, _ in bins])
        ends = np.cumsum([count for _, count in bins])
        quantiles = []
        for share in shares:
            position = share * (self.number - 1)
            below, above = (
                values[np.searchsorted(ends, at, side="right")] for at in (math.floor(position), math.ceil(position))
            )
            quantiles.append(float(below + (above - below) * (position - math.floor(position))))
        return quantiles
