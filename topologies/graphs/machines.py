"""The links inside machines, one function each: those with GPUs, then POWER, Xeon, Knights Landing and Tianhe-2.

GPUs are devices, sockets are hosts, and every NIC is a vertex, to which a network is connected. Bandwidths are what
copies sustain, as in `links`; a picture shows sockets at the top and devices below.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from paceline.algorithms.core.errors import InputError
from paceline.topologies.graphs.graph import Connection, Graph, Kind, Vertex
from paceline.topologies.graphs.links import LinkModel, link_named
from paceline.topologies.graphs.network_graphs import whole

GAP = 1.3
"""distance between neighbours in a row of a picture"""

HYBRID_CUBE_MESH = {
    "p100": ("01111000", "10110100", "11010010", "11100001", "10000111", "01001011", "00101101", "00011110"),
    "v100": ("01122000", "10210200", "12020010", "21200001", "20000112", "02001021", "00101202", "00012120"),
}
"""NVLinks between the GPUs of a DGX-1"""

PEERS = ("reduced", "full", "memory")
MEMORY_SHARE = 3.9 / 12.0
"""of the rate of PCIe, what messages between GPUs reach through the host's memory: FOUND, NVIDIA/nccl issue 384: an
all-reduce of NCCL 2.4 by shared memory with 3.9 GB/s on PCIe 3 x16 (12 GB/s). Other generations: INFERENCE
"""


def joined(start: str, end: str, link: str | LinkModel, count: int = 1, bend: float = 0.0) -> Connection:
    """Returns a connection of `count` links of a name between two vertices."""
    return Connection(ends=(start, end), link=link_named(link), count=count, bend=bend)


def at(name: str, kind: Kind, x: float, y: float, device: str | None = None) -> Vertex:
    """Returns a vertex with its place in a picture, and its device."""
    return Vertex(name=name, kind=kind, place=(x, y), device=device)


def pcie_tree(
    *,
    roots: int = 1,
    switches: int = 2,
    gpus_per_switch: int = 4,
    nics: int = 1,
    generation: int = 3,
    between: str | LinkModel = "qpi",
    gpu: str = "",
    bridge: str | LinkModel = "",
    bridge_links: int = 4,
    peers: str = "reduced",
) -> Graph:
    """Returns GPUs on PCIe switches, switches on sockets, and sockets on a bus such as QPI.

    Args:
        roots: the number of sockets; two are joined by `between`.
        switches: PCIe switches of each socket.
        gpus_per_switch: GPUs of each PCIe switch.
        nics: the number of NICs, distributed to the switches in turn.
        generation: the generation of PCIe, 3 to 5; all links have 16 lanes.
        between: the bus from socket to socket.
        gpu: the GPUs' name in the catalogue.
        bridge: the links of the bridges that join every two neighbouring GPUs: nvlink1 to nvlink5; "": no bridges.
        bridge_links: the number of these links of a bridge.
        peers: the rate of messages between GPUs: reduced, as on most processors; full, as on AMD's; memory, without
            peer-to-peer access, as in virtual machines, where messages pass through the host's memory and GPUs on one
            switch share its rate.

    >>> tree = pcie_tree(roots=1, switches=2, gpus_per_switch=5)  # DeepBench's node of ten GPUs
    >>> len(tree.of_kind("device")), tree.describe().diameter_hops
    (10, 4)
    >>> pair = pcie_tree(switches=1, gpus_per_switch=2, bridge="nvlink4", bridge_links=12)
    >>> pair.connections[-1].ends, pair.connections[-1].count
    (('gpu0', 'gpu1'), 12)
    """
    whole("roots", roots, 1, 2)
    whole("switches", switches, 1, 8)
    whole("gpus_per_switch", gpus_per_switch, 1, 16)
    whole("nics", nics, 0, 16)
    whole("generation", generation, 3, 5)
    own, up = f"pcie{generation}-device", f"pcie{generation}-uplink"
    all_switches = roots * switches
    slots = [gpus_per_switch + len(range(n, nics, all_switches)) for n in range(all_switches)]
    vertices: list[Vertex] = []
    connections: list[Connection] = [joined("cpu0", "cpu1", between)] if roots == 2 else []
    x, middles = 0.0, []
    for number, width in enumerate(slots):
        middles.append(x + (width - 1) * GAP / 2)
        plx = f"pcie{number}"
        vertices.append(at(plx, "switch", middles[-1], 1.5))
        connections.append(joined(f"cpu{number // switches}", plx, up))
        gpus = [(f"gpu{number * gpus_per_switch + n}", "device") for n in range(gpus_per_switch)]
        cards = [(f"nic{n}", "nic") for n in range(number, nics, all_switches)]
        for slot, (name, kind) in enumerate(gpus + cards):
            spot = x + slot * GAP
            vertices.append(
                at(name, "device", spot, 0.0, gpu or None) if kind == "device" else at(name, "nic", spot, 0.0)
            )
            connections.append(joined(plx, name, own))
        x += width * GAP + 0.3
    for root in range(roots):
        own_middles = middles[root * switches : (root + 1) * switches]
        vertices.append(at(f"cpu{root}", "host", sum(own_middles) / switches, 3.0))
    if peers not in PEERS:
        raise InputError(f"peers: found {peers!r}, expected reduced, full or memory")
    if peers == "full":
        connections = [replace(it, link=replace(it.link, peer_share=1.0)) for it in connections]
    if peers == "memory":
        share = MEMORY_SHARE / gpus_per_switch
        connections = [
            replace(it, link=replace(it.link, peer_share=share)) if it.link.name.startswith("pcie") else it
            for it in connections
        ]
    if bridge:
        pairs = [(f"gpu{n}", f"gpu{n + 1}") for n in range(0, all_switches * gpus_per_switch - 1, 2)]
        connections += [joined(*pair, bridge, bridge_links) for pair in pairs]
    return Graph(
        name="pcie-tree", vertices=tuple(vertices), connections=tuple(connections), provenance="a family, no machine"
    )


def dual_root_pcie(*, switches: int = 2, gpus_per_switch: int = 2, nics: int = 1) -> Graph:
    """Returns two sockets on QPI, each with PCIe switches and GPUs on these.

    Args:
        switches: PCIe switches of each socket.
        gpus_per_switch: GPUs of each PCIe switch.
        nics: the number of NICs, distributed to the switches in turn.

    >>> dual_root_pcie().describe().bisection.bytes_per_s / 1e9  # QPI
    6.0
    """
    tree = pcie_tree(roots=2, switches=switches, gpus_per_switch=gpus_per_switch, nics=nics)
    where = "FOUND (DeepBench's README: two sockets, two switches each, two GPUs per switch, FDR)"
    return Graph(name="dual-root-pcie", vertices=tree.vertices, connections=tree.connections, provenance=where)


def dgx1(*, gpu: str = "p100") -> Graph:
    """NVIDIA's DGX-1: eight GPUs in a hybrid cube mesh, two on each PCIe switch, and four InfiniBand NICs.

    Args:
        gpu: p100 (4 NVLinks of the first generation each) or v100 (6 of the second).

    >>> links = [connection for connection in dgx1(gpu="v100").connections if connection.link.name == "nvlink2"]
    >>> sum(connection.count for connection in links)  # 8 · 6 / 2
    24
    """
    if gpu not in HYBRID_CUBE_MESH:
        raise InputError(f"gpu: found {gpu!r}, expected p100 or v100")
    provenance = {
        "p100": "NVLinks MEMORY certain",
        "v100": "NVLinks FOUND (two nvidia-smi topo -m: DLPerf, NERSC)",
    }
    vertices: list[Vertex] = []
    connections = list(_nvlinks(HYBRID_CUBE_MESH[gpu], "nvlink1" if gpu == "p100" else "nvlink2"))
    for half, side in ((0, 1.0), (1, -1.0)):
        cpu = f"cpu{half}"
        vertices.append(at(cpu, "host", 1.5 * 1.8, side * 4.6, "xeon-e5-2698v4"))
        for pair in (0, 1):
            plx, nic, x = f"pcie{2 * half + pair}", f"nic{2 * half + pair}", (2 * pair + 0.5) * 1.8
            vertices += [at(plx, "switch", x, side * 3.5), at(nic, "nic", x - 1.6 + 3.2 * pair, side * 3.5)]
            connections += [joined(cpu, plx, "pcie3-uplink"), joined(plx, nic, "pcie3-device")]
            for number in (2 * pair, 2 * pair + 1):
                vertices.append(at(f"gpu{4 * half + number}", "device", 1.8 * number, side * 1.0, f"{gpu}-sxm2"))
                connections.append(joined(plx, f"gpu{4 * half + number}", "pcie3-device"))
    connections.append(joined("cpu0", "cpu1", "qpi", bend=-1.2))
    return Graph(
        name="dgx1",
        vertices=tuple(vertices),
        connections=tuple(connections),
        provenance=f"{provenance[gpu]}; PCIe, QPI, sockets and four EDR NICs MEMORY certain",
    )


def _nvlinks(matrix: tuple[str, ...], link: str) -> Iterator[Connection]:
    """Yields the links of each pair; a link that would be hidden behind a GPU of its row bends away from it."""
    for gpu, row in enumerate(matrix):
        for peer, count in enumerate(row[:gpu]):
            if count != "0":
                near = gpu // 4 != peer // 4 or gpu - peer == 1
                bend = 0.0 if near else (0.3 if gpu - peer == 2 else 0.4) * (-1 if gpu < 4 else 1)
                yield joined(f"gpu{peer}", f"gpu{gpu}", link, int(count), bend)


def nvswitch_node(
    *,
    gpus: int = 8,
    links_per_gpu: int = 12,
    switches: int = 6,
    link: str | LinkModel = "nvlink3",
    generation: int = 4,
    between: str | LinkModel = "xgmi",
    gpu: str = "a100-sxm4-40",
    cpu: str = "",
) -> Graph:
    """Returns GPUs joined by NVSwitches: DGX-2, DGX A100, DGX H100 and similar machines.

    The NVLinks of every GPU are distributed to all switches in turn. The graph also has two sockets, a PCIe switch for
    each pair of GPUs, and a NIC for each GPU.

    Args:
        gpus: the number of GPUs, even.
        links_per_gpu: NVLinks of each GPU.
        switches: the number of NVSwitches.
        link: the name of the NVLink.
        generation: the generation of PCIe.
        between: the bus from socket to socket.
        gpu: the GPUs' name in the catalogue.
        cpu: the sockets' name in the catalogue, if it is known.

    >>> node = nvswitch_node(gpus=8, links_per_gpu=12, switches=6)
    >>> sum(connection.count for connection in node.connections if connection.link.name == "nvlink3")
    96
    """
    if whole("gpus", gpus, 2, 16) % 2:
        raise InputError(f"gpus: found {gpus}, expected an even number from 2 to 16")
    whole("switches", switches, 1, 16)
    whole("links_per_gpu", links_per_gpu, switches, 64)
    whole("generation", generation, 3, 5)
    width = (gpus - 1) * GAP
    vertices = [at(f"gpu{n}", "device", n * GAP, 0.0, gpu) for n in range(gpus)]
    vertices += [
        Vertex(name=f"nvswitch{n}", kind="switch", place=((n + 0.5) / switches * width, -2.2), plane="nvswitch")
        for n in range(switches)
    ]
    vertices += [at(f"cpu{n}", "host", width * (0.25 + 0.5 * n), 3.6, cpu or None) for n in range(2)]
    connections = [joined("cpu0", "cpu1", between)]
    for pair in range(gpus // 2):
        plx = f"pcie{pair}"
        vertices.append(at(plx, "switch", (2 * pair + 0.5) * GAP, 2.4))
        connections.append(joined(f"cpu{4 * pair // gpus}", plx, f"pcie{generation}-uplink"))
        for number in (2 * pair, 2 * pair + 1):
            vertices.append(at(f"nic{number}", "nic", number * GAP + (0.1 if number % 2 else -0.1), 1.2))
            connections.append(joined(plx, f"nic{number}", f"pcie{generation}-device"))
            connections.append(joined(plx, f"gpu{number}", f"pcie{generation}-device"))
            for switch in range(switches):
                count = len(range(switch, links_per_gpu, switches))
                connections.append(joined(f"gpu{number}", f"nvswitch{switch}", link, count))
    return Graph(
        name="nvswitch-node",
        vertices=tuple(vertices),
        connections=tuple(connections),
        provenance="links per GPU FOUND for DGX-2 and DGX A100 (NV6, NV12); switches and PCIe MEMORY high",
    )


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
    return _power_node(
        "minsky-node", gpus_per_socket, "p100-sxm2", "power8", "nvlink1", "xbus-power8", "pcie3-device", where
    )


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
    return _power_node(
        "ac922-node", gpus_per_socket, "v100-sxm2", "power9", "nvlink2", "xbus-power9", "pcie4-device", where
    )


def _power_node(name: str, gpus: int, kind: str, processor: str, nvlink: str, bus: str, card: str, where: str) -> Graph:
    vertices: list[Vertex] = []
    connections = [joined("cpu0", "cpu1", bus)]
    width = (gpus - 1) * 1.8
    for socket in (0, 1):
        cpu, left = f"cpu{socket}", socket * (width + 2.6)
        vertices += [
            at(cpu, "host", left + width / 2, 2.2, processor),
            at(f"nic{socket}", "nic", left + width / 2, 3.5),
        ]
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
        vertices=(
            *(at(f"cpu{n}", "host", 0.4 + 2.2 * n, 1.8, "xeon-e5-2692v2") for n in range(2)),
            *cards,
            at("nic0", "nic", 2.6, 3.1),
        ),
        connections=(
            joined("cpu0", "cpu1", "qpi"),
            *(joined(f"cpu{int(n >= (phis + 1) // 2)}", card.name, "pcie2-device") for n, card in enumerate(cards)),
            joined("cpu1", "nic0", "pcie2-device"),
        ),
        provenance="sockets and cards FOUND (SMPI, TPDS; Dongarra 2013); which card sits on which socket NOT FOUND",
    )
