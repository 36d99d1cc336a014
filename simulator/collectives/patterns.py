"""The message pattern of each kind of collective, by name.

* Members are numbered by their places in the group, 0 … p − 1. All builders take `p`, the number of ranks, and
  `nbytes`, the n of the closed forms: the bytes of one rank's whole vector or, for gathers, of the gathered result.
* The pattern of a single rank is empty.

Sources: Thakur, Rabenseifner and Gropp, IJHPCA 2005; MPICH; Sanders, Speck and Träff 2009 (double tree).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, pairwise
from typing import Literal

import numpy as np

from paceline.simulator.collectives.pipelined import CHUNK_BYTES, double_tree, nvls_tree
from paceline.simulator.collectives.rounds import Pattern, Round, Rounds, among, one_round, side_by_side

Kind = Literal["AllReduce", "Reduce", "Broadcast", "AllGather", "ReduceScatter", "Barrier"]


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
        return halving + tuple(replace(one, reduces=False) for one in reversed(halving))

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
    up = [one for node in nodes for one in among(node, binomial_reduce(len(node), nbytes))]
    down = [one for node in nodes for one in among(node, binomial_broadcast(len(node), nbytes))]
    return (*up, *among([node[0] for node in nodes], ring_all_reduce(len(nodes), nbytes)), *down)


def shared_memory(nodes: Sequence[Sequence[int]], nbytes: float) -> Rounds:
    """Returns an all-reduce by shared memory inside nodes.

    All ranks of a node write to its leader's memory at once, the leaders form a ring, and all ranks read at once.

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

    Both process segments at the same time: nodes one of them, leaders the one before.

    Args:
        nodes: the places on each node; the first is its leader.
        nbytes: bytes of one rank's vector.
    """
    up = [one for node in nodes for one in among(node, binomial_reduce(len(node), nbytes))]
    down = [one for node in nodes for one in among(node, binomial_broadcast(len(node), nbytes))]
    return (*up, *down), among([node[0] for node in nodes], tree_all_reduce(len(nodes), nbytes))


@dataclass(frozen=True, slots=True)
class Channel:
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
    channels: tuple[Channel, ...] = ()
    chunk_bytes: float = CHUNK_BYTES


def _parts(*parts: Rounds) -> Pattern:
    return Pattern(tuple(part for part in parts if part))


def _ring(s: Setting, ring: Callable[[int, float], Rounds]) -> Pattern:
    if s.channels:
        return _parts(*(among(one.order, ring(s.p, s.nbytes * one.share)) for one in s.channels))
    rounds = ring(s.p, s.nbytes)
    return _parts(among(s.order, rounds) if s.order else rounds)


def _double_tree(s: Setting) -> Pattern:
    nodes = s.nodes or tuple((place,) for place in range(s.p))
    rings = s.channels or (Channel(s.order or tuple(chain.from_iterable(nodes)), 1.0),)
    cuts = list(pairwise(accumulate(map(len, nodes), initial=0)))  # a ring visits the nodes in their order
    channels = [([one.order[first:last] for first, last in cuts], one.share) for one in rings]
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
