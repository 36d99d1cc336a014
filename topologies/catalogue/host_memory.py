"""The main memory of nodes: what all cores of a node together, and one core alone, read and write per second.

Rules of this file: figures count traffic, so a copy of n bytes moves 2 n (STREAM's count). A node whose processors are
known has `SUSTAINED` of the peak of its memory channels. FOUND, MEMORY and INFERENCE as in `device_catalogue`.
"""

from __future__ import annotations

from dataclasses import dataclass

from paceline.topologies.catalogue.device_catalogue import SPECS, SUSTAINED


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMemory:
    """The bandwidth of a node's main memory.

    Args:
        bytes_per_s: the sustained traffic of all cores together.
        core_bytes_per_s: the sustained traffic of one core.
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


CORE_BYTES_PER_S = 10e9
"""traffic of one core: INFERENCE, twice the 5 GB/s at which the link `shared-memory` copies; STREAM on one core of
Xeons since Sandy Bridge is 10 to 14 GB/s (MEMORY medium)"""


def _sockets(
    count: int, channels_gb_per_s: float, provenance: str, core_bytes_per_s: float = CORE_BYTES_PER_S
) -> HostMemory:
    """Returns the memory of a node with `count` sockets, whose channels have this peak each."""
    words = (
        f"{count} sockets, {channels_gb_per_s:g} GB/s each: {provenance}; {SUSTAINED} of the peak, a core: INFERENCE"
    )
    total = SUSTAINED * count * channels_gb_per_s * 1e9
    return HostMemory(bytes_per_s=total, core_bytes_per_s=core_bytes_per_s, provenance=words)


ASSUMED_HOST = _sockets(2, 68.3, "a node whose processors are not known: INFERENCE, two Xeons with DDR4-2133")
_DGX1 = _sockets(2, 68.3, "Xeon E5-2698 v4 with DDR4-2133 MEMORY high")
_MINSKY = _sockets(2, 115.0, "POWER8; FOUND (IBM's OpenPOWER deck)", 2 * CORE_BYTES_PER_S)
_AC922 = _sockets(2, 170.0, "POWER9 MEMORY high", 2 * CORE_BYTES_PER_S)
_XEON = _sockets(2, 51.2, "Xeon E5-2670 MEMORY certain")
_TIANHE2 = _sockets(2, 59.7, "Xeon E5-2692 v2 MEMORY high")
_KNL = HostMemory(
    bytes_per_s=480e9,
    core_bytes_per_s=480e9 / 68,
    provenance="MCDRAM FOUND (lowain.org, NERSC); a core: INFERENCE, its share",
)

HOST_MEMORY: dict[str, HostMemory] = {
    "dgx1": _DGX1,
    "dgx1-p100": _DGX1,
    "dgx1-v100": _DGX1,
    "minsky": _MINSKY,
    "minsky-node": _MINSKY,
    "summit": _AC922,
    "ac922-node": _AC922,
    "dgx-a100": _sockets(2, 204.8, "EPYC 7742 MEMORY high", 2 * CORE_BYTES_PER_S),
    "dgx-h100": _sockets(2, 307.2, "Xeon 8480C with DDR5-4800 MEMORY high"),
    "cori-knl": _KNL,
    "knl-node": _KNL,
    "tianhe2": _TIANHE2,
    "tianhe2-node": _TIANHE2,
    "sandy-bridge-ib": _XEON,
    "xeon-node": _XEON,
}
"""the memory of the nodes of named systems, and of known nodes"""


def host_memory(node: str | None, device: str | None = None) -> HostMemory:
    """Returns the main memory of a node.

    Args:
        node: the name of its system, or of the node itself; None if it is one host without a name.
        device: the name of its device. The memory of a node that is one processor is that processor's.

    >>> round(host_memory("dgx1-p100").bytes_per_s / 1e9), round(host_memory(None, "xeon-e5-2670").bytes_per_s / 1e9)
    (109, 41)
    >>> host_memory(None, "p100") is ASSUMED_HOST
    True
    """
    if node in HOST_MEMORY:
        return HOST_MEMORY[node]
    spec = SPECS.get(device or "")
    if node is None and spec is not None and spec.kind != "gpu":
        cores = spec.cores or 1
        return HostMemory(
            bytes_per_s=spec.sustained_bytes_per_s,
            core_bytes_per_s=max(CORE_BYTES_PER_S, spec.sustained_bytes_per_s / cores)
            if spec.kind == "cpu"
            else spec.sustained_bytes_per_s / cores,
            provenance=f"{spec.title}, as in the catalogue; a core: INFERENCE",
        )
    return ASSUMED_HOST
