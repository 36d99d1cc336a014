"""How well a matrix product fills the multiprocessors of a device.

A product of M × K by K × N is cut into tiles of the result. Tiles that stand out over the edge, a last wave that does
not fill all multiprocessors, and the start of every tile cost time. A product with a long K may be split, so that
several multiprocessors work on one tile.

    time ∝ min over tiles and splits of ⌈tiles · splits / units⌉ · tile area · (K / splits + START) / worth
    utilisation = M · N · K · count / (units · that minimum)

Rules of this file: the minimum of functions that grow with M, N and K grows with them too, so no product becomes
faster by being larger. The tiles and their worth are those of a trial on published rows; a tile's worth is the part
of the peak that its ratio of arithmetic to loads allows.
"""

from __future__ import annotations

from math import ceil

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
