"""The part of a device that communication takes from a gradient while both run.

* NCCL runs on multiprocessors of the GPU, which gradients cannot use meanwhile: as many as the bandwidth needs.
* MPI and gloo run on a core of the processor that computes, if it is a CPU or a many-core processor. They copy to and
  from a GPU with its copy engines, which takes no multiprocessor.
* The plain library is a textbook protocol and takes nothing.

The memory bandwidth of the device, which both use as well, is not modelled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from paceline.topologies.catalogue.device_catalogue import Spec
from paceline.topologies.catalogue.libraries import Library

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
