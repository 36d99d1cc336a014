"""All-reduce over two binary trees, pipelined in chunks.

* A leaf of one tree is an inner vertex of the other, so every rank sends and receives about 2 n bytes in all.
* Both trees run in lockstep, one chunk per round, upwards and downwards at the same time. So all rounds between filling
  and draining the pipeline are equal, and not all of them have to be simulated.

Sources: Sanders, Speck and Träff 2009; the trees are those of NCCL (`ncclGetBtree`), mirrored for even numbers of
ranks and shifted by one for odd ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from paceline.simulator.collectives.rounds import Places, Round, Rounds

CHUNK_BYTES = 2**19
"""the size of one of the eight steps of NCCL's buffers (MEMORY high)"""
MOST_CHUNKS = 128
"""larger vectors have larger chunks; INFERENCE: this adds at most (rounds of filling and draining) / chunks of time"""


@dataclass(frozen=True, slots=True, eq=False)
class Edges:
    """Chunks that pass from one vertex to another, for all edges of a tree: chunk c in round first + c."""

    sources: Places
    targets: Places
    first: Places
    adds: NDArray[np.bool_]


def double_tree(p: int, nbytes: float, chunk_bytes: float = CHUNK_BYTES) -> Rounds:
    """Returns an all-reduce of half the vector over each tree.

    It takes 2 ⌈lg p⌉ α for few bytes and 2 n β for many (O1, C16).

    Args:
        p: number of ranks.
        nbytes: bytes of one rank's vector.
        chunk_bytes: bytes of a chunk, unless there would be too many.

    >>> [one.times for one in double_tree(4, 16e6, 1e6)]
    [1, 1, 1, 5, 1, 1, 1]
    """
    number = chunks(nbytes, chunk_bytes)
    trees = [schedule(tree) for tree in two_trees(p)]
    sources, targets, first = (
        np.concatenate([getattr(tree, name) for tree in trees]) for name in ("sources", "targets", "first")
    )
    adds = np.concatenate([tree.adds for tree in trees])
    changes = np.unique(np.concatenate((first, first + number))).tolist()
    rounds = []
    for begin, end in pairwise(changes):
        active = np.flatnonzero((first <= begin) & (begin < first + number))
        sizes = np.full(len(active), nbytes / 2 / number)
        # upward and downward messages overlap at every inner vertex; if any is added, adding is charged for all
        reduces = bool(adds[active].any())
        rounds.append(Round(sources[active], targets[active], sizes, reduces, times=end - begin))
    return tuple(rounds)


def chunks(nbytes: float, chunk_bytes: float = CHUNK_BYTES) -> int:
    """Returns the number of chunks of each half of the vector."""
    return min(MOST_CHUNKS, max(1, math.ceil(nbytes / 2 / chunk_bytes)))


def two_trees(p: int) -> tuple[list[int], list[int]]:
    """Returns the parent of each place in both trees; −1 for roots.

    >>> two_trees(4)
    ([-1, 2, 0, 2], [1, 3, 1, -1])
    """
    one = [_parent(p, place) for place in range(p)]
    names = [(place + 1) % p if p % 2 else p - 1 - place for place in range(p)]
    other = [-1] * p
    for place, up in enumerate(one):
        other[names[place]] = names[up] if up >= 0 else -1
    return one, other


def _parent(p: int, place: int) -> int:
    """Returns the parent of a place in the binary tree whose leaves are the odd places; −1 for the root."""
    if place == 0:
        return -1
    low = place & -place
    up = (place ^ low) | (low << 1)
    return up if up < p else place ^ low


def schedule(parents: Sequence[int]) -> Edges:
    """Returns the edges of a tree: upwards once all below have been added, downwards once the root has the sum."""
    up = np.array(parents, dtype=np.int64)
    depth, height = np.zeros(len(up), dtype=np.int64), np.zeros(len(up), dtype=np.int64)
    above, low = up.copy(), np.flatnonzero(up >= 0)
    while len(low):  # `above` is the ancestor that is as many hops above as there were iterations
        depth[low] += 1
        np.maximum.at(height, above[low], depth[low])
        above[low] = up[above[low]]
        low = low[above[low] >= 0]
    below = np.flatnonzero(up >= 0)
    ups = up[below]
    count, most = len(below), int(height.max(initial=0))
    return Edges(
        sources=np.concatenate((below, ups)),
        targets=np.concatenate((ups, below)),
        first=np.concatenate((height[below], most + depth[ups])),
        adds=np.arange(2 * count) < count,
    )
