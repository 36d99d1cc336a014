"""The main memory of nodes: what all cores of a node together, and one core alone, read and write per second.

* Figures count traffic, so a copy of n bytes moves 2 n (STREAM's count). They are those of the host's `ChargeRates`.
* Collectives inside a node pass this memory: every member writes its value, piece by piece, into a slot of its own, and
  reads the slots of the others with its own core. `closed_forms.shared_memory_s` has their times, and the real
  backend's channels (`backend.transports.channel`) perform them with the sizes below.
"""

from __future__ import annotations

from dataclasses import dataclass

from paceline.topologies.catalogue.charge_rates import (
    DEFAULT_HOST,
    DEFAULT_SOCKETS,
    ChargeRates,
    host_rates,
    interpolated,
)
from paceline.topologies.catalogue.device_names import named

PIECE_BYTES = 2**22
"""bytes of a value in the memory at once; provenance: ours. With values of 0.8 and 8 MB at 2 and 4 ranks, 1 MiB and
more were equally fast on an idle machine. When other programs used the cores, every turn of waiting cost time, and 8 MB
took up to twice as long in pieces of 1 MiB"""
SHARERS, MUCH_BYTES = 4, 2**24
"""the smallest group that shares the work of a sum, and the fewest bytes that it adds up; provenance: measured by us on
two cores. With a core for each rank the second turn costs less, and sharing pays off earlier"""


def shares_sum(members: int, nbytes: float) -> bool:
    """Returns whether the members of a node share the work of a sum, since it pays for a second turn.

    Args:
        members: the number of members.
        nbytes: the bytes of one member's value.

    >>> shares_sum(4, 1e6), shares_sum(4, 1e7), shares_sum(2, 1e9)
    (False, True, False)
    """
    return members >= SHARERS and members * nbytes >= MUCH_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMemory:
    """The bandwidth of a node's main memory.

    Args:
        bytes_per_s: the sustained traffic of all cores together.
        core_bytes_per_s: the sustained traffic of one core, outside its cache.
        provenance: where the figures come from.
        cache_bytes: the size of its last cache; 0 if it is not known.
        cache_bytes_per_s: the sustained traffic of one core inside its last cache.

    >>> HostMemory(bytes_per_s=100e9, core_bytes_per_s=10e9, provenance="an example").copy_bytes_per_s
    5000000000.0
    """

    bytes_per_s: float
    core_bytes_per_s: float
    provenance: str
    cache_bytes: float = 0.0
    cache_bytes_per_s: float = 0.0

    @property
    def copy_bytes_per_s(self) -> float:
        """The bytes that one core copies per second: it reads and writes each."""
        return self.core_bytes_per_s / 2

    def core_rate(self, footprint: float) -> float:
        """Returns the traffic of one core per second, given the bytes that all cores use together.

        >>> memory = host_memory(None)
        >>> [memory.core_rate(size) / 1e9 for size in (1e6, 1e9)]
        [30.0, 12.0]
        """
        cache = self.cache_bytes
        if not cache:
            return self.core_bytes_per_s
        return interpolated(((cache, self.cache_bytes_per_s), (2 * cache, self.core_bytes_per_s)), footprint)


def host_memory(rates: ChargeRates | None, usual: float = 1.0) -> HostMemory:
    """Returns the main memory of a node.

    Args:
        rates: the rates of one core of its host; None: those of the usual server, `DEFAULT_HOST`.
        usual: how many times as fast as the usual server's the memory of an unknown host is.

    >>> memory = host_memory(None)
    >>> memory.bytes_per_s / 1e9, memory.core_bytes_per_s / 1e9
    (122.88, 12.0)
    """
    factor = usual if rates is None else 1.0
    if rates is None:
        rates = host_rates(named(DEFAULT_HOST), DEFAULT_SOCKETS)
    (cache, inside), (_, outside) = rates.bandwidths[0], rates.bandwidths[-1]
    return HostMemory(
        bytes_per_s=factor * rates.total_bytes_per_s,
        core_bytes_per_s=factor * outside,
        provenance=rates.provenance,
        cache_bytes=cache,
        cache_bytes_per_s=factor * inside,
    )
