"""The time of a gradient, layer by layer.

    t = Σ over modules and both passes of Σ operations / (peak · e(kind) · utilisation) + bytes / bandwidth
        + kernels · launch

Rules of this file: `Rates` contains everything that a device and its software contribute. Arithmetic and memory traffic
of a module are added: on published rows the sum predicts models and families that were left out better than the larger
of the two (30.6 against 31.9 % for families). Numbers of half the bytes move in half the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from paceline.topologies.compute.layer_kinds import KINDS, Filling, LayerKind, Work, backward_work, forward_work
from paceline.topologies.compute.model_work import PassLike, RowLike


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """The rates of a device with its software.

    Args:
        flops_per_s: FLOP/s of each of `KINDS` at full utilisation.
        bytes_per_s: the sustained memory bandwidth.
        launch_s: seconds to launch one kernel.
        filling: how products are spread over the device.
        scale: bytes of a number relative to float32.
    """

    flops_per_s: tuple[float, ...]
    bytes_per_s: float
    launch_s: float
    filling: Filling = field(default_factory=Filling)
    scale: float = 1.0

    def pass_s(self, work: PassLike, products: Sequence[Work], samples: float) -> float:
        """Returns the seconds of one pass through a module.

        Args:
            work: the costs of the pass.
            products: its products; see `layer_kinds.forward_work`.
            samples: of the batch.
        """
        arithmetic_s = sum(flops / self.flops_per_s[KINDS.index(kind)] for kind, flops in products)
        moved_s = (work.fixed_bytes + samples * work.moved_bytes) * self.scale / self.bytes_per_s
        return arithmetic_s + moved_s + work.kernels * self.launch_s


@dataclass(frozen=True, slots=True)
class LayerTime:
    """Seconds of both passes through a module."""

    row: RowLike
    forward_s: float
    backward_s: float


def layer_times(rows: Sequence[RowLike], rates: Rates, samples: float) -> list[LayerTime]:
    """Returns the time of each module for a gradient.

    Args:
        rows: the modules.
        rates: of the device.
        samples: of the batch.
    """
    return [
        LayerTime(
            row,
            rates.pass_s(row.forward, tuple(forward_work(row, samples, rates.filling)), samples),
            rates.pass_s(row.backward, tuple(backward_work(row, samples, rates.filling)), samples),
        )
        for row in rows
    ]


def gradient_s(rows: Sequence[RowLike], rates: Rates, samples: float) -> float:
    """Returns the seconds of a gradient; the arguments are those of `layer_times`."""
    return sum(one.forward_s + one.backward_s for one in layer_times(rows, rates, samples))


@dataclass(frozen=True, slots=True)
class KindTime:
    """What one kind of layer, the memory traffic or the kernel launches contribute to a gradient.

    Args:
        kind: a kind of layer, "memory" or "launches".
        seconds: of a gradient.
        amount: FLOPs of the layers, bytes of the memory traffic, or the number of launches; at full utilisation.
    """

    kind: LayerKind | Literal["memory", "launches"]
    seconds: float
    amount: float


def kind_times(rows: Sequence[RowLike], rates: Rates, samples: float) -> list[KindTime]:
    """Divides the time of a gradient by kinds of layers; the parts add up to `gradient_s`.

    Args:
        rows: the modules.
        rates: of the device.
        samples: of the batch.
    """
    flops: dict[LayerKind, float] = {}
    nbytes = kernels = 0.0
    for row in rows:
        for kind, amount in (*forward_work(row, samples, rates.filling), *backward_work(row, samples, rates.filling)):
            flops[kind] = flops.get(kind, 0.0) + amount
        for one in (row.forward, row.backward):
            nbytes += (one.fixed_bytes + samples * one.moved_bytes) * rates.scale
            kernels += one.kernels
    layers = [
        KindTime(kind, flops[kind] / rate, flops[kind])
        for kind, rate in zip(KINDS, rates.flops_per_s, strict=True)
        if kind in flops
    ]
    traffic = KindTime("memory", nbytes / rates.bytes_per_s, nbytes)
    return [*layers, traffic, KindTime("launches", kernels * rates.launch_s, kernels)]


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
