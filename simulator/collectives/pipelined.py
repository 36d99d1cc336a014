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
from dataclasses import dataclass, replace
from itertools import pairwise

from paceline.simulator.collectives.rounds import Round, Rounds, one_round

CHUNK_BYTES = 2**19
"""the size of one of the eight steps of NCCL's buffers (MEMORY high)"""
MOST_CHUNKS = 128
"""larger vectors have larger chunks; INFERENCE: this adds at most (rounds of filling and draining) / chunks of time"""


@dataclass(frozen=True, slots=True)
class Edge:
    """Chunks that pass from one vertex to another: chunk c in round first + c."""

    source: int
    target: int
    first: int
    adds: bool


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
    edges = [edge for tree in two_trees(p) for edge in schedule(tree)]
    changes = sorted({*(edge.first for edge in edges), *(edge.first + number for edge in edges)})
    rounds = []
    for begin, end in pairwise(changes):
        active = [edge for edge in edges if edge.first <= begin < edge.first + number]
        rounds.append(replace(_together(active, nbytes / 2 / number), times=end - begin))
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


def schedule(parents: Sequence[int]) -> list[Edge]:
    """Returns the edges of a tree: upwards once all below have been added, downwards once the root has the sum."""
    above = [_ancestors(parents, place) for place in range(len(parents))]
    height = [0] * len(parents)
    for line in above:
        for high, up in enumerate(line, 1):
            height[up] = max(height[up], high)
    ups = [(place, line[0]) for place, line in enumerate(above) if line]
    edges = [Edge(low, up, height[low], adds=True) for low, up in ups]
    return edges + [Edge(up, low, max(height) + len(above[up]), adds=False) for low, up in ups]


def _ancestors(parents: Sequence[int], place: int) -> list[int]:
    line = []
    while (place := parents[place]) >= 0:
        line.append(place)
    return line


def _together(edges: Sequence[Edge], nbytes: float) -> Round:
    """Returns the round of these edges.

    Upward and downward messages overlap at every inner vertex; if any is added, adding is charged for all.
    """
    return one_round([(edge.source, edge.target) for edge in edges], nbytes, any(edge.adds for edge in edges))
