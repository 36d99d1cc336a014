"""Links that occur only inside graphs: one hop of a network, a bus in a machine, a channel to memory.

`LINKS` has end-to-end values of a message layer; a graph has hops. The link from a host to a switch has half of the
latency in `LINKS`, so that two hosts on one switch have all of it; `LinkModel.between_switches_s` is added for each
further hop from switch to switch. FOUND, MEMORY (with its confidence) and NOT FOUND say how well a value is known;
DERIVED is computed from such values, INFERENCE is our guess.
"""

from __future__ import annotations

import dataclasses
from functools import cache

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.naming import near_miss
from paceline.topologies.graphs.links import LINKS, SWITCH_HOP_S, LinkModel, Medium

PREFIXES: dict[str, Medium] = {"pcie": "pcie", "qpi": "pcie", "xbus": "pcie", "xgmi": "pcie", "upi": "pcie"}
PREFIXES |= {"nvlink": "nvlink", "infinity": "nvlink", "mcdram": "memory", "knl": "memory"}
"""the medium of links with these names; the others are networks"""


PEER_SHARE = 5 / 6
"""of the rate of PCIe, what devices reach among each other through a root complex of Intel's: FOUND
(INTEL_P2P_OVERHEAD in NCCL's topo.h), of AMD's all: MEMORY medium"""


def _wire(name: str, latency_us: float, gigabytes_per_s: float, provenance: str) -> LinkModel:
    kinds: list[Medium] = [kind for prefix, kind in PREFIXES.items() if name.startswith(prefix)]
    medium: Medium = kinds[0] if kinds else "network"
    latency_s = float(f"{latency_us}e-6")
    return LinkModel(
        name=name,
        latency_s=latency_s,
        bytes_per_s=gigabytes_per_s * 1e9,
        provenance=provenance,
        medium=medium,
        hop_s=SWITCH_HOP_S,
        peer_share=PEER_SHARE if name.endswith("-uplink") else 1.0,
    )


PCIE_LATENCY = "latency DERIVED from fits of FOUND rings: 6.0 us under one switch, 9.2 us across two roots"

WIRES: dict[str, LinkModel] = {
    wire.name: wire
    for wire in (
        _wire("pcie2-device", 3.0, 6.0, f"bandwidth MEMORY certain; {PCIE_LATENCY}"),
        _wire("pcie3-device", 3.0, 12.0, f"bandwidth FOUND (NCCL's PCI_BW); {PCIE_LATENCY}"),
        _wire("pcie4-device", 3.0, 26.3, f"bandwidth FOUND (Azure A100: 26.28 GB/s); {PCIE_LATENCY}"),
        _wire("pcie5-device", 3.0, 51.5, f"bandwidth FOUND (Azure H100: 51 and 52 GB/s); {PCIE_LATENCY}"),
        _wire("pcie3-uplink", 1.2, 12.0, f"switch to root; bandwidth FOUND (NCCL's PCI_BW); {PCIE_LATENCY}"),
        _wire("pcie4-uplink", 1.2, 26.3, f"switch to root; bandwidth FOUND (Azure A100); {PCIE_LATENCY}"),
        _wire("pcie5-uplink", 1.2, 51.5, f"switch to root; bandwidth FOUND (Azure H100); {PCIE_LATENCY}"),
        _wire("qpi", 0.8, 6.0, f"traffic of GPUs; bandwidth FOUND (NCCL's BDW_QPI_BW; raw 19.2); {PCIE_LATENCY}"),
        _wire("qpi-sandy-bridge", 0.1, 16.0, "one of two, raw; bandwidth MEMORY certain; latency INFERENCE"),
        _wire("xbus-power8", 0.8, 30.0, "bandwidth MEMORY medium (raw 38.4); latency INFERENCE"),
        _wire("xbus-power9", 0.8, 32.0, "bandwidth FOUND (NCCL's P9_BW; raw 64); latency INFERENCE"),
        _wire("xgmi", 0.8, 16.0, "bandwidth FOUND (NCCL's AMD_ZEN12_BW); latency INFERENCE"),
        _wire("upi-skylake", 0.8, 10.0, "traffic of GPUs; bandwidth FOUND (NCCL's SKL_QPI_BW); latency INFERENCE"),
        _wire("upi", 0.8, 22.0, "bandwidth FOUND (NCCL's SRP_QPI_BW); latency INFERENCE"),
        _wire("upi-emerald-rapids", 0.8, 40.0, "bandwidth FOUND (NCCL's ERP_QPI_BW); latency INFERENCE"),
        _wire("infinity-fabric", 2.0, 42.0, "one link between AMD's GPUs, of 50 or 64 raw; both MEMORY low"),
        _wire("aries-nic", 0.5, 17.18, "node to router; bandwidth FOUND (CODES: 16 GiB/s); latency INFERENCE"),
        _wire("aries-local", 0.1, 5.637, "router to router; bandwidth FOUND (CODES: 5.25 GiB/s); latency INFERENCE"),
        _wire("aries-global", 0.3, 5.036, "group to group; bandwidth FOUND (CODES: 4.69 GiB/s); latency INFERENCE"),
        _wire("th-express2", 2.0, 6.36, "MPI; both MEMORY medium (Dongarra 2013); measured latency NOT FOUND"),
        _wire("mcdram", 0.15, 480.0, "KNL 7250; bandwidth FOUND (lowain.org, NERSC); latency MEMORY medium"),
        _wire("knl-ddr4", 0.13, 90.0, "KNL; bandwidth FOUND (JLab: about 90 GB/s); latency MEMORY medium"),
        _wire("knl-mesh", 0.1, 480.0, "what MCDRAM delivers: INFERENCE, the mesh's own bandwidth NOT FOUND"),
    )
}  # fmt: skip
"""the links that only graphs have, by name"""


def link_named(name: str | LinkModel) -> LinkModel:
    """Returns the link of this name, or the given link; raises `InputError` with a suggestion.

    >>> link_named("nvlink3").bytes_per_s
    20000000000.0
    >>> link_named("eth-10")
    Traceback (most recent call last):
    paceline.algorithms.core.errors.InputError: unknown link 'eth-10' (did you mean eth-10g?)
    """
    known = LINKS | WIRES
    if isinstance(name, LinkModel):
        return name
    if isinstance(name, str) and name in known:
        return known[name]
    hint = near_miss(name, known) or f" (there are {', '.join(known)})"
    raise InputError(f"unknown link {name!r}{hint}")


@cache
def host_end(link: LinkModel) -> LinkModel:
    """Returns the hop from a host to its switch: half of the latency, all of the processor's work."""
    pieces = tuple(dataclasses.replace(piece, latency_s=piece.latency_s / 2) for piece in link.pieces)
    return dataclasses.replace(link, latency_s=link.latency_s / 2, pieces=pieces)


@cache
def switch_hop(link: LinkModel) -> LinkModel:
    """Returns the hop from one switch to the next over a cable of this kind."""
    hop_s = link.between_switches_s
    pieces = tuple(dataclasses.replace(piece, latency_s=hop_s) for piece in link.pieces)
    return dataclasses.replace(link, latency_s=hop_s, pieces=pieces, send_s=0.0, receive_s=0.0)
