"""The kinds of layers, and the three matrix products of training that each convolution or product becomes.

    forward          M = channels out   N = b · places out    K = channels in · kernel
    input gradient   M = channels in    N = b · places in     K = channels out · kernel
    weight gradient  M = channels out   N = channels in · kernel   K = b · places out

Channels are those of one group.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import Literal, get_args

from paceline.topologies.compute.model_work import ProductLike, RowLike

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
