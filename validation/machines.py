"""Turns a row of a published table into a machine: its chip, and the links between ranks of a node and between nodes.

Rules of this file:

* Single words decide, never the full name of a system, and every system is read by the same rules.
* A missing word means a default, which is listed in `Machine.assumed`. A row that cannot be read raises `Unread`.
* The sustained rate of a link comes from the catalogue of links. GB/s in a table are bytes and mostly of NVLink;
  network rates are given in Gbit/s.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import groupby
from typing import Any, Literal

from paceline.algorithms.core.errors import InputError, PacelineError
from paceline.scenarios import load
from paceline.topologies.catalogue.device_catalogue import Spec
from paceline.topologies.catalogue.device_names import find
from paceline.topologies.cluster import ClusterModel
from paceline.topologies.graphs.links import LinkModel, link_named

Row = Mapping[str, str]


class Unread(PacelineError):
    """A row that cannot be predicted, with the reason."""


@dataclass(frozen=True, slots=True)
class Chip:
    """The properties of a chip that follow from its name."""

    generation: Literal[
        "kepler", "maxwell", "pascal", "volta", "ampere", "hopper", "blackwell", "cdna", "tpu", "gaudi", "ascend",
        "cpu", "manycore",
    ]  # fmt: skip
    year: int
    pcie: int = 3
    nvlink: str = ""
    links: int = 0
    bridged: int = 0
    """NVLinks of the bridge that the card can carry"""
    ports: int = 0
    """ports of 100 Gbit/s of its own, by which it is joined to other nodes"""

    @property
    def architecture(self) -> str:
        """The chip's architecture by the catalogue's name; "" for CPUs and AMD's GPUs."""
        others = dict.fromkeys(("cdna", "tpu", "gaudi", "ascend", "cpu"), "")
        return {**others, "manycore": "knights-landing"}.get(self.generation, self.generation)

    @property
    def is_host(self) -> bool:
        """Whether ranks are processes on a CPU, not GPUs."""
        return self.generation in ("cpu", "manycore")


CHIPS: tuple[tuple[str, Chip], ...] = (
    (r"\bg?b[123]00\b|blackwell", Chip("blackwell", 2024, 5, "nvlink4", 36)),
    (r"\bg?h200", Chip("hopper", 2024, 5, "nvlink4", 18, 18)),
    (r"\bg?h[138]00|\bh20\b|hopper|\bp5[\be.]", Chip("hopper", 2022, 5, "nvlink4", 18, 12)),
    (r"\ba[18]00|\bp4de?\b", Chip("ampere", 2020, 4, "nvlink3", 12, 12)),
    (r"\ba[34]0\b|\ba10g?\b|a6000|rtx ?30|ampere|\bg5\b|\bl40?s?\b|rtx ?40|4090|3090", Chip("ampere", 2020, 4)),
    (r"\bv100|volta|\bp3(dn)?\b", Chip("volta", 2017, 3, "nvlink2", 6)),
    (r"\bt4\b|turing|2080|titan ?rtx|titan ?v\b|\bg4dn\b", Chip("volta", 2018)),
    (r"\bp100", Chip("pascal", 2016, 3, "nvlink1", 4)),
    (r"pascal|10[5678]0|\bp40?\b|titan ?xp", Chip("pascal", 2016)),
    (r"\bm[46]0\b|titan ?x|maxwell|gtx ?9[0-9]0", Chip("maxwell", 2015)),
    (r"\bk[2468]0|kepler|titan ?(black|z)?\b|\bp2\b", Chip("kepler", 2013, 2)),
    (r"\bmi ?3[0-9]{2}", Chip("cdna", 2023, 5, "infinity-fabric", 7)),
    (r"\bmi ?2[0-9]{2}|frontier|\blumi\b", Chip("cdna", 2021, 4, "infinity-fabric", 3)),
    (r"\bmi ?(50|60|100)\b|\bradeon|\bvega\b", Chip("cdna", 2019, 4)),
    (r"\btpu", Chip("tpu", 2018, 3, "tpu-ici", 4)),
    (r"\bgaudi|\bhls-?1", Chip("gaudi", 2019, 4, "gaudi-port", 7, ports=3)),
    (r"\bascend", Chip("ascend", 2019, 4, "hccs", 3, ports=1)),
    (r"\bknl\b|knights|xeon ?phi|\b72[1359]0f?\b", Chip("manycore", 2016)),
    (r"\bcpus?\b|xeon|epyc|\be5-|power[89]|skylake|milan|genoa|haswell|broadwell", Chip("cpu", 2018)),
)
"""words and chips, the first that fits; years, PCIe generations and NVLinks MEMORY high (links as in `wires`), those
that AMD's rings can use MEMORY medium
"""


def text_of(row: Row, *columns: str) -> str:
    """Returns the texts of the columns in lower case."""
    return " ; ".join(str(row.get(column) or "") for column in columns).lower()


def whole(row: Row, column: str) -> int | None:
    """Returns a count, or None if there is none. Raises `Unread` if it is not a count."""
    text = str(row.get(column) or "").strip()
    if not text or text.lower() in ("nan", "none", "not stated", "?"):
        return None
    try:
        value = float(text)
    except ValueError:
        raise Unread(f"{column}: found {text!r}, expected a count") from None
    if not math.isfinite(value) or value < 1:
        raise Unread(f"{column}: found {text!r}, expected a count of 1 or more")
    return int(value)


def number(row: Row, column: str) -> float:
    """Returns a positive number. Raises `Unread`."""
    try:
        value = float(str(row.get(column) or "nan"))
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise Unread(f"{column}: found {row.get(column)!r}, expected a positive number")
    return value


@cache
def spec_named(text: str) -> Spec | None:
    """Returns the device of the catalogue that a text names; None if there is none."""
    try:
        return find(text)
    except InputError:
        return None


def chip_of(*texts: str, hosts: bool = True) -> Chip | None:
    """Returns the chip that the first text with one names. Without hosts only GPUs count, as CPUs are often named
    beside GPUs.
    """
    for text in texts:
        for words, chip in CHIPS:
            if (hosts or not chip.is_host) and re.search(words, text):
                return chip
    return None


# --- the network between nodes ----------------------------------------------------------------------------------------

INFINIBAND = {
    "sdr": 10.0,
    "ddr": 20.0,
    "qdr": 40.0,
    "fdr": 56.0,
    "edr": 100.0,
    "hdr100": 100.0,
    "hdr": 200.0,
    "ndr": 400.0,
}
NAMED = {
    10.0: "ib-qdr",
    20.0: "ib-qdr",
    40.0: "ib-qdr",
    56.0: "ib-fdr",
    100.0: "ib-edr",
    200.0: "ib-hdr",
    400.0: "ib-ndr",
}
BY_YEAR = ((2022, 400.0), (2020, 200.0), (2016, 100.0), (0, 56.0))
"""InfiniBand's usual rate in machines since that year: MEMORY medium"""


CARDS = r"qdr|fdr|edr|hdr|ndr|ib\b|infiniband|hca|nics?\b|slingshot|efa\b|omni-?path|opa\b|roce|connectx|cx-?\d"
NETWORK_WORDS = ("topology", "interconnect", "system", "library", "notes", "device")


def between(chip: Chip, row: Row, switched: bool, ranks: int, assumed: list[str]) -> tuple[LinkModel, int]:
    """Returns the network between nodes: a cable and the number of cards, from the words of the columns in order."""
    if chip.ports:
        return link_named("eth-100g-roce"), chip.ports * ranks
    words = text_of(row, *NETWORK_WORDS)
    cards, rate = _rate(" ; ".join(str(row.get(column) or "") for column in NETWORK_WORDS))
    if cards is None:
        single = re.search(r"\b(1|one|single) (nic|port|rail|card|hca)|1 port", words)
        cards = 1 if single else ranks if switched else 4 if re.search(r"\bdgx-?1\b", words) else 1
        if not single:
            assumed.append(f"network cards not given: {cards} a node")
    return _cable(row, words, rate, chip, ranks, assumed), cards


def _rate(words: str) -> tuple[int | None, float | None]:
    """Returns the number of cards of a node and Gbit/s of one, as far as given. GB/s are bytes, and of another link."""
    many = r"(?:(\d+)\s*[x×]\s*)?(?:(\d+)\s*[x×]\s*)?"
    unit = r"(\d+(?:\.\d+)?)\s*-?(?:Gb/s|Gbps|Gbit(?:/s)?|[Gg]b[Ee]|Gig[Ee]|G\b|Gb\b)"
    match = re.search(many + unit, words)
    if match:
        times = math.prod(int(match[n]) for n in (1, 2) if match[n])
        return (times if (match[1] or match[2]) and times <= 64 else _cards(words)), float(match[3]) or None
    return _cards(words), None


def _cards(words: str) -> int | None:
    """Returns a count before the name of a network or of a card."""
    match = re.search(rf"(?i)(\d+)\s*[x×]\s*(?:{CARDS})", words)
    if match and 1 <= int(match[1]) <= 64:
        return int(match[1])
    return 2 if re.search(r"(?i)dual[- ]?(rail|port|nic)", words) else None


def _at(name: str, gbit: float, usual: float) -> LinkModel:
    """Returns a link of the catalogue at another rate; `usual` is the raw rate of the link, in Gbit/s."""
    link = link_named(name)
    return link if gbit == usual else replace(link, bytes_per_s=gbit / usual * link.bytes_per_s)


def _cable(row: Row, words: str, rate: float | None, chip: Chip, ranks: int, assumed: list[str]) -> LinkModel:
    """Returns the cable of one card: a link of the catalogue, at the rate that the words give."""
    if re.search(IN_TUNNELS, words) and re.search(r"\baws\b|\bec2\b", words):
        name = "aws-ipip-50g-both-ways" if whole(row, "nnodes") == 2 else "aws-ipip-50g"
        return _at(name, rate or 50.0, 50.0)
    for kind, name, raw in (
        ("omni-path|\\bopa\\b|omnipath", "omni-path-100", 100.0),
        ("aries|gemini", "aries", 100.0),
        ("slingshot", "slingshot-200g", 200.0),
        ("\\befa\\b|elastic fabric", "efa-100g", 100.0),
    ):
        if re.search(kind, words):
            usual = _efa_rate(chip, ranks) if name == "efa-100g" else raw
            if rate is None:
                assumed.append(f"rate not given: {usual:g} Gbit/s")
            if name == "efa-100g" and not chip.is_host and chip.year < 2020 and (rate or usual) >= 100.0:
                return link_named("efa-100g-staged")
            return _at(name, rate or usual, raw)
    speed = next((name for name in ("hdr100", *INFINIBAND) if re.search(rf"\b{name}\b", words)), None)
    if "roce" in words:
        return _at("eth-100g-roce", rate or 100.0, 100.0)
    if speed or re.search(r"infiniband|ibverbs|\bib\b|\brdma\b|\bucx\b|\bgdr\b", words):
        usual = next(value for year, value in BY_YEAR if chip.year >= year)
        gbit = INFINIBAND[speed] if speed else rate or usual
        if gbit == 100.0 and not chip.is_host and re.search(r"without gpu ?direct|no gpu ?direct", words):
            return link_named("ib-edr-staged")
        if not speed and rate is None:
            assumed.append(f"InfiniBand's rate not given: {usual:g} Gbit/s")
        return link_named(NAMED[min(NAMED, key=lambda known: abs(known - gbit))])
    return _ethernet(words, rate, chip, assumed)


def _efa_rate(chip: Chip, ranks: int) -> float:
    """Returns Gbit/s of AWS's instances with EFA: 25 with one GPU, otherwise by the year of the GPUs: MEMORY medium."""
    return 25.0 if ranks == 1 else 100.0 if chip.year < 2022 else 200.0


def _ethernet(words: str, rate: float | None, chip: Chip, assumed: list[str]) -> LinkModel:
    """Returns TCP at any rate; latency and fraction of the raw rate are those of the nearest known link."""
    if rate is None and re.search(r"gvnic|gke|cloud", words):
        cloud = link_named("gke-tcp")
        return replace(link_named("eth-100g"), latency_s=cloud.pieces[0].latency_s, bytes_per_s=cloud.bytes_per_s)
    if rate is None:
        rate = 10.0 if chip.year < 2017 else 25.0 if re.search(r"tcp|ether|cloud|aws|gcp|vm", words) else 100.0
        assumed.append(f"network not given: {rate:g} Gbit/s")
        if rate == 100.0:
            return link_named("ib-edr")
    known = {1.0: "eth-1g", 10.0: "eth-10g", 25.0: "eth-25g", 100.0: "eth-100g"}
    near = min(known, key=lambda rate_of_link: abs(math.log(rate_of_link / rate)))
    return _at(known[near], rate, near)


# --- machines ---------------------------------------------------------------------------------------------------------

CONTAINERS = r"\b(pod|container) (per|a|for each) (gpu|rank)\b"
IN_TUNNELS = r"\bip-?in-?ip\b|\bipip\b"
"""words for networks that carry the packets of containers in a tunnel between two machines"""
NO_MODEL = r"trainium|inferentia|\bipu|cerebras"
"""accelerators whose networks and libraries are not in the catalogue"""
DOMAIN = r"\bnvl ?(\d{2,})\b"
"""racks whose NVLinks join this many GPUs of several nodes"""
LARGE_BYTES = 1e9
"""a message that takes the bandwidth of a link for large ones"""
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
TORUS = "halving-doubling"
"""in place of rings along the dimensions of a torus, which also move each byte twice in few messages one after another;
a ring of all chips would take as many as there are chips: INFERENCE"""
LIKE = {
    "kepler": "k80", "maxwell": "m40", "pascal": "p100-sxm2", "volta": "v100-sxm2", "ampere": "a100-sxm4-40",
    "hopper": "h100-sxm5", "blackwell": "b200", "cdna": "mi250x", "manycore": "knl-7250", "tpu": "tpu-v4",
    "gaudi": "a100-sxm4-40", "ascend": "a100-sxm4-40",
}  # fmt: skip
"""a device of each generation, whose architecture decides about protocols, and whose memory about updates; where the
catalogue has none, one of its time: INFERENCE"""
COPIES_SINCE = 2017
"""programs of MPI copied the data of GPUs before this year to the host: INFERENCE"""
LARGEST_SWITCHED, MOST_CARDS, MOST_SWITCHES = 16, 16, 8
"""GPUs, network cards, and PCIe switches of a socket, up to which the product has graphs of nodes"""


@dataclass(frozen=True, slots=True)
class Inside:
    """What joins the ranks of a node: a node of `paceline list topologies`, or a link between the ranks of one host."""

    node: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    link: LinkModel = field(default_factory=lambda: link_named("shared-memory"))


@dataclass(frozen=True, eq=False)
class Machine:
    """The parts of a row that a prediction needs; equal rows have the same machine, so it is compared by identity."""

    chip: Chip
    ranks: int
    nodes: int
    inside: Inside
    link: LinkModel
    """one cable of the network"""
    cards: int
    """those of a node; a machine of one node does not use its network"""
    library: str
    version: tuple[int, int] | None
    algorithms: tuple[str, ...]
    """those that the row names; none: the library's choice"""
    assumed: tuple[str, ...]
    contained: bool = False
    """whether each rank is in a container of its own"""

    @property
    def workers_per_node(self) -> int:
        """Ranks of one node."""
        return max(1, self.ranks // self.nodes)

    @property
    def network_bytes_per_s(self) -> float:
        """What a node sends at once."""
        return self.cards * self.link.bytes_per_s

    @property
    def slowest(self) -> tuple[float, float]:
        """Seconds of latency, and bytes per second, of what a ring over all ranks has to pass."""
        if self.nodes > 1:
            flow = self.link.piece(LARGE_BYTES).bytes_per_s
            return self.link.latency_s, min(self.network_bytes_per_s, self.cards * flow)
        settings, link = self.inside.settings, self.inside.link
        if self.contained:
            link = self.link if "loopback" in self._in_containers else link_named("veth")
        elif self.inside.node == "pcie-tree":
            link = link_named(f"pcie{min(4, settings['generation'])}-x16")
        elif self.inside.node:
            link = link_named(self.chip.nvlink)
            return link.latency_s, self.chip.links * link.bytes_per_s
        return link.latency_s, link.bytes_per_s

    @property
    def device(self) -> str:
        """A device of the chip's generation, by its name in the catalogue."""
        return self.host if self.chip.generation == "cpu" else LIKE[self.chip.generation]

    @property
    def host(self) -> str:
        """The processor of a node, by its name in the catalogue."""
        if self.chip.generation == "manycore":
            return "knl-7250"
        return next(name for year, name in HOSTS if self.chip.year >= year)

    def section(self, device: Mapping[str, Any], placement: Sequence[int] = ()) -> dict[str, Any]:
        """Returns the section `cluster` of a scenario.

        Args:
            device: The section of a device.
            placement: The ranks of each node; by default each has as many.
        """
        ranks = placement or (self.workers_per_node,) * self.nodes
        if self.nodes == 1:  # of links that join all hosts, too
            ranks = (sum(ranks),)
        inside = {"node": self.inside.node, "settings": dict(self.inside.settings)} if self.inside.node else {}
        copied = self.library != "nccl" and not self.chip.is_host and self.chip.year < COPIES_SINCE
        version = {} if self.version is None else {"library_version": "{}.{}".format(*self.version)}
        nodes: list[dict[str, Any]] = [
            {**inside, "device": dict(device), "count": len(list(alike)), "workers_per_node": own}
            for own, alike in groupby(ranks)
        ]
        graph: dict[str, Any] = {"topology": "star", "parameters": {"cables": self.cards}}
        if self.contained:  # libraries take each container for a host
            nodes = [{"device": dict(device), "count": sum(ranks)}]
            graph = {"topology": "containers", "per_machine": "x".join(map(str, ranks)), **self._in_containers}
        return {
            "nodes": nodes,
            "network": {
                **graph,
                "link": _link_section(self.link),
                "intra_node_link": _link_section(self.inside.link),
                "library": self.library,
                **({"allreduce_algorithm": TORUS} if self.chip.generation == "tpu" else {}),
                **version,
            },
            "charges": {"host": self.host, "sockets": 1 if self.chip.generation == "manycore" else 2},
            "staging": {"gpudirect": "off" if copied else "auto"},
        }

    @property
    def _in_containers(self) -> dict[str, Any]:
        """The keys of a network of containers: those with an RDMA card use it inside a machine, too.

        NCCL takes all hops for alike. So its tuner takes rings for long vectors, by the shares of the bandwidth that it
        knows: n / (2 (n − 1)) of a ring, and at most 0.45 of a tree (FOUND src/graph/tuning.cc @v2.7.8-1).
        """
        rdma = self.link.name.startswith(("ib-", "eth-100g-roce", "efa-"))
        inside = {"loopback": 1, "inside": f"pcie{self.chip.pcie}-device"} if rdma else {}
        return inside | ({"allreduce_algorithm": "ring"} if self.library == "nccl" else {})

    @cached_property
    def cluster(self) -> ClusterModel:
        """The cluster of a scenario with such nodes."""
        (plan,) = load(
            {
                "name": "row",
                "cluster": self.section({"name": "any", "like": self.device, "overhead": "0 s", "per_sample": "1 s"}),
                "workload": {"model": "lenet", "learning": "none", "batch_per_worker": 1},
                "algorithms": ["sync-sgd"],
                "stop": {"updates": 1},
            }
        ).plans()
        return plan.cluster


def _link_section(link: LinkModel) -> str | dict[str, Any]:
    """Returns a link as a scenario has it: a name of the catalogue, or the same at another rate."""
    if link == link_named(link.name):
        return link.name
    return {"like": link.name, "latency": f"{link.latency_s!r} s", "bandwidth": f"{link.bytes_per_s!r} B/s"}


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
    if match := re.search(NO_MODEL, words):
        raise Unread(f"device: found {match[0]!r}, which the catalogue does not know")
    if (domain := re.search(DOMAIN, words)) and ranks <= int(domain[1]):
        nodes = 1
    library = text_of(row, "library")
    chip = _chip(row, library, ranks // nodes, assumed)
    if chip.generation == "tpu":
        nodes = 1  # the links of the chips join all hosts of a slice
    switched = (
        bool(re.search(SWITCHED, words))
        or bool(domain)
        or (chip.generation in ("ampere", "hopper", "blackwell") and bool(re.search(r"sxm|\bnd\b|nv(12|18)\b", words)))
    )
    named = re.search(r"(?:nccl|open ?mpi|mpi|gloo)\D{0,3}(\d+)\.(\d+)", library)
    version = (int(named[1]), int(named[2])) if named else None
    per_node = max(1, ranks // nodes)
    contained = bool(re.search(CONTAINERS, words))
    cable, cards = link_named("ib-edr"), 1
    if nodes > 1 or contained:
        cable, cards = between(chip, row, switched, per_node, assumed)
    return Machine(
        chip=chip,
        ranks=ranks,
        nodes=nodes,
        inside=_inside(chip, words, per_node, switched, cards if nodes > 1 else 0, assumed),
        link=cable,
        cards=cards,
        library=_library(library, chip, assumed),
        version=version,
        algorithms=_algorithms(text_of(row, "algorithm"), library),
        assumed=tuple(assumed),
        contained=contained,
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
    if chip.generation in ("tpu", "gaudi", "ascend"):
        return "plain"
    for name, words in (("nccl", "nccl|rccl"), ("gloo", "gloo"), ("mpi", "mpi|mpich|osu|mlsl|baidu|ucx|oneccl")):
        if re.search(words, text):
            return name
    usual = "mpi" if chip.is_host else "nccl"
    assumed.append(f"library {text!r}: {usual} taken")
    return usual


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


def _inside(chip: Chip, words: str, ranks: int, switched: bool, cards: int, assumed: list[str]) -> Inside:
    """Returns what joins the ranks of one node.

    Args:
        chip: The chip of the ranks.
        words: The words on the node.
        ranks: The ranks of the node.
        switched: Whether NVSwitches join the ranks.
        cards: The network cards of the node.
        assumed: Takes the assumptions.
    """
    if chip.is_host or ranks < 2:
        return Inside()
    generation, cards = max(3, chip.pcie), min(cards, MOST_CARDS)
    bridged = "bridge" in words and "mix" not in words and ranks <= 2
    pcie = re.search(r"pcie|\bnvl\b|bridge", words) and not re.search(
        r"sxm|hybrid cube|\bdgx|nvlink ?\d?-? ?mesh", words
    )
    if chip.nvlink and (
        switched
        or (
            not pcie
            and not bridged
            and (re.search(NODE_LINKS, words) or chip.year >= 2020 or chip.ports or chip.generation == "tpu")
        )
    ):
        if switched and ranks <= LARGEST_SWITCHED:
            counts = {"gpus": ranks + ranks % 2, "links_per_gpu": chip.links, "switches": min(6, chip.links)}
            return Inside("nvswitch-node", {**counts, "link": chip.nvlink, "generation": generation})
        if not switched and ranks <= 8 and chip.generation in CUBE:
            return Inside("dgx1", {"gpu": CUBE[chip.generation]})
        link = link_named(chip.nvlink)
        joined = replace(link, latency_s=2 * link.latency_s, bytes_per_s=chip.links * link.bytes_per_s)
        return Inside(link=joined)
    settings = _pcie(chip, words, ranks, cards, assumed)
    if chip.bridged and re.search(r"\bnvl\b|bridge", words):  # of a card's two neighbours, one is on the bridge
        bridged = True
    if bridged and chip.nvlink:
        settings |= {"bridge": chip.nvlink, "bridge_links": chip.bridged or 4}
    return Inside("pcie-tree", settings)


def _pcie(chip: Chip, words: str, ranks: int, cards: int, assumed: list[str]) -> dict[str, Any]:
    """Returns the settings of GPUs on PCIe: under one switch, at one root complex, or at those of two sockets.

    A virtual machine shows no switches, and its GPUs have no access to each other: MEMORY medium for those of clouds.
    The two GPUs of a K80 share a slot: MEMORY certain.
    """
    two = re.search(r"dual[- ]?(root|socket)|(2|two) ?x? ?(sockets|roots|cpus)\b|qpi|upi|2 cpu", words)
    single = re.search(r"single[- ]?(root|socket)|(1|one) ?(cpu|socket|root)\b", words)
    if not two and not single and ranks > 2:
        assumed.append("sockets not given: two for more than four GPUs" if ranks > 4 else "sockets not given: one")
    switch = re.search(r"(\d+)\s*(?:plx|pcie|gpus?)?[^;,.]*?(?:x|×|with|of)\s*(\d+)\s*gpus?", words)
    named = int(switch[2]) if switch and "switch" in words and int(switch[2]) >= 1 else 0
    within = re.search(r"(\d+)\s*gpus?\s*(?:/|per|a)\s*(?:socket|cpu|root)", words)
    roots = 2 if (two or (not single and ranks > 4)) and ranks > (int(within[1]) if within else 4) else 1
    each = -(-ranks // roots)
    virtual = bool(re.search(r"\bvirtual\b|no p2p|without p2p", words))
    shared = 2 if re.search(r"\bk80\b", words) else 1
    per_switch = min(each, named or (shared if virtual else 2 if ranks <= 2 else -(-each // MOST_SWITCHES)))
    return {
        "roots": roots,
        "switches": 1 if ranks <= per_switch else -(-each // per_switch),
        "gpus_per_switch": per_switch,
        "nics": cards,
        "generation": max(3, chip.pcie),
        "between": next(name for year, name in SOCKETS if chip.year >= year),
        "peers": "memory" if virtual else "full" if re.search(r"\bamd\b|epyc", words) else "reduced",
    }
