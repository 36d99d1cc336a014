"""Finds cycles through the ranks of one node: the one whose slowest hop is fastest, and several that share no link.

Ranks are numbered 0 … g − 1, their places in the node, and links are given as matrices. A search tries places in
ascending order, so the order of a node whose hops are all alike does not change. It stops after a fixed number of tries
and returns the best cycle found. Nodes with more than 16 places are not searched, and their order does not change.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import islice

Matrix = tuple[tuple[float, ...], ...]
Lanes = tuple[tuple[int, ...], ...]
Cycle = tuple[int, ...]
LARGEST = 16
"""number of places of the largest node that is searched"""
TRIES = 20_000
"""largest number of places that a search for one cycle visits"""
FEWER = 50
"""number of cycles that are tried at each position of a list of disjoint cycles"""


@cache
def widest_cycle(rates: Matrix) -> Cycle:
    """Returns the cycle whose slowest hop is fastest, beginning at place 0. `rates` holds the bandwidth of each hop.

    >>> widest_cycle(((0, 1, 9, 9), (1, 0, 9, 9), (9, 9, 0, 1), (9, 9, 1, 0)))
    (0, 2, 1, 3)
    """
    g = len(rates)
    both = tuple(tuple(min(rates[i][j], rates[j][i]) for j in range(g)) for i in range(g))
    if 3 < g <= LARGEST:
        for least in sorted({rate for row in both for rate in row if rate > 0}, reverse=True):
            joined = tuple(tuple(int(rate >= least) for rate in row) for row in both)
            for cycle in cycles(joined):
                return cycle
    return tuple(range(g))


def cycles(lanes: Lanes) -> Iterator[Cycle]:
    """Yields the cycles along lanes through all places, in lexicographic order."""
    g, tried = len(lanes), 0
    path, nexts = [0], [iter(range(1, g))]
    while path and tried < TRIES:
        place = next(nexts[-1], None)
        tried += 1
        if place is None:
            path.pop()
            nexts.pop()
        elif lanes[path[-1]][place] and place not in path:
            path.append(place)
            nexts.append(iter(range(1, g)))
            if len(path) == g and lanes[place][0]:
                yield tuple(path)


@cache
def disjoint_cycles(lanes: Lanes) -> tuple[Cycle, ...]:
    """Returns as many cycles as it finds of which no two use the same lane.

    >>> disjoint_cycles(((0, 1, 1, 1, 1), (1, 0, 1, 1, 1), (1, 1, 0, 1, 1), (1, 1, 1, 0, 1), (1, 1, 1, 1, 0)))
    ((0, 1, 2, 3, 4), (0, 2, 4, 1, 3))
    """
    g = len(lanes)
    best: tuple[Cycle, ...] = ()
    most = min((sum(row) for row in lanes), default=0) // 2
    if not 3 <= g <= LARGEST or not most:
        return ()
    for cycle in islice(cycles(lanes), FEWER):
        found = (cycle, *disjoint_cycles(_without(lanes, cycle)))
        if len(found) > len(best):
            best = found
        if len(best) >= most:
            break
    return best


def _without(lanes: Lanes, cycle: Cycle) -> Lanes:
    left = [list(row) for row in lanes]
    for one, other in zip(cycle, (*cycle[1:], cycle[0]), strict=True):
        left[one][other] -= 1
        left[other][one] -= 1
    return tuple(map(tuple, left))
