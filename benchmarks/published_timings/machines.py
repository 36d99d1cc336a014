"""Turns a row of a published table into a machine: its chip, and the links between ranks of a node and between nodes.

Rules of this file: single words decide, never the full name of a system, and every system is read by the same rules. A
missing word means a default, which is listed in `Machine.assumed`. A row that cannot be interpreted raises `Unread`.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from paceline.topologies.graphs.gpu_machines import HYBRID_CUBE_MESH, dgx1, nvswitch_node, pcie_tree
from paceline.topologies.graphs.graph import Connection, Graph
from paceline.topologies.graphs.links import Link
from paceline.topologies.graphs.wires import link_named
from published_timings.networks import Hop, between
from published_timings.parsing import Chip, Row, Unread, chip_of, text_of, whole

NO_MODEL = r"\btpus?\b|trainium|inferentia|gaudi|\bipu\b|cerebras"
"""accelerators whose networks and libraries are not in the catalogue"""
DOMAIN = r"\bnvl ?(\d{2,})\b"
"""racks whose NVLinks join this many GPUs of several nodes"""
MANY_CORES = 56
"""ranks of a node until 2019; a node with more ranks is of 2020 or later: MEMORY high (two sockets with 28 cores)"""
MOST_RANKS = 20_000
"""ranks up to which messages are simulated one by one"""
NODE_LINKS = r"sxm|nvlink|nvswitch|\bnv\d+\b|\bdgx|\bhgx|hybrid cube|\bhcm\b|\bp3(dn)?\.|\bp4de?\b|\bp5\b|\bnd\b"
SWITCHED = r"nvswitch|\bdgx[- ]?(2|a100|h[12]00|b[23]00)\b|\bhgx"
CUBE = {"pascal": HYBRID_CUBE_MESH["p100"], "volta": HYBRID_CUBE_MESH["v100"]}
INTER_SOCKET = {
    "cpu": 10.0,
    "kepler": 6.0,
    "maxwell": 6.0,
    "pascal": 6.0,
    "volta": 10.0,
    "ampere": 16.0,
    "hopper": 22.0,
}
"""GB/s of GPU traffic between sockets in machines of that time: FOUND (NCCL's topo.h)"""
INTER_SOCKET_2024 = 40.0
"""the same since Emerald Rapids: FOUND (ERP_QPI_BW in NCCL's topo.h @5067397); chips of 2024 are in such: INFERENCE"""
P2P_OVERHEAD = 6 / 5
"""factor of PCIe traffic through Intel's root complexes: FOUND (INTEL_P2P_OVERHEAD in NCCL's topo.h)"""
RINGS_SINCE = (2, 0)
"""NCCL's first version with several rings; before, there is one in the order of the devices on the PCIe bus, and
neighbours without peer access exchange through the host: FOUND (orderRanks and commBuildMaps in core.cu of v1.3.4)"""
HOST_LATENCY_S = 9.2e-6
"""latency of a message from socket to socket: DERIVED from FOUND rings, as `PCIE_LATENCY` of `wires`"""
NVSWITCH_CAP = {"ampere": 235e9}
"""the maximum of rings over NVSwitches: FOUND (NCCL's tuning.cc)"""


@dataclass(frozen=True, slots=True)
class Machine:
    """The parts of a row that a prediction needs."""

    chip: Chip
    ranks: int
    nodes: int
    inside: Hop
    between: Hop
    node: Graph | Link
    """what joins the ranks of a node: a graph of the product, or a link between ranks of one host"""
    link: Link
    """one cable of the network"""
    cards: int
    switched: bool
    library: str
    version: tuple[int, int] | None
    algorithms: tuple[str, ...]
    """those that the row names; none: the library's choice"""
    assumed: tuple[str, ...]

    @property
    def host_link(self) -> Link:
        return link_named("shared-memory")

    @property
    def workers_per_node(self) -> int:
        """Ranks of one node."""
        return max(1, self.ranks // self.nodes)


def read(row: Row) -> Machine:
    """Returns the machine of a row of collectives. Raises `Unread`."""
    ranks = whole(row, "nranks")
    if ranks is None or ranks < 2:
        raise Unread(f"nranks: found {row.get('nranks')!r}, expected 2 or more")
    if ranks > MOST_RANKS:
        raise Unread(f"nranks: found {ranks}, expected at most {MOST_RANKS}")
    assumed: list[str] = []
    workers_per_node = whole(row, "ranks_per_node")
    nodes = whole(row, "nnodes") or (-(-ranks // workers_per_node) if workers_per_node else 1)
    if nodes > ranks:
        raise Unread(f"nnodes: found {nodes} of {ranks} ranks, expected at most one node a rank")
    words = text_of(row, "topology", "device", "system", "interconnect")
    if found := re.search(NO_MODEL, words):
        raise Unread(f"device: found {found[0]!r}, which the catalogue does not know")
    if (domain := re.search(DOMAIN, words)) and ranks <= int(domain[1]):
        nodes = 1
    library = text_of(row, "library")
    chip = _chip(row, library, ranks // nodes, assumed)
    switched = (
        bool(re.search(SWITCHED, words))
        or bool(domain)
        or (chip.generation in ("ampere", "hopper", "blackwell") and bool(re.search(r"sxm|\bnd\b|nv(12|18)\b", words)))
    )
    named = re.search(r"(?:nccl|open ?mpi|mpi|gloo)\D{0,3}(\d+)\.(\d+)", library)
    version = (int(named[1]), int(named[2])) if named else None
    one_ring = "nccl" in library and version is not None and version < RINGS_SINCE
    inside = _inside(chip, words, max(1, ranks // nodes), switched, one_ring, assumed)
    outside = between(chip, row, switched, max(1, ranks // nodes), assumed) if nodes > 1 else inside
    return Machine(
        chip=chip,
        ranks=ranks,
        nodes=nodes,
        inside=inside,
        between=outside,
        node=_node(chip, words, max(1, ranks // nodes), switched, outside.cards if nodes > 1 else 0),
        link=Link(
            name="row",
            latency_s=outside.latency_s,
            bytes_per_s=outside.bytes_per_s / outside.cards,
            provenance="a row",
            medium="network",
            hop_s=0.0,
        ),
        cards=outside.cards,
        switched=switched,
        library=_library(library, chip, assumed),
        version=version,
        algorithms=_algorithms(text_of(row, "algorithm"), library),
        assumed=tuple(assumed),
    )


def _chip(row: Row, library: str, workers_per_node: int, assumed: list[str]) -> Chip:
    """Returns the chip that is named, a GPU if the library is for GPUs; without a name, a common one."""
    gpus = bool(re.search("nccl|rccl", library))
    named = chip_of(text_of(row, "device"), text_of(row, "system"), text_of(row, "topology", "notes"), hosts=not gpus)
    if named and named.generation != "cpu":
        return named
    year = 2020 if workers_per_node > MANY_CORES else 2018
    chip = Chip("volta", 2018) if gpus else Chip("cpu", year)
    if named is None:
        assumed.append(f"no chip named: one of {chip.year} taken")
    return chip


def _library(text: str, chip: Chip, assumed: list[str]) -> str:
    for name, words in (("nccl", "nccl|rccl"), ("gloo", "gloo"), ("mpi", "mpi|mpich|osu|mlsl|baidu|ucx|oneccl")):
        if re.search(words, text):
            return name
    found = "mpi" if chip.is_host else "nccl"
    assumed.append(f"library {text!r}: {found} taken")
    return found


def _algorithms(text: str, library: str) -> tuple[str, ...]:
    if not text or re.search(r"auto|default|tuner|unknown|not stated|best", text):
        return ()
    known = (
        ("ring-whole", r"allreduce_ring\b(?!_chunked)" if "gloo" in library else r"$^"),
        ("ring", r"ring"),
        ("halving-doubling", r"halving|rabenseifner"),
        ("recursive-doubling", r"recursive"),
        ("double-tree", r"tree"),
        ("nvls", r"nvls"),
    )
    names = [name for name, words in known if re.search(words, text)]
    return ("ring-whole",) if "ring-whole" in names else tuple(names)


def _inside(chip: Chip, words: str, ranks: int, switched: bool, one_ring: bool, assumed: list[str]) -> Hop:
    """Returns the link between the ranks of one node.

    Args:
        chip: The chip of the ranks.
        words: The words on the node.
        ranks: The ranks of the node.
        switched: Whether NVSwitches join the ranks.
        one_ring: Whether the library has a single ring, in the order of the bus.
        assumed: Takes the assumptions.
    """
    if chip.is_host:
        memory = link_named("shared-memory")
        return Hop("memory", memory.bytes_per_s, memory.latency_s, "shared memory")
    if chip.nvlink and switched:
        rate = min(chip.links * link_named(chip.nvlink).bytes_per_s, NVSWITCH_CAP.get(chip.generation, math.inf))
        return Hop("nvlink", rate, link_named(chip.nvlink).latency_s, f"{chip.links} NVLinks to NVSwitches")
    if chip.nvlink and "bridge" in words and "mix" not in words and ranks <= 2:
        link = link_named(chip.nvlink)
        return Hop("nvlink", (chip.bridged or 4) * link.bytes_per_s, link.latency_s, "an NVLink bridge")
    pcie = re.search(r"pcie|\bnvl\b|bridge", words) and not re.search(
        r"sxm|hybrid cube|\bdgx|nvlink ?\d?-? ?mesh", words
    )
    if chip.nvlink and not pcie and (re.search(NODE_LINKS, words) or chip.year >= 2020):
        return _meshed(chip, ranks, one_ring)
    return _pcie(chip, words, ranks, assumed)


def _node(chip: Chip, words: str, ranks: int, switched: bool, cards: int) -> Graph | Link:
    """Returns what joins the ranks of one node."""
    if chip.is_host or ranks < 2:
        return link_named("shared-memory")
    bridges = bool(re.search(r"\bnvl\b|bridge", words)) and chip.bridged
    if chip.nvlink and switched:
        gpus = ranks + ranks % 2
        link = link_named(chip.nvlink)
        if gpus > 16:
            return replace(link, name="row", latency_s=2 * link.latency_s, bytes_per_s=chip.links * link.bytes_per_s)
        switches = min(6, chip.links)
        return nvswitch_node(
            gpus=gpus, links_per_gpu=chip.links, switches=switches, link=link, generation=max(3, chip.pcie)
        )
    if chip.nvlink and "bridge" in words and "mix" not in words and ranks <= 2:
        tree = pcie_tree(roots=1, switches=1, gpus_per_switch=2, nics=cards, generation=max(3, chip.pcie))
        own = Connection(ends=("gpu0", "gpu1"), link=link_named(chip.nvlink), count=chip.bridged or 4)
        return replace(tree, connections=(*tree.connections, own))
    pcie = re.search(r"pcie|\bnvl\b|bridge", words) and not re.search(
        r"sxm|hybrid cube|\bdgx|nvlink ?\d?-? ?mesh", words
    )
    if chip.nvlink and not pcie and (re.search(NODE_LINKS, words) or chip.year >= 2020):
        if 2 <= ranks <= 8 and chip.generation in CUBE:
            return dgx1(gpu={"pascal": "p100", "volta": "v100"}[chip.generation])
        link = link_named(chip.nvlink)
        return replace(link, name="row", latency_s=2 * link.latency_s, bytes_per_s=chip.links * link.bytes_per_s)
    two = re.search(r"dual[- ]?(root|socket)|(2|two) ?x? ?(sockets|roots|cpus)\b|qpi|upi|2 cpu", words)
    one = re.search(r"single[- ]?(root|socket)|(1|one) ?(cpu|socket|root)\b", words)
    dual = bool(two) or (not one and ranks > 4)
    switch = re.search(r"(\d+)\s*(?:plx|pcie|gpus?)?[^;,.]*?(?:x|×|with|of)\s*(\d+)\s*gpus?", words)
    per_switch = int(switch[2]) if switch and "switch" in words and int(switch[2]) >= 1 else 2 if ranks <= 2 else 1
    within = re.search(r"(\d+)\s*gpus?\s*(?:/|per|a)\s*(?:socket|cpu|root)", words)
    per_socket = int(within[1]) if within else 4
    roots = 2 if dual and ranks > per_socket else 1
    each = -(-ranks // roots)
    switches = 1 if ranks <= per_switch else -(-each // per_switch)
    tree = pcie_tree(
        roots=roots,
        switches=switches,
        gpus_per_switch=min(per_switch, each),
        nics=cards,
        generation=max(3, chip.pcie),
        between=replace(link_named("qpi"), bytes_per_s=_across(chip)),
    )
    if bridges:
        pairs = [
            Connection(ends=(f"gpu{n}", f"gpu{n + 1}"), link=link_named(chip.nvlink), count=chip.bridged)
            for n in range(0, ranks - 1, 2)
        ]
        tree = replace(tree, connections=(*tree.connections, *pairs))
    return tree


def _meshed(chip: Chip, ranks: int, one_ring: bool) -> Hop:
    """Returns the number of rings over the NVLinks of the first GPUs: the smallest number of links of one GPU to the
    others. A single ring in the order of the bus has the links of its weakest neighbours; where these have none, it
    goes through the host and from socket to socket.
    """
    link, links = link_named(chip.nvlink), chip.links
    if one_ring and 2 <= ranks <= 8 and chip.generation in CUBE:
        joined = CUBE[chip.generation]
        links = min(int(joined[rank][(rank + 1) % ranks]) for rank in range(ranks))
        if not links:
            return Hop("pcie", _across(chip), HOST_LATENCY_S, "one ring, through the host between sockets")
    elif 2 <= ranks <= 8 and chip.generation in CUBE:
        links = min(sum(map(int, row[:ranks])) for row in CUBE[chip.generation][:ranks])
    return Hop("nvlink", links * link.bytes_per_s, link.latency_s, f"{links} NVLinks a GPU")


def _across(chip: Chip) -> float:
    """Returns the bytes per second of GPU traffic between the sockets of a machine of the chip's time."""
    rate = INTER_SOCKET_2024 if chip.year >= 2024 else INTER_SOCKET.get(chip.generation, 10.0)
    return rate * 1e9


def _pcie(chip: Chip, words: str, ranks: int, assumed: list[str]) -> Hop:
    """Returns the link of a ring over PCIe: under one switch, through a root complex, or between sockets."""
    link = link_named(f"pcie{chip.pcie}-device")
    two = re.search(r"dual[- ]?(root|socket)|(2|two) ?x? ?(sockets|roots|cpus)\b|qpi|upi|2 cpu", words)
    one = re.search(r"single[- ]?(root|socket)|(1|one) ?(cpu|socket|root)\b", words)
    if not two and not one and ranks > 2:
        assumed.append("sockets not given: two for more than four GPUs" if ranks > 4 else "sockets not given: one")
    dual = bool(two) or (not one and ranks > 4)
    switch = re.search(r"(\d+)\s*(?:plx|pcie|gpus?)?[^;,.]*?(?:x|×|with|of)\s*(\d+)\s*gpus?", words)
    per_switch = int(switch[2]) if switch and "switch" in words and int(switch[2]) >= 1 else 2
    within = re.search(r"(\d+)\s*gpus?\s*(?:/|per|a)\s*(?:socket|cpu|root)", words)
    per_socket = int(within[1]) if within else 4
    if ranks <= per_switch:
        return Hop("pcie", link.bytes_per_s, 2 * link.latency_s, "under one PCIe switch")
    rate = link.bytes_per_s / (1.0 if re.search(r"\bamd\b|epyc", words) else P2P_OVERHEAD)
    latency_s, text, port = 2 * link.latency_s + 2.4e-6, "PCIe through a root complex", rate
    if chip.bridged and re.search(r"\bnvl\b|bridge", words):  # of a card's two neighbours, one is on the bridge
        port = min(2 * port, chip.bridged * link_named(chip.nvlink).bytes_per_s)
    if dual and ranks > per_socket:
        rate, latency_s, text = min(_across(chip), link.bytes_per_s), HOST_LATENCY_S, "PCIe from socket to socket"
    return Hop("pcie", rate, latency_s, text, port_bytes_per_s=max(port, rate))
