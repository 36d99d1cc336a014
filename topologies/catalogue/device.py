"""Devices: how long the computation of a gradient takes.

A device of the catalogue is a curve over batches: `compute.device_model` computes it from the catalogue's figures, the
layers of a model and parameters that were fitted to published throughput. A device that a scenario describes itself
costs a fixed overhead per step and a time per sample, or is a curve through measured points.

Measured times of a gradient as a curve over the batch.

    t(b) = linear between measured batches; outside of them the nearest segment goes on

A larger batch never takes less time. Points that contradict this are noise: neighbours are replaced by their mean until
none does (isotonic regression by pooling adjacent violators, Barlow et al., 1972), with weights 1 / t², because errors
of measured times are relative.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from paceline.algorithms.core.errors import InputError
from paceline.topologies.catalogue.charge_rates import ChargeRates

if TYPE_CHECKING:
    from paceline.topologies.catalogue.device_catalogue import Kind

FORWARD = 1 / 3
"""the forward pass's fraction of a step; the backward pass computes two products for each of the forward pass"""


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


class TimePart(Protocol):
    """A part of the time of a gradient; see `layer_times.KindTime`."""

    @property
    def kind(self) -> str: ...
    @property
    def seconds(self) -> float: ...
    @property
    def amount(self) -> float: ...
    @property
    def hidden_s(self) -> float: ...


class Curve(Protocol):
    """The time of a gradient over the batch."""

    def seconds(self, samples: int) -> float:
        """Returns the seconds of a gradient over so many samples."""
        ...

    def by_kind(self, samples: int) -> Sequence[TimePart]:
        """Returns the parts of this time: each kind of layer, memory traffic and kernel launches."""
        ...


@dataclass(frozen=True, slots=True)
class Interval:
    """Factors on a predicted time, between which so large a share of similar predictions was measured.

    Args:
        low, high: factors on the predicted seconds.
        share: of the measurements.
        similar: the predictions that count as similar, in words.
    """

    low: float
    high: float
    share: float
    similar: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceModel:
    """A device that computes gradients.

    compute_s(b) = overhead_s + b · per_sample_s, or a curve: of a device of the catalogue, or through measured points

    Args:
        times: the curve of a device of the catalogue, by kinds of layers.
        measured: the curve through measured points; it takes the place of the others.
        interval: of predictions of similar devices; None if the time was given or measured.
        forward_shares, backward_shares: the share of each layer with parameters in the time of a gradient, first layer
            first; together they add up to 1. Empty if they are not known.

    >>> slow = DeviceModel(name="slow", overhead_s=0.004, per_sample_s=0.001125)
    >>> round(slow.compute_s(32), 9)
    0.04
    """

    name: str
    overhead_s: float = 0.0
    per_sample_s: float = 0.0
    times: Curve | None = None
    measured: MeasuredTimes | None = None
    interval: Interval | None = None
    provenance: str = "given in the scenario"
    forward_shares: tuple[float, ...] = ()
    backward_shares: tuple[float, ...] = ()
    kind: Kind | None = None
    """None if it is not in the catalogue"""
    like: str = ""
    """the device of the catalogue at whose rates layers share a given time; "": the one of the same name, if any"""
    architecture: str = ""
    """its design in the catalogue, by which libraries choose protocols; "" if it is not known"""
    rates: ChargeRates | None = None
    """the cost of charges: updates, averages, copies; None: they are free"""

    def compute_s(self, samples: int) -> float:
        """Returns the time of a gradient of so many samples in seconds, without jitter."""
        if self.measured is not None:
            return self.measured.seconds(samples)
        if self.times is not None:
            return self.times.seconds(samples)
        return self.overhead_s + samples * self.per_sample_s
