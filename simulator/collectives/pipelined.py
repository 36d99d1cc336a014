"""All-reduce over NCCL's trees: a chain inside each node, and two binary trees between the nodes.

* Each channel has its own chain through every node. The chain's head, which sends to and receives from other nodes,
  does so through its own network card; the layout of the channels gives each card its share.
* A leaf of one tree is an inner vertex of the other, so every node sends and receives about 2 n bytes in all, and n if
  there are two nodes. A rank that is not the last of its chain passes n bytes up and n down.
* Chunks are pipelined: while one is passed on, the next one arrives. The limit of small chunks is simulated: first the
  latency of the hops up and down, without bytes, then the bytes of all hops at once, which share the links. It leaves
  out that trees fill and drain, which takes a chunk's time for each hop, and adding, which takes less than passing on.
* Rejected: chunks as messages. A round of all hops ends with its slowest message and that message's latency, so each of
  hundreds of chunks paid the latency that NCCL pays once.

Sources: Sanders, Speck and Träff 2009; the trees are those of NCCL (`ncclGetBtree`), mirrored for even numbers of
nodes and shifted by one for odd ones; chains: FOUND NVIDIA/nccl src/graph/connect.cc (connectTrees).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paceline.simulator.collectives.rounds import Amounts, Places, Round, Rounds

Chains = Sequence[Sequence[int]]
"""the places of each node in the order of a chain, its head first"""


@dataclass(frozen=True, slots=True, eq=False)
class Edges:
    """The edges of a tree, first those upwards, then those downwards: each passes something on in round `first`."""

    sources: Places
    targets: Places
    first: Places


def double_tree(channels: Sequence[tuple[Chains, float]], nbytes: float) -> Rounds:
    """Returns an all-reduce over two trees in each channel.

    With one rank in each of m nodes it takes 2 ⌈lg m⌉ α for few bytes and about 2 n β for many (O1, C16).

    Args:
        channels: the chains of each channel, and its share of the bytes.
        nbytes: bytes of one rank's vector.

    >>> *latencies, moved = double_tree([([(0,), (1,), (2,), (3,)], 1.0)], 1000.0)
    >>> len(latencies), moved.sources.tolist(), moved.targets.tolist(), float(moved.nbytes[0])
    (3, [0, 0, 1, 1, 1, 2, 2, 2, 3, 3], [1, 2, 0, 2, 3, 0, 1, 3, 1, 2], 500.0)
    """
    trees = [(schedule(parents), share * nbytes / 2) for chains, share in channels for parents in joined(chains)]
    rounds: list[Round] = []
    two = [
        _announced(edges, channels[0][0], parents)
        for (edges, _), parents in zip(trees, two_trees(len(channels[0][0])), strict=False)
    ]
    for turn in range(max(int(first.max(initial=-1)) for _, _, first in two) + 1):
        now = [(sources[first == turn], targets[first == turn]) for sources, targets, first in two]
        sources, targets = (np.concatenate(ends) for ends in zip(*now, strict=True))
        if len(sources):
            rounds.append(Round(sources, targets, np.zeros(len(sources))))
    pairs: Places = np.concatenate([np.stack((edges.sources, edges.targets)) for edges, _ in trees], axis=1)
    each: Amounts = np.concatenate([np.full(len(edges.first), moved) for edges, moved in trees])
    (sources, targets), at = np.unique(pairs, axis=1, return_inverse=True)
    return (*rounds, Round(sources, targets, np.bincount(at.reshape(-1), each, len(sources))))


def _announced(edges: Edges, chains: Chains, parents: Sequence[int]) -> tuple[Places, Places, Places]:
    """Returns the edges of a tree whose latency is paid before its bytes: sources, targets and rounds.

    The bytes pay that of the last hop between nodes themselves, or in a single node that of the end of its chain.

    Args:
        edges: the edges.
        chains: the chain of each node.
        parents: the parent of each node in the tree.
    """
    leaves = (
        [chain[0] for node, chain in enumerate(chains) if node not in parents] if len(chains) > 1 else chains[0][-1:]
    )
    down = np.arange(len(edges.first)) >= len(edges.first) // 2
    kept = ~(down & np.isin(edges.targets, np.array(leaves, dtype=np.int64)))
    return edges.sources[kept], edges.targets[kept], edges.first[kept]


def joined(chains: Chains) -> tuple[list[int], list[int]]:
    """Returns the parent of each place in both trees between the chains' heads; −1 for roots.

    >>> joined([(0, 1), (3, 2)])
    ([-1, 0, 3, 0], [3, 0, 3, -1])
    """
    one, other = two_trees(len(chains))
    found = []
    for tree in (one, other):
        parents = [-1] * sum(map(len, chains))
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
