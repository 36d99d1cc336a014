"""Measured times of gradients on the cores of a host, for predictions of runs that are not paced.

* A gradient takes longer while other ranks of its host compute, because they share caches, memory bandwidth and, if
  there are more of them than cores, the cores. So it is measured with one rank busy, with two, and so on.
* `SharedCores` turns this into the speed of all activities of a host, as a function of the number that run. Beyond the
  measured numbers, cores are shared evenly.
* `topologies.faults.gradient_variation` draws times that vary like these.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

SLICES = 50
"""slices of equal probability that describe a distribution"""


class GradientVariation(NamedTuple):
    """How the times of gradients vary around their mean."""

    factors: tuple[float, ...]
    """a gradient's time over its mean: the means of slices of equal probability, shortest first"""
    between_steps: float = 0.0
    """the rank correlation of successive times of a rank"""


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientTimes:
    """The times of a gradient at one batch size.

    Args:
        batch: samples of the gradient.
        busy: (number of busy ranks of the host, mean seconds of a gradient), from one rank on.
        factors: a gradient's time over its mean: the means of slices of equal probability, shortest first.
        forward: the share of the forward pass in a layer-wise gradient.
        backward: the share of each layer in its backward pass, first layer first; with `forward` they add up to 1.
            Empty if layers were not measured.
        layered: the time of a layer-wise gradient over that of a gradient.
        beside: the speed of a gradient while a collective is in flight.
        overlap: the speed of that collective, over its speed while its ranks only wait for it.
        pauses: (seconds without gradients of the rank before this one, seconds by which it takes longer), shortest
            first. The caches are then used by others.
        started: the time of a gradient in another lane than the program's, over that of one in the program's.
        between_steps: the rank correlation of successive times of a rank.
        between_ranks: the rank correlation of the times of two ranks of a host in the same step.
    """

    batch: int
    busy: tuple[tuple[int, float], ...]
    factors: tuple[float, ...] = (1.0,)
    forward: float = 0.0
    backward: tuple[float, ...] = ()
    layered: float = 1.0
    beside: float = 1.0
    overlap: float = 1.0
    pauses: tuple[tuple[float, float], ...] = ()
    started: float = 1.0
    between_steps: float = 0.0
    between_ranks: float = 0.0

    @property
    def alone_s(self) -> float:
        """The mean seconds of a gradient while no other rank of the host computes."""
        return self.busy[0][1]

    def varying(self, variation: GradientVariation) -> GradientTimes:
        """Returns the times with another variation, in which ranks are independent."""
        factors, between_steps = variation
        return replace(self, factors=factors, between_steps=between_steps, between_ranks=0.0)

    def slowed(self, factor: float) -> GradientTimes:
        """Returns the times on a machine that is slower by a factor.

        >>> GradientTimes(batch=8, busy=((1, 0.1),)).slowed(2.0).busy
        ((1, 0.2),)
        """
        return replace(
            self,
            busy=tuple((count, factor * seconds) for count, seconds in self.busy),
            pauses=tuple((pause_s, factor * longer_s) for pause_s, longer_s in self.pauses),
        )

    def paused_s(self, pause_s: float) -> float:
        """Returns the seconds by which a gradient is longer after a pause; linear between the measured pauses.

        It is 0 without a pause, and after a longer pause than measured that of the longest.

        >>> times = GradientTimes(batch=8, busy=((1, 0.1),), pauses=((0.01, 0.02), (0.02, 0.03)))
        >>> [round(times.paused_s(seconds), 6) for seconds in (0.0, 0.005, 0.015, 1.0)]
        [0.0, 0.01, 0.025, 0.03]
        """
        if not self.pauses:
            return 0.0
        pauses_s, longer_s = zip((0.0, 0.0), *self.pauses, strict=True)
        return float(np.interp(pause_s, pauses_s, longer_s))

    def layer_shares(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Returns each layer's part of a layer-wise gradient, forward and backward, in units of a gradient's time.

        The forward pass is divided like the backward pass. The sum is `layered`.

        >>> times = GradientTimes(batch=8, busy=((1, 0.1),), forward=0.25, backward=(0.5, 0.25), layered=2.0)
        >>> times.layer_shares()
        ((0.3333333333333333, 0.16666666666666666), (1.0, 0.5))
        """
        whole = sum(self.backward)
        forward = tuple(self.layered * self.forward * share / whole for share in self.backward)
        return forward, tuple(self.layered * share for share in self.backward)


def slices(times_s: Sequence[float], count: int = SLICES) -> tuple[float, ...]:
    """Returns a distribution as factors on its mean: the mean of each slice of equal probability.

    The mean of the factors is 1, and their deviation is that of the times without what varies inside a slice.

    Args:
        times_s: measured seconds.
        count: the number of slices, if there are as many times.

    >>> slices([4.0, 1.0, 1.0, 2.0], count=2)
    (0.5, 1.5)
    """
    ordered = np.sort(np.asarray(times_s, dtype=np.float64))
    places = (np.arange(len(ordered)) + 0.5) / len(ordered) * min(count, len(ordered))
    means = np.array([ordered[places.astype(int) == part].mean() for part in range(min(count, len(ordered)))])
    return tuple(float(value) for value in means / means.mean())


@dataclass(frozen=True, slots=True)
class SharedCores:
    """The speed of the activities of a host, given how many run at the same time.

    Args:
        cores: the cores that the ranks may use.
        speeds: (number of activities, speed), measured, from (1, 1.0) on.

    >>> cores = SharedCores(2, ((1, 1.0), (2, 0.8)))
    >>> [round(cores(count), 3) for count in (0, 1, 1.5, 2, 3, 4)]
    [1.0, 1.0, 0.9, 0.8, 0.533, 0.4]
    """

    cores: int
    speeds: tuple[tuple[float, float], ...] = ((1, 1.0),)

    def __call__(self, running: float) -> float:
        most, least_speed = self.speeds[-1]
        if running > most:
            return least_speed * self._fair(running) / self._fair(most)
        at = bisect_left(self.speeds, (running, -1.0))
        if at == 0:
            return 1.0
        (low, low_speed), (high, high_speed) = self.speeds[at - 1], self.speeds[at]
        return low_speed + (high_speed - low_speed) * (running - low) / (high - low)

    def _fair(self, running: float) -> float:
        return min(1.0, self.cores / running)


def shared_cores(cores: int, times: GradientTimes) -> SharedCores:
    """Returns the speeds of a host from the times of gradients with more and more busy ranks.

    >>> shared_cores(2, GradientTimes(batch=8, busy=((1, 0.1), (2, 0.125)))).speeds
    ((1, 1.0), (2, 0.8))
    """
    return SharedCores(cores, tuple((count, min(1.0, times.alone_s / seconds)) for count, seconds in times.busy))
