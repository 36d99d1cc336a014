"""Compression that sends the largest coefficients of a discrete cosine transform.

The discrete cosine transform (DCT) of square tiles of a vector, as products with one orthonormal matrix.

A layer is a flat slice here, so its tiles are not those of the layer's own matrix: a tile holds s² consecutive numbers
of the slice, row by row. The last tile of a layer is padded with zeros. A layer with fewer than s² numbers is one tile,
as small as possible. A product is computed by NumPy or torch on the same shapes in every interpreter, so all of them
get the same numbers.

Vectors of which only some numbers are sent, with their positions.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, ClassVar, Literal, Self

import numpy as np

from paceline.algorithms.core import arrays
from paceline.algorithms.core.operations import AllGather, Charge
from paceline.algorithms.core.option_groups import COUNT, Options, Range
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.traffic import COMBINE, COPY, NOTHING, READ, SCALE, ZEROS, Traffic
from paceline.algorithms.core.values import Group, Layer, Null, join, length


@functools.cache
def cosines(side: int) -> Any:
    """Returns D of the DCT-II, in float64: D x are the coefficients of x, and Dᵀ D = 1.

    D[k, j] = c_k cos(π k (2 j + 1) / (2 s)), with c_0 = √(1 / s) and c_k = √(2 / s) for k > 0.

    Args:
        side: s, the number of rows and of columns.

    >>> cosines(2).round(3)
    array([[ 0.707,  0.707],
           [ 0.707, -0.707]])
    """
    k, j = np.arange(side)[:, None], np.arange(side)
    matrix = np.sqrt(2 / side) * np.cos(np.pi * k * (2 * j + 1) / (2 * side))
    matrix[0] = np.sqrt(1 / side)
    return matrix


def cosines_like(side: int, vector: Any) -> Any:
    """Returns the same matrix with the dtype and the device of a vector."""
    return _converted(side, arrays.library(vector), vector.dtype, vector.device)


@functools.cache
def _converted(side: int, module: Any, dtype: Any, device: Any) -> Any:
    return module.asarray(cosines(side), dtype=dtype, device=device)


@dataclass(frozen=True, slots=True)
class Tiling:
    """The tiles of a layer of `count` numbers, each with `side` rows and columns."""

    count: int
    side: int

    @staticmethod
    def of(layer: Layer, side: int) -> Tiling:
        """Returns the tiles of a layer; with a smaller side than the given one if the layer is smaller than a tile.

        >>> Tiling.of(Layer("bias", 0, 10), 64)
        Tiling(count=10, side=4)
        """
        count = layer.stop - layer.start
        fitting = next(root for root in range(1, side + 1) if root * root >= count or root == side)
        return Tiling(count, fitting)

    @property
    def area(self) -> int:
        """Numbers in a tile."""
        return self.side**2

    @property
    def tiles(self) -> int:
        return -(-self.count // self.area)

    @property
    def size(self) -> int:
        """Numbers in all tiles, with the padding."""
        return self.tiles * self.area


def coefficients(vector: Any, tilings: Sequence[Tiling]) -> Any:
    """Returns D X Dᵀ of every tile X, concatenated.

    Args:
        vector: the numbers of all layers.
        tilings: the tiles of each layer.
    """
    if isinstance(vector, Null):
        return replace(vector, count=sum(tiling.size for tiling in tilings))
    layers, at = [], 0
    for tiling in tilings:
        d = cosines_like(tiling.side, vector)
        layer = vector[at : at + tiling.count]
        if missing := tiling.size - tiling.count:
            layer = join([layer, arrays.zeros(missing, vector)])
        layers.append(d @ layer.reshape(tiling.tiles, tiling.side, tiling.side) @ d.T)
        at += tiling.count
    return arrays.flat(layers)


def numbers(spectrum: Any, tilings: Sequence[Tiling]) -> Any:
    """Reverses `coefficients`: returns Dᵀ C D of every tile C, without the padding.

    Args:
        spectrum: the coefficients of all layers.
        tilings: the tiles of each layer.
    """
    if isinstance(spectrum, Null):
        return replace(spectrum, count=sum(tiling.count for tiling in tilings))
    layers, at = [], 0
    for tiling in tilings:
        d = cosines_like(tiling.side, spectrum)
        layer = spectrum[at : at + tiling.size].reshape(tiling.tiles, tiling.side, tiling.side)
        layers.append((d.T @ layer @ d).reshape(-1)[: tiling.count])
        at += tiling.size
    return join(layers)


@dataclass(frozen=True, slots=True)
class Sparse:
    """A vector of which only some numbers are sent; the others are 0."""

    positions: Any
    """integers as wide as the values"""
    values: Any
    count: int
    """length of the whole vector"""

    def dense(self) -> Any:
        """Returns the whole vector."""
        if isinstance(self.values, Null):
            return replace(self.values, count=self.count)
        return arrays.scattered(self.positions, self.values, self.count)

    def packed(self) -> Any:
        """Returns positions and values as one vector of the values' dtype, as a collective requires."""
        if isinstance(self.values, Null):
            return join([self.positions, self.values])
        return join([arrays.disguised(self.positions, self.values), self.values])

    @staticmethod
    def unpacked(vector: Any, count: int) -> Sparse:
        """Reverses `packed`."""
        middle = length(vector) // 2
        positions, values = vector[:middle], vector[middle:]
        return Sparse(positions if isinstance(vector, Null) else arrays.unmasked(positions), values, count)


def mean_of_sparse(parts: Sequence[Sparse], over: Literal["workers", "senders"]) -> Any:
    """Returns the mean of sparse vectors, summed in their order.

    Args:
        parts: one of each worker.
        over: whether the sum is divided by the number of workers, or each number of it by how many workers sent it.

    >>> parts = [Sparse(np.array([place]), np.array([4.0]), 3) for place in (0, 0, 1)]
    >>> mean_of_sparse([*parts, parts[0]], "workers"), mean_of_sparse([*parts, parts[0]], "senders")
    (array([3., 1., 0.]), array([4., 4., 0.]))
    """
    total = reduce(add, (part.dense() for part in parts))
    if over == "workers" or isinstance(parts[0].values, Null):
        return total / len(parts)
    ones = arrays.like(np.ones(length(parts[0].values)), parts[0].values)
    senders = reduce(add, (replace(part, values=ones).dense() for part in parts))
    return total / (senders + (senders == 0))


def mean_traffic(members: int, over: Literal["workers", "senders"]) -> Traffic:
    """Returns the memory traffic of `mean_of_sparse`."""
    summed = members * ZEROS + (members - 1) * COMBINE
    return summed + (summed + SCALE + COMBINE if over == "senders" else NOTHING) + SCALE


TRANSFORM = 2 * SCALE + COPY
"""memory traffic of `coefficients` and of `numbers`: two products, and joining the layers"""
SIDE: Range = (lambda value: 1 <= value <= 4096, "a whole number from 1 to 4096")
"""of a tile; its matrix of cosines has as many rows and columns"""


@dataclass(frozen=True, slots=True)
class Spectrum:
    """A vector as the sparse coefficients of its tiles."""

    coefficients: Sparse
    tilings: tuple[Tiling, ...]

    def dense(self) -> Any:
        """Returns the whole vector."""
        return numbers(self.coefficients.dense(), self.tilings)


@dataclass(frozen=True, slots=True)
class TopKMemory:
    """The memory of `DctTopK`: the part of the vectors that was not sent, and the tiles."""

    vector: Any
    tilings: tuple[Tiling, ...]


@dataclass(frozen=True, kw_only=True)
class DctTopK(Options):
    """Sends only the k largest coefficients of the discrete cosine transform of every tile, with their positions.

    total = vector + β · unsent;  C = D X Dᵀ for every tile X of the total;  the message has the k coefficients of
    largest magnitude of each C;  unsent = total − Dᵀ (message) D.

    With β = 1 this is error feedback; with β < 1 the unsent part is a momentum from which the message is subtracted.

    Source: Peng, Quesnelle, Kingma 2024 (DeMo, arXiv 2411.19870) and its code, github.com/bloc97/DeMo.
    """

    ranges: ClassVar[Mapping[str, Range]] = {
        "chunk": SIDE,
        "k": COUNT,
        "decay": (lambda value: 0 <= value <= 1, "a number from 0 to 1"),
    }

    kind: Literal["dct-top-k"] = "dct-top-k"
    opening: ClassVar[Traffic] = ZEROS + TRANSFORM
    """memory traffic of `Spectrum.dense`"""
    chunk: int = 64
    """s, rows and columns of a tile; provenance: `compression_chunk` of DeMo's code"""
    k: int = 32
    """coefficients sent of each tile, all of them if a tile has fewer; provenance: `compression_topk` of DeMo's code"""
    decay: float = 1.0
    """β, the factor on what was not sent before; provenance: ours, error feedback; DeMo has 0.999"""
    average_over: Literal["workers", "senders"] = "workers"
    """whether a mean divides a sum of coefficients by P, or each coefficient by the number of workers that sent it;
    provenance: ours, the mean of the messages; DeMo's code takes senders"""

    def linear_form(self) -> Self:
        """Returns the form in which all of what is not sent is sent later, as a part of a mean of all workers."""
        return replace(self, decay=1.0, average_over="workers")

    def begin(self, vector: Any, layers: Sequence[Layer]) -> TopKMemory:
        """Returns the memory in which nothing is unsent."""
        return TopKMemory(0 * vector, tuple(Tiling.of(layer, self.chunk) for layer in layers))

    def charge(self, vector: Any, *, also: Traffic = NOTHING, transforms: int = 2) -> Charge:
        """Returns the cost of compressing: the total, its transform, the selection, and the reverse for what is unsent.

        A transform has two products, each 2 s operations for a number, as if no layer were smaller than a tile.

        Args:
            vector: the vector to compress.
            also: further memory traffic on vectors of this size.
            transforms: how many transforms are computed in all.
        """
        summed = COMBINE if self.decay == 1 else SCALE + COMBINE
        traffic = summed + TRANSFORM + SCALE + READ + self.opening + COMBINE + also
        return Charge("compress", vector.nbytes, transforms * 4 * self.chunk * length(vector), traffic=traffic)

    def compress(self, vector: Any, memory: TopKMemory) -> tuple[Spectrum, TopKMemory]:
        """Returns the message and the new memory.

        >>> import numpy as np
        >>> compression = DctTopK(chunk=2, k=1)
        >>> x = np.array([1.0, 1.0, 1.0, 5.0])
        >>> message, memory = compression.compress(x, compression.begin(x, [Layer("layer", 0, 4)]))
        >>> message.dense().round(3), memory.vector.round(3)
        (array([2., 2., 2., 2.]), array([-1., -1., -1.,  3.]))
        """
        kept = memory.vector if self.decay == 1 else self.decay * memory.vector
        total = vector + kept
        message = Spectrum(self._selected(coefficients(total, memory.tilings), memory.tilings), memory.tilings)
        return message, replace(memory, vector=total - message.dense())

    def _selected(self, spectrum: Any, tilings: Sequence[Tiling]) -> Sparse:
        """Returns the k largest coefficients of every tile."""
        if isinstance(spectrum, Null):
            few = replace(spectrum, count=sum(tiling.tiles * min(self.k, tiling.area) for tiling in tilings))
            return Sparse(few, few, spectrum.count)
        chosen, at = [], 0
        for tiling in tilings:
            tiles = spectrum[at : at + tiling.size].reshape(tiling.tiles, tiling.area)
            chosen.append(at + arrays.largest_of_rows(tiles, min(self.k, tiling.area)))
            at += tiling.size
        positions = join(chosen)
        return Sparse(positions, arrays.taken(spectrum, positions), at)

    @program
    def averaged(self, group: Group, vector: Any, key: str, memory: TopKMemory) -> Program[tuple[Any, TopKMemory]]:
        """Returns the reverse transform of the mean of all members' coefficients, and the new memory."""
        gathering = mean_traffic(len(group), self.average_over) + TRANSFORM
        yield from self.charge(vector, also=gathering, transforms=3)
        message, memory = self.compress(vector, memory)
        everyone = yield from AllGather(value=message.coefficients.packed(), group=group, key=key)
        parts = [Sparse.unpacked(part, message.coefficients.count) for part in everyone]
        return numbers(mean_of_sparse(parts, self.average_over), memory.tilings), memory
