"""All-reduce over NCCL's trees: two binary trees between the nodes, and inside each a chain or a switch that adds.

* Each channel has its own chain through every node. The chain's head, which sends to and receives from other nodes,
  does so through its own network card; the layout of the channels gives each card its share.
* A leaf of one tree is an inner vertex of the other, so every node sends and receives about 2 n bytes in all, and n if
  there are two nodes. A rank that is not the last of its chain passes n bytes up and n down.
* Chunks are pipelined: while one is passed on, the next one arrives. Simulated are the way of the first chunk, hop by
  hop up and down, and then the other bytes on all hops at once, which share the links: the limit of small chunks.
  Adding is charged for the first chunk only, because it takes less time than passing on.
* Rejected: chunks as messages. A round of all hops ends with its slowest message and that message's latency, so each of
  hundreds of chunks paid the latency that NCCL pays once.

Sources: Sanders, Speck and Träff 2009; the trees are those of NCCL (`ncclGetBtree`), mirrored for even numbers of
nodes and shifted by one for odd ones; chains: FOUND NVIDIA/nccl src/graph/connect.cc (connectTrees).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paceline.simulator.collectives.rounds import Places, Round, Rounds

CHUNK_BYTES = 2**19
"""the size of one of the eight steps of NCCL's buffers (MEMORY high)"""
Chains = Sequence[Sequence[int]]
"""the places of each node in the order of a chain, its head first"""


@dataclass(frozen=True, slots=True, eq=False)
class Edges:
    """The edges of a tree, first those upwards, then those downwards: each passes something on in round `first`."""

    sources: Places
    targets: Places
    first: Places


def double_tree(channels: Sequence[tuple[Chains, float]], nbytes: float, chunk_bytes: float = CHUNK_BYTES) -> Rounds:
    """Returns an all-reduce over two trees in each channel.

    With one rank in each of m nodes it takes 2 ⌈lg m⌉ α for few bytes and about 2 n β for many (O1, C16).

    Args:
        channels: the chains of each channel, and its share of the bytes.
        nbytes: bytes of one rank's vector.
        chunk_bytes: the size of the first chunk; 0 if the protocol's rates include what it costs.

    >>> *chunk, others = double_tree([([(0,), (1,), (2,), (3,)], 1.0)], 2e6)
    >>> [float(one.nbytes[0]) for one in chunk], others.sources.tolist(), others.targets.tolist()
    ([524288.0, 524288.0, 524288.0], [0, 0, 1, 1, 1, 2, 2, 2, 3, 3], [1, 2, 0, 2, 3, 0, 1, 3, 1, 2])
    """
    trees = [(schedule(parents), share * nbytes / 2) for chains, share in channels for parents in joined(chains)]
    chunk = min(trees[0][1], chunk_bytes)  # of the first channel; all channels have as many hops
    whole = len(channels) == 1 and chunk == trees[0][1]
    chains = channels[0][0]
    kept = [
        _before(edges, chains, parents) | whole
        for (edges, _), parents in zip(trees, two_trees(len(chains)), strict=False)
    ]
    two = [(edges, some) for (edges, _), some in zip(trees, kept, strict=False)]
    rounds: list[Round] = []
    for turn in range(max(int(edges.first.max(initial=-1)) for edges, _ in two) + 1):
        now = [(edges, some & (edges.first == turn)) for edges, some in two]
        sources = np.concatenate([edges.sources[some] for edges, some in now])
        targets = np.concatenate([edges.targets[some] for edges, some in now])
        adds = any(bool(some[: len(some) // 2].any()) for _, some in now)
        if len(sources):
            rounds.append(Round(sources, targets, np.full(len(sources), float(chunk), dtype=np.float64), reduces=adds))
    if whole:
        return tuple(rounds)
    pairs: Places = np.concatenate([np.stack((edges.sources, edges.targets)) for edges, _ in trees], axis=1)
    each = [np.full(len(edges.first), moved) for edges, moved in trees]
    for amounts, some in zip(each, kept, strict=False):
        amounts[some] -= chunk
    (sources, targets), at = np.unique(pairs, axis=1, return_inverse=True)
    return (
        *rounds,
        Round(sources, targets, np.bincount(at.reshape(-1), np.concatenate(each), len(sources)).astype(float)),
    )


def nvls_tree(nodes: Chains, nbytes: float) -> Rounds:
    """Returns an all-reduce that the switches inside nodes add, and trees between the nodes.

    A GPU sends its n bytes to the switch, which adds them, and a part of the sum to all others; it receives as many. So
    its links carry what a message of n (1 + 1/g) bytes to its neighbour would take. Each GPU is then the head of a tree
    for its part of the sum. In a single node nothing follows.

    Args:
        nodes: the places of each node, as many on each.
        nbytes: bytes of one rank's vector.

    >>> [float(one.nbytes[0]) for one in nvls_tree([(0, 1, 2, 3)], 4e6)]
    [5000000.0]
    """
    here = np.array(nodes, dtype=np.int64)
    g = here.shape[1]
    sources, targets = here.ravel(), np.roll(here, -1, axis=1).ravel()

    def inside(moved: float) -> Round:
        return Round(sources, targets, np.full(len(sources), moved * (1 + 1 / g)))

    if len(nodes) == 1:
        return (inside(nbytes),)
    *hops, last = double_tree([(here[:, [gpu]].tolist(), 1 / g) for gpu in range(g)], nbytes, chunk_bytes=0.0)
    left = inside(nbytes)
    together = Round(
        np.concatenate((last.sources, left.sources)),
        np.concatenate((last.targets, left.targets)),
        np.concatenate((last.nbytes, left.nbytes)),
    )
    return (inside(0.0), *hops, together)


def _before(edges: Edges, chains: Chains, parents: Sequence[int]) -> NDArray[np.bool_]:
    """Returns which edges of a tree the first chunk passes before the other bytes.

    These pay the latency of the last hop between nodes, or in a single node that of the end of its chain.

    Args:
        edges: the edges.
        chains: the chain of each node.
        parents: the parent of each node in the tree.
    """
    leaves = (
        [chain[0] for node, chain in enumerate(chains) if node not in parents] if len(chains) > 1 else chains[0][-1:]
    )
    down = np.arange(len(edges.first)) >= len(edges.first) // 2
    return ~(down & np.isin(edges.targets, np.array(leaves, dtype=np.int64)))


def joined(chains: Chains) -> tuple[list[int], list[int]]:
    """Returns the parent of each place in both trees between the chains' heads; −1 for roots.

    >>> joined([(0, 1), (3, 2)])
    ([-1, 0, 3, 0], [3, 0, 3, -1])
    """
    one, other = two_trees(len(chains))
    places = 1 + max(max(chain) for chain in chains)
    found = []
    for tree in (one, other):
        parents = [-1] * places
        for node, chain in enumerate(chains):
            parents[chain[0]] = -1 if tree[node] < 0 else chains[tree[node]][0]
            for below, above in zip(chain[1:], chain, strict=False):
                parents[below] = above
        found.append(parents)
    return found[0], found[1]


def two_trees(p: int) -> tuple[list[int], list[int]]:
    """Returns the parent of each of p vertices in both trees; −1 for roots.

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
    most = int(height.max(initial=0))
    return Edges(
        sources=np.concatenate((below, ups)),
        targets=np.concatenate((ups, below)),
        first=np.concatenate((height[below], most + depth[ups])),
    )
