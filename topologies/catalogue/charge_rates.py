"""The cost of charges: how fast a device or a core of a host reads, writes and computes.

    t = kernels · launch + max(passes · bytes / bandwidth, FLOPs / rate)

`passes` are the vectors that kernels read or write, see `paceline.algorithms.core.traffic`. On a device, every read and
every write counts. On a core, a vector that is overwritten where it was read counts once, because its cache lines move
to the core once. A device works with all its memory bandwidth. The work of one process on a host is done by one core,
which is slower than the memory of the host. Its bandwidth depends on whether the vectors fit into the cache.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paceline.algorithms.core.traffic import Traffic

if TYPE_CHECKING:
    from paceline.topologies.catalogue.device_catalogue import Spec

ARITHMETIC = 0.5
"""fraction of the peak in float32 that arithmetic without fused multiply-add reaches: DERIVED, a product and a sum are
two instructions instead of one"""
CORE_BYTES_PER_S = 12e9
"""one core outside its cache: MEMORY medium, 10 to 15 GB/s with STREAM on one core of Xeons from 2012 to 2018"""
CORE_CACHE_BYTES_PER_S = 30e9
"""one core inside its last cache: MEMORY medium, it sums at 10 GB/s, with two reads and a write for each byte"""
CACHE_BYTES_PER_CORE = 2.5e6
"""last cache per core: MEMORY high for Xeons from 2012 to 2016"""
CORE_FLOPS_PER_CYCLE = 8
"""float32 operations of one core per cycle without fused multiply-add: INFERENCE, one vector of 256 bits"""
CORE_HZ = 2.4e9
"""clock of a core if it is not known: INFERENCE"""
DEFAULT_HOST, DEFAULT_SOCKETS = "xeon-e5-2680v4", 2
"""the host of a node if it is not known: INFERENCE, the usual server in the years of Pascal and Volta"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChargeRates:
    """The rates of the place where a charge is executed.

    Args:
        bandwidths: pairs of bytes in use and bytes per second, in ascending order; in between, the time per byte is
            interpolated on a logarithmic scale of the bytes in use.
        flops_per_s: arithmetic rate.
        launch_s: the time to launch a kernel.
        total_bytes_per_s: the memory bandwidth that all processes of the place share.
        page_s_per_byte: additional time to write newly allocated memory, for allocations of `page_bytes` or more.
        page_bytes: the size from which memory is returned to the operating system when it is freed; 32 MiB is the
            largest that glibc keeps (DEFAULT_MMAP_THRESHOLD_MAX): MEMORY certain.
        rewrites: whether overwriting a vector that was just read costs as much as another pass.
        provenance: where the figures come from.

    >>> from paceline.algorithms.core.traffic import COMBINE
    >>> rates = ChargeRates(bandwidths=((0.0, 500e9),), flops_per_s=5e12, launch_s=10e-6, provenance="an example")
    >>> round(rates.seconds(100_000_000, COMBINE) * 1e6)  # 3 · 0.1 GB at 500 GB/s, and a launch
    610
    """

    bandwidths: tuple[tuple[float, float], ...]
    flops_per_s: float
    launch_s: float
    provenance: str
    total_bytes_per_s: float = math.inf
    page_s_per_byte: float = 0.0
    page_bytes: float = 32 * 2**20
    rewrites: bool = True

    def seconds(self, nbytes: float, traffic: Traffic, flops: float = 0.0) -> float:
        """Returns the time of a charge.

        Args:
            nbytes: the size of one vector.
            traffic: the vectors that are read and written.
            flops: floating-point operations; 0 if they are not more than the numbers that are read.
        """
        passes = traffic.passes - (0 if self.rewrites else traffic.in_place)
        moving_s = passes * nbytes / self.bytes_per_s(traffic.footprint * nbytes)
        paging_s = traffic.allocated * nbytes * self.page_s_per_byte if nbytes >= self.page_bytes else 0.0
        return traffic.kernels * self.launch_s + max(moving_s + paging_s, flops / self.flops_per_s)

    def bytes_per_s(self, footprint: float) -> float:
        """Returns the bandwidth for vectors of `footprint` bytes in all."""
        return interpolated(self.bandwidths, footprint)

    def reduce_s_per_byte(self, nbytes: float, sharing: int = 1) -> float:
        """Returns the time to add a received byte to a local one: two reads and a write.

        Args:
            nbytes: the size of the local vector.
            sharing: the number of processes of this place that add at the same time.
        """
        if 2 * nbytes <= CACHE_BYTES_PER_CORE:
            return 3 / self.bytes_per_s(2 * nbytes)
        return 3 / min(self.bytes_per_s(2 * nbytes), self.total_bytes_per_s / sharing)


def interpolated(bandwidths: tuple[tuple[float, float], ...], footprint: float) -> float:
    """Returns a bandwidth for `footprint` bytes in use, given pairs of bytes and bandwidth as in `ChargeRates`."""
    before = bandwidths[0]
    for size, rate in bandwidths:
        if footprint <= size:
            share = math.log(footprint / before[0]) / math.log(size / before[0]) if size > before[0] else 1.0
            return 1 / ((1 - share) / before[1] + share / rate)
        before = size, rate
    return before[1]


def device_rates(spec: Spec) -> ChargeRates:
    """Returns the rates of a device of the catalogue.

    >>> from paceline.topologies.catalogue.device_names import named
    >>> device_rates(named("p100")).bytes_per_s(1e9) / 1e9
    585.6
    """
    return ChargeRates(
        bandwidths=((0.0, spec.sustained_bytes_per_s),),
        flops_per_s=ARITHMETIC * spec.peak("fp32"),
        launch_s=spec.launch_s,
        provenance=f"memory of {spec.title}: {spec.provenance.get('memory_sustained_gb_per_s', 'measured')}",
    )


def host_rates(spec: Spec, sockets: int = 1) -> ChargeRates:
    """Returns the rates of one core of a host.

    Args:
        spec: its processor.
        sockets: the number of processors.

    >>> from paceline.topologies.catalogue.device_names import named
    >>> core = host_rates(named("xeon-e5-2670"))
    >>> [core.bytes_per_s(size) / 1e9 for size in (1e6, 1e9)]
    [30.0, 11.0]
    """
    inside = spec.core_cache_bytes_per_s or CORE_CACHE_BYTES_PER_S
    outside = min(spec.core_bytes_per_s or CORE_BYTES_PER_S, inside)
    cache = spec.cache_bytes or CACHE_BYTES_PER_CORE * (spec.cores or 1)
    cycles = CORE_HZ if spec.hertz is None else spec.hertz
    return ChargeRates(
        bandwidths=((cache, inside), (2 * cache, outside)),
        flops_per_s=CORE_FLOPS_PER_CYCLE * cycles,
        launch_s=spec.launch_s,
        total_bytes_per_s=sockets * spec.sustained_bytes_per_s,
        rewrites=False,
        provenance=f"one core of {spec.title}: {spec.provenance.get('core_gb_per_s', 'MEMORY medium, usual cores')}",
    )
