"""The ranks whose messages pass host memory, because their data are on a device that the library's NICs cannot read.

* `copied` (gloo, and MPI without GPUDirect): the program copies whole vectors to the host, the library works there, and
  results are copied back. So messages begin and end at the host's vertex, whose route does not pass PCIe, and the
  interpreter begins the copies (`interpreter.device_copies`), each rank for itself. No byte passes PCIe twice.
* `passed` (NCCL without GPUDirect): messages to other nodes go through a buffer in host memory, piece by piece. A piece
  is sent on while the next one arrives, so all links of the detour limit one flow, and only the route changes.
* Rejected: copies in the plan of a collective. Patterns have messages between ranks only, and the tuner would have to
  compare candidates that all have the same copies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from paceline.algorithms.core.values import Rank
from paceline.topologies.catalogue.libraries import Library
from paceline.topologies.cluster import Cluster


@dataclass(frozen=True, slots=True)
class HostBuffers:
    """The host vertex of each rank whose messages pass host memory.

    Args:
        copied: of ranks whose messages begin and end there.
        passed: of ranks whose messages to other nodes go through it.
    """

    copied: Mapping[Rank, str] = field(default_factory=dict)
    passed: Mapping[Rank, str] = field(default_factory=dict)


def host_buffers(cluster: Cluster, library: Library, transport: str) -> HostBuffers:
    """Returns the ranks of a cluster whose messages pass host memory.

    Args:
        cluster: the cluster; without `staging`, no rank's messages do.
        library: the library.
        transport: the transport between nodes: `tcp`, or `any` for others.
    """
    if cluster.staging is None or library.through_host == "never":
        return HostBuffers()
    transport = "any" if len(cluster.nodes) == 1 else transport  # no message leaves the node
    found: dict[Rank, str] = {}
    for rank in map(Rank, range(cluster.workers)):
        if cluster.staging.direct(cluster.device_of(rank), library, transport):
            continue
        if (socket := cluster.socket_of(rank)) is not None:
            found[rank] = socket
    return HostBuffers(copied=found) if library.through_host == "copied" else HostBuffers(passed=found)
