"""Many repetitions of a buffered round at once, in closed form: the steps of a ring.

In one repetition of a round in which every rank sends to one other and receives from one, a rank i that was ready at
R(i) is ready at max(R(i) + s(i), R(p) + t(p)): it has sent its own message, or added what it received, after s(i), and
the message of the rank p before it needs t(p). So K repetitions are walks of K steps that go forward over j messages
and wait K − j times, at any of the ranks that they pass:

    R_K(i) = max over 0 ≤ j ≤ K, and ranks m from i − j to i, of  R(i − j) + Σ t over these messages + (K − j) s(m)

A ring has K = ranks − 1 repetitions, so no walk passes a message twice. For each different value of s, this is a
maximum over windows whose ends move forward with i, so that the cost is ranks × different values instead of ranks × K.
"""

from __future__ import annotations

import numpy as np

from paceline.simulator.collectives.rounds import Amounts, Places

MOST_VALUES = 64
"""different values of s up to which the closed form is used; with more, repetitions are computed one by one"""
AT_ONCE = 2**20
"""numbers in temporary arrays"""


def repeated(next_place: Places, ready: Amounts, stay: Amounts, step: Amounts, times: int) -> Amounts | None:
    """Returns when each rank is ready after repetitions of a round; None if the closed form does not apply.

    Args:
        next_place: the receiver of each place's message.
        ready: when each place enters, seconds.
        stay: s, the seconds of a place's own part.
        step: t, the seconds from when a place is ready until its receiver is done with its message.
        times: K, the number of repetitions.

    >>> import numpy as np
    >>> repeated(np.array([1, 2, 0]), np.zeros(3), np.array([1.0, 1.0, 5.0]), np.array([2.0, 2.0, 6.0]), 2)
    array([11.,  8., 10.])
    """
    values = np.unique(stay)
    rings = _rings(next_place)
    if len(values) > MOST_VALUES or rings is None or times != rings.shape[1] - 1:
        return None
    found = ready.copy()
    together = max(1, AT_ONCE // rings.shape[1])
    for low in range(0, len(rings), together):
        own = rings[low : low + together]
        found[own] = _around(ready[own], stay[own], step[own])
    return found


def _rings(next_place: Places) -> Places | None:
    """Returns the places of each ring in order, one row per ring; None if rings differ in length.

    The order of a ring is found by doubling: with the place 2^k further on known for all, so is that 2^(k + 1) on.
    """
    count = len(next_place)
    lowest, further, reached = np.arange(count), next_place, 1
    while reached < count:
        lowest, further, reached = np.minimum(lowest, lowest[further]), further[further], 2 * reached
    heads, sizes = np.unique(lowest, return_counts=True)
    length = int(sizes[0])
    if (sizes != length).any():
        return None
    rows = np.empty((len(heads), length), dtype=np.int64)
    rows[:, 0], filled, further = heads, 1, next_place
    while filled < length:
        more = min(filled, length - filled)
        rows[:, filled : filled + more] = further[rows[:, :more]]
        filled, further = 2 * filled, further[further]
    return rows


def _around(ready: Amounts, stay: Amounts, step: Amounts) -> Amounts:
    """Returns the result for rings whose places are in order, one row per ring.

    Places are unrolled to two rounds of the ring of L places. A walk to place L + i begins at i + 1 or later, because
    it has L − 1 steps. So its window begins in the first round or at the first place of the second one.
    """
    length = ready.shape[1]
    passed = np.cumsum(np.concatenate((np.zeros((len(ready), 1)), step, step[:, :-1]), axis=1), axis=1)
    twice = np.concatenate((ready, ready), axis=1)
    at = np.arange(2 * length)
    best = np.full(ready.shape, -np.inf)
    for value in np.unique(stay):
        waits = np.concatenate((stay == value, stay == value), axis=1)
        last = np.maximum.accumulate(np.where(waits, at, -1), axis=1)  # where the walk may have waited so long
        start = twice - passed + value * at
        early = last[:, length - 1 : length]
        # walks that begin in the first round and wait in it, or wait later
        from_first = _suffix(np.where(at[:length] <= early, start[:, :length], -np.inf))
        from_any = _suffix(start[:, :length])
        second = np.maximum.accumulate(start[:, length:], axis=1)
        place = last[:, length:] - length
        rows = np.arange(len(ready))[:, None]
        inside = np.where(place >= 0, second[rows, np.maximum(place, 0)], -np.inf)
        before = np.where(place >= 0, from_any[:, 1:], from_first[:, 1:])
        best = np.maximum(best, np.maximum(inside, before) + passed[:, length:] + value * (length - 1 - at[length:]))
    return best


def _suffix(values: Amounts) -> Amounts:
    """Returns the maximum from each column to the last one; −∞ for one more column."""
    found = np.maximum.accumulate(values[:, ::-1], axis=1)[:, ::-1]
    return np.concatenate((found, np.full((len(values), 1), -np.inf)), axis=1)
