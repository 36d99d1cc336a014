"""Measured times of a gradient as a curve over the batch.

    t(b) = linear between measured batches; outside of them the nearest segment goes on

A larger batch never takes less time. Points that contradict this are noise: neighbours are replaced by their mean until
none does (isotonic regression by pooling adjacent violators, Barlow et al., 1972), with weights 1 / t², because errors
of measured times are relative.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.algorithms.core.errors import InputError


@dataclass(frozen=True, slots=True)
class MeasuredTimes:
    """Seconds of a gradient at measured batches; `measured_times` makes one from points as they were measured.

    Args:
        batches: samples of a gradient, smallest first, each once.
        times_s: seconds, none less than the one before.
    """

    batches: tuple[int, ...]
    times_s: tuple[float, ...]

    def seconds(self, samples: float) -> float:
        """Returns the seconds of a gradient of so many samples.

        Below the first batch the first segment goes on, or time is proportional to the samples if that segment would
        reach 0 before them. Above the last batch the last segment goes on; if it is flat, each further sample takes as
        long as the mean one of the last batch.

        Args:
            samples: of the gradient.

        >>> curve = MeasuredTimes((16, 32, 64), (0.10, 0.12, 0.20))
        >>> [round(curve.seconds(batch), 4) for batch in (8, 24, 48, 96)]
        [0.09, 0.11, 0.16, 0.28]
        """
        first, last = (self.batches[0], self.times_s[0]), (self.batches[-1], self.times_s[-1])
        if samples <= first[0]:
            return first[1] - min(self._slope(0), first[1] / first[0]) * (first[0] - samples)
        if samples >= last[0]:
            slope = self._slope(len(self.batches) - 2) or last[1] / last[0]
            return last[1] + slope * (samples - last[0])
        place = bisect_left(self.batches, samples) - 1
        return self.times_s[place] + self._slope(place) * (samples - self.batches[place])

    def _slope(self, place: int) -> float:
        """Seconds per sample between two neighbours; of a single point, its seconds by its samples."""
        if len(self.batches) == 1:
            return self.times_s[0] / self.batches[0]
        rise = self.times_s[place + 1] - self.times_s[place]
        return rise / (self.batches[place + 1] - self.batches[place])


def measured_times(points: Sequence[tuple[float, float]]) -> MeasuredTimes:
    """Returns the curve through measured points, in any order; several at one batch count with their mean.

    Args:
        points: batches and seconds.

    Returns:
        The nearest curve on which time does not fall with the batch.

    Raises:
        InputError: there are no points, or one is not above 0.

    >>> measured_times([(64, 0.2922), (32, 0.1641)])  # ResNet-50 on a P100 (TensorFlow's benchmarks)
    MeasuredTimes(batches=(32, 64), times_s=(0.1641, 0.2922))
    >>> measured_times([(8, 0.02), (16, 0.02), (4, 0.02)]).times_s
    (0.02, 0.02, 0.02)
    """
    wrong = [point for point in points if point[0] <= 0 or point[1] <= 0]
    if wrong or not points:
        raise InputError(f"profile: found {wrong or 'no points'}; expected pairs of batch and seconds above 0")
    batches = tuple(sorted({int(batch) for batch, _ in points}))
    alike = [[time for batch, time in points if int(batch) == size] for size in batches]
    return MeasuredTimes(batches, tuple(_rising([sum(times) / len(times) for times in alike])))


def _rising(times_s: Sequence[float]) -> list[float]:
    """Returns the nearest sequence that does not fall, by relative errors."""
    blocks: list[tuple[float, float, int]] = []  # mean, weight, and the number of points
    for time_s in times_s:
        mean, weight, count = time_s, time_s**-2, 1
        while blocks and blocks[-1][0] > mean:
            other, heavy, several = blocks.pop()
            mean = (mean * weight + other * heavy) / (weight + heavy)
            weight, count = weight + heavy, count + several
        blocks.append((mean, weight, count))
    return [mean for mean, _, count in blocks for _ in range(count)]
