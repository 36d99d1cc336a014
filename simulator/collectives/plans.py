"""The plan of a collective: its pattern, its members and the paths of its messages."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np

from paceline.algorithms.core.values import Rank
from paceline.simulator.collectives.patterns import Pattern
from paceline.simulator.flows.flow_engine import Port
from paceline.simulator.flows.path_tables import Amounts, FindPaths, Numbers, Path, in_order


@dataclass(frozen=True, eq=False)
class MessagePaths:
    """The path of each message of a pattern, each path once. Ports are numbered in the order in which paths pass them.

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

    @cached_property
    def of_message(self) -> Numbers:
        """The number of each message's path, in the order of parts and rounds."""
        return np.concatenate([np.zeros(0, dtype=np.int64), *(numbers for part in self.of for numbers in part)])

    @cached_property
    def hops(self) -> Numbers:
        """The number of ports of each path."""
        return np.diff(self.first)

    @cached_property
    def routes(self) -> list[tuple[Port, ...]]:
        """The ports of each path."""
        return [tuple(self.ports[port] for port in self.passes[a:b]) for a, b in pairwise(self.first.tolist())]

    @cached_property
    def singly(self) -> list[Path]:
        """The path of each message, in the order of parts and rounds."""
        numbers = zip(self.routes, self.latency_s.tolist(), self.limit_bytes_per_s.tolist(), strict=True)
        paths = [Path(route, latency_s, limit_bytes_per_s=limit) for route, latency_s, limit in numbers]
        return [paths[at] for at in self.of_message.tolist()]

    def by_path(self, nbytes: Amounts) -> Amounts:
        """Returns the bytes on each path, given those of each message in the order of parts and rounds."""
        return np.bincount(self.of_message, nbytes, len(self.source)).astype(np.float64, copy=False)

    def by_port(self, of_path: Amounts) -> Amounts:
        """Returns the bytes through each port, given those of each path."""
        return np.bincount(self.passes, np.repeat(of_path, self.hops), len(self.ports)).astype(np.float64, copy=False)

    def capacities(self, capacity: Mapping[Port, float]) -> Amounts:
        """Returns the bytes per second of each port."""
        return np.array([capacity[port] for port in self.ports], dtype=float)

    def most(self, of_ports: Amounts) -> Amounts:
        """Returns the maximum over the ports of each path, given a value of each port; 0 for a path without ports."""
        most = np.zeros(len(self.source))
        if len(some := np.flatnonzero(self.hops)):
            most[some] = np.maximum.reduceat(of_ports[self.passes], self.first[some])
        return most


def find_paths(pattern: Pattern, ranks: tuple[Rank, ...], find: FindPaths) -> MessagePaths:
    """Looks up every path of a pattern once: messages of equal ends and bytes have the same path.

    Args:
        pattern: the messages.
        ranks: the rank at each place of the group.
        find: returns the paths of messages.
    """
    rounds = [round_ for part in pattern.parts for round_ in part]
    ends = np.concatenate(
        [np.zeros(0, dtype=np.int64), *(round_.sources * len(ranks) + round_.targets for round_ in rounds)]
    )
    sizes, size_of = np.unique(
        np.concatenate([np.zeros(0), *(round_.nbytes for round_ in rounds)]), return_inverse=True
    )
    keys, path_of = np.unique(ends * max(len(sizes), 1) + size_of, return_inverse=True)
    pairs, kinds = np.divmod(keys, max(len(sizes), 1))
    source, target = np.divmod(pairs, len(ranks))
    cuts = iter(np.split(path_of, np.cumsum([len(round_.sources) for round_ in rounds])[:-1]) if rounds else ())
    of = tuple(tuple(next(cuts) for _ in part) for part in pattern.parts)
    members = np.array(ranks, dtype=np.int64)
    table = find(members[source], members[target], sizes[kinds])
    passes, used = in_order(table.passes)
    ports = tuple(table.names(used))
    return MessagePaths(of, source, target, table.latency_s, table.limit_bytes_per_s, table.first, passes, ports)


@dataclass(frozen=True, eq=False)
class CollectivePlan:
    """Everything that is needed to execute a pattern.

    Args:
        pattern: the messages.
        ranks: the rank at each place of the group.
        find: returns the paths of messages from one rank to another, given their bytes.
        reduce_s_per_byte: γ, the seconds that a receiver needs to add a byte.
        base_s: seconds before the first message.
        broken: returns the links that are broken at present, on which the paths depend.
    """

    pattern: Pattern
    ranks: tuple[Rank, ...]
    find: FindPaths
    reduce_s_per_byte: float = 0.0
    base_s: float = 0.0
    broken: Callable[[], Hashable] = lambda: None
    _known: dict[Hashable, MessagePaths] = field(default_factory=dict, init=False, repr=False)
    """the paths for each set of broken links"""

    def present_paths(self) -> MessagePaths:
        """Returns the paths of its messages at present."""
        if (broken := self.broken()) not in self._known:
            self._known[broken] = find_paths(self.pattern, self.ranks, self.find)
        return self._known[broken]

    @cached_property
    def message_paths(self) -> MessagePaths:
        """The paths of its messages at the time of the first access."""
        return self.present_paths()
