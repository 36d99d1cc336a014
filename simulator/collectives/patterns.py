"""The message pattern of each kind of collective, as data: rounds of messages among the members of a group.

`execution` implements these rules:

* Members are numbered by their places in the group, 0 … p − 1.
* Every member goes through the rounds in which it has messages, in order. It enters a round when it is done with the
  one before, and all its messages of a round are in flight at once.
* A message starts when both its ends have entered the round. A buffered message, as in rings, starts when its sender
  has entered.
* A receiver is done with a message when it has arrived and, if the round reduces, has been added. A sender is done when
  the bytes have left or, if sends block, as in trees, when they have arrived.

All builders take `p`, the number of ranks, and `nbytes`, the n of the closed forms: the bytes of one rank's whole
vector or, for gathers, of the gathered result. The pattern of a single rank is empty.

Sources: Thakur, Rabenseifner and Gropp, IJHPCA 2005; MPICH; Sanders, Speck and Träff 2009 (double tree).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, pairwise, zip_longest
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["AllReduce", "Reduce", "Broadcast", "AllGather", "ReduceScatter", "Barrier"]
Places = NDArray[np.int64]
Amounts = NDArray[np.float64]
CHUNK_BYTES = 2**19
"""the size of one of the eight steps of NCCL's buffers (MEMORY high)"""
Chains = Sequence[Sequence[int]]
"""the places of each node in the order of a chain, its head first"""


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """Messages that are in flight together, in each of `times` repetitions.

    Args:
        sources: the sender's place, for each message.
        targets: the receiver's place, for each message.
        nbytes: the bytes of each message.
        reduces: whether receivers add what they receive.
        blocking: whether senders wait for arrivals.
        buffered: whether senders begin before receivers have entered.
        times: number of repetitions.
    """

    sources: Places
    targets: Places
    nbytes: Amounts
    reduces: bool = False
    blocking: bool = False
    buffered: bool = False
    times: int = 1


Rounds = tuple[Round, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """A collective's messages. Its parts, each a list of rounds, run concurrently; it is done when all parts are."""

    parts: tuple[Rounds, ...]

    @property
    def messages(self) -> int:
        """The total number of messages."""
        return sum(len(round_.sources) * round_.times for part in self.parts for round_ in part)

    @property
    def largest(self) -> float:
        """The bytes of the largest message."""
        return max((float(round_.nbytes.max(initial=0.0)) for part in self.parts for round_ in part), default=0.0)


def one_round(pairs: Sequence[tuple[int, int]], nbytes: float, reduces: bool = False, blocking: bool = False) -> Round:
    """Returns a round of messages of equal size.

    Args:
        pairs: the places of sender and receiver of each message.
        nbytes: bytes of each message.
        reduces: whether receivers add what they receive.
        blocking: whether senders wait for arrivals.
    """
    ends = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return Round(ends[:, 0], ends[:, 1], np.full(len(ends), float(nbytes)), reduces, blocking)


def side_by_side(lists: Sequence[Rounds]) -> Rounds:
    """Merges the rounds of groups that have no rank in common; rounds that are merged differ only in their messages.

    A group with fewer rounds takes no part in the last ones.
    """
    together = ([round_ for round_ in rounds if round_ is not None] for rounds in zip_longest(*lists))
    return tuple(
        replace(
            rounds[0],
            sources=np.concatenate([round_.sources for round_ in rounds]),
            targets=np.concatenate([round_.targets for round_ in rounds]),
            nbytes=np.concatenate([round_.nbytes for round_ in rounds]),
        )
        for rounds in together
    )


def among(places: Sequence[int], rounds: Rounds) -> Rounds:
    """Renumbers rounds for some members of a larger group.

    Args:
        places: the place in the larger group of each place in `rounds`.
        rounds: the rounds.
    """
    at = np.array(places, dtype=np.int64)
    return tuple(replace(round_, sources=at[round_.sources], targets=at[round_.targets]) for round_ in rounds)


# --- rings -----------------------------------------------------------------------------------------------------------


def _around(p: int, nbytes: float, reduces: bool, times: int) -> Rounds:
    if p < 2:
        return ()
    here = np.arange(p)
    return (Round(here, (here + 1) % p, np.full(p, float(nbytes)), reduces, buffered=True, times=times),)


def ring_reduce_scatter(p: int, nbytes: float) -> Rounds:
    """Returns p − 1 rounds in which each rank sends n/p bytes to the next, which adds them."""
    return _around(p, nbytes / p, True, p - 1)


def ring_all_gather(p: int, nbytes: float) -> Rounds:
    """Returns p − 1 rounds in which each rank sends n/p bytes to the next."""
    return _around(p, nbytes / p, False, p - 1)


def ring_all_reduce(p: int, nbytes: float) -> Rounds:
    """Returns a reduce-scatter followed by an all-gather, around a ring.

    >>> [(one.times, one.reduces, float(one.nbytes[0])) for one in ring_all_reduce(4, 1000)]
    [(3, True, 250.0), (3, False, 250.0)]
    """
    return ring_reduce_scatter(p, nbytes) + ring_all_gather(p, nbytes)


# --- doubling and halving --------------------------------------------------------------------------------------------


def _folded(p: int, nbytes: float, inner: Callable[[int, int], Rounds]) -> Rounds:
    """Extends rounds of 2^k ranks to p ranks: of the first neighbours, one sends to the other first and receives the
    result last, as in MPICH and Open MPI.
    """
    steps = p.bit_length() - 1
    power = 2**steps
    if power == p:
        return inner(power, steps)
    pairs = [(2 * pair, 2 * pair + 1) for pair in range(p - power)]
    left = [*(other for _, other in pairs), *range(2 * len(pairs), p)]
    into, back = one_round(pairs, nbytes, True), one_round([(b, a) for a, b in pairs], nbytes)
    return (into, *among(left, inner(power, steps)), back)


def _exchange(power: int, distance: int, nbytes: float, reduces: bool) -> Round:
    here = np.arange(power)
    return Round(here, here ^ distance, np.full(power, float(nbytes)), reduces)


def recursive_doubling(p: int, nbytes: float) -> Rounds:
    """Returns rounds in which partners at distance 1, 2, 4 … exchange whole vectors."""
    return _folded(p, nbytes, lambda power, steps: tuple(_exchange(power, 2**k, nbytes, True) for k in range(steps)))


def _halving(power: int, steps: int, nbytes: float) -> Rounds:
    return tuple(_exchange(power, 2**k, nbytes / 2 ** (k + 1), True) for k in range(steps))


def halving_doubling(p: int, nbytes: float) -> Rounds:
    """Returns Rabenseifner's algorithm: recursive halving, then doubling.

    The nearest partners come first, because they exchange most.
    """

    def inner(power: int, steps: int) -> Rounds:
        halving = _halving(power, steps, nbytes)
        return halving + tuple(replace(round_, reduces=False) for round_ in reversed(halving))

    return _folded(p, nbytes, inner)


def recursive_halving(p: int, nbytes: float) -> Rounds:
    """Returns a reduce-scatter: the first half of halving-doubling for powers of two, otherwise a ring."""
    steps = p.bit_length() - 1
    return _halving(p, steps, nbytes) if p == 2**steps else ring_reduce_scatter(p, nbytes)


def doubling_all_gather(p: int, nbytes: float) -> Rounds:
    """Returns Bruck's all-gather: in round k every rank sends the rank 2^k before it the blocks that this one lacks."""
    here = np.arange(p)
    spans = [(2**k, min(2**k, p - 2**k)) for k in range((p - 1).bit_length())]
    return tuple(Round(here, (here - distance) % p, np.full(p, nbytes * blocks / p)) for distance, blocks in spans)


# --- trees -----------------------------------------------------------------------------------------------------------


def _tree(p: int, root: int) -> list[list[tuple[int, int]]]:
    """Returns the edges of a binomial tree, from parent to child, for each round of a broadcast."""
    distances = [2**k for k in reversed(range((p - 1).bit_length()))]
    return [[((at + root) % p, (at + far + root) % p) for at in range(0, p - far, 2 * far)] for far in distances]


def binomial_broadcast(p: int, nbytes: float, root: int = 0) -> Rounds:
    """Returns ⌈lg p⌉ rounds; in each, every rank that has the value sends it to another one.

    Args:
        p: number of ranks.
        nbytes: bytes of the value.
        root: the place that has the value.
    """
    return tuple(one_round(edges, nbytes, blocking=True) for edges in _tree(p, root))


def binomial_reduce(p: int, nbytes: float, root: int = 0) -> Rounds:
    """Returns the broadcast with its messages reversed; receivers add.

    Args:
        p: number of ranks.
        nbytes: bytes of one value.
        root: the place that gets the sum.
    """
    return tuple(one_round([(b, a) for a, b in edges], nbytes, True) for edges in reversed(_tree(p, root)))


def tree_all_reduce(p: int, nbytes: float) -> Rounds:
    """Returns a reduction to rank 0, followed by a broadcast from it."""
    return binomial_reduce(p, nbytes) + binomial_broadcast(p, nbytes)


def scatter_gather_broadcast(p: int, nbytes: float, root: int = 0) -> Rounds:
    """Returns van de Geijn's broadcast: a scatter down a binomial tree, then an all-gather around a ring.

    Args:
        p: number of ranks.
        nbytes: bytes of the value.
        root: the place that has the value.
    """
    scatter = []
    for edges in _tree(p, root):
        sizes = [min(_below(p, (b - root) % p), p) for _, b in edges]
        ends = one_round(edges, 0.0, blocking=True)
        scatter.append(replace(ends, nbytes=np.array(sizes) * nbytes / p))
    return (*scatter, *ring_all_gather(p, nbytes))


def _below(p: int, at: int) -> int:
    """Returns the number of ranks in the binomial subtree of the rank at this distance from the root."""
    return min(at & -at if at else p, p - at)


# --- others ----------------------------------------------------------------------------------------------------------


def dissemination(p: int) -> Rounds:
    """Returns a barrier: in round k every rank signals the rank 2^k after it."""
    here = np.arange(p)
    return tuple(Round(here, (here + 2**k) % p, np.zeros(p)) for k in range((p - 1).bit_length()))


def two_level(nodes: Sequence[Sequence[int]], nbytes: float) -> Rounds:
    """Returns an all-reduce: reduce-scatter inside each node, rings of equal shares between nodes, all-gather inside.

    If nodes differ in size, each has a leader: a reduction to the leaders, a ring among them, a broadcast from them.

    Args:
        nodes: the places on each node.
        nbytes: bytes of one rank's vector.
    """
    size = len(nodes[0])
    if all(len(node) == size for node in nodes):
        scatter = side_by_side([among(node, ring_reduce_scatter(size, nbytes)) for node in nodes])
        between = side_by_side(
            [among(shard, ring_all_reduce(len(nodes), nbytes / size)) for shard in zip(*nodes, strict=True)]
        )
        gather = side_by_side([among(node, ring_all_gather(size, nbytes)) for node in nodes])
        return scatter + between + gather
    up = [round_ for node in nodes for round_ in among(node, binomial_reduce(len(node), nbytes))]
    down = [round_ for node in nodes for round_ in among(node, binomial_broadcast(len(node), nbytes))]
    return (*up, *among([node[0] for node in nodes], ring_all_reduce(len(nodes), nbytes)), *down)


def shared_memory(nodes: Sequence[Sequence[int]], nbytes: float) -> Rounds:
    """Returns an all-reduce by shared memory inside nodes.

    All ranks of a node write to its leader's memory at once, the leaders form a ring, and all ranks read at once. Ranks
    that work in the main memory of their node use slots instead, see `shared_slots`.

    Args:
        nodes: the places on each node; the first is its leader.
        nbytes: bytes of one rank's vector.
    """
    others = [(place, node[0]) for node in nodes for place in node[1:]]  # one round: nodes have no rank in common
    ups = (one_round(others, nbytes, True),) if others else ()
    downs = (one_round([(leader, place) for place, leader in others], nbytes),) if others else ()
    return (*ups, *among([node[0] for node in nodes], ring_all_reduce(len(nodes), nbytes)), *downs)


def levels(nodes: Sequence[Sequence[int]], nbytes: float) -> tuple[Rounds, Rounds]:
    """Returns the two levels of Open MPI's all-reduce since version 5: inside nodes, and between their leaders.

    Both process segments at the same time: nodes one of them, leaders the one before. Nodes broadcast over a binomial
    tree, where Open MPI takes a 4-nomial one for segments of 2 KiB and more among 32 to 127 ranks (FOUND
    coll_tuned_decision_fixed.c and coll_tuned_bcast_decision.c @8efebee). Rejected: that tree. The published times of
    36 ranks a node are then 62 % off in the mean instead of 53 %, and long ones are too slow already, as the three
    messages of a sender share the rate of one.

    Args:
        nodes: the places on each node; the first is its leader.
        nbytes: bytes of one rank's vector.
    """
    up = [round_ for node in nodes for round_ in among(node, binomial_reduce(len(node), nbytes))]
    down = [round_ for node in nodes for round_ in among(node, binomial_broadcast(len(node), nbytes))]
    return (*up, *down), among([node[0] for node in nodes], tree_all_reduce(len(nodes), nbytes))


# --- NCCL's trees: two binary trees between the nodes, and inside each a chain or a switch that adds -----------------

# * Each channel has its own chain through every node. The chain's head, which sends to and receives from other nodes,
#   does so through its own network card; the layout of the channels gives each card its share.
# * A leaf of one tree is an inner vertex of the other, so every node sends and receives about 2 n bytes in all, and n
#   if there are two nodes. A rank that is not the last of its chain passes n bytes up and n down.
# * Chunks are pipelined: while one is passed on, the next one arrives. Simulated are the way of the first chunk, hop
#   by hop up and down, and then the other bytes on all hops at once, which share the links: the limit of small chunks.
#   Adding is charged for the first chunk only, because it takes less time than passing on.
# * Rejected: chunks as messages. A round of all hops ends with its slowest message and that message's latency, so each
#   of hundreds of chunks paid the latency that NCCL pays once.
# * Sources: Sanders, Speck and Träff 2009; the trees are those of NCCL (`ncclGetBtree`), mirrored for even numbers of
#   nodes and shifted by one for odd ones; chains: FOUND NVIDIA/nccl src/graph/connect.cc (connectTrees).


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

    These pay the latency of the last hop between nodes, or in a single node that of the end of its chain."""
    leaves = [line[0] for node, line in enumerate(chains) if node not in parents] if len(chains) > 1 else chains[0][-1:]
    down = np.arange(len(edges.first)) >= len(edges.first) // 2
    return ~(down & np.isin(edges.targets, np.array(leaves, dtype=np.int64)))


def joined(chains: Chains) -> tuple[list[int], list[int]]:
    """Returns the parent of each place in both trees between the chains' heads; −1 for roots.

    >>> joined([(0, 1), (3, 2)])
    ([-1, 0, 3, 0], [3, 0, 3, -1])
    """
    first_tree, second_tree = two_trees(len(chains))
    places = 1 + max(max(chain) for chain in chains)
    trees = []
    for tree in (first_tree, second_tree):
        parents = [-1] * places
        for node, line in enumerate(chains):
            parents[line[0]] = -1 if tree[node] < 0 else chains[tree[node]][0]
            for below, above in zip(line[1:], line, strict=False):
                parents[below] = above
        trees.append(parents)
    return trees[0], trees[1]


def two_trees(p: int) -> tuple[list[int], list[int]]:
    """Returns the parent of each of p vertices in both trees; −1 for roots.

    >>> two_trees(4)
    ([-1, 2, 0, 2], [1, 3, 1, -1])
    """
    first_tree = [_parent(p, place) for place in range(p)]
    names = [(place + 1) % p if p % 2 else p - 1 - place for place in range(p)]
    second_tree = [-1] * p
    for place, up in enumerate(first_tree):
        second_tree[names[place]] = names[up] if up >= 0 else -1
    return first_tree, second_tree


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


# --- by name ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RingChannel:
    """A ring: the order of the places, and its share of the bytes."""

    order: tuple[int, ...]
    share: float


@dataclass(frozen=True, slots=True)
class Setting:
    """The arguments of builders.

    Args:
        p: number of ranks.
        nbytes: the n of the closed forms.
        root: the place of the root.
        nodes: the places on each machine, in the order of a ring around them.
        order: the places in the order of a ring around all; empty: in ascending order.
        channels: parallel rings; empty: one ring in the order above.
        chunk_bytes: the size of the first chunk of a double tree.
    """

    p: int
    nbytes: float
    root: int
    nodes: tuple[tuple[int, ...], ...]
    order: tuple[int, ...] = ()
    channels: tuple[RingChannel, ...] = ()
    chunk_bytes: float = CHUNK_BYTES


def _parts(*parts: Rounds) -> Pattern:
    return Pattern(tuple(part for part in parts if part))


def _ring(s: Setting, ring: Callable[[int, float], Rounds]) -> Pattern:
    if s.channels:
        return _parts(*(among(channel.order, ring(s.p, s.nbytes * channel.share)) for channel in s.channels))
    rounds = ring(s.p, s.nbytes)
    return _parts(among(s.order, rounds) if s.order else rounds)


def _double_tree(s: Setting) -> Pattern:
    nodes = s.nodes or tuple((place,) for place in range(s.p))
    rings = s.channels or (RingChannel(s.order or tuple(chain.from_iterable(nodes)), 1.0),)
    cuts = list(pairwise(accumulate(map(len, nodes), initial=0)))  # a ring visits the nodes in their order
    channels = [([ring.order[first:last] for first, last in cuts], ring.share) for ring in rings]
    return _parts(double_tree(channels, s.nbytes, s.chunk_bytes))


PATTERNS: dict[Kind, dict[str, Callable[[Setting], Pattern]]] = {
    "AllReduce": {
        "ring": lambda s: _ring(s, ring_all_reduce),
        "ring-channels": lambda s: _ring(s, ring_all_reduce),
        "recursive-doubling": lambda s: _parts(recursive_doubling(s.p, s.nbytes)),
        "halving-doubling": lambda s: _parts(halving_doubling(s.p, s.nbytes)),
        "binomial-tree": lambda s: _parts(tree_all_reduce(s.p, s.nbytes)),
        "double-tree": _double_tree,
        "two-level": lambda s: _parts(two_level(s.nodes, s.nbytes)),
        "shared-memory": lambda s: _parts(shared_memory(s.nodes, s.nbytes)),
    },
    "Reduce": {"binomial-tree": lambda s: _parts(binomial_reduce(s.p, s.nbytes, s.root))},
    "Broadcast": {
        "binomial-tree": lambda s: _parts(binomial_broadcast(s.p, s.nbytes, s.root)),
        "scatter-gather": lambda s: _parts(scatter_gather_broadcast(s.p, s.nbytes, s.root)),
    },
    "AllGather": {
        "ring": lambda s: _ring(s, ring_all_gather),
        "recursive-doubling": lambda s: _parts(doubling_all_gather(s.p, s.nbytes)),
    },
    "ReduceScatter": {
        "ring": lambda s: _ring(s, ring_reduce_scatter),
        "halving": lambda s: _parts(recursive_halving(s.p, s.nbytes)),
    },
    "Barrier": {"dissemination": lambda s: _parts(dissemination(s.p))},
}
"""the builders of each kind of collective, by name"""
OF_LIBRARIES: dict[str, Callable[[Setting], Pattern]] = {
    "levels": lambda s: _parts(*levels(s.nodes, s.nbytes)),
    "nvls": lambda s: _parts(nvls_tree(s.nodes, s.nbytes)),
    "nvls-tree": lambda s: _parts(nvls_tree(s.nodes, s.nbytes)),
}
"""those of all-reduces that only libraries choose. With NVLS, the switches of nodes add: messages stand for what their
links carry, not for the data
"""


def build(kind: Kind, name: str, setting: Setting) -> Pattern:
    """Returns the pattern of a collective.

    Args:
        kind: the operation.
        name: the algorithm, a key of `PATTERNS[kind]` or of `OF_LIBRARIES`.
        setting: its arguments.
    """
    return (PATTERNS[kind].get(name) or OF_LIBRARIES[name])(setting) if setting.p > 1 else Pattern(())
