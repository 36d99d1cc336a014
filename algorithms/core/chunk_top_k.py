"""Compression that sends the largest numbers of every chunk of a vector, with few bits.

* A chunk is up to 4096 consecutive numbers of a layer. What remains of a layer after its whole chunks is a chunk too,
  and as large a share of it is sent. So a layer smaller than a chunk sends fewer numbers, and at least one.
* A position is sent as its place in the chunk, which has 12 bits.
* Without quantisation a message is a vector of the weights' type: positions as wide as the numbers, then the numbers.
  With it a message is a vector of bytes: the means of the classes of each layer, the positions, and the classes.
* What a sender keeps is computed from its own message as the others read it, so no error is lost.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np

from paceline.algorithms.core import arrays
from paceline.algorithms.core.dct_top_k import Sparse, mean_of_sparse, mean_traffic
from paceline.algorithms.core.operations import AllGather, Charge
from paceline.algorithms.core.option_groups import COUNT, Options, Range
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.traffic import COMBINE, NOTHING, READ, SCALE, ZEROS, Traffic
from paceline.algorithms.core.values import Group, Layer, Null, join, length, root

MOST_IN_CHUNK = 4096
"""a position in a chunk has 12 bits; provenance: pack_12bit_indices of tplr-ai/templar"""
DEVIATIONS = 6
"""the standard deviations that all classes span together; provenance: `quantization_range` of the authors' code"""


@dataclass(frozen=True, slots=True)
class Rows:
    """Chunks of equal size in a layer."""

    count: int
    """chunks"""
    width: int
    """numbers in each"""
    sent: int
    """numbers sent of each"""


def rows_of(layer: Layer, chunk: int, k: int) -> tuple[Rows, ...]:
    """Returns the whole chunks of a layer, and what remains.

    Args:
        layer: the positions of the layer.
        chunk: numbers in a whole chunk.
        k: numbers sent of a whole chunk.

    >>> rows_of(Layer("dense", 0, 20), 8, 4)
    (Rows(count=2, width=8, sent=4), Rows(count=1, width=4, sent=2))
    """
    whole, rest = divmod(layer.stop - layer.start, chunk)
    rows = [Rows(whole, chunk, min(k, chunk))] if whole else []
    if rest:
        rows.append(Rows(1, rest, min(rest, max(1, round(rest * k / chunk)))))
    return tuple(rows)


@dataclass(frozen=True, slots=True)
class ChunkMemory:
    """The memory of `ChunkTopK`: the part of the vectors that was not sent, and the chunks of each layer."""

    vector: Any
    layers: tuple[tuple[Rows, ...], ...]


def sent_of(layers: Sequence[Sequence[Rows]]) -> list[int]:
    """Returns how many numbers of each layer are sent."""
    return [sum(rows.count * rows.sent for rows in layer) for layer in layers]


@functools.cache
def _starts(layers: tuple[tuple[Rows, ...], ...]) -> Any:
    """Returns, for each number that is sent, where its chunk begins in the whole vector."""
    starts, at = [], 0
    for rows in (rows for layer in layers for rows in layer):
        starts.append(np.repeat(at + rows.width * np.arange(rows.count), rows.sent))
        at += rows.count * rows.width
    return np.concatenate(starts)


def classified(values: Any, classes: int) -> tuple[Any, Any]:
    """Divides numbers into classes of equal width around their mean.

    Args:
        values: the numbers.
        classes: how many classes; the outermost ones also have all numbers beyond them.

    Returns:
        The class of each number, as a byte, and the mean of each class, 0 if it is empty.

    >>> codes, means = classified(np.array([-3.0, -1.0, 1.0, 3.0]), 4)
    >>> codes, means.round(3)
    (array([1, 2, 2, 3], dtype=uint8), array([ 0., -3.,  0.,  3.]))
    """
    away = values - values.mean()
    deviation = root((away * away).sum() / max(1, length(values) - 1))
    width = DEVIATIONS * deviation / classes
    places = away / (width if width > 0 else 1.0) + classes // 2
    codes = arrays.nearest(places, [float(code) for code in range(classes)])
    members = [codes == code for code in range(classes)]
    means = [(values * own).sum() / max(1, int(own.sum())) for own in members]
    return codes, arrays.library(values).stack(means)


@dataclass(frozen=True, kw_only=True)
class ChunkTopK(Options):
    """Sends only the k numbers of largest magnitude of every chunk, rounded to the mean of their class.

    total = vector + β · unsent;  the message has the k largest numbers of each chunk of the total, quantised;
    unsent = total − message.

    With β = 1 this is error feedback; with β < 1 the unsent part is a momentum from which the message is subtracted.

    Source: Sarfi, Thérien, Lidin, Belilovsky 2025 (SparseLoCo, arXiv 2508.15706) and its code.
    """

    ranges: ClassVar[Mapping[str, Range]] = {
        "chunk": (lambda value: 1 <= value <= MOST_IN_CHUNK, f"a whole number from 1 to {MOST_IN_CHUNK}"),
        "k": COUNT,
        "decay": (lambda value: 0 <= value <= 1, "a number from 0 to 1"),
    }

    chunk: int = MOST_IN_CHUNK
    """numbers in a chunk; provenance: the source"""
    k: int = 64
    """numbers sent of each whole chunk, all of them if it has fewer; provenance: the source"""
    decay: float = 1.0
    """β, the factor on what was not sent before; provenance: ours, error feedback; the source has 0.95"""
    bits: Literal[1, 2, 4] | None = 2
    """of a number in a message; None: numbers as they are; provenance: the source"""
    average_over: Literal["workers", "senders"] = "workers"
    """whether a mean divides a sum by P, or each number of it by how many workers sent it; provenance: the source's
    listing; its code takes senders"""

    def linear_form(self) -> Self:
        """Returns the form in which all of what is not sent is sent later, as a part of a mean of all workers."""
        return replace(self, decay=1.0, bits=None, average_over="workers")

    def begin(self, vector: Any, layers: Sequence[Layer]) -> ChunkMemory:
        """Returns the memory in which nothing is unsent."""
        return ChunkMemory(0 * vector, tuple(rows_of(layer, self.chunk, self.k) for layer in layers))

    def charge(self, vector: Any, *, also: Traffic = NOTHING) -> Charge:
        """Returns the cost of compressing: the total, its magnitudes, the selection, and what is unsent.

        Classes and positions do not count: few numbers have them.

        Args:
            vector: the vector to compress.
            also: further memory traffic on vectors of this size.
        """
        summed = COMBINE if self.decay == 1 else SCALE + COMBINE
        return Charge("compress", vector.nbytes, length(vector), traffic=summed + SCALE + READ + ZEROS + COMBINE + also)

    def compress(self, vector: Any, memory: ChunkMemory) -> tuple[Any, ChunkMemory]:
        """Returns the message, a vector, and the new memory.

        >>> compression, x = ChunkTopK(chunk=4, k=2, bits=None), np.array([1.0, -4.0, 0.5, 3.0])
        >>> message, memory = compression.compress(x, compression.begin(x, [Layer("layer", 0, 4)]))
        >>> compression.opened(message, x, memory.layers).dense(), memory.vector
        (array([ 0., -4.,  0.,  3.]), array([1. , 0. , 0.5, 0. ]))
        """
        kept = memory.vector if self.decay == 1 else self.decay * memory.vector
        total = vector + kept
        if isinstance(total, Null):
            return self._sized(total, memory.layers), replace(memory, vector=total)
        positions = self._selected(total, memory.layers)
        values = arrays.taken(total, positions)
        if self.bits is None:
            message = Sparse(positions, values, length(total)).packed()
        else:
            message = self._quantised(positions, values, memory.layers)
        sent = self.opened(message, total, memory.layers)
        return message, replace(memory, vector=total - sent.dense())

    def _sized(self, total: Null, layers: Sequence[Sequence[Rows]]) -> Null:
        """Returns a message without numbers."""
        count = sum(sent_of(layers))
        if self.bits is None:
            return replace(total, count=2 * count)
        means = len(layers) * (1 << self.bits) * total.item_bytes
        return Null(means + count + -(-count // 2) + -(-count * self.bits // 8), item_bytes=1)

    def _selected(self, total: Any, layers: Sequence[Sequence[Rows]]) -> Any:
        """Returns the positions of the largest numbers of every chunk, in the whole vector."""
        chosen, at = [], 0
        for rows in (rows for layer in layers for rows in layer):
            stop = at + rows.count * rows.width
            chosen.append(at + arrays.largest_of_rows(total[at:stop].reshape(rows.count, rows.width), rows.sent))
            at = stop
        return join(chosen)

    def _quantised(self, positions: Any, values: Any, layers: tuple[tuple[Rows, ...], ...]) -> Any:
        """Returns a message of bytes: the means of the classes, the low and the high bits of places, and classes."""
        module, bits = arrays.library(values), self.bits or 0
        codes, means, at = [], [], 0
        for count in sent_of(layers):
            of_layer, mean = classified(values[at : at + count], 1 << bits)
            codes.append(of_layer)
            means.append(mean)
            at += count
        places = positions - _like(_starts(layers), positions)
        low, high = (arrays.as_type(part, module.uint8) for part in (places & 255, places >> 8))
        return join([join(means).view(module.uint8), low, arrays.packed(high, 4), arrays.packed(join(codes), bits)])

    def opened(self, message: Any, like: Any, layers: tuple[tuple[Rows, ...], ...]) -> Sparse:
        """Returns the sparse vector that a message of `compress` denotes.

        Args:
            message: of any worker.
            like: a vector of the same length and type as the one that was compressed.
            layers: the chunks of each layer.
        """
        count, sent = length(like), sent_of(layers)
        total = sum(sent)
        if isinstance(like, Null):
            few = replace(like, count=total)
            return Sparse(few, few, count)
        if self.bits is None:
            return Sparse.unpacked(message, count)
        classes = 1 << self.bits
        ends = np.cumsum([len(layers) * classes * like.itemsize, total, -(-total // 2)]).tolist()
        # a copy, because a view as numbers has to begin at a multiple of their size
        means = (message[: ends[0]] + 0).view(like.dtype)
        high = arrays.unpacked(message[ends[1] : ends[2]], total, 4)
        codes = arrays.unpacked(message[ends[2] :], total, self.bits)
        starts = _like(_starts(layers), like)
        first = _like(np.repeat(classes * np.arange(len(layers)), sent), like)
        low, high, codes = (arrays.as_type(part, starts.dtype) for part in (message[ends[0] : ends[1]], high, codes))
        return Sparse(starts + low + 256 * high, arrays.taken(means, first + codes), count)

    @program
    def averaged(self, group: Group, vector: Any, key: str, memory: ChunkMemory) -> Program[tuple[Any, ChunkMemory]]:
        """Returns the mean of all members' messages, summed in the order of the group, and the new memory."""
        yield from self.charge(vector, also=mean_traffic(len(group), self.average_over))
        message, memory = self.compress(vector, memory)
        everyone = yield from AllGather(value=message, group=group, key=key)
        parts = [self.opened(part, vector, memory.layers) for part in everyone]
        return mean_of_sparse(parts, self.average_over), memory


def _like(numbers: np.ndarray, vector: Any) -> Any:
    """Returns whole numbers as an array, or as a tensor on the device of a vector."""
    return numbers if isinstance(vector, np.ndarray) else arrays.library(vector).asarray(numbers, device=vector.device)
