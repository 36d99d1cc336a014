"""The paths of a plan's messages as arrays, each path once.

The path of a message depends only on its two ends and its bytes, so equal messages of different rounds are looked up
once. Ports are numbered in the order in which paths first pass them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paceline.algorithms.core.values import Rank
from paceline.simulator.collectives.rounds import Amounts, Pattern
from paceline.simulator.flows.fabric import Path
from paceline.simulator.flows.flow_engine import Port
from paceline.simulator.flows.path_tables import FindPaths, PathTable

Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class MessagePaths:
    """The path of each message of a pattern.

    Args:
        of: for each part and round, the number of each message's path.
        source: the sender's place, for each path.
        target: the receiver's place, for each path.
        latency_s: the latency of each path.
        limit_bytes_per_s: the largest rate of a message on each path; infinity without a limit.
        first: the index in `passes` at which the ports of each path begin; one more entry at the end.
        passes: the numbers of the ports of all paths, path after path.
        ports: the name of each port.
    """

    of: tuple[tuple[Numbers, ...], ...]
    source: Numbers
    target: Numbers
    latency_s: Amounts
    limit_bytes_per_s: Amounts
    first: Numbers
    passes: Numbers
    ports: tuple[Port, ...]

    @property
    def hops(self) -> Numbers:
        """The number of ports of each path."""
        return np.diff(self.first)

    def by_path(self, nbytes: Amounts) -> Amounts:
        """Returns the bytes on each path, given those of each message in the order of parts and rounds."""
        if not self.of:
            return np.zeros(0)
        of = np.concatenate([one for part in self.of for one in part])
        return np.bincount(of, nbytes, len(self.source)).astype(np.float64, copy=False)

    def by_port(self, of_path: Amounts) -> Amounts:
        """Returns the bytes through each port, given those of each path."""
        return np.bincount(self.passes, np.repeat(of_path, self.hops), len(self.ports)).astype(np.float64, copy=False)

    def capacities(self, capacity: Mapping[Port, float]) -> Amounts:
        """Returns the bytes per second of each port."""
        return np.array([capacity[port] for port in self.ports], dtype=float)

    def most(self, of_ports: Amounts) -> Amounts:
        """Returns the maximum over the ports of each path, given a value of each port; 0 for a path without ports."""
        found = np.zeros(len(self.source))
        if len(some := np.flatnonzero(self.hops)):
            found[some] = np.maximum.reduceat(of_ports[self.passes], self.first[some])
        return found


MANY = 256
"""number of paths from which they are looked up at once: fewer are looked up singly in the same time"""


def find_paths(
    pattern: Pattern,
    ranks: tuple[Rank, ...],
    path: Callable[[Rank, Rank, float], Path],
    many: FindPaths | None = None,
) -> MessagePaths:
    """Looks up every path of a pattern once.

    Args:
        pattern: the messages.
        ranks: the rank at each place of the group.
        path: returns the path from one rank to another, given the bytes.
        many: returns the same paths for many messages; None: `path` is called for each.
    """
    rounds = [one for part in pattern.parts for one in part]
    ends = np.concatenate([one.sources * len(ranks) + one.targets for one in rounds] or [np.zeros(0, dtype=np.int64)])
    nbytes = np.concatenate([one.nbytes for one in rounds] or [np.zeros(0)])
    sizes, size_of = np.unique(nbytes, return_inverse=True)
    keys, path_of = np.unique(ends * max(len(sizes), 1) + size_of, return_inverse=True)
    pairs, kinds = np.divmod(keys, max(len(sizes), 1))
    source, target = np.divmod(pairs, len(ranks))
    cuts = iter(np.split(path_of, np.cumsum([len(one.sources) for one in rounds])[:-1]) if rounds else ())
    of = tuple(tuple(next(cuts) for _ in part) for part in pattern.parts)
    if many is not None and len(source) >= MANY:
        members = np.array(ranks, dtype=np.int64)
        table = many(members[source], members[target], sizes[kinds])  # type: ignore[arg-type]
        if table is not None:
            passes, ports = _in_order(table)
            return MessagePaths(
                of, source, target, table.latency_s, table.limit_bytes_per_s, table.first, passes, tuple(ports)
            )
    found = [
        path(ranks[one], ranks[other], size)
        for one, other, size in zip(source.tolist(), target.tolist(), sizes[kinds].tolist(), strict=True)
    ]
    number: dict[Port, int] = {}
    passes_of = [number.setdefault(port, len(number)) for one in found for port in one.ports]
    return MessagePaths(
        of=of,
        source=source,
        target=target,
        latency_s=np.array([one.latency_s for one in found], dtype=float),
        limit_bytes_per_s=np.array([one.limit_bytes_per_s for one in found], dtype=float),
        first=np.cumsum([0, *(len(one.ports) for one in found)]),
        passes=np.array(passes_of, dtype=np.int64),
        ports=tuple(number),
    )


def _in_order(table: PathTable) -> tuple[Numbers, list[Port]]:
    """Returns the ports of all paths, numbered in the order in which paths first pass them, and their names."""
    used, at, again = np.unique(table.passes, return_index=True, return_inverse=True)
    order = np.argsort(at)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return rank[again], table.names(used[order])
