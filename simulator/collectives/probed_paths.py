"""The paths between places of a group, by which rings are laid out: their ports, bandwidths and media."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paceline.algorithms.core.values import Rank
from paceline.simulator.flows.fabric import Fabric
from paceline.simulator.flows.flow_engine import Port
from paceline.simulator.flows.path_tables import SLOWNESS, ManyPaths

Numbers = NDArray[np.int64]
Amounts = NDArray[np.float64]
PROBE_BYTES = 2.0**20
"""size of the messages by which hops are compared"""
MANY = 64
"""size of a group from which paths are looked up at once"""


@dataclass(frozen=True, slots=True, eq=False)
class ProbedPaths:
    """The paths of several pairs.

    Args:
        first: the index at which the ports of each path begin; one more entry at the end.
        passes: the numbers of the ports of all paths, path after path.
        capacity: their bytes per second.
        limit_bytes_per_s: the largest rate of a message on each path.
        nvlink: whether the slowest hop of each path is an NVLink.
        known: above the number of every port so far.
    """

    first: Numbers
    passes: Numbers
    capacity: Amounts
    limit_bytes_per_s: Amounts
    nvlink: NDArray[np.bool_]
    known: int

    @property
    def hops(self) -> Numbers:
        """The number of ports of each path."""
        return np.diff(self.first)

    @property
    def rates(self) -> Amounts:
        """The bandwidth of each path."""
        found = self.limit_bytes_per_s.copy()
        if len(some := np.flatnonzero(self.hops)):
            found[some] = np.minimum(found[some], np.minimum.reduceat(self.capacity, self.first[some]))
        return found

    def slowest_ports(self) -> tuple[Numbers, Amounts]:
        """Returns the number of the slowest port of each path, the first one of equals, and its bytes per second."""
        path = np.repeat(np.arange(len(self.hops)), self.hops)
        order = np.lexsort((np.arange(len(path)), self.capacity, path))
        slowest = order[self.first[:-1]]
        return self.passes[slowest], self.capacity[slowest]


class Probes:
    """Looks up paths between places of a group.

    Args:
        fabric: the network.
        ranks: the rank at each place.
    """

    def __init__(self, fabric: Fabric, ranks: tuple[Rank, ...]) -> None:
        self._fabric, self._ranks = fabric, np.array(ranks, dtype=np.int64)
        self._together = isinstance(fabric, ManyPaths) and len(ranks) >= MANY
        self._numbers: dict[Port, int] = {}

    def find(self, ones: Numbers, others: Numbers) -> ProbedPaths:
        """Returns the paths of pairs of places.

        Args:
            ones: the first place of each pair.
            others: the last place of each pair.
        """
        sources, targets = self._ranks[ones], self._ranks[others]
        fabric, nbytes = self._fabric, np.full(len(ones), PROBE_BYTES)
        if self._together and isinstance(fabric, ManyPaths):
            found = fabric.paths(sources, targets, nbytes)  # type: ignore[arg-type]
            if found is not None:
                used, again = np.unique(found.passes, return_inverse=True)
                capacity = self._capacity(found.names(used))[again]
                nvlink = found.medium == SLOWNESS.index("nvlink")
                known = int(used.max(initial=-1)) + 1
                return ProbedPaths(found.first, found.passes, capacity, found.limit_bytes_per_s, nvlink, known)
        return self._singly(sources.tolist(), targets.tolist())

    def _singly(self, sources: Sequence[Rank], targets: Sequence[Rank]) -> ProbedPaths:
        paths = [self._fabric.path(one, other, PROBE_BYTES) for one, other in zip(sources, targets, strict=True)]
        ports = [port for path in paths for port in path.ports]
        passes = [self._numbers.setdefault(port, len(self._numbers)) for port in ports]
        return ProbedPaths(
            first=np.cumsum([0, *(len(path.ports) for path in paths)]),
            passes=np.array(passes, dtype=np.int64),
            capacity=self._capacity(ports),
            limit_bytes_per_s=np.array([path.limit_bytes_per_s for path in paths], dtype=float),
            nvlink=np.array([path.medium == "nvlink" for path in paths], dtype=bool),
            known=len(self._numbers),
        )

    def _capacity(self, ports: Sequence[Port]) -> Amounts:
        capacity = self._fabric.mean_capacity
        return np.array([capacity[port] for port in ports], dtype=float)
