"""The time of a gradient, layer by layer: kernels that a host launches and a device executes, one after the other.

    device time of a pass = Σ operations / (peak · e(kind) · utilisation) + bytes / bandwidth
    kernel k starts at max(its launch has been issued, kernel k − 1 has finished)

The host issues launches one after the other, `launch_s` each, and does not wait for the device. So the time of a
gradient is that of the device where kernels are long (launches are hidden behind it), that of the host where they are
short, and between the two it depends on the place in the queue where the device runs dry.

`Rates` contains everything that a device and its software contribute. The queue is empty when a gradient begins, and
may become arbitrarily long. The kernels of a pass through a module take equally long. Arithmetic and memory traffic of
a module are added: on published rows the sum predicts models and families that were left out better than the larger of
the two. Numbers of half the bytes move in half the time. A processor executes what it issues, so nothing of it is
hidden.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
        launch_s: seconds of the host to launch one kernel.
        filling: how products are spread over the device.
        scale: bytes of a number relative to float32.
        ahead: whether the host launches kernels ahead of the device; False where it computes itself.
    """

    flops_per_s: tuple[float, ...]
    bytes_per_s: float
    launch_s: float
    filling: Filling = field(default_factory=Filling)
    scale: float = 1.0
    ahead: bool = True

    def device_s(self, work: PassLike, products: Sequence[Work], samples: float) -> float:
        """Returns the seconds in which the device executes one pass through a module.

        Args:
            work: the costs of the pass.
            products: its products; see `layer_kinds.forward_work`.
            samples: of the batch.
        """
        arithmetic_s = sum(flops / self.flops_per_s[KINDS.index(kind)] for kind, flops in products)
        return arithmetic_s + (work.fixed_bytes + samples * work.moved_bytes) * self.scale / self.bytes_per_s


@dataclass(slots=True)
class LaunchQueue:
    """Kernels that a host has launched and a device executes in order.

    Args:
        launch_s: seconds of the host for a launch.
        ahead: whether the host goes on while the device executes.

    >>> queue = LaunchQueue(1.0)
    >>> queue.run(3, 12.0), queue.run(2, 2.0)  # the first launch is exposed, the others are hidden
    (13.0, 2.0)
    >>> queue = LaunchQueue(4.0)
    >>> queue.run(3, 12.0), queue.run(2, 2.0)  # the device waits for each of the last two launches
    (16.0, 5.0)
    """

    launch_s: float
    ahead: bool = True
    issued_s: float = 0.0
    finished_s: float = 0.0

    def run(self, kernels: int, seconds: float) -> float:
        """Launches equally long kernels; returns by how much later the device has finished all that was launched.

        Kernel i of n finishes at the latest of F + i d and I + k l + (i − k + 1) d for k from 1 to i, with the finish
        F and the launches issued by I before, and d seconds of the device and l of the host for each. The last term is
        linear in k, so k = 1 or k = n is the largest.

        Args:
            kernels: their number, n; without any, work belongs to the kernel before.
            seconds: of the device for all of them, n d.
        """
        before, each = self.finished_s, seconds / kernels if kernels else 0.0
        if not self.ahead:
            self.issued_s = self.finished_s
        first, self.issued_s = self.issued_s + self.launch_s, self.issued_s + kernels * self.launch_s
        self.finished_s += seconds
        if kernels:
            last = self.issued_s + each if self.ahead else self.issued_s + seconds
            self.finished_s = max(self.finished_s, first + seconds, last)
        return self.finished_s - before


@dataclass(frozen=True, slots=True)
class LayerTime:
    """Seconds of both passes through a module, in which the device executes it or waits for its launches."""

    row: RowLike
    forward_s: float
    backward_s: float


Placed = tuple[int, PassLike, tuple[Work, ...]]
"""a pass through the module of this place, with its products"""


def passes(rows: Sequence[RowLike], filling: Filling, samples: float) -> Iterator[Placed]:
    """Yields the passes of a gradient in their order: forward through all modules, backward through all of them.

    Args:
        rows: the modules.
        filling: of the device.
        samples: of the batch.
    """
    for place, row in enumerate(rows):
        yield place, row.forward, tuple(forward_work(row, samples, filling))
    for place in reversed(range(len(rows))):
        yield place, rows[place].backward, tuple(backward_work(rows[place], samples, filling))


def layer_times(rows: Sequence[RowLike], rates: Rates, samples: float) -> list[LayerTime]:
    """Returns the time of each module for a gradient; together they are the time of the gradient.

    Args:
        rows: the modules.
        rates: of the device.
        samples: of the batch.
    """
    queue = LaunchQueue(rates.launch_s, rates.ahead)
    taken = [
        (place, queue.run(way.kernels, rates.device_s(way, work, samples)))
        for place, way, work in passes(rows, rates.filling, samples)
    ]
    forward, backward = taken[: len(rows)], reversed(taken[len(rows) :])
    return [LayerTime(row, there[1], back[1]) for row, there, back in zip(rows, forward, backward, strict=True)]


def gradient_s(rows: Sequence[RowLike], rates: Rates, samples: float) -> float:
    """Returns the seconds of a gradient; the arguments are those of `layer_times`."""
    return sum(time.forward_s + time.backward_s for time in layer_times(rows, rates, samples))


@dataclass(frozen=True, slots=True)
class KindTime:
    """What one kind of layer, the memory traffic or the kernel launches contribute to a gradient.

    Args:
        kind: a kind of layer, "memory" or "launches".
        seconds: of a gradient; of launches, those in which the device waits for them.
        amount: FLOPs of the layers, bytes of the memory traffic, or the number of launches; at full utilisation.
        hidden_s: of launches, the seconds of the host in which the device executes kernels.
    """

    kind: LayerKind | Literal["memory", "launches"]
    seconds: float
    amount: float
    hidden_s: float = 0.0


def kind_times(rows: Sequence[RowLike], rates: Rates, samples: float) -> list[KindTime]:
    """Divides the time of a gradient by kinds of layers; the parts add up to `gradient_s`.

    Args:
        rows: the modules.
        rates: of the device.
        samples: of the batch.
    """
    flops: dict[LayerKind, float] = {}
    nbytes = kernels = 0.0
    for _, way, work in passes(rows, rates.filling, samples):
        for kind, amount in work:
            flops[kind] = flops.get(kind, 0.0) + amount
        nbytes += (way.fixed_bytes + samples * way.moved_bytes) * rates.scale
        kernels += way.kernels
    layers = [
        KindTime(kind, flops[kind] / rate, flops[kind])
        for kind, rate in zip(KINDS, rates.flops_per_s, strict=True)
        if kind in flops
    ]
    traffic = KindTime("memory", nbytes / rates.bytes_per_s, nbytes)
    executed_s = sum(layer.seconds for layer in layers) + traffic.seconds
    exposed_s = max(0.0, gradient_s(rows, rates, samples) - executed_s)
    hidden_s = max(0.0, kernels * rates.launch_s - exposed_s)
    return [*layers, traffic, KindTime("launches", exposed_s, kernels, hidden_s)]


def layer_shares(times: Sequence[LayerTime]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Returns the shares of the layers with parameters in the time of a gradient, forward and backward.

    The time of a module without parameters belongs to the layer before it, or to the first one.
    """
    total = sum(time.forward_s + time.backward_s for time in times) or 1.0
    forward: list[float] = []
    backward: list[float] = []
    early = [0.0, 0.0]
    for time in times:
        if time.row.parameters:
            forward.append(time.forward_s + early[0])
            backward.append(time.backward_s + early[1])
            early = [0.0, 0.0]
        elif forward:
            forward[-1] += time.forward_s
            backward[-1] += time.backward_s
        else:
            early = [early[0] + time.forward_s, early[1] + time.backward_s]
    return tuple(seconds / total for seconds in forward), tuple(seconds / total for seconds in backward)
