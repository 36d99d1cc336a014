"""Cycles through the ranks of one node: the one whose slowest hop is fastest, and several that share no link.

Places are 0 … g − 1, and links are given as matrices. Searches try places in order, so that a node whose hops are all
alike keeps its order. A search stops after a fixed number of tries and returns the best cycle found; nodes of more than
16 places keep their order.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import islice

Matrix = tuple[tuple[float, ...], ...]
Lanes = tuple[tuple[int, ...], ...]
Cycle = tuple[int, ...]
LARGEST = 16
"""places of the largest node that is searched"""
TRIES = 20_000
"""places that a search for one cycle visits at most"""
FEWER = 50
"""cycles that are tried at each position of a list of disjoint ones"""


@cache
def widest_cycle(rates: Matrix) -> Cycle:
    """The cycle whose slowest hop is fastest, beginning at place 0.

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
    """Cycles along lanes through all places, in lexicographic order."""
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
    """As many cycles as can be found of which no two use the same lane.

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
