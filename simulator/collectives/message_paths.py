"""The paths of a plan's messages as arrays: each path once, whatever number of messages takes it.

Rules of this file: a message's path depends on its two ends and its bytes alone, so rounds that send the same are
looked up once. Ports are numbered in the order in which paths first pass them.
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

Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class MessagePaths:
    """The path of each message of a pattern.

    Args:
        of: of each part and round: the number of each message's path.
        source: of each path: the place of its sender.
        target: of each path: the place of its receiver.
        latency_s: of each path, seconds.
        limit_bytes_per_s: of each path; infinite where messages have no limit of their own.
        first: where the ports of each path begin in `passes`; one more at the end.
        passes: the numbers of the ports that paths pass, one path after the other.
        ports: all ports, by number.
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
        """How many ports each path passes."""
        return np.diff(self.first)

    def capacities(self, capacity: Mapping[Port, float]) -> Amounts:
        """Bytes per second of each port."""
        return np.array([capacity[port] for port in self.ports], dtype=float)

    def most(self, of_ports: Amounts) -> Amounts:
        """Of each path: the largest of its ports' numbers; 0 where it passes none."""
        found = np.zeros(len(self.source))
        if len(some := np.flatnonzero(self.hops)):
            found[some] = np.maximum.reduceat(of_ports[self.passes], self.first[some])
        return found


def find_paths(pattern: Pattern, ranks: tuple[Rank, ...], path: Callable[[Rank, Rank, float], Path]) -> MessagePaths:
    """Looks up every path of a pattern once.

    Args:
        pattern: the messages.
        ranks: the member at each place.
        path: the path from one rank to another, given the bytes.
    """
    rounds = [one for part in pattern.parts for one in part]
    ends = np.concatenate([one.sources * len(ranks) + one.targets for one in rounds] or [np.zeros(0, dtype=np.int64)])
    nbytes = np.concatenate([one.nbytes for one in rounds] or [np.zeros(0)])
    sizes, size_of = np.unique(nbytes, return_inverse=True)
    keys, path_of = np.unique(ends * max(len(sizes), 1) + size_of, return_inverse=True)
    pairs, kinds = np.divmod(keys, max(len(sizes), 1))
    source, target = np.divmod(pairs, len(ranks))
    found = [
        path(ranks[one], ranks[other], size)
        for one, other, size in zip(source.tolist(), target.tolist(), sizes[kinds].tolist(), strict=True)
    ]
    number: dict[Port, int] = {}
    passes = [number.setdefault(port, len(number)) for one in found for port in one.ports]
    cuts = iter(np.split(path_of, np.cumsum([len(one.sources) for one in rounds])[:-1]) if rounds else ())
    return MessagePaths(
        of=tuple(tuple(next(cuts) for _ in part) for part in pattern.parts),
        source=source,
        target=target,
        latency_s=np.array([one.latency_s for one in found], dtype=float),
        limit_bytes_per_s=np.array([one.limit_bytes_per_s for one in found], dtype=float),
        first=np.cumsum([0, *(len(one.ports) for one in found)]),
        passes=np.array(passes, dtype=np.int64),
        ports=tuple(number),
    )
