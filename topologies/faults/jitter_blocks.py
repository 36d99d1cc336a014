"""Jitter of many ranks at once: the factors of one step for all of them, bit for bit those of `Jitter.factor`.

The factors of a rank come in blocks, each from a generator of its own. Creating the generator takes far longer than
drawing the block. So the initial states of all generators of a block are computed at once, by NumPy's published
algorithm of `SeedSequence` (O'Neill's `seed_seq_fe128`) on arrays, and one generator is set to one after the other. If
the first block is not that of `Jitter`, all blocks are drawn one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.topologies.faults.jitter import BLOCK, STREAM, Jitter, law

Words = NDArray[np.uint32]
Factors = NDArray[np.float64]

POOL = 4
"""words of the pool of a `SeedSequence`"""
INIT_A, MULT_A = 0x43B0D7E5, 0x931E8875
INIT_B, MULT_B = 0x8B51F9DD, 0x58F38DED
MIX_LEFT, MIX_RIGHT = 0xCA01F9DD, 0x4973F715
SHIFT = np.uint32(16)
"""constants of `SeedSequence`: FOUND numpy/random/bit_generator.pyx"""
PCG_MULTIPLIER = 0x2360ED051FC65DA44385DF649FCCF645
"""FOUND numpy/random/src/pcg64/pcg64.h"""
WORD = 2**32
MASK = 2**128 - 1
AT_ONCE = 4096
"""ranks that are drawn before their factors are sorted by step; provenance: ours, 8 MB"""


class JitterBlocks:
    """The factors of many ranks with one distribution.

    Args:
        jitter: the distribution.
        seed: the seed of the run.
        ranks: the ranks.
        steps: how many steps are probably asked for, if that is known; others are drawn when they are.

    >>> blocks = JitterBlocks(Jitter.of("lognorm", sigma=0.3), 1, range(5))
    >>> [float(blocks.factors(300)[rank]) == blocks.jitter.factor(1, rank, 300) for rank in range(5)]
    [True, True, True, True, True]
    """

    def __init__(self, jitter: Jitter, seed: int, ranks: Sequence[int], steps: int | None = None) -> None:
        self.jitter, self._seed, self._ranks = jitter, seed, np.asarray(ranks, dtype=np.int64)
        self._steps = inf if steps is None else steps
        self._block, self._by_step = -1, np.ones((0, len(self._ranks)))

    def factors(self, step: int) -> Factors:
        """Returns the factor of each rank in a step."""
        if self.jitter.distribution == "none":
            return np.ones(len(self._ranks))
        block, place = divmod(step, BLOCK)
        if block != self._block or place >= len(self._by_step):
            length = int(min(BLOCK, self._steps - block * BLOCK))
            length = BLOCK if place >= length else length
            if len(self._by_step) != length:
                self._by_step = np.empty((length, len(self._ranks)))
            at = 0
            for rows in self._drawn(block, length):
                self._by_step[:, at : at + len(rows)] = rows.T
                at += len(rows)
            self._block = block
        factors: Factors = self._by_step[place]
        return factors

    def _drawn(self, block: int, length: int) -> Iterator[Factors]:
        """Yields the first factors of the blocks of a few thousand ranks at a time, one row for each rank."""
        first = self.jitter.factors_of_block(self._seed, int(self._ranks[0]), block)
        quick = not self.jitter.values and max(self._seed, int(self._ranks.max()), block) < WORD and self._seed >= 0
        if quick:
            (row,) = _rows(self.jitter, self._seed, self._ranks[:1], block, BLOCK)
            quick = bool((row == first).all())
        for at in range(0, len(self._ranks), AT_ONCE):
            ranks = self._ranks[at : at + AT_ONCE]
            if quick:
                yield _rows(self.jitter, self._seed, ranks, block, length)
            else:
                each = (self.jitter.factors_of_block(self._seed, rank, block) for rank in ranks.tolist())
                yield np.stack([factors[:length] for factors in each])


def _rows(jitter: Jitter, seed: int, ranks: NDArray[np.int64], block: int, length: int) -> Factors:
    """Returns the first factors of the blocks of some ranks, computed at once."""
    generator = np.random.Generator(np.random.PCG64(0))
    drawn, set_state = law(jitter), generator.bit_generator
    normal = jitter.distribution == "lognorm" and {name for name, _ in jitter.parameters} <= {"s", "sigma"}
    rows = np.empty((len(ranks), length if normal else BLOCK))  # only normal numbers are drawn one after the other
    for row, state in zip(rows, states(seed, ranks, block), strict=True):
        set_state.state = state
        if normal:
            generator.standard_normal(out=row)
        else:
            row[:] = drawn.rvs(size=BLOCK, random_state=generator)
    if normal:  # as scipy.stats.lognorm draws them: exp(s · normal) · 1 + 0
        ((_, shape),) = jitter.parameters
        rows *= shape
        np.exp(rows, out=rows)
    rows /= float(drawn.mean())
    if not normal:
        rows[rows < 0] = 0.0
    return rows[:, :length]


def states(seed: int, ranks: NDArray[np.int64], block: int) -> Iterator[dict[str, Any]]:
    """Yields the state of ``PCG64(SeedSequence((seed, STREAM, rank, block)))`` for each rank.

    Args:
        seed: the seed of the run, below 2³².
        ranks: the ranks.
        block: the number of the block.

    >>> (state,) = states(3, np.array([5]), 2)
    >>> state["state"] == np.random.PCG64(np.random.SeedSequence((3, STREAM, 5, 2))).state["state"]
    True
    """
    entropy = [np.full(len(ranks), part, dtype=np.uint32) for part in (seed, STREAM, 0, block)]
    entropy[2] = ranks.astype(np.uint32)
    words = _generated(_mixed(entropy), 8)
    high, low, high_inc, low_inc = ((words[at] | (words[at + 1] << np.uint64(32))).tolist() for at in (0, 2, 4, 6))
    for state_high, state_low, inc_high, inc_low in zip(high, low, high_inc, low_inc, strict=True):
        inc = (((inc_high << 64 | inc_low) << 1) | 1) & MASK
        state = ((inc + (state_high << 64 | state_low)) * PCG_MULTIPLIER + inc) & MASK
        yield {"bit_generator": "PCG64", "state": {"state": state, "inc": inc}, "has_uint32": 0, "uinteger": 0}


def _mixed(entropy: Sequence[Words]) -> list[Words]:
    """Returns the pools of the sequences with these words of entropy."""
    constant = INIT_A

    def hashed(words: Words) -> Words:
        nonlocal constant
        words = words ^ np.uint32(constant)
        constant = constant * MULT_A % WORD
        words = words * np.uint32(constant)
        return words ^ (words >> SHIFT)

    pool = [hashed(words) for words in entropy]
    for source in range(POOL):
        for target in range(POOL):
            if source != target:
                both = np.uint32(MIX_LEFT) * pool[target] - np.uint32(MIX_RIGHT) * hashed(pool[source])
                pool[target] = both ^ (both >> SHIFT)
    return pool


def _generated(pool: Sequence[Words], count: int) -> list[NDArray[np.uint64]]:
    """Returns the words that the pools generate."""
    constant, generated = INIT_B, []
    for at in range(count):
        words = pool[at % POOL] ^ np.uint32(constant)
        constant = constant * MULT_B % WORD
        words = words * np.uint32(constant)
        generated.append((words ^ (words >> SHIFT)).astype(np.uint64))
    return generated
