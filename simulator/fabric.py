"""What messages cross: ports that they share, and the path from each rank to each other.

Rules of this file: a fabric knows where ranks sit and what joins them, and nothing of time. What it answers about one
pair is the same all along, until a link fails or is slowed down, of which its owner tells it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from paceline.algorithms.values import Rank
from paceline.simulator.flows import Port

Medium = Literal["memory", "nvlink", "pcie", "network"]
"""the slowest kind of hop on a path, in this order: what a communication library tunes itself for"""


@dataclass(frozen=True, slots=True)
class Path:
    """How a message gets from one rank to another.

    Args:
        ports: what it shares with others, in order; each is one direction of a link, or a bus.
        latency_s: from the moment its last byte has passed the ports until it has arrived.
        medium: the slowest kind of hop on the way.
        limit_bytes_per_s: what one message gets at most, however idle the ports are.
    """

    ports: tuple[Port, ...]
    latency_s: float
    medium: Medium = "network"
    limit_bytes_per_s: float = math.inf


class Fabric(Protocol):
    """Where ranks sit and what joins them."""

    @property
    def capacity(self) -> Mapping[Port, float]:
        """Bytes per second of every port."""
        ...

    @property
    def reduce_s_per_byte(self) -> float:
        """γ: what adding a byte that has come to one's own costs."""
        ...

    def node_of(self, rank: Rank) -> int:
        """The index of the machine on which a rank sits."""
        ...

    def path(self, source: Rank, to: Rank, nbytes: float, flow: int = 0) -> Path:
        """The way of a message of so many bytes; `flow` tells apart those that may go different ways (ECMP)."""
        ...
