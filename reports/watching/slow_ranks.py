"""Detects ranks that are slower than predicted.

Rules of this file:

* The gradients of a rank are divided into blocks of at least n. A block is slow if its mean time is above the bound for
  this rank: above every mean of n successive predicted gradients, above their mean by more than `SIGMAS` standard
  deviations, and above it by more than `MARGIN`. Gradients are compared, not steps: a rank that waits for a slow one is
  not slow itself.
* A rank is slower than predicted if two successive blocks are slow. A single long pause, for example by the operating
  system, falls into one block.
* n is a tenth of the gradients that the rank is predicted to compute, and within `BLOCKS`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from paceline.backend.status.progress_counters import RankTotals
from paceline.records.pace import TOLERANCE
from paceline.reports.watching.predicted_progress import Seconds

BLOCKS = 5, 20
"""smallest and largest number of gradients in a block; provenance: ours"""
SIGMAS = 3.3
"""standard deviations above the mean; provenance: DERIVED, one of 2000 means of a normal law is further above"""
MARGIN = TOLERANCE
"""smallest relative slowness that is reported: ranks of a run that keeps its pace are late by up to this"""
NOTHING = RankTotals(0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Expected:
    """The predicted gradient times of one rank, in seconds.

    Args:
        mean_s: their mean.
        bound_s: the largest expected mean of a block.
        block: the number of gradients in a block.
    """

    mean_s: float
    bound_s: float
    block: int

    @staticmethod
    def of(times_s: Seconds) -> Expected:
        """Returns what is expected of a rank with these predicted gradient times.

        >>> Expected.of(np.full(100, 0.5))
        Expected(mean_s=0.5, bound_s=0.525, block=10)
        """
        low, high = BLOCKS
        block = max(low, min(high, len(times_s) // 10))
        mean_s = float(times_s.mean())
        width = min(block, len(times_s))
        means = np.convolve(times_s, np.full(width, 1 / width), mode="valid")
        # few blocks have too small a deviation; that of independent times is then the better estimate
        deviation_s = max(float(means.std()), float(times_s.std()) / math.sqrt(block))
        bound_s = max(float(means.max()), mean_s + SIGMAS * deviation_s, mean_s * (1 + MARGIN))
        return Expected(mean_s, bound_s, block)


@dataclass(frozen=True, slots=True)
class SlowPeriod:
    """A part of a run in which a rank was slower than predicted.

    Args:
        rank: the rank.
        excess: mean measured gradient time / mean predicted − 1.
        from_step: the first step of the period.
        to_step: the step at which it ended; None if it lasts.
    """

    rank: int
    excess: float
    from_step: int
    to_step: int | None = None


@dataclass(slots=True)
class RankWatch:
    """The blocks of one rank."""

    rank: int
    expected: Expected
    _block: RankTotals = NOTHING
    """at the start of the present block"""
    _first: RankTotals | None = None
    """at the start of the first of successive slow blocks"""
    _slow: int = 0
    """number of successive slow blocks"""
    periods: list[SlowPeriod] = field(default_factory=list)

    def begin(self, now: RankTotals) -> None:
        """Starts the first block, for a run that has been resumed."""
        self._block = now

    def add(self, now: RankTotals) -> None:
        """Adds a reading of the rank's counters."""
        gradients = now.gradients - self._block.gradients
        if gradients < self.expected.block:
            return
        if (now.gradient_s - self._block.gradient_s) / gradients > self.expected.bound_s:
            self._first = self._first or self._block
            self._slow += 1
            self._note(self._first, now)
        else:
            if self._slow > 1:
                self.periods[-1] = replace(self.periods[-1], to_step=self._block.step)
            self._first, self._slow = None, 0
        self._block = now

    def _note(self, first: RankTotals, now: RankTotals) -> None:
        """Begins or extends a period, if two successive blocks were slow."""
        if self._slow < 2:
            return
        mean_s = (now.gradient_s - first.gradient_s) / (now.gradients - first.gradients)
        if self._slow > 2:
            self.periods.pop()
        self.periods.append(SlowPeriod(self.rank, mean_s / self.expected.mean_s - 1, first.step))


class SlowRanks:
    """Detects the slow ranks of one run.

    Args:
        predicted_s: the predicted gradient times of each worker, by rank.

    >>> watch = SlowRanks({0: np.full(50, 0.1), 1: np.full(50, 0.1)})
    >>> for step in range(1, 31):
    ...     watch.add([RankTotals(step, step, 0.1 * step), RankTotals(step, step, 0.15 * step)])
    >>> [(one.rank, round(one.excess, 3), one.from_step) for one in watch.slow]
    [(1, 0.5, 0)]
    """

    def __init__(self, predicted_s: Mapping[int, Seconds]) -> None:
        self._ranks = {
            rank: RankWatch(rank, Expected.of(times)) for rank, times in predicted_s.items() if len(times) > 0
        }

    @property
    def ranks(self) -> int:
        """The number of ranks that are watched."""
        return len(self._ranks)

    def begin(self, by_rank: Sequence[RankTotals]) -> None:
        """Starts at these readings instead of 0, for a run that has been resumed."""
        for rank, watch in self._ranks.items():
            watch.begin(by_rank[rank])

    def add(self, by_rank: Sequence[RankTotals]) -> None:
        """Adds a reading of all ranks' counters."""
        for rank, watch in self._ranks.items():
            watch.add(by_rank[rank])

    @property
    def periods(self) -> list[SlowPeriod]:
        """The periods of all ranks, the slowest first."""
        found = [period for watch in self._ranks.values() for period in watch.periods]
        return sorted(found, key=lambda one: -one.excess)

    @property
    def slow(self) -> list[SlowPeriod]:
        """The periods that last."""
        return [one for one in self.periods if one.to_step is None]
