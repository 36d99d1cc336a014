"""The links inside machines without a tree of GPUs: POWER, Xeon, Knights Landing, Tianhe-2.

Rules as in `gpu_machines`.
"""

from __future__ import annotations

from paceline.topologies.graphs.gpu_machines import at, joined
from paceline.topologies.graphs.graph import Connection, Graph, Vertex
from paceline.topologies.graphs.network_graphs import whole


def minsky_node(*, gpus_per_socket: int = 2) -> Graph:
    """Returns IBM's S822LC "Minsky": two POWER8, each joined to its P100s, and these to each other, by two NVLinks.

    Args:
        gpus_per_socket: 1 or 2.

    >>> minsky_node().describe().bisection.bytes_per_s / 1e9  # the X-bus
    30.0
    """
    whole("gpus_per_socket", gpus_per_socket, 1, 2)
    where = (
        "40 GB/s one way from socket to GPU FOUND (anandtech 10539); two links each way MEMORY high; NICs MEMORY low"
    )
    return _power_node("minsky-node", gpus_per_socket, "p100-sxm2", "nvlink1", "xbus-power8", "pcie3-device", where)


def ac922_node(*, gpus_per_socket: int = 3) -> Graph:
    """Returns IBM's AC922, the node of Summit: two POWER9, each joined to its V100s, and these to each other, by
    NVLink.

    Each pair has two links.

    Args:
        gpus_per_socket: 1 to 3; Summit has 3.

    >>> len(ac922_node().of_kind("device"))
    6
    """
    whole("gpus_per_socket", gpus_per_socket, 1, 3)
    where = "FOUND (OLCF's Summit guide); one NIC per socket INFERENCE from dual-rail EDR, 23 GB/s"
    return _power_node("ac922-node", gpus_per_socket, "v100-sxm2", "nvlink2", "xbus-power9", "pcie4-device", where)


def _power_node(name: str, gpus: int, kind: str, nvlink: str, bus: str, card: str, where: str) -> Graph:
    vertices: list[Vertex] = []
    connections = [joined("cpu0", "cpu1", bus)]
    width = (gpus - 1) * 1.8
    for socket in (0, 1):
        cpu, left = f"cpu{socket}", socket * (width + 2.6)
        vertices += [at(cpu, "host", left + width / 2, 2.2), at(f"nic{socket}", "nic", left + width / 2, 3.5)]
        connections.append(joined(cpu, f"nic{socket}", card))
        names = [f"gpu{socket * gpus + number}" for number in range(gpus)]
        for number, gpu in enumerate(names):
            vertices.append(at(gpu, "device", left + 1.8 * number, 0.0, kind))
            connections.append(joined(cpu, gpu, nvlink, 2))
            for before in range(number):
                connections.append(joined(names[before], gpu, nvlink, 2, 0.0 if number == before + 1 else -0.25))
    return Graph(name=name, vertices=tuple(vertices), connections=tuple(connections), provenance=where)


def xeon_node(*, sockets: int = 2) -> Graph:
    """Returns a node of Xeon E5-2670 (Sandy Bridge) sockets, joined by two QPI links, with one NIC.

    Args:
        sockets: 1 or 2.

    >>> xeon_node().describe().bisection.bytes_per_s / 1e9
    32.0
    """
    whole("sockets", sockets, 1, 2)
    return Graph(
        name="xeon-node",
        vertices=(
            *(at(f"cpu{n}", "host", 2.0 * n, 0.0, "xeon-e5-2670") for n in range(sockets)),
            at("nic0", "nic", 0.0, 1.4),
        ),
        connections=(
            joined("cpu0", "nic0", "pcie3-device"),
            *([joined("cpu0", "cpu1", "qpi-sandy-bridge", 2)] if sockets == 2 else []),
        ),
        provenance="QPI MEMORY certain; the NIC on the first socket INFERENCE",
    )


def knl_node(*, parts: int = 4, nics: int = 1) -> Graph:
    """Returns a Knights Landing 7250: cores in equal parts on one mesh, with MCDRAM and DDR4 on it.

    Args:
        parts: groups of cores that are devices of their own; 4 are the quadrants, 1 is the chip as one device.
        nics: the number of NICs, 0 or 1.

    >>> knl_node(parts=1).of_kind("device")
    ('cores',)
    """
    whole("parts", parts, 1, 32)
    whole("nics", nics, 0, 1)
    names = ["cores"] if parts == 1 else [f"cores{number}" for number in range(parts)]
    device = "knl-7250" if parts == 1 else f"knl-7250/{parts}"
    width = max(3.2, (parts - 1) * 1.3)
    cores = [
        at(name, "device", (n + 0.5) / parts * (width + 1.3) - (width + 1.3) / 2, 0.0, device)
        for n, name in enumerate(names)
    ]
    cards: list[Connection] = [joined("mesh", "nic0", "pcie3-device")] if nics else []
    memories = [at("mcdram", "memory", -1.6, 3.0), at("ddr", "memory", 1.6, 3.0)]
    return Graph(
        name="knl-node",
        vertices=(
            at("mesh", "switch", 0.0, 1.5),
            *cores,
            *memories,
            *([at("nic0", "nic", width / 2 + 1.2, 1.5)] if nics else []),
        ),
        connections=(
            *(joined("mesh", name, "knl-mesh") for name in names),
            joined("mesh", "mcdram", "mcdram"),
            joined("mesh", "ddr", "knl-ddr4"),
            *cards,
        ),
        provenance="68 cores and memories FOUND (NERSC, lowain.org, JLab); one mesh without a bottleneck INFERENCE",
    )


def tianhe2_node(*, phis: int = 3) -> Graph:
    """Returns a node of Tianhe-2: two Xeon E5-2692 v2 and Xeon Phi 31S1P cards on PCIe 2.

    Args:
        phis: the number of cards, 1 to 3, the first half on the first socket; Tianhe-2 has 3.

    >>> tianhe2_node().of_kind("device")
    ('phi0', 'phi1', 'phi2')
    """
    whole("phis", phis, 1, 3)
    cards = [at(f"phi{n}", "device", 1.5 * n, 0.0, "xeon-phi-31s1p") for n in range(phis)]
    return Graph(
        name="tianhe2-node",
        vertices=(at("cpu0", "host", 0.4, 1.8), at("cpu1", "host", 2.6, 1.8), *cards, at("nic0", "nic", 2.6, 3.1)),
        connections=(
            joined("cpu0", "cpu1", "qpi"),
            *(joined(f"cpu{int(n >= (phis + 1) // 2)}", card.name, "pcie2-device") for n, card in enumerate(cards)),
            joined("cpu1", "nic0", "pcie2-device"),
        ),
        provenance="sockets and cards FOUND (SMPI, TPDS; Dongarra 2013); which card sits on which socket NOT FOUND",
    )
