"""The plan of a collective: its pattern, its members and the paths of its messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from paceline.algorithms.core.values import Rank
from paceline.simulator.collectives.message_paths import MessagePaths, find_paths
from paceline.simulator.collectives.rounds import Pattern
from paceline.simulator.flows.fabric import Path
from paceline.simulator.flows.flow_engine import Port
from paceline.simulator.flows.path_tables import FindPaths


@dataclass(frozen=True, eq=False)
class CollectivePlan:
    """Everything that is needed to execute a pattern.

    Args:
        pattern: the messages.
        ranks: the rank at each place of the group.
        path: returns the path of a message from one rank to another, given its bytes; it may change when links fail.
        reduce_s_per_byte: γ, the seconds that a receiver needs to add a byte.
        base_s: seconds before the first message.
        many: returns the same paths for many messages at once; None: each is looked up singly.
    """

    pattern: Pattern
    ranks: tuple[Rank, ...]
    path: Callable[[Rank, Rank, float], Path]
    reduce_s_per_byte: float = 0.0
    base_s: float = 0.0
    many: FindPaths | None = None

    @cached_property
    def message_paths(self) -> MessagePaths:
        """The paths of its messages at the time of the first access."""
        return find_paths(self.pattern, self.ranks, self.path, self.many)

    def ports(self) -> frozenset[Port]:
        """Returns all ports of `message_paths`."""
        return frozenset(self.message_paths.ports)

    def current_routes(self) -> list[tuple[Port, ...]]:
        """Looks up the paths again and returns the ports of each."""
        now = find_paths(self.pattern, self.ranks, self.path, self.many)
        return [tuple(now.ports[port] for port in now.passes[a:b]) for a, b in pairwise(now.first)]
