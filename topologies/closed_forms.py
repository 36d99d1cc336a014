"""Closed forms: the time of collectives when nothing else uses the network.

Every rank sends one message and receives one at a time, both at once (full duplex), all equally fast. A message of n
bytes takes α + n β; reducing n bytes takes another n γ. All members enter at the same moment. p is the number of ranks,
`nbytes` the size of one rank's whole vector (for gathers: of the gathered result), `alpha_s` α in seconds,
`beta_s_per_byte` β and `gamma_s_per_byte` γ in seconds per byte; the result is in seconds.

Sources: Thakur, Rabenseifner, Gropp, IJHPCA 2005, and MPICH, corrected where a message-level simulation
disagrees (noted below).
"""

from __future__ import annotations

from math import ceil
from typing import Literal

from paceline.algorithms.core.errors import InputError


def ring_all_reduce_s(
    p: int, nbytes: float, alpha_s: float, beta_s_per_byte: float, gamma_s_per_byte: float = 0.0
) -> float:
    """Returns the time of a ring all-reduce: p − 1 steps that reduce, p − 1 that gather, of n/p bytes each.

    2(p−1) α + 2(p−1)/p n β + (p−1)/p n γ, for any p; meets the bandwidth bound of Patarasuk and Yuan 2009.

    Args:
        p: number of ranks.
        nbytes: bytes of the vector of one rank.
        alpha_s: α, latency of a message in seconds.
        beta_s_per_byte: β, seconds per byte transferred.
        gamma_s_per_byte: γ, seconds per byte reduced.

    Returns:
        The time in seconds.

    >>> ring_all_reduce_s(4, 1000, alpha_s=1.0, beta_s_per_byte=0.01, gamma_s_per_byte=0.001)
    21.75
    """
    share = (p - 1) / p * nbytes
    return 2 * (p - 1) * alpha_s + 2 * share * beta_s_per_byte + share * gamma_s_per_byte


def recursive_doubling_s(
    p: int, nbytes: float, alpha_s: float, beta_s_per_byte: float, gamma_s_per_byte: float = 0.0
) -> float:
    """Returns the time of recursive doubling: partners at distance 1, 2, 4 … exchange whole vectors.

    lg p (α + n β + n γ) for powers of two; else, with f = ⌊lg p⌋, (f+2) α + (f+2) n β + (f+1) n γ: the ranks beyond
    2^f are folded in before and out after.

    Args:
        p: number of ranks.
        nbytes: bytes of the vector of one rank.
        alpha_s: α, latency of a message in seconds.
        beta_s_per_byte: β, seconds per byte transferred.
        gamma_s_per_byte: γ, seconds per byte reduced.

    Returns:
        The time in seconds.

    >>> recursive_doubling_s(4, 1000, alpha_s=1.0, beta_s_per_byte=0.01), recursive_doubling_s(6, 1000, 1.0, 0.01)
    (22.0, 44.0)
    """
    steps, power = _log2(p)
    rounds, sums = (steps, steps) if power == p else (steps + 2, steps + 1)
    return rounds * (alpha_s + nbytes * beta_s_per_byte) + sums * nbytes * gamma_s_per_byte


def halving_doubling_s(
    p: int, nbytes: float, alpha_s: float, beta_s_per_byte: float, gamma_s_per_byte: float = 0.0
) -> float:
    """Returns the time of Rabenseifner's all-reduce: reduce-scatter by halving, all-gather by doubling.

    2 lg p α + 2(p−1)/p n β + (p−1)/p n γ for powers of two; else, with f = ⌊lg p⌋ and q = 2^f,
    (2f+2) α + (2(q−1)/q + 2) n β + (1 + (q−1)/q) n γ. MPICH's comment prints p where q belongs.

    Args:
        p: number of ranks.
        nbytes: bytes of the vector of one rank.
        alpha_s: α, latency of a message in seconds.
        beta_s_per_byte: β, seconds per byte transferred.
        gamma_s_per_byte: γ, seconds per byte reduced.

    Returns:
        The time in seconds.

    >>> halving_doubling_s(4, 1000, alpha_s=1.0, beta_s_per_byte=0.01), halving_doubling_s(6, 1000, 1.0, 0.01)
    (19.0, 41.0)
    """
    steps, power = _log2(p)
    share, folded = (power - 1) / power, 0 if power == p else 1
    rounds = 2 * (steps + folded) * alpha_s
    return rounds + 2 * (share + folded) * nbytes * beta_s_per_byte + (share + folded) * nbytes * gamma_s_per_byte


def binomial_tree_s(
    p: int, nbytes: float, alpha_s: float, beta_s_per_byte: float, gamma_s_per_byte: float = 0.0
) -> float:
    """Returns the time of a broadcast down a binomial tree or, with γ, of a reduction up one.

    ⌈lg p⌉ (α + n β + n γ)

    Args:
        p: number of ranks.
        nbytes: bytes of the vector of one rank.
        alpha_s: α, latency of a message in seconds.
        beta_s_per_byte: β, seconds per byte transferred.
        gamma_s_per_byte: γ, seconds per byte reduced.

    Returns:
        The time in seconds.

    >>> binomial_tree_s(5, 1000, alpha_s=1.0, beta_s_per_byte=0.01)
    33.0
    """
    return _ceil_log2(p) * (alpha_s + nbytes * (beta_s_per_byte + gamma_s_per_byte))


def tree_all_reduce_s(
    p: int, nbytes: float, alpha_s: float, beta_s_per_byte: float, gamma_s_per_byte: float = 0.0
) -> float:
    """Returns the time of an all-reduce as a reduction up a binomial tree and a broadcast down it.

    ⌈lg p⌉ (2 α + 2 n β + n γ)

    Args:
        p: number of ranks.
        nbytes: bytes of the vector of one rank.
        alpha_s: α, latency of a message in seconds.
        beta_s_per_byte: β, seconds per byte transferred.
        gamma_s_per_byte: γ, seconds per byte reduced.

    Returns:
        The time in seconds.

    >>> tree_all_reduce_s(4, 1000, alpha_s=1.0, beta_s_per_byte=0.01)
    44.0
    """
    up = binomial_tree_s(p, nbytes, alpha_s, beta_s_per_byte, gamma_s_per_byte)
    return up + binomial_tree_s(p, nbytes, alpha_s, beta_s_per_byte)


def scatter_all_gather_broadcast_s(p: int, nbytes: float, alpha_s: float, beta_s_per_byte: float) -> float:
    """Returns the time of van de Geijn's broadcast: scatter down a binomial tree, then ring all-gather.

    (⌈lg p⌉ + p − 1) α + 2(p−1)/p n β

    Args:
        p: number of ranks.
        nbytes: bytes of the vector of one rank.
        alpha_s: α, latency of a message in seconds.
        beta_s_per_byte: β, seconds per byte transferred.

    Returns:
        The time in seconds.

    >>> scatter_all_gather_broadcast_s(4, 1000, alpha_s=1.0, beta_s_per_byte=0.01)
    20.0
    """
    return (_ceil_log2(p) + p - 1) * alpha_s + 2 * (p - 1) / p * nbytes * beta_s_per_byte


def ring_all_gather_s(p: int, nbytes: float, alpha_s: float, beta_s_per_byte: float) -> float:
    """Returns the time of a ring all-gather, with n bytes gathered.

    (p−1) α + (p−1)/p n β

    Args:
        p: number of ranks.
        nbytes: bytes of the gathered result.
        alpha_s: α, latency of a message in seconds.
        beta_s_per_byte: β, seconds per byte transferred.

    Returns:
        The time in seconds.

    >>> ring_all_gather_s(4, 1000, alpha_s=1.0, beta_s_per_byte=0.01)
    10.5
    """
    return (p - 1) * alpha_s + (p - 1) / p * nbytes * beta_s_per_byte


def doubling_all_gather_s(p: int, nbytes: float, alpha_s: float, beta_s_per_byte: float) -> float:
    """Returns the time of an all-gather by recursive doubling, with n bytes gathered; p must be a power of two.

    lg p α + (p−1)/p n β

    Args:
        p: number of ranks.
        nbytes: bytes of the gathered result.
        alpha_s: α, latency of a message in seconds.
        beta_s_per_byte: β, seconds per byte transferred.

    Returns:
        The time in seconds.

    Raises:
        InputError: p is not a power of two.

    >>> doubling_all_gather_s(4, 1000, alpha_s=1.0, beta_s_per_byte=0.01)
    9.5
    """
    return _exact_log2(p) * alpha_s + (p - 1) / p * nbytes * beta_s_per_byte


def pairwise_reduce_scatter_s(
    p: int, nbytes: float, alpha_s: float, beta_s_per_byte: float, gamma_s_per_byte: float = 0.0
) -> float:
    """Returns the time of a pairwise reduce-scatter: in step k, rank i sends to i + k and receives its part from i − k.

    (p−1) α + (p−1)/p n (β + γ)

    Args:
        p: number of ranks.
        nbytes: bytes of the vector of one rank.
        alpha_s: α, latency of a message in seconds.
        beta_s_per_byte: β, seconds per byte transferred.
        gamma_s_per_byte: γ, seconds per byte reduced.

    Returns:
        The time in seconds.

    >>> pairwise_reduce_scatter_s(4, 1000, alpha_s=1.0, beta_s_per_byte=0.01)
    10.5
    """
    return (p - 1) * alpha_s + (p - 1) / p * nbytes * (beta_s_per_byte + gamma_s_per_byte)


def halving_reduce_scatter_s(
    p: int, nbytes: float, alpha_s: float, beta_s_per_byte: float, gamma_s_per_byte: float = 0.0
) -> float:
    """Returns the time of a reduce-scatter by recursive halving; p must be a power of two.

    lg p α + (p−1)/p n (β + γ)

    Args:
        p: number of ranks.
        nbytes: bytes of the vector of one rank.
        alpha_s: α, latency of a message in seconds.
        beta_s_per_byte: β, seconds per byte transferred.
        gamma_s_per_byte: γ, seconds per byte reduced.

    Returns:
        The time in seconds.

    Raises:
        InputError: p is not a power of two.

    >>> halving_reduce_scatter_s(4, 1000, alpha_s=1.0, beta_s_per_byte=0.01)
    9.5
    """
    return _exact_log2(p) * alpha_s + (p - 1) / p * nbytes * (beta_s_per_byte + gamma_s_per_byte)


SUMS = ("AllReduce", "Reduce")
"""collectives whose sum the members of a node may share"""


def shared_memory_passes(kind: str, p: int, pieces: float = 1.0, *, shares: bool = False) -> float:
    """Returns how many times n bytes the busiest core of a node moves for a collective in shared memory.

    A core writes its value into a slot: 2 n. It reads the slots of all p members and adds: (2 p − 1) n. If members
    share a sum, each adds 1/p of it and publishes that, and whoever gets the result reads the others. While members
    read a piece of a broadcast, its root writes the next one.

    Args:
        kind: `AllReduce`, `Reduce`, `Broadcast`, `AllGather` or `Barrier`.
        p: number of ranks.
        pieces: in how many pieces a value passes the memory.
        shares: whether the members share the work of a sum.

    >>> [shared_memory_passes(kind, 4) for kind in ("AllReduce", "Reduce", "Broadcast", "AllGather")]
    [9, 9, 4.0, 2.5]
    >>> shared_memory_passes("AllReduce", 4, shares=True)
    6.25
    """
    if shares and kind in SUMS:
        return 4 + (2 * p + 1) / p
    sums = 2 * p + 1
    return {"AllReduce": sums, "Reduce": sums, "Broadcast": 2 + 2 / pieces, "AllGather": 2 + 2 / p, "Barrier": 0}[kind]


def shared_memory_s(
    kind: str,
    p: int,
    nbytes: float,
    alpha_s: float,
    beta_s_per_byte: float,
    pieces: float = 1.0,
    *,
    shares: bool = False,
) -> float:
    """Returns the time of a collective in the memory of a node.

    For each piece α, or 2 α if the members share a sum, and passes · n β.

    Args:
        kind: as of `shared_memory_passes`.
        p: number of ranks.
        nbytes: bytes of the vector of one rank; of a gather, of the gathered result.
        alpha_s: α, the time until another core sees a counter, in seconds.
        beta_s_per_byte: β, seconds per byte that a core reads or writes.
        pieces: in how many pieces a value passes the memory.
        shares: whether the members share the work of a sum.

    Returns:
        The time in seconds.

    >>> shared_memory_s("AllReduce", 4, 1000, alpha_s=1.0, beta_s_per_byte=0.01)
    91.0
    """
    turns = ceil(pieces) * (2 if shares and kind in SUMS else 1)
    return turns * alpha_s + shared_memory_passes(kind, p, pieces, shares=shares) * nbytes * beta_s_per_byte


def barrier_s(p: int, alpha_s: float) -> float:
    """Returns the time of a dissemination barrier (Hensgen, Finkel, Manber 1988): in step k, rank i signals i + 2^k.

    ⌈lg p⌉ α

    Args:
        p: number of ranks.
        alpha_s: α, latency of a message in seconds.

    Returns:
        The time in seconds.

    >>> barrier_s(5, alpha_s=2.0)
    6.0
    """
    return _ceil_log2(p) * alpha_s


def bus_bytes_per_s(
    kind: Literal["all-reduce", "reduce-scatter", "all-gather", "broadcast", "reduce"],
    p: int,
    nbytes: float,
    seconds: float,
) -> float:
    """Returns the bus bandwidth as nccl-tests prints it: comparable with the hardware's for any p.

    n/t · 2(p−1)/p for all-reduce, (p−1)/p for reduce-scatter and all-gather, 1 for broadcast and reduce
    (nccl-tests, doc/PERFORMANCE.md).

    Args:
        kind: the collective.
        p: number of ranks.
        nbytes: bytes of the vector of one rank.
        seconds: the measured time t of the collective.

    Returns:
        The bus bandwidth in bytes per second.

    >>> bus_bytes_per_s("all-reduce", 4, 1000, 1.0)
    1500.0
    """
    factor = {"all-reduce": 2 * (p - 1) / p, "reduce-scatter": (p - 1) / p, "all-gather": (p - 1) / p}.get(kind, 1.0)
    return nbytes / seconds * factor


def _log2(p: int) -> tuple[int, int]:
    """Returns ⌊lg p⌋ and 2 to this power."""
    steps = p.bit_length() - 1
    return steps, 1 << steps


def _ceil_log2(p: int) -> int:
    return (p - 1).bit_length()


def _exact_log2(p: int) -> int:
    steps, power = _log2(p)
    if power != p:
        raise InputError(f"found {p} ranks; this pattern needs a power of two")
    return steps
