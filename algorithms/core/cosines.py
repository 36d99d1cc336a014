"""The discrete cosine transform (DCT) of square tiles of a vector, as products with one orthonormal matrix.

A layer is a flat slice here, so its tiles are not those of the layer's own matrix: a tile holds s² consecutive numbers
of the slice, row by row. The last tile of a layer is padded with zeros. A layer with fewer than s² numbers is one tile,
as small as possible. A product is computed by NumPy or torch on the same shapes in every interpreter, so all of them
get the same numbers.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from paceline.algorithms.core import arrays
from paceline.algorithms.core.values import Layer, Null, join


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
