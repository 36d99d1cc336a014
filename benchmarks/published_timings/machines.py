"""Turns a row of a published table into a machine: its chip, and the links between ranks of a node and between nodes.

Rules of this file: single words decide, never the full name of a system, and every system is read by the same rules. A
missing word means a default, which is listed in `Machine.assumed`. A row that cannot be interpreted raises `Unread`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

from paceline.topologies.catalogue.charge_rates import host_rates
from paceline.topologies.catalogue.device import DeviceModel
from paceline.topologies.catalogue.device_names import named as catalogued
from paceline.topologies.catalogue.host_memory import StagingModel, host_memory
from paceline.topologies.cluster import ClusterModel, Node, sites
from paceline.topologies.graphs.compose import compose
from paceline.topologies.graphs.graph import Connection, Graph
from paceline.topologies.graphs.links import LinkModel, link_named
from paceline.topologies.graphs.machines import dgx1, nvswitch_node, pcie_tree
from paceline.topologies.graphs.network_graphs import star
from published_timings.networks import NO_NETWORK, Hop, between
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
CUBE = {"pascal": "p100", "volta": "v100"}
"""the GPUs of a DGX-1 by generation"""
SOCKETS = ((2024, "upi-emerald-rapids"), (2022, "upi"), (2020, "xgmi"), (2017, "upi-skylake"), (0, "qpi"))
"""the bus between the sockets of machines with GPUs since that year: INFERENCE"""
HOSTS = ((2020, "epyc-7742"), (2017, "xeon-8180"), (0, "xeon-e5-2680v4"))
"""the processors of the two sockets of a node since that year: INFERENCE"""
COPIES_SINCE = 2017
"""programs of MPI copied the data of GPUs before this year to the host: INFERENCE"""
LARGEST_SWITCHED, MOST_CARDS, MOST_SWITCHES = 16, 16, 8
"""GPUs, network cards, and PCIe switches of a socket, up to which the product has graphs of nodes"""


@dataclass(frozen=True, eq=False)
class Machine:
    """The parts of a row that a prediction needs; equal rows have the same machine, so it is compared by identity."""

    chip: Chip
    ranks: int
    nodes: int
    between: Hop
    node: Graph | LinkModel
    """what joins the ranks of a node: a graph of the product, or a link between ranks of one host"""
    link: LinkModel
    """one cable of the network"""
    cards: int
    switched: bool
    library: str
    version: tuple[int, int] | None
    algorithms: tuple[str, ...]
    """those that the row names; none: the library's choice"""
    assumed: tuple[str, ...]

    @property
    def workers_per_node(self) -> int:
        """Ranks of one node."""
        return max(1, self.ranks // self.nodes)

    @cached_property
    def cluster(self) -> ClusterModel:
        """The cluster as the product has it: a graph of a node, or ranks of one host, on a star of the network."""
        kind = "cpu" if self.chip.is_host else "gpu"
        device = DeviceModel(name=self.chip.generation, kind=kind, architecture=self.chip.architecture)
        many = self.chip.generation == "manycore"
        host = "knl-7250" if many else next(name for year, name in HOSTS if self.chip.year >= year)
        rates = host_rates(catalogued(host), 1 if many else 2)
        per_node, inside = self.workers_per_node, self.node
        graph = star(hosts=self.nodes, link=self.link, cables=self.cards)
        if isinstance(inside, Graph):
            graph = inside if self.nodes == 1 else compose("row", graph, inside, "a row")
            places = [(site.host, site.seats[:per_node]) for site in sites(graph)]
        else:
            places = [(host, (host,) * per_node) for host in graph.of_kind("host")]
        local = inside if isinstance(inside, LinkModel) else link_named("shared-memory")
        nodes = tuple(
            Node(
                name=name,
                device=device,
                seats=seats,
                host=name,
                intra_node_link=local,
                host_rates=rates,
                memory=host_memory(rates),
            )
            for name, seats in places
        )
        copied = self.library != "nccl" and not self.chip.is_host and self.chip.year < COPIES_SINCE
        return ClusterModel(nodes=nodes, graph=graph, staging=StagingModel(gpudirect="off" if copied else "auto"))


READ = (
    "system", "device", "topology", "interconnect", "nranks", "nnodes", "ranks_per_node", "library", "algorithm",
    "notes",
)  # fmt: skip
"""the columns of a row that say what its machine is"""


def read(row: Row) -> Machine:
    """Returns the machine of a row of collectives. Raises `Unread`."""
    return _read(tuple((column, str(row.get(column) or "")) for column in READ))


@cache
def _read(cells: tuple[tuple[str, str], ...]) -> Machine:
    row = dict(cells)
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
    per_node = max(1, ranks // nodes)
    outside = between(chip, row, switched, per_node, assumed) if nodes > 1 else NO_NETWORK
    return Machine(
        chip=chip,
        ranks=ranks,
        nodes=nodes,
        between=outside,
        node=_node(chip, words, per_node, switched, outside.cards if nodes > 1 else 0, assumed),
        link=outside.cable,
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


def _node(chip: Chip, words: str, ranks: int, switched: bool, cards: int, assumed: list[str]) -> Graph | LinkModel:
    """Returns what joins the ranks of one node: a graph of the product, or a link between ranks of one host.

    Args:
        chip: The chip of the ranks.
        words: The words on the node.
        ranks: The ranks of the node.
        switched: Whether NVSwitches join the ranks.
        cards: The network cards of the node.
        assumed: Takes the assumptions.
    """
    if chip.is_host or ranks < 2:
        return link_named("shared-memory")
    generation, cards = max(3, chip.pcie), min(cards, MOST_CARDS)
    bridged = [("gpu0", "gpu1")] if "bridge" in words and "mix" not in words and ranks <= 2 else []
    pcie = re.search(r"pcie|\bnvl\b|bridge", words) and not re.search(
        r"sxm|hybrid cube|\bdgx|nvlink ?\d?-? ?mesh", words
    )
    if chip.nvlink and (switched or (not pcie and not bridged and (re.search(NODE_LINKS, words) or chip.year >= 2020))):
        link = link_named(chip.nvlink)
        if switched and ranks <= LARGEST_SWITCHED:
            gpus, switches = ranks + ranks % 2, min(6, chip.links)
            return nvswitch_node(
                gpus=gpus, links_per_gpu=chip.links, switches=switches, link=link, generation=generation
            )
        if not switched and ranks <= 8 and chip.generation in CUBE:
            return dgx1(gpu=CUBE[chip.generation])
        return replace(link, latency_s=2 * link.latency_s, bytes_per_s=chip.links * link.bytes_per_s)
    tree = _pcie(chip, words, ranks, cards, assumed)
    if chip.bridged and re.search(r"\bnvl\b|bridge", words):  # of a card's two neighbours, one is on the bridge
        bridged = [(f"gpu{n}", f"gpu{n + 1}") for n in range(0, ranks - 1, 2)]
    bridges = [Connection(ends=ends, link=link_named(chip.nvlink), count=chip.bridged or 4) for ends in bridged]
    return replace(tree, connections=(*tree.connections, *(bridges if chip.nvlink else ())))


def _pcie(chip: Chip, words: str, ranks: int, cards: int, assumed: list[str]) -> Graph:
    """Returns GPUs on PCIe: under one switch, at one root complex, or at those of two sockets."""
    two = re.search(r"dual[- ]?(root|socket)|(2|two) ?x? ?(sockets|roots|cpus)\b|qpi|upi|2 cpu", words)
    one = re.search(r"single[- ]?(root|socket)|(1|one) ?(cpu|socket|root)\b", words)
    if not two and not one and ranks > 2:
        assumed.append("sockets not given: two for more than four GPUs" if ranks > 4 else "sockets not given: one")
    switch = re.search(r"(\d+)\s*(?:plx|pcie|gpus?)?[^;,.]*?(?:x|×|with|of)\s*(\d+)\s*gpus?", words)
    named = int(switch[2]) if switch and "switch" in words and int(switch[2]) >= 1 else 0
    within = re.search(r"(\d+)\s*gpus?\s*(?:/|per|a)\s*(?:socket|cpu|root)", words)
    roots = 2 if (two or (not one and ranks > 4)) and ranks > (int(within[1]) if within else 4) else 1
    each = -(-ranks // roots)
    per_switch = min(each, named or (2 if ranks <= 2 else -(-each // MOST_SWITCHES)))
    bus = next(name for year, name in SOCKETS if chip.year >= year)
    tree = pcie_tree(
        roots=roots,
        switches=1 if ranks <= per_switch else -(-each // per_switch),
        gpus_per_switch=per_switch,
        nics=cards,
        generation=max(3, chip.pcie),
        between=bus,
    )
    if not re.search(r"\bamd\b|epyc", words):
        return tree
    return replace(tree, connections=_without_overhead(tree.connections))


def _without_overhead(connections: Sequence[Connection]) -> tuple[Connection, ...]:
    """Returns connections over which GPUs reach the whole rate of PCIe among each other, as on AMD's processors."""
    return tuple(replace(one, link=replace(one.link, peer_share=1.0)) for one in connections)
