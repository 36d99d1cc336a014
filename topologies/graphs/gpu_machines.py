"""The links inside machines with GPUs, one function each; `cpu_machines` has the others.

GPUs are devices, sockets are hosts, and every NIC is a vertex, to which a network is connected. Bandwidths are what
copies sustain, as in `wires`; a picture shows sockets at the top and devices below.
"""

from __future__ import annotations

from collections.abc import Iterator

from paceline.algorithms.core.errors import InputError
from paceline.topologies.graphs.graph import Connection, Graph, Kind, Vertex
from paceline.topologies.graphs.links import LinkModel
from paceline.topologies.graphs.network_graphs import whole
from paceline.topologies.graphs.wires import link_named

GAP = 1.3
"""distance between neighbours in a row of a picture"""

HYBRID_CUBE_MESH = {
    "p100": ("01111000", "10110100", "11010010", "11100001", "10000111", "01001011", "00101101", "00011110"),
    "v100": ("01122000", "10210200", "12020010", "21200001", "20000112", "02001021", "00101202", "00012120"),
}
"""NVLinks between the GPUs of a DGX-1"""


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

    >>> tree = pcie_tree(roots=1, switches=2, gpus_per_switch=5)  # DeepBench's node of ten GPUs
    >>> len(tree.of_kind("device")), tree.describe().diameter_hops
    (10, 4)
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
