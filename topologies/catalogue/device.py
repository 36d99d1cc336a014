"""Devices: how long the computation of a gradient takes.

A device of the catalogue is a curve over batches: `compute.device_model` computes it from the catalogue's figures, the
layers of a model and parameters that were fitted to published throughput. A device that a scenario describes itself
costs a fixed overhead per step and a time per sample, or is a curve through measured points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from paceline.topologies.catalogue.charge_rates import ChargeRates
from paceline.topologies.catalogue.measured_times import MeasuredTimes

if TYPE_CHECKING:
    from paceline.topologies.catalogue.device_catalogue import Kind


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
