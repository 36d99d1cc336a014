"""Finds groups of ranks between which all paths are alike, such as the workers of nodes of one shape.

The paths between all pairs of members of a group are looked up, and their ports are numbered in the order in which
these paths first pass them. Two groups are alike if equal places are joined by paths over ports of equal numbers, whose
links and capacities are equal, and their members are on equal nodes. Then every pattern takes the same time in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.simulator.flows.flow_engine import Port

Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class AlikeGroups:
    """Groups of one size, by the paths between their members.

    Args:
        like: for each group, the first group that is alike, perhaps itself.
        ports: for each group, the ports of the paths of all pairs of members; alike groups use them equally.
    """

    like: tuple[int, ...]
    ports: tuple[tuple[Port, ...], ...]

    def renamed(self, group: int, ports: frozenset[Port]) -> frozenset[Port]:
        """Returns the ports of a group that correspond to those of the group that is alike.

        Args:
            group: the group.
            ports: ports of the paths of the group that is alike.

        >>> alike = AlikeGroups((0, 0), (("a>b", "b>a"), ("c>d", "d>c")))
        >>> alike.renamed(1, frozenset({"b>a"}))
        frozenset({'d>c'})
        """
        names = self.names(group)
        return frozenset(names[port] for port in ports)

    def names(self, group: int) -> dict[Port, Port]:
        """Returns the port of a group that corresponds to each port of the group that is alike, given its number."""
        return dict(zip(self.ports[self.like[group]], self.ports[group], strict=True))


def pairs(members: Numbers) -> tuple[Numbers, Numbers]:
    """Returns the sources and targets of all pairs of different members, group by group.

    Args:
        members: the ranks of each group, one row per group.

    >>> pairs(np.array([[4, 5]]))
    (array([4, 5]), array([5, 4]))
    """
    size = members.shape[1]
    one, other = np.nonzero(~np.eye(size, dtype=bool))
    return members[:, one].ravel(), members[:, other].ravel()


def in_order(passes: Numbers) -> tuple[Numbers, Numbers]:
    """Returns the passed ports, numbered in the order in which they are first passed, and the ports in this order.

    Args:
        passes: the numbers of ports, path after path.

    >>> in_order(np.array([7, 3, 7, 9]))
    (array([0, 1, 0, 2]), array([7, 3, 9]))
    """
    used, at, again = np.unique(passes, return_index=True, return_inverse=True)
    order = np.argsort(at)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return rank[again], used[order]


def firsts(signatures: Sequence[Any]) -> tuple[int, ...]:
    """Returns for each signature the place of the first equal one.

    >>> firsts(["a", "b", "a"])
    (0, 1, 0)
    """
    known: dict[Any, int] = {}
    return tuple(known.setdefault(one, place) for place, one in enumerate(signatures))
