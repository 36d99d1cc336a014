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

The kinds of layers, and the three matrix products of training that each convolution or product becomes.

    forward          M = channels out   N = b · places out    K = channels in · kernel
    input gradient   M = channels in    N = b · places in     K = channels out · kernel
    weight gradient  M = channels out   N = channels in · kernel   K = b · places out

Channels are those of one group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import ceil
from typing import Literal, get_args

from paceline.topologies.compute.model_work import PassLike, ProductLike, RowLike

LayerKind = Literal["1x1", "3x3", "large", "strided", "first", "depthwise", "dense", "attention", "other"]
KINDS: tuple[LayerKind, ...] = get_args(LayerKind)
"""convolutions of 1 × 1, of 3 × 3, of larger squares or oblongs, those with a stride, those of a picture's few
channels, and depthwise ones; products with weights, products of activations; and arithmetic of unknown sizes"""
FEW_CHANNELS = 4
"""a first layer has at most so many channels in"""


def kind_of(product: ProductLike) -> LayerKind:
    """Returns the kind of layer that a product belongs to."""
    if product.form != "conv":
        return "dense" if product.form == "dense" else "attention"
    small, large = sorted((product.kernel_height, product.kernel_width))
    if product.groups > 1 and product.groups == product.channels_in:
        return "depthwise"
    if product.channels_in <= FEW_CHANNELS:
        return "first"
    if product.stride > 1:
        return "strided"
    return "1x1" if large == 1 else "3x3" if large <= 3 and small == 3 else "large"


@dataclass(frozen=True, slots=True)
class Filling:
    """How products are spread over a device.

    Args:
        units: multiprocessors; None: any product fills the device.
        per_image: whether convolutions are computed image by image, as in a framework's own code.
    """

    units: int | None = None
    per_image: bool = False

    def forward(self, product: ProductLike, samples: float) -> float:
        """Returns the utilisation of the forward product.

        Args:
            product: with its sizes.
            samples: of the batch.
        """
        inner, outer, kernel, _, place_out = _sizes(product)
        if self.units is None:
            return 1.0
        if product.form == "attention":
            return utilisation(place_out, outer, inner, self.units, count=samples * product.count)
        columns, dense = self._images(product, samples) * place_out, product.form == "dense"
        return utilisation(outer, columns, inner * kernel, self.units, count=_together(product), split=dense)

    def backward(self, product: ProductLike, samples: float) -> tuple[float, float]:
        """Returns the utilisations of the input gradient's and the weight gradient's products.

        Args:
            product: with its sizes.
            samples: of the batch.
        """
        inner, outer, kernel, place_in, place_out = _sizes(product)
        if self.units is None:
            return 1.0, 1.0
        if product.form == "attention":
            several = samples * product.count
            return (
                utilisation(place_out, inner, outer, self.units, count=several),
                utilisation(inner, outer, place_out, self.units, count=several),
            )
        images, dense, count = self._images(product, samples), product.form == "dense", _together(product)
        return (
            utilisation(inner, images * place_in, outer * kernel, self.units, count=count, split=dense),
            utilisation(outer, inner * kernel, images * place_out, self.units, count=count, split=True),
        )

    def _images(self, product: ProductLike, samples: float) -> float:
        return 1.0 if self.per_image and product.form == "conv" else samples * product.count


def _together(product: ProductLike) -> int:
    """Groups that are computed at the same time: of depthwise convolutions all, of others one after the other."""
    return product.groups if kind_of(product) == "depthwise" else 1


def _sizes(product: ProductLike) -> tuple[int, int, int, int, int]:
    """Channels in and out of a group, places of the kernel, of the input and of the output."""
    return (
        max(1, product.channels_in // product.groups),
        max(1, product.channels_out // product.groups),
        product.kernel_height * product.kernel_width,
        product.height_in * product.width_in,
        product.height_out * product.width_out,
    )


Work = tuple[LayerKind, float]
"""a kind of layer, with operations that a device would do in the same time at full utilisation"""


def forward_work(row: RowLike, samples: float, filling: Filling) -> Iterator[Work]:
    """Yields the work of a module's forward pass.

    Args:
        row: of the layer table.
        samples: of the batch.
        filling: of the device.
    """
    for product in row.products if samples else ():
        yield kind_of(product), samples * product.flops / filling.forward(product, samples)
    rest = row.forward.flops - sum(product.flops for product in row.products)
    if rest > 0 and samples:
        yield "other", samples * rest


def backward_work(row: RowLike, samples: float, filling: Filling) -> Iterator[Work]:
    """Yields the work of a module's backward pass: the weight gradient, and the input gradient if it is needed.

    Args:
        row: of the layer table.
        samples: of the batch.
        filling: of the device.
    """
    forward = sum(product.flops for product in row.products)
    times = round(row.backward.flops / forward) if forward else 0
    for product in row.products if samples else ():
        fills = filling.backward(product, samples)
        needed = sum(1 / fill for fill in (fills if times > 1 else fills[1:]))
        if times:
            yield kind_of(product), samples * product.flops * needed
    rest = row.backward.flops - times * forward
    if rest > 0 and samples:
        yield "other", samples * rest


# How well a matrix product fills the multiprocessors of a device:
# a product of M × K by K × N is cut into tiles of the result. Tiles that stand out over the edge, a last wave that
# does not fill all multiprocessors, and the start of every tile cost time. A product with a long K may be split, so
# that several multiprocessors work on one tile.
#
#     time ∝ min over tiles and splits of ⌈tiles · splits / units⌉ · tile area · (K / splits + START) / worth
#     utilisation = M · N · K · count / (units · that minimum)
#
# The minimum of functions that grow with M, N and K grows with them too, so no product becomes
# faster by being larger. The tiles and their worth are those of a trial on published rows; a tile's worth is the part
# of the peak that its ratio of arithmetic to loads allows.


TILES = (
    (128, 128, 1.0),
    (128, 64, 0.95),
    (64, 128, 0.95),
    (64, 64, 0.85),
    (32, 64, 0.6),
    (64, 32, 0.6),
    (32, 32, 0.45),
)
"""rows, columns and worth: INFERENCE"""
START = 128
"""of K, which takes as long as the start and the end of a tile: INFERENCE; on published rows, 128 predicts models and
families that were left out better than 64 (15.0 against 15.3 %, 24.0 against 25.0 %)"""
SPLITS = (1, 2, 4, 8, 16, 32)


@lru_cache(maxsize=2**16)  # models repeat their layers, and fits and predictions repeat models
def utilisation(
    rows: float, columns: float, inner: float, units: int, *, count: float = 1, split: bool = False
) -> float:
    """Returns the part of the time in which all multiprocessors do useful work, between 0 and 1.

    Args:
        rows: of the result (M).
        columns: of the result (N).
        inner: the length of the sums (K).
        units: multiprocessors of the device.
        count: such products at the same time.
        split: whether the library may split K.

    >>> round(utilisation(128, 128 * 56, 576, 56), 3)  # one wave of full tiles
    0.818
    >>> round(utilisation(128, 128 * 57, 576, 56), 3)  # one tile more needs a second wave
    0.566
    """
    least = min(
        ceil(ceil(rows / high) * ceil(columns / wide) * ceil(count) * parts / units)
        * (high * wide * (inner / parts + START) / worth)
        for high, wide, worth in TILES
        for parts in (SPLITS if split else SPLITS[:1])
    )
    return rows * columns * inner * count / (units * least)


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
            products: its products; see `forward_work`.
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
