"""The main memory of nodes: what all cores of a node together, and one core alone, read and write per second.

* Figures count traffic, so a copy of n bytes moves 2 n (STREAM's count). They are those of the host's `ChargeRates`.
* Collectives inside a node pass this memory: every member writes its value, piece by piece, into a slot of its own, and
  reads the slots of the others with its own core. `closed_forms.shared_memory_s` has their times, and the real
  backend's channels (`backend.transports.shared_collectives`) perform them with the sizes below.

The part of a device that communication takes from a gradient while both run.

* NCCL runs on multiprocessors of the GPU, which gradients cannot use meanwhile: as many as the bandwidth needs.
* MPI and gloo run on a core of the processor that computes, if it is a CPU or a many-core processor. They copy to and
  from a GPU with its copy engines, which takes no multiprocessor.
* The plain library is a textbook protocol and takes nothing.

The memory bandwidth of the device, which both use as well, is not modelled.

How batches, gradients and weights pass from the memory of a host to that of its devices and back.

Constants and rules carry their provenance; rates are those of the links of a graph, not of this file. A cluster without
`StagingModel` copies nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from paceline.topologies.catalogue.charge_rates import (
    DEFAULT_HOST,
    DEFAULT_SOCKETS,
    ChargeRates,
    host_rates,
    interpolated,
)
from paceline.topologies.catalogue.device_catalogue import Spec
from paceline.topologies.catalogue.device_names import named
from paceline.topologies.catalogue.libraries import Library

if TYPE_CHECKING:
    from paceline.topologies.catalogue.device import DeviceModel


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


NCCL_BYTES_PER_S = 190e9 / 16
"""what one multiprocessor of NCCL moves: FOUND NVIDIA/nccl issue 689 (190 GB/s of eight NICs by 16 multiprocessors)"""
NCCL_LEAST = 2
"""the fewest multiprocessors of a collective: FOUND, the same issue (one NIC of 12 to 24 GB/s by two)"""


@dataclass(frozen=True, slots=True)
class Taken:
    """The part of a device that a message or collective in flight takes.

    Args:
        share: of the device, 0 to 1.
        provenance: where it comes from, in words.
    """

    share: float
    provenance: str


NOTHING = Taken(0.0, "no processor of the device takes part")


def taken(spec: Spec, library: Library, bytes_per_s: float) -> Taken:
    """Returns what communication takes of a device: share = processors of the library / processors of the device.

    Args:
        spec: the device.
        library: the communication library.
        bytes_per_s: the bandwidth of the device's collectives.

    Returns:
        The share; nothing if the library does not use the device, or the number of its processors is not known.

    >>> from paceline.topologies.catalogue.device_names import named
    >>> from paceline.topologies.catalogue.libraries import LIBRARIES
    >>> round(taken(named("v100-sxm2"), LIBRARIES["nccl"], 132e9).share, 3)  # 12 of 80 multiprocessors
    0.15
    >>> round(taken(named("knl-7250"), LIBRARIES["mpi"], 8e9).share, 4)  # one of 68 cores
    0.0147
    """
    if library.occupies == "multiprocessors" and spec.kind == "gpu" and spec.units:
        count = max(NCCL_LEAST, math.ceil(bytes_per_s / NCCL_BYTES_PER_S))
        words = f"{count} of {spec.units} multiprocessors for {bytes_per_s / 1e9:.0f} GB/s: FOUND NVIDIA/nccl issue 689"
        return Taken(min(1.0, count / spec.units), words)
    if library.occupies == "core" and spec.kind != "gpu" and spec.cores:
        return Taken(1 / spec.cores, f"one of {spec.cores} cores progresses {library.name}: MEMORY high")
    return NOTHING


Batches = Literal["pinned", "pageable", "none"]
GpuDirect = Literal["auto", "on", "off"]
PINNED = "a copy from pinned memory by the device's copy engine at the rate of the links: MEMORY certain (CUDA)"
PAGEABLE = (
    "a core copies into the driver's pinned buffer, then the copy engine: MEMORY certain (CUDA); one after the other: "
    "INFERENCE"
)
PREFETCH = "as a loader that copies the next batch on a stream of its own (pin_memory, non_blocking): MEMORY high"
GPUDIRECT = (
    "GPUDirect RDMA: GPUs from Kepler on FOUND (NVIDIA's GPUDirect RDMA manual), which all of the catalogue are, with "
    "NICs that do not use TCP: MEMORY high; a GPU that is not of the catalogue has it: INFERENCE"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagingModel:
    """The copies between hosts and devices of a cluster.

    Args:
        batches: the host memory that batches are copied from; none: batches are on the device already.
        prefetch: batches that are copied ahead of the one that is computed, from pinned memory.
        gpudirect: whether NICs read and write the memory of devices; auto: where the catalogue says so.
        sample_bytes: bytes of the input of one sample on a device; labels are negligible.

    >>> StagingModel(batches="pageable", prefetch=2).ahead, StagingModel(prefetch=2).ahead
    (0, 2)
    """

    batches: Batches = "pinned"
    prefetch: int = 1
    gpudirect: GpuDirect = "auto"
    sample_bytes: float = 0.0

    @property
    def ahead(self) -> int:
        """Batches that are copied ahead: none from pageable memory, whose copies block the program."""
        return self.prefetch if self.batches == "pinned" else 0

    @property
    def provenance(self) -> str:
        """Where the model of the copies of batches comes from."""
        if self.batches == "pageable":
            return PAGEABLE
        return f"{PINNED}; {PREFETCH}" if self.ahead else PINNED

    def direct(self, device: DeviceModel, library: Library, transport: str) -> bool:
        """Returns whether a library's messages pass from the memory of a device to a NIC without host memory.

        Args:
            device: the device.
            library: the library.
            transport: the transport between nodes: `tcp`, or `any` for others.

        >>> from paceline.topologies.catalogue.device import DeviceModel
        >>> from paceline.topologies.catalogue.libraries import LIBRARIES
        >>> gpu = DeviceModel(name="p100", kind="gpu")
        >>> [StagingModel().direct(gpu, LIBRARIES[name], "any") for name in ("plain", "nccl", "mpi", "gloo")]
        [True, True, True, False]
        >>> StagingModel().direct(gpu, LIBRARIES["nccl"], "tcp")
        False
        """
        if library.through_host == "never":
            return True
        if not library.gpudirect or self.gpudirect == "off":
            return False
        return self.gpudirect == "on" or (device.kind in ("gpu", None) and transport != "tcp")
