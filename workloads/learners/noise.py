"""Gradient noise of an infinite stream of samples: independent standard normal rows with cheap means over batches.

Theory (Lévy's construction). Take the mean of 2^l samples, of variance 2^−l, and an independent detail of the same
variance. Their sum and their difference are independent, of variance 2^−(l−1): the means of the two halves. So the mean
over a group is drawn first, and the parts of a group only when they are needed.

A sample's noise is a pure function of the seed, the dimensions and the sample's number, by a counter-based generator; a
mean over samples is the mean of their noise, up to rounding, however they are divided into batches. A batch takes one
row for each aligned power of two in it: one for 32 samples, two for 48. Rows are drawn in blocks, and recent blocks are
cached, since workers at about the same step use neighbouring rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

TOP = 5
"""groups of 2^TOP samples are drawn as one row; a batch of 32 is the default of scenarios"""
BLOCK_NUMBERS = 2048
"""numbers per block of at least two rows; provenance: ours, 13 µs for the generator and 18 µs for its numbers"""
KEPT_BYTES = 32 * 2**20
"""bytes of cached blocks, at least `FEWEST_BLOCKS`; provenance: ours, 30 steps of 1,024 workers in 64 dimensions"""
FEWEST_BLOCKS = 8


class Noise:
    """The noise of a seed.

    Args:
        seed: the seed.
        dimensions: numbers of a row.

    >>> noise = Noise(seed=1, dimensions=3)
    >>> rows = [noise.mean(number, 1) for number in range(5, 48)]
    >>> bool(np.allclose(noise.mean(5, 43), np.mean(rows, axis=0), rtol=0, atol=1e-15))
    True
    """

    def __init__(self, *, seed: int, dimensions: int) -> None:
        self.seed, self.dimensions = seed, dimensions
        self._height = 2 * max(1, BLOCK_NUMBERS // (2 * dimensions))
        """number of rows of a block, even"""
        kept = KEPT_BYTES // (8 * dimensions * self._height)
        self._block = lru_cache(maxsize=max(FEWEST_BLOCKS, kept))(self._drawn)

    def mean(self, first: int, count: int) -> Array:
        """Returns the mean over samples `first` to `first + count − 1` as a new array."""
        total = sum(2**level * self._row(level, number) for level, number in _pieces(first, count))
        return np.asarray(total) / count

    def means(self, starts: NDArray[np.int64], count: int) -> Array | None:
        """Returns the means over several batches as rows, each with the bits of `mean`.

        Args:
            starts: the number of each batch's first sample.
            count: samples of each batch.

        Returns:
            The rows; None unless every batch is one aligned group.
        """
        level = count.bit_length() - 1
        if count != 2**level or level > TOP or (starts % count).any():
            return None
        blocks, places = np.divmod(starts // count, self._height)
        rows = np.empty((len(starts), self.dimensions))
        for block in np.unique(blocks).tolist():
            in_block = blocks == block
            rows[in_block] = self._block(level, block)[places[in_block]]
        means: Array = 2**level * rows / count
        return means

    def _row(self, level: int, number: int) -> Array:
        """Returns the mean over the group with this number of 2^level samples."""
        block, place = divmod(number, self._height)
        row: Array = self._block(level, block)[place]
        return row

    def _drawn(self, level: int, block: int) -> Array:
        """Returns a block of consecutive rows of a level."""
        counter = np.array([0, 0, block, level], dtype=np.uint64)
        generator = np.random.Generator(np.random.Philox(key=self.seed, counter=counter))
        if level == TOP:
            top: Array = generator.standard_normal((self._height, self.dimensions)) * 2.0 ** (-TOP / 2)
            return top
        half = self._height // 2
        above = self._block(level + 1, block // 2)[half * (block % 2) :][:half]
        detail = generator.standard_normal((half, self.dimensions)) * 2.0 ** (-(level + 1) / 2)
        halves: Array = np.stack([above + detail, above - detail], axis=1)
        return halves.reshape(self._height, self.dimensions)


def _pieces(first: int, count: int) -> Iterator[tuple[int, int]]:
    """Divides a range into aligned pieces of 2^level samples; yields the level and the number of each.

    >>> list(_pieces(5, 43))  # 5, 6 and 7, 8 to 15, 16 to 31, 32 to 47
    [(0, 5), (1, 3), (3, 1), (4, 1), (4, 2)]
    """
    while count > 0:
        level = min(TOP, count.bit_length() - 1)
        if first:
            level = min(level, (first & -first).bit_length() - 1)
        yield level, first >> level
        first, count = first + 2**level, count - 2**level
