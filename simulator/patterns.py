"""Collectives as message patterns: who sends how much to whom, in which order. Pure; who carries it is `perform`.

Rules of this file:

* Ranks are named by their places in the group, 0 … p − 1. A builder takes p, the bytes and what else it needs, and
  `nbytes` is the n of the closed forms: one rank's whole vector or, for gathers, the gathered result.
* Every rank goes through the rounds that it appears in, in order. All messages of a round that touch a rank are under
  way at once; it goes on when all of them have arrived and, where the round reduces, have been added.
* A message starts when both its ends have come to its round; a buffered one, as around rings, when its sender has. Its
  receiver is done with it when it has arrived, its sender when its bytes are on their way or, where sends block, as
  down trees, when they have arrived, too.
* One rank alone has an empty pattern.

Sources: Thakur, Rabenseifner and Gropp, IJHPCA 2005; MPICH; Sanders, Speck and Träff 2009 (double tree).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Places = NDArray[np.int64]
Amounts = NDArray[np.float64]
Kind = Literal["AllReduce", "Reduce", "Broadcast", "AllGather", "ReduceScatter", "Barrier"]


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """Messages that are under way together, so many times in a row.

    Args:
        sources: the place of each message's sender.
        targets: the place of its receiver.
        nbytes: its bytes.
        reduces: whether receivers add what they get to what they have.
        blocking: whether senders wait for the arrival.
        buffered: whether senders begin before receivers are ready.
        times: how many such rounds follow each other.
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
    """Lists of rounds that are carried out side by side; the collective is done when all are."""

    parts: tuple[Rounds, ...]

    @property
    def messages(self) -> int:
        """How many there are in all."""
        return sum(len(one.sources) * one.times for part in self.parts for one in part)


def one_round(pairs: Sequence[tuple[int, int]], nbytes: float, reduces: bool = False, blocking: bool = False) -> Round:
    """A round of equal messages."""
    ends = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return Round(ends[:, 0], ends[:, 1], np.full(len(ends), float(nbytes)), reduces, blocking)


def side_by_side(lists: Sequence[Rounds]) -> Rounds:
    """Rounds of groups that have no rank in common, as rounds of all of them; all lists have the same shape."""
    return tuple(
        replace(
            rounds[0],
            sources=np.concatenate([one.sources for one in rounds]),
            targets=np.concatenate([one.targets for one in rounds]),
            nbytes=np.concatenate([one.nbytes for one in rounds]),
        )
        for rounds in zip(*lists, strict=True)
    )


def among(places: Sequence[int], rounds: Rounds) -> Rounds:
    """The same rounds among some members of a larger group."""
    at = np.array(places, dtype=np.int64)
    return tuple(replace(one, sources=at[one.sources], targets=at[one.targets]) for one in rounds)


# --- rings -----------------------------------------------------------------------------------------------------------


def _around(p: int, nbytes: float, reduces: bool, times: int) -> Rounds:
    if p < 2:
        return ()
    here = np.arange(p)
    return (Round(here, (here + 1) % p, np.full(p, float(nbytes)), reduces, buffered=True, times=times),)


def ring_reduce_scatter(p: int, nbytes: float) -> Rounds:
    """p − 1 rounds of n/p bytes to the next, each adding."""
    return _around(p, nbytes / p, True, p - 1)


def ring_all_gather(p: int, nbytes: float) -> Rounds:
    """p − 1 rounds of n/p bytes to the next."""
    return _around(p, nbytes / p, False, p - 1)


def ring_all_reduce(p: int, nbytes: float) -> Rounds:
    """Reduce-scatter, then all-gather, around a ring.

    >>> [(one.times, one.reduces, float(one.nbytes[0])) for one in ring_all_reduce(4, 1000)]
    [(3, True, 250.0), (3, False, 250.0)]
    """
    return ring_reduce_scatter(p, nbytes) + ring_all_gather(p, nbytes)


# --- doubling and halving --------------------------------------------------------------------------------------------


def _folded(p: int, nbytes: float, inner: Callable[[int, int], Rounds]) -> Rounds:
    """Ranks beyond the largest power of two give theirs to a partner before, and get the result after."""
    steps = p.bit_length() - 1
    power = 2**steps
    beyond = [(place, place - power) for place in range(power, p)]
    into = (one_round(beyond, nbytes, True),) if beyond else ()
    back = (one_round([(b, a) for a, b in beyond], nbytes),) if beyond else ()
    return into + inner(power, steps) + back


def _exchange(power: int, distance: int, nbytes: float, reduces: bool) -> Round:
    here = np.arange(power)
    return Round(here, here ^ distance, np.full(power, float(nbytes)), reduces)


def recursive_doubling(p: int, nbytes: float) -> Rounds:
    """Partners at distance 1, 2, 4 … exchange whole vectors."""
    return _folded(p, nbytes, lambda power, steps: tuple(_exchange(power, 2**k, nbytes, True) for k in range(steps)))


def _halving(power: int, steps: int, nbytes: float) -> Rounds:
    return tuple(_exchange(power, 2**k, nbytes / 2 ** (k + 1), True) for k in range(steps))


def halving_doubling(p: int, nbytes: float) -> Rounds:
    """After Rabenseifner: recursive halving, nearest partners first as they exchange most, then doubling."""

    def inner(power: int, steps: int) -> Rounds:
        halving = _halving(power, steps, nbytes)
        return halving + tuple(replace(one, reduces=False) for one in reversed(halving))

    return _folded(p, nbytes, inner)


def recursive_halving(p: int, nbytes: float) -> Rounds:
    """A reduce-scatter: the first half of halving-doubling for powers of two, a ring for others."""
    steps = p.bit_length() - 1
    return _halving(p, steps, nbytes) if p == 2**steps else ring_reduce_scatter(p, nbytes)


def doubling_all_gather(p: int, nbytes: float) -> Rounds:
    """After Bruck: in round k everybody sends all it has, at most what is missing, to the rank 2^k before it."""
    here = np.arange(p)
    spans = [(2**k, min(2**k, p - 2**k)) for k in range((p - 1).bit_length())]
    return tuple(Round(here, (here - distance) % p, np.full(p, nbytes * blocks / p)) for distance, blocks in spans)


# --- trees -----------------------------------------------------------------------------------------------------------


def _tree(p: int, root: int) -> list[list[tuple[int, int]]]:
    """The edges of a binomial tree by round of a broadcast, from parent to child."""
    distances = [2**k for k in reversed(range((p - 1).bit_length()))]
    return [[((at + root) % p, (at + far + root) % p) for at in range(0, p - far, 2 * far)] for far in distances]


def binomial_broadcast(p: int, nbytes: float, root: int = 0) -> Rounds:
    """⌈lg p⌉ rounds, in each of which all that have the value send it to one more."""
    return tuple(one_round(edges, nbytes, blocking=True) for edges in _tree(p, root))


def binomial_reduce(p: int, nbytes: float, root: int = 0) -> Rounds:
    """A broadcast backwards, adding."""
    return tuple(one_round([(b, a) for a, b in edges], nbytes, True) for edges in reversed(_tree(p, root)))


def tree_all_reduce(p: int, nbytes: float) -> Rounds:
    """A reduction to rank 0, then a broadcast from it."""
    return binomial_reduce(p, nbytes) + binomial_broadcast(p, nbytes)


def scatter_gather_broadcast(p: int, nbytes: float, root: int = 0) -> Rounds:
    """After van de Geijn: parts down a binomial tree, then around a ring."""
    scatter = []
    for edges in _tree(p, root):
        sizes = [min(_below(p, (b - root) % p), p) for _, b in edges]
        ends = one_round(edges, 0.0, blocking=True)
        scatter.append(replace(ends, nbytes=np.array(sizes) * nbytes / p))
    return (*scatter, *ring_all_gather(p, nbytes))


def _below(p: int, at: int) -> int:
    """How many ranks are in the binomial subtree of the one at this distance from the root."""
    return min(at & -at if at else p, p - at)


CHUNK_BYTES = 2**19
"""of a pipelined tree: what NCCL's buffers hold in one of their eight steps (MEMORY high)"""


MOST_CHUNKS = 128
"""larger vectors have larger chunks, so that a message-by-message play stays short: INFERENCE, costs (chunks + rounds
of one chunk) / chunks at most"""


def double_tree(p: int, nbytes: float, chunk_bytes: float = CHUNK_BYTES) -> tuple[Rounds, ...]:
    """All-reduce over two binary trees, half the vector each, pipelined in chunks, up and down at once.

    A leaf of one tree is an inner vertex of the other, so every rank sends and receives about 2 n bytes in all.
    """
    if p < 2:
        return ()
    parents = [_parent(p, place) for place in range(p)]
    shift = 1 if p % 2 else 0
    other = [(p - 1 - place if not shift else (place + shift) % p) for place in range(p)]
    trees = [
        list(enumerate(parents)),
        [(other[place], -1 if up < 0 else other[up]) for place, up in enumerate(parents)],
    ]
    chunks = max(1, math.ceil(nbytes / 2 / chunk_bytes))
    return tuple(_pipelined(dict(tree), nbytes / 2, chunks) for tree in trees)


def _parent(p: int, place: int) -> int:
    """In the binary tree whose leaves are the odd places; −1 for the root."""
    if place == 0:
        return -1
    low = place & -place
    up = (place ^ low) | (low << 1)
    return up if up < p else place ^ low


def _pipelined(parents: dict[int, int], nbytes: float, chunks: int) -> Rounds:
    """Chunk c leaves a vertex upwards in round c + its height and downwards in round c + root's height + its depth."""
    height: dict[int, int] = dict.fromkeys(parents, 0)
    depth: dict[int, int] = {}
    for leaf in parents:
        at, high = leaf, 0
        while (up := parents[at]) >= 0:
            high += 1
            height[up] = max(height[up], high)
            at = up
    for vertex in parents:
        at, deep = vertex, 0
        while (at := parents[at]) >= 0:
            deep += 1
        depth[vertex] = deep
    top = max(height.values())
    edges = [(low, up, height[low], True) for low, up in parents.items() if up >= 0]
    edges += [(up, low, top + depth[up], False) for low, up in parents.items() if up >= 0]
    last = max(begin for *_, begin, _ in edges) + chunks
    changes = sorted({*(edge[2] for edge in edges), *(edge[2] + chunks for edge in edges)})
    rounds: list[Round] = []
    for begin, end in pairwise(changes):
        active = [edge for edge in edges if edge[2] <= begin < edge[2] + chunks]
        rounds.append(replace(_mixed(active, nbytes / chunks), times=end - begin))
    assert changes[-1] == last
    return tuple(rounds)


def _mixed(edges: list[tuple[int, int, int, bool]], nbytes: float) -> Round:
    """Upward and downward messages of one round, which overlap at every inner vertex; adding is charged for all."""
    return one_round([(one, other) for one, other, *_ in edges], nbytes, any(up for *_, up in edges))


# --- others ----------------------------------------------------------------------------------------------------------


def dissemination(p: int) -> Rounds:
    """A barrier: in round k everybody tells the rank 2^k after it."""
    here = np.arange(p)
    return tuple(Round(here, (here + 2**k) % p, np.zeros(p)) for k in range((p - 1).bit_length()))


def two_level(nodes: Sequence[Sequence[int]], nbytes: float) -> Rounds:
    """All-reduce: reduce-scatter inside each node, rings of equal shares between nodes, all-gather inside.

    Nodes of unlike sizes have leaders instead: reduced to them, a ring among them, broadcast from them.

    Args:
        nodes: the places on each node.
    """
    size = len(nodes[0])
    if all(len(node) == size for node in nodes):
        scatter = side_by_side([among(node, ring_reduce_scatter(size, nbytes)) for node in nodes])
        between = side_by_side(
            [among(shard, ring_all_reduce(len(nodes), nbytes / size)) for shard in zip(*nodes, strict=True)]
        )
        gather = side_by_side([among(node, ring_all_gather(size, nbytes)) for node in nodes])
        return scatter + between + gather
    up = [one for node in nodes for one in among(node, binomial_reduce(len(node), nbytes))]
    down = [one for node in nodes for one in among(node, binomial_broadcast(len(node), nbytes))]
    return (*up, *among([node[0] for node in nodes], ring_all_reduce(len(nodes), nbytes)), *down)


def shared_memory(nodes: Sequence[Sequence[int]], nbytes: float) -> Rounds:
    """All-reduce: all ranks of a node put theirs into its leader's memory at once, a ring of leaders, all read at once.

    Args:
        nodes: the places on each node; the first is its leader.
    """
    ups = [one_round([(place, node[0]) for place in node[1:]], nbytes, True) for node in nodes if len(node) > 1]
    downs = [one_round([(node[0], place) for place in node[1:]], nbytes) for node in nodes if len(node) > 1]
    return (*ups, *among([node[0] for node in nodes], ring_all_reduce(len(nodes), nbytes)), *downs)


@dataclass(frozen=True, slots=True)
class Setting:
    """What a builder may need to know: the ranks' number, the bytes, the root, which places share a machine."""

    p: int
    nbytes: float
    root: int
    nodes: tuple[tuple[int, ...], ...]


def _parts(*parts: Rounds) -> Pattern:
    return Pattern(tuple(part for part in parts if part))


PATTERNS: dict[Kind, dict[str, Callable[[Setting], Pattern]]] = {
    "AllReduce": {
        "ring": lambda s: _parts(ring_all_reduce(s.p, s.nbytes)),
        "recursive-doubling": lambda s: _parts(recursive_doubling(s.p, s.nbytes)),
        "halving-doubling": lambda s: _parts(halving_doubling(s.p, s.nbytes)),
        "binomial-tree": lambda s: _parts(tree_all_reduce(s.p, s.nbytes)),
        "double-tree": lambda s: _parts(*double_tree(s.p, s.nbytes)),
        "two-level": lambda s: _parts(two_level(s.nodes, s.nbytes)),
        "shared-memory": lambda s: _parts(shared_memory(s.nodes, s.nbytes)),
    },
    "Reduce": {"binomial-tree": lambda s: _parts(binomial_reduce(s.p, s.nbytes, s.root))},
    "Broadcast": {
        "binomial-tree": lambda s: _parts(binomial_broadcast(s.p, s.nbytes, s.root)),
        "scatter-gather": lambda s: _parts(scatter_gather_broadcast(s.p, s.nbytes, s.root)),
    },
    "AllGather": {
        "ring": lambda s: _parts(ring_all_gather(s.p, s.nbytes)),
        "recursive-doubling": lambda s: _parts(doubling_all_gather(s.p, s.nbytes)),
    },
    "ReduceScatter": {
        "ring": lambda s: _parts(ring_reduce_scatter(s.p, s.nbytes)),
        "halving": lambda s: _parts(recursive_halving(s.p, s.nbytes)),
    },
    "Barrier": {"dissemination": lambda s: _parts(dissemination(s.p))},
}
"""how each kind of collective can be done, by name"""


def build(kind: Kind, name: str, setting: Setting) -> Pattern:
    """The pattern of a collective."""
    return PATTERNS[kind][name](setting) if setting.p > 1 else Pattern(())
