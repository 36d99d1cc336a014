"""The main memory of nodes: what all cores of a node together, and one core alone, read and write per second.

Figures count traffic, so a copy of n bytes moves 2 n (STREAM's count). They are those of the host's `ChargeRates`.
"""

from __future__ import annotations

from dataclasses import dataclass

from paceline.topologies.catalogue.charge_rates import DEFAULT_HOST, DEFAULT_SOCKETS, ChargeRates, host_rates
from paceline.topologies.catalogue.device_names import named


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMemory:
    """The bandwidth of a node's main memory.

    Args:
        bytes_per_s: the sustained traffic of all cores together.
        core_bytes_per_s: the sustained traffic of one core, outside its cache.
        provenance: where the two figures come from.

    >>> HostMemory(bytes_per_s=100e9, core_bytes_per_s=10e9, provenance="an example").copy_bytes_per_s
    5000000000.0
    """

    bytes_per_s: float
    core_bytes_per_s: float
    provenance: str

    @property
    def copy_bytes_per_s(self) -> float:
        """The bytes that one core copies per second: it reads and writes each."""
        return self.core_bytes_per_s / 2


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
    _, core = rates.bandwidths[-1]
    return HostMemory(
        bytes_per_s=factor * rates.total_bytes_per_s, core_bytes_per_s=factor * core, provenance=rates.provenance
    )
