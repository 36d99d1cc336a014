"""Vectors of small floats: each number with 4 or 8 bits, and a float32 scale for each block of numbers.

* A quantised vector is a vector of bytes, so every interpreter counts the bytes that it really has.
* The scale of a block is the largest magnitude in it divided by the largest number of the format. So the largest
  magnitude is represented best, and nothing is cut off.
* A number is rounded to the nearest number of the format; halfway between two, to the one of larger magnitude.
* There is no error feedback: what rounding leaves out is lost.
* Members of an average gather each other's quantised vectors, and sum them at the precision of the weights, in the
  order of the group. So all get the same bits, and no sum is quantised.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, ClassVar, Literal

from paceline.algorithms.core import arrays
from paceline.algorithms.core.operations import AllGather, Charge, Handle, Start, Wait
from paceline.algorithms.core.option_groups import COUNT, Options, Range
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.traffic import COMBINE, READ, SCALE
from paceline.algorithms.core.values import Group, Null, join, length

SCALE_BYTES = 4
"""a scale is a float32"""


@dataclass(frozen=True, slots=True)
class SmallFloat:
    """A floating-point format with a sign bit, and without infinities.

    Args:
        exponent: bits of the exponent; 0 has its smallest value, as in IEEE 754, and denotes subnormal numbers.
        mantissa: bits of the mantissa.
        reserved: the largest magnitudes that denote no number, but NaN.
    """

    exponent: int
    mantissa: int
    reserved: int = 0

    @property
    def bits(self) -> int:
        """The bits of a number."""
        return 1 + self.exponent + self.mantissa

    def magnitudes(self) -> list[float]:
        """Returns all magnitudes, ascending, in units of the smallest normal number.

        >>> SmallFloat(3, 0).magnitudes(), SmallFloat(2, 1).magnitudes()
        ([0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0], [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
        """
        steps = 1 << self.mantissa
        codes = range((1 << (self.exponent + self.mantissa)) - self.reserved)
        return [
            code / steps if code < steps else (1 + code % steps / steps) * 2.0 ** (code // steps - 1) for code in codes
        ]


FORMATS = {"e3m0": SmallFloat(3, 0), "e2m1": SmallFloat(2, 1), "e4m3": SmallFloat(4, 3, reserved=1)}
"""by name: bits of the exponent after e, of the mantissa after m; provenance: E2M1 and E4M3 of the Open Compute
Project's formats, E3M0 by the same rule"""


@dataclass(frozen=True, kw_only=True)
class Quantization(Options):
    """Quantises a vector: n numbers become n · bits / 8 bytes, and 4 bytes for each block.

    Source: Douillard et al. 2025 (arXiv 2501.18512) for outer gradients in E3M0 that are summed in float32.
    """

    ranges: ClassVar[Mapping[str, Range]] = {"block": COUNT}

    format: Literal["e3m0", "e2m1", "e4m3"] = "e3m0"
    """of a number: 4 bits (e3m0, e2m1) or 8 bits (e4m3); provenance: the source has E3M0, torchft E4M3"""
    block: int = 256
    """numbers that share a scale; provenance: ours, the source's was not found, torchft has a scale for each row of a
    matrix"""

    def message_bytes(self, count: int) -> int:
        """Returns the bytes of a quantised vector.

        Args:
            count: its length.

        >>> Quantization().message_bytes(1024), Quantization(format="e4m3").message_bytes(1024)
        (528, 1040)
        """
        return SCALE_BYTES * self._blocks(count) + -(-count * FORMATS[self.format].bits // 8)

    def _blocks(self, count: int) -> int:
        return -(-count // self.block)

    def charge(self, vector: Any) -> Charge:
        """Returns the cost of `quantized`: magnitudes, maxima, quotients, codes, and packing them."""
        return Charge("quantise", vector.nbytes, length(vector), traffic=3 * SCALE + 3 * READ)

    def quantized(self, vector: Any) -> Any:
        """Returns the quantised vector, as a vector of bytes.

        >>> import numpy as np
        >>> whole = np.array([8.0, -3.1, 0.9, 0.01])
        >>> len(message := Quantization().quantized(whole)), Quantization().dequantized(message, whole)
        (6, array([ 8., -4.,  1.,  0.]))
        """
        count = length(vector)
        if isinstance(vector, Null):
            return Null(self.message_bytes(count), item_bytes=1)
        kind, module = FORMATS[self.format], arrays.library(vector)
        padding = self._blocks(count) * self.block - count
        rows = join([vector, arrays.zeros(padding, vector)]).reshape(-1, self.block)
        size = abs(rows)
        magnitudes = kind.magnitudes()
        scales = arrays.as_type(module.amax(size, 1) / magnitudes[-1], module.float32)
        divisors = arrays.as_type(module.where(scales == 0, module.ones_like(scales), scales), vector.dtype)
        codes = arrays.nearest(size / divisors[:, None], magnitudes)
        signs = arrays.as_type(rows < 0, module.uint8) * (1 << (kind.bits - 1))
        numbers = (codes + signs).reshape(-1)[:count]
        return join([scales.view(module.uint8), arrays.packed(numbers, 4) if kind.bits == 4 else numbers])

    def dequantized(self, message: Any, like: Any) -> Any:
        """Returns the vector that a quantised one denotes.

        Args:
            message: the result of `quantized`.
            like: a vector of the same length and type as the one that was quantised.
        """
        if isinstance(like, Null):
            return like
        count, kind, module = length(like), FORMATS[self.format], arrays.library(like)
        middle = SCALE_BYTES * self._blocks(count)
        # a copy, because a view as float32 has to begin at a multiple of 4 bytes
        scales = arrays.as_type((message[:middle] + 0).view(module.float32), like.dtype)
        numbers = message[middle:]
        if kind.bits == 4:
            numbers = arrays.unpacked(numbers, count, 4)
        sign = 1 << (kind.bits - 1)
        magnitudes = arrays.looked_up(numbers & (sign - 1), kind.magnitudes(), like)
        signed = module.where(numbers >= sign, -magnitudes, magnitudes)
        return signed * arrays.repeated(scales, self.block, count)

    @program
    def start_gathering(self, vector: Any, group: Group, key: str) -> Program[Handle[tuple[Any, ...]]]:
        """Quantises a vector, and starts to gather those of all members of a group.

        Args:
            vector: this rank's own.
            group: the ranks that take part.
            key: the name of the collective, the same on all members.
        """
        yield from self.charge(vector)
        return (yield from Start(AllGather(value=self.quantized(vector), group=group, key=key)))

    @program
    def mean(self, gathered: Handle[tuple[Any, ...]], like: Any) -> Program[Any]:
        """Waits for the quantised vectors and returns their mean, summed in the order of the group.

        Args:
            gathered: the result of `start_gathering`.
            like: a vector of the same length and type as those that were quantised.
        """
        messages = yield from Wait(gathered)
        opening = 2 * SCALE + COMBINE
        traffic = len(messages) * opening + (len(messages) - 1) * COMBINE + SCALE
        yield from Charge("dequantise", like.nbytes, traffic=traffic)
        total = reduce(add, (self.dequantized(message, like) for message in messages))
        return total / len(messages)
