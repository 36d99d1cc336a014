"""The time of a gradient, layer by layer.

    t = Σ over modules and both passes of max(Σ operations / (peak · e(kind) · utilisation), bytes / bandwidth)
        + kernels · launch

Rules of this file: `Rates` has all that a device and its software contribute, so nothing here knows a chip. Numbers in
half the bytes move in half the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paceline.topologies.compute.layer_kinds import LayerKind, Work, backward_work, forward_work
from paceline.topologies.compute.model_work import PassLike, RowLike


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """A device with its software.

    Args:
        flops_per_s: that each kind of layer reaches at full utilisation.
        bytes_per_s: that memory sustains.
        launch_s: of one kernel.
        units: multiprocessors that products have to fill; None: any product fills the device.
        scale: bytes of a number, in those of float32.
    """

    flops_per_s: Mapping[LayerKind, float]
    bytes_per_s: float
    launch_s: float
    units: int | None = None
    scale: float = 1.0

    def pass_s(self, work: PassLike, products: Sequence[Work], samples: float) -> float:
        """Returns the seconds of one direction through a module, whose products are given."""
        arithmetic_s = sum(flops / self.flops_per_s[kind] for kind, flops in products)
        moved_s = (work.fixed_bytes + samples * work.moved_bytes) * self.scale / self.bytes_per_s
        return max(arithmetic_s, moved_s) + work.kernels * self.launch_s


@dataclass(frozen=True, slots=True)
class LayerTime:
    """Seconds of a module in both directions."""

    row: RowLike
    forward_s: float
    backward_s: float


def layer_times(rows: Sequence[RowLike], rates: Rates, samples: float) -> list[LayerTime]:
    """Returns the time of each module for a gradient over so many samples."""
    return [
        LayerTime(
            row,
            rates.pass_s(row.forward, tuple(forward_work(row, samples, rates.units)), samples),
            rates.pass_s(row.backward, tuple(backward_work(row, samples, rates.units)), samples),
        )
        for row in rows
    ]


def gradient_s(rows: Sequence[RowLike], rates: Rates, samples: float) -> float:
    """Returns the seconds of a gradient over so many samples."""
    return sum(one.forward_s + one.backward_s for one in layer_times(rows, rates, samples))


def layer_shares(times: Sequence[LayerTime]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Returns the shares of the layers with parameters in the time of a gradient, forward and backward.

    The time of a module without parameters belongs to the layer before it, or to the first one.
    """
    total = sum(one.forward_s + one.backward_s for one in times) or 1.0
    forward: list[float] = []
    backward: list[float] = []
    early = [0.0, 0.0]
    for one in times:
        if one.row.parameters:
            forward.append(one.forward_s + early[0])
            backward.append(one.backward_s + early[1])
            early = [0.0, 0.0]
        elif forward:
            forward[-1] += one.forward_s
            backward[-1] += one.backward_s
        else:
            early = [early[0] + one.forward_s, early[1] + one.backward_s]
    return tuple(seconds / total for seconds in forward), tuple(seconds / total for seconds in backward)
