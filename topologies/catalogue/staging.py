"""How batches, gradients and weights pass from the memory of a host to that of its devices and back.

Constants and rules carry their provenance; rates are those of the links of a graph, not of this file. A cluster without
`StagingModel` copies nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from paceline.topologies.catalogue.libraries import Library

if TYPE_CHECKING:
    from paceline.topologies.catalogue.device import DeviceModel

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
