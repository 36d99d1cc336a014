"""A short probe of one core: bandwidth by the bytes in use, the cost of a kernel and of newly allocated memory.

Rules of this file:

* The probe uses other kernels (maximum, absolute value) and other sizes than the cases that are predicted from it.
* Other load makes a core slower for some time. So a sample of the probe takes little time, and samples of the probe and
  of the cases alternate.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch

from paceline.topologies.catalogue.charge_rates import ChargeRates

COUNTS = (8_000, 30_000, 60_000, 120_000, 300_000, 700_000, 2_000_000, 6_000_000, 24_000_000, 70_000_000)
"""numbers of a vector in the probe of the bandwidth"""
FRESH, FRESH_SHARE = 9_000_000, 0.7
"""numbers of a newly allocated vector: slightly more than 32 MiB at least, and relative to the case"""
LARGE = 2**25
"""bytes from which newly allocated memory comes from the operating system"""
SMALL = 64
SHORT_S, MOST = 20e-3, 200
"""an action is repeated for so long, and at most so often"""


def seconds(action: Callable[[], Any]) -> float:
    """Returns the median time of an action, repeated if it is short."""
    begun, times = time.perf_counter(), list[float]()
    while not times or (len(times) < MOST and time.perf_counter() - begun < SHORT_S):
        before = time.perf_counter()
        action()
        times.append(time.perf_counter() - before)
    return median(times)


class Probe:
    """Measures the bandwidth near the bytes in use of the case that is to be predicted.

    Args:
        count: numbers of a vector of the case.
        footprint: the bytes in use of the case.
    """

    def __init__(self, count: int, footprint: float) -> None:
        self._fresh = min(max(COUNTS), max(FRESH, int(FRESH_SHARE * count))) if 4 * count >= LARGE else 0
        smaller = [count for count in COUNTS if 12 * count <= footprint][-2:]
        larger = [count for count in COUNTS if 12 * count > footprint][:2]
        self._counts = smaller + larger
        size = max(*self._counts, self._fresh)
        self._one, self._other, self._out = torch.rand(size), torch.rand(size), torch.zeros(size)

    def once(self) -> ChargeRates:
        """Returns the rates of the core by one sample of each figure, without the cost of new memory."""
        launch_s = seconds(self._small) / 2
        points = []
        for count in self._counts:
            left, right, into = self._one[:count], self._other[:count], self._out[:count]
            taken_s = seconds(lambda: torch.maximum(left, right, out=into))  # noqa: B023  # called at once
            points.append((12.0 * count, 12 * count / max(taken_s - launch_s, 1e-9)))
        return ChargeRates(
            bandwidths=tuple(points),
            flops_per_s=float("inf"),
            launch_s=launch_s,
            rewrites=False,
            provenance="measured: maximum and absolute value of vectors, one core",
        )

    def _small(self) -> None:
        """Executes two kernels on a few numbers, with the views and the conversion that rules have around them."""
        part = slice(0, SMALL)
        float(torch.maximum(self._one[part], self._other[part]).sum())

    def page_s(self) -> float:
        """Returns the additional time per byte of new memory, with several vectors in use; 0 for smaller vectors."""
        if not self._fresh:
            return 0.0
        left, right, into = (one[: self._fresh] for one in (self._one, self._other, self._out))

        def fresh() -> None:
            first = torch.maximum(left, right)
            second = torch.abs(first)
            torch.maximum(first, second)

        def reused() -> None:
            torch.maximum(left, right, out=into)
            torch.abs(into, out=right)
            torch.maximum(into, left, out=right)

        return max(0.0, seconds(fresh) - seconds(reused)) / (3 * 4 * self._fresh)
