"""From the words of a published table to a machine: its chip, what joins ranks inside a node and what joins nodes.

Rules of this file: words decide, never a system's name as a whole, and every system is read by the same rules. Where
words are silent a default stands in, and is said in `Machine.assumed`. A row that makes no sense raises `Unread`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from paceline.algorithms.errors import PacelineError
from paceline.simulator.fabric import Medium
from paceline.topologies.nodes import HYBRID_CUBE_MESH
from paceline.topologies.wires import link_named

Row = Mapping[str, str]


class Unread(PacelineError):
    """A row that no prediction can be made for, and why."""


@dataclass(frozen=True, slots=True)
class Chip:
    """What a table says of a chip by naming it."""

    generation: Literal["kepler", "maxwell", "pascal", "volta", "ampere", "hopper", "blackwell", "cpu", "manycore"]
    year: int
    pcie: int = 3
    nvlink: str = ""
    links: int = 0
    bridged: int = 0
    """NVLinks of the bridge that the card can carry"""


CHIPS: tuple[tuple[str, Chip], ...] = (
    (r"\bg?b[123]00\b|blackwell", Chip("blackwell", 2024, 5, "nvlink4", 36)),
    (r"\bg?h[1238]00|\bh20\b|hopper|\bp5[\be.]", Chip("hopper", 2022, 5, "nvlink4", 18, 12)),
    (r"\ba[18]00|\bp4de?\b", Chip("ampere", 2020, 4, "nvlink3", 12, 12)),
    (r"\ba[34]0\b|\ba10g?\b|a6000|rtx ?30|ampere|\bg5\b|\bl40?s?\b|rtx ?40|4090|3090", Chip("ampere", 2020, 4)),
    (r"\bv100|volta|\bp3(dn)?\b", Chip("volta", 2017, 3, "nvlink2", 6)),
    (r"\bt4\b|turing|2080|titan ?rtx|titan ?v\b|\bg4dn\b", Chip("volta", 2018)),
    (r"\bp100", Chip("pascal", 2016, 3, "nvlink1", 4)),
    (r"pascal|10[5678]0|\bp40?\b|titan ?xp", Chip("pascal", 2016)),
    (r"\bm[46]0\b|titan ?x|maxwell|gtx ?9[0-9]0", Chip("maxwell", 2015)),
    (r"\bk[2468]0|kepler|titan ?(black|z)?\b|\bp2\b", Chip("kepler", 2013, 2)),
    (r"\bknl\b|knights|xeon ?phi|\b72[1359]0f?\b", Chip("manycore", 2016)),
    (r"\bcpus?\b|xeon|epyc|\be5-|power[89]|skylake|milan|genoa|haswell|broadwell", Chip("cpu", 2018)),
)
"""words and chips, the first that fits; years, PCIe generations and NVLinks MEMORY high (links as in `wires`)"""
NODE_LINKS = r"sxm|nvlink|nvswitch|\bnv\d+\b|\bdgx|\bhgx|hybrid cube|\bhcm\b|\bp3(dn)?\.|\bp4de?\b|\bp5\b|\bnd\b"
SWITCHED = r"nvswitch|\bdgx[- ]?(2|a100|h[12]00|b[23]00)\b|\bhgx"
CUBE = {"pascal": HYBRID_CUBE_MESH["p100"], "volta": HYBRID_CUBE_MESH["v100"]}
INTER_SOCKET = {"cpu": 10.0, "kepler": 6.0, "maxwell": 6.0, "pascal": 6.0, "volta": 10.0, "ampere": 16.0, "hopper": 22.0}
"""GB/s of GPUs' traffic from socket to socket in machines of that time: FOUND (NCCL's topo.h)"""
P2P_OVERHEAD = 6 / 5
"""what PCIe traffic through a root complex costs: FOUND (INTEL_P2P_OVERHEAD in NCCL's topo.h)"""
NVSWITCH_CAP = {"ampere": 235e9}
"""the most that rings over NVSwitches give: FOUND (NCCL's tuning.cc)"""
EFA_SHARE = 8.9 / 12.5
"""of the raw rate: FOUND (NCCL over EFA in 2019, busbw at 1 GiB)"""


@dataclass(frozen=True, slots=True)
class Hop:
    """What a rank's messages pass: its own share of the bandwidth, one way, when its neighbours are quiet."""

    medium: Medium
    bytes_per_s: float
    latency_s: float
    words: str
    transport: str = "any"


@dataclass(frozen=True, slots=True)
class Machine:
    """What a row says, as far as a prediction needs it."""

    chip: Chip
    ranks: int
    nodes: int
    inside: Hop
    between: Hop
    switched: bool
    library: str
    version: tuple[int, int] | None
    algorithms: tuple[str, ...]
    """those that the row names; none: the library's choice"""
    assumed: tuple[str, ...]

    @property
    def per_node(self) -> int:
        """Ranks of one node."""
        return max(1, self.ranks // self.nodes)


def text_of(row: Row, *columns: str) -> str:
    """The columns' texts in lower case."""
    return " ; ".join(str(row.get(column) or "") for column in columns).lower()


def whole(row: Row, column: str) -> int | None:
    """A count, or None where there is none; raises `Unread` for what is no count."""
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
    """A positive number; raises `Unread`."""
    try:
        value = float(str(row.get(column) or "nan"))
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise Unread(f"{column}: found {row.get(column)!r}, expected a positive number")
    return value


def chip_of(*texts: str) -> Chip | None:
    """The chip that the first text with one names."""
    for text in texts:
        for words, chip in CHIPS:
            if re.search(words, text):
                return chip
    return None


def read(row: Row) -> Machine:
    """The machine of a row of collectives; raises `Unread`."""
    ranks = whole(row, "nranks")
    if ranks is None or ranks < 2:
        raise Unread(f"nranks: found {row.get('nranks')!r}, expected 2 or more")
    assumed: list[str] = []
    per_node = whole(row, "ranks_per_node")
    nodes = whole(row, "nnodes") or (-(-ranks // per_node) if per_node else 1)
    if nodes > ranks:
        raise Unread(f"nnodes: found {nodes} of {ranks} ranks, expected at most one node a rank")
    library = text_of(row, "library")
    chip = chip_of(text_of(row, "device"), text_of(row, "system"), text_of(row, "topology", "notes"))
    if chip is None:
        chip = Chip("volta", 2018) if "nccl" in library else Chip("cpu", 2018)
        assumed.append(f"no chip named: one of {chip.year} taken")
    words = text_of(row, "topology", "device", "system", "interconnect")
    switched = bool(re.search(SWITCHED, words)) or (
        chip.generation in ("ampere", "hopper", "blackwell") and bool(re.search(r"sxm|\bnd\b|nv(12|18)\b", words))
    )
    inside = _inside(chip, words, max(1, ranks // nodes), switched, assumed)
    between = _between(chip, row, switched, max(1, ranks // nodes), assumed) if nodes > 1 else inside
    named = re.search(r"(?:nccl|open ?mpi|mpi|gloo)\D{0,3}(\d+)\.(\d+)", library)
    return Machine(
        chip=chip,
        ranks=ranks,
        nodes=nodes,
        inside=inside,
        between=between,
        switched=switched,
        library=_library(library, chip, assumed),
        version=(int(named[1]), int(named[2])) if named else None,
        algorithms=_algorithms(text_of(row, "algorithm"), library),
        assumed=tuple(assumed),
    )


def _library(text: str, chip: Chip, assumed: list[str]) -> str:
    for name, words in (("nccl", "nccl|rccl"), ("gloo", "gloo"), ("mpi", "mpi|mpich|osu|mlsl|baidu|ucx|oneccl")):
        if re.search(words, text):
            return name
    found = "mpi" if chip.generation in ("cpu", "manycore") else "nccl"
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


def _inside(chip: Chip, words: str, ranks: int, switched: bool, assumed: list[str]) -> Hop:
    """What joins the ranks of one node."""
    if chip.generation in ("cpu", "manycore"):
        memory = link_named("shared-memory")
        return Hop("memory", memory.bytes_per_s, memory.latency_s, "shared memory")
    if chip.nvlink and switched:
        rate = min(chip.links * link_named(chip.nvlink).bytes_per_s, NVSWITCH_CAP.get(chip.generation, math.inf))
        return Hop("nvlink", rate, link_named(chip.nvlink).latency_s, f"{chip.links} NVLinks to NVSwitches")
    if chip.nvlink and "bridge" in words and "mix" not in words and ranks <= 2:
        link = link_named(chip.nvlink)
        return Hop("nvlink", (chip.bridged or 4) * link.bytes_per_s, link.latency_s, "an NVLink bridge")
    pcie = re.search(r"pcie|\bnvl\b|bridge", words) and not re.search(r"sxm|hybrid cube|\bdgx|nvlink ?\d?-? ?mesh", words)
    if chip.nvlink and not pcie and (re.search(NODE_LINKS, words) or chip.year >= 2020):
        return _meshed(chip, ranks)
    return _pcie(chip, words, ranks, assumed)


def _meshed(chip: Chip, ranks: int) -> Hop:
    """Rings over the NVLinks of the first so many GPUs, as many as the one with the fewest has among them."""
    link, links = link_named(chip.nvlink), chip.links
    if 2 <= ranks <= 8 and chip.generation in CUBE:
        links = min(sum(map(int, row[:ranks])) for row in CUBE[chip.generation][:ranks])
    return Hop("nvlink", links * link.bytes_per_s, link.latency_s, f"{links} NVLinks a GPU")


def _pcie(chip: Chip, words: str, ranks: int, assumed: list[str]) -> Hop:
    """A ring over PCIe: under one switch, through a root complex, or from socket to socket."""
    link = link_named(f"pcie{chip.pcie}-device")
    two = re.search(r"dual[- ]?(root|socket)|(2|two) ?x? ?(sockets|roots|cpus)\b|qpi|upi|2 cpu", words)
    one = re.search(r"single[- ]?(root|socket)|(1|one) ?(cpu|socket|root)\b", words)
    if not two and not one and ranks > 2:
        assumed.append("sockets not told: two for more than four GPUs" if ranks > 4 else "sockets not told: one")
    dual = bool(two) or (not one and ranks > 4)
    switch = re.search(r"(\d+)\s*(?:plx|pcie|gpus?)?[^;,.]*?(?:x|×|with|of)\s*(\d+)\s*gpus?", words)
    per_switch = int(switch[2]) if switch and "switch" in words and int(switch[2]) >= 1 else 2
    within = re.search(r"(\d+)\s*gpus?\s*(?:/|per|a)\s*(?:socket|cpu|root)", words)
    per_socket = int(within[1]) if within else 4
    if ranks <= per_switch:
        return Hop("pcie", link.bytes_per_s, 2 * link.latency_s, "under one PCIe switch")
    if dual and ranks > per_socket:
        across = INTER_SOCKET.get(chip.generation, 10.0) * 1e9
        return Hop("pcie", min(across, link.bytes_per_s), 2 * link.latency_s + 3.2e-6, "PCIe from socket to socket")
    return Hop("pcie", link.bytes_per_s / P2P_OVERHEAD, 2 * link.latency_s + 2.4e-6, "PCIe through a root complex")


INFINIBAND = {"sdr": 10.0, "ddr": 20.0, "qdr": 40.0, "fdr": 56.0, "edr": 100.0, "hdr100": 100.0, "hdr": 200.0, "ndr": 400.0}
NAMED = {10.0: "ib-qdr", 20.0: "ib-qdr", 40.0: "ib-qdr", 56.0: "ib-fdr", 100.0: "ib-edr", 200.0: "ib-hdr", 400.0: "ib-ndr"}
BY_YEAR = ((2022, 400.0), (2020, 200.0), (2016, 100.0), (0, 56.0))
"""InfiniBand's usual rate in machines since that year: MEMORY medium"""


NETWORK_WORDS = ("topology", "interconnect", "system", "library", "notes", "device")


def _between(chip: Chip, row: Row, switched: bool, ranks: int, assumed: list[str]) -> Hop:
    """What joins nodes: kind, rate and number of cards from the words, in the order of the columns."""
    words = text_of(row, *NETWORK_WORDS)
    cards, rate = _rate(" ; ".join(str(row.get(column) or "") for column in NETWORK_WORDS))
    if cards is None:
        one = re.search(r"\b(1|one|single) (nic|port|rail|card|hca)|1 port", words)
        cards = 1 if one else ranks if switched else 4 if re.search(r"\bdgx-?1\b", words) else 1
        if not one:
            assumed.append(f"network cards not told: {cards} a node")
    name, latency_s, bytes_per_s = _network(words, rate, chip, ranks, assumed)
    transport = "tcp" if "TCP" in name else "any"
    return Hop("network", cards * bytes_per_s, latency_s, f"{cards} x {name}", transport)


def _rate(words: str) -> tuple[int | None, float | None]:
    """Cards of a node and Gbit/s of one, as far as they are told; GB/s are bytes, and of something else."""
    many = r"(?:(\d+)\s*[x×]\s*)?(?:(\d+)\s*[x×]\s*)?"
    unit = r"(\d+(?:\.\d+)?)\s*-?(?:Gb/s|Gbps|Gbit(?:/s)?|[Gg]b[Ee]|Gig[Ee]|G\b|Gb\b)"
    found = re.search(many + unit, words)
    if found:
        times = [int(found[n]) for n in (1, 2) if found[n]]
        return (math.prod(times) if times and math.prod(times) <= 64 else None), float(found[3]) or None
    found = re.search(r"(?i)(\d+)\s*[x×]\s*(?:qdr|fdr|edr|hdr|ndr|ib\b|infiniband|hca|nics?)", words)
    if found and 1 <= int(found[1]) <= 64:
        return int(found[1]), None
    return (2 if re.search(r"(?i)dual[- ]?(rail|port|nic)", words) else None), None


def _network(
    words: str, rate: float | None, chip: Chip, ranks: int, assumed: list[str]
) -> tuple[str, float, float]:
    """Name, latency and bytes per second of one card."""
    for kind, latency_us, share in (
        ("omni-path|\\bopa\\b|omnipath", 1.0, 12.3 / 12.5),
        ("aries|gemini", 1.3, 8.0 / 12.5),
        ("slingshot", 2.0, 24.0 / 25.0),
        ("\\befa\\b|elastic fabric", 25.0, EFA_SHARE),
    ):
        if re.search(kind, words):
            usual = 200.0 if kind == "slingshot" else _efa_rate(chip, ranks) if "efa" in kind else 100.0
            if rate is None:
                assumed.append(f"rate not told: {usual:g} Gbit/s")
            return kind.split("|")[0].strip("\\b"), latency_us * 1e-6, (rate or usual) / 8 * 1e9 * share
    speed = next((name for name in ("hdr100", *INFINIBAND) if re.search(rf"\b{name}\b", words)), None)
    if "roce" in words:
        roce = link_named("eth-100g-roce")
        return "RoCE", roce.latency_s, (rate or 100.0) / 100.0 * roce.bytes_per_s
    if speed or re.search(r"infiniband|ibverbs|\bib\b|\brdma\b|\bucx\b|\bgdr\b", words):
        usual = next(value for year, value in BY_YEAR if chip.year >= year)
        gbit = INFINIBAND[speed] if speed else rate or usual
        if not speed and rate is None:
            assumed.append(f"InfiniBand's rate not told: {usual:g} Gbit/s")
        link = link_named(NAMED[min(NAMED, key=lambda known: abs(known - gbit))])
        return link.name, link.latency_s, link.bytes_per_s
    return _ethernet(words, rate, chip, assumed)


def _efa_rate(chip: Chip, ranks: int) -> float:
    """Gbit/s of AWS's instances with EFA: 25 on those of one GPU, else by the GPUs' time: MEMORY medium."""
    return 25.0 if ranks == 1 else 100.0 if chip.year < 2022 else 200.0


def _ethernet(words: str, rate: float | None, chip: Chip, assumed: list[str]) -> tuple[str, float, float]:
    """TCP over whatever rate; latency and share of the raw rate from the nearest link that is known."""
    if rate is None and re.search(r"gvnic|gke|cloud", words):
        return "cloud TCP", 19.1e-6, 5.9e9
    if rate is None:
        rate = 10.0 if chip.year < 2017 else 25.0 if re.search(r"tcp|ether|cloud|aws|gcp|vm", words) else 100.0
        assumed.append(f"network not told: {rate:g} Gbit/s")
        if rate == 100.0:
            link = link_named("ib-edr")
            return link.name, link.latency_s, link.bytes_per_s
    known = {1.0: "eth-1g", 10.0: "eth-10g", 25.0: "eth-25g", 100.0: "eth-100g"}
    near = min(known, key=lambda one: abs(math.log(one / rate)))
    link = link_named(known[near])
    return f"TCP at {rate:g} Gbit/s", link.latency_s, link.bytes_per_s * rate / near


def default(values: Iterable[str]) -> str:
    """What was assumed, once each, as one text."""
    return "; ".join(dict.fromkeys(values))
