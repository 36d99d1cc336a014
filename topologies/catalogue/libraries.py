"""Communication libraries: the costs of their protocols, and their choice of algorithm by ranks and bytes.

Constants are those by which a library's own source decides, with file and version; FOUND and MEMORY as in `links`. A
protocol gives the costs of a step beyond moving its bytes, and a library when it uses which protocol. Measurements of
one machine do not belong here: latencies and rates of hardware are in `links`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from paceline.topologies.catalogue.charge_rates import CACHE_BYTES_PER_CORE

NCCL_TUNER = "FOUND NVIDIA/nccl src/graph/tuning.cc @5067397"
LATENCY_US = {
    ("tree", "LL"): (6.8, 0.6, 1.0, 5.0),
    ("tree", "LL128"): (14.0, 1.25, 1.9, 8.5),
    ("tree", "Simple"): (8.4, 4.0, 4.0, 14.0),
    ("ring", "LL"): (6.6, 0.6, 1.0, 2.7),
    ("ring", "LL128"): (14.0, 1.9, 2.5, 4.0),
    ("ring", "Simple"): (8.4, 3.4, 5.7, 14.0),
    ("nvls", "Simple"): (0.0, 25.0, 25.0, 18.0),
    ("nvls-tree", "Simple"): (0.0, 25.0, 25.0, 20.9),
}
"""latencies of NCCL's algorithms and protocols: once, and per step over NVLink, PCIe and network; FOUND as above"""
LAUNCH_S = 10e-6
"""the time of NCCL's kernel and of waiting for it, which its tuner leaves out: INFERENCE from FOUND floors of eight
GPUs, 12.5 to 45 us where the tuner has 15"""
POST_S = {"Simple": 3e-6}
"""the least time of a step inside a node while the ring also crosses a network, because a processor posts every step,
three times with a rendezvous; 1 us for other protocols; FOUND as above"""
PLATEAU = {"old": 1.9, "new": 1.4}
"""growth of the latency of NCCL's rings over a network for long messages, before Ampere and since; FOUND as above"""
PLATEAU_FROM_BYTES = 64 * 16
"""bytes of a vector for each rank from which it holds: 64 bytes in each channel, FOUND as above; 16 channels MEMORY
medium"""
NVLS_SHARE = {"hopper": 0.85, "blackwell": 0.74}
"""the share of the NVLinks' rate that carries data where the switches add, by the GPUs that have such switches; FOUND
(nvlsEfficiency in the same file)"""
USUAL_LATENCY_S = {"nvlink": 2e-6, "pcie": 3e-6}
"""the latency of one hop that the steps over NVLink and PCIe include: that of the catalogue's links (`links`), as the
steps were measured on such hardware. The step over a network includes none: it is the work of the library, the GPU and
the card, on top of the latency between the cards. DERIVED from the published rows of several nodes: their mean error
(`paceline validate collectives`) is smallest if all of the network's latency is added, and grows the more of it a step
is taken to include (of 16 A100s from 7.4 to 8.1 and 9.0 % for 0, 1 and 3 us)"""
TREE_CORRECTION = {
    "LL": (1, 1, 1, 1, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1, 1, 1, 1),
    "LL128": (1, 1, 1, 1, 1, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.8, *(4 * (0.9,)), 1, 1, 1),
    "Simple": (*(7 * (0.9,)), 0.8, 0.7, 0.6, 0.6, *(4 * (0.5,)), 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9, 0.9),
}
"""the share of its rate that a tree reaches, for messages of 64 bytes, 128, 256 … 512 MiB; FOUND as above"""
LL_LIMIT_GB_PER_S = {
    "volta": (39.0, 39.0, 20.4),
    "ampere": (87.7, 22.5, 19.0),
    "hopper": (141.0, 45.0, 35.0),
    "blackwell": (282.0, 90.0, 70.0),
}
"""the limit of protocol LL within a node, between two nodes, and more, by the GPUs' generation; FOUND as above"""
LATEST = (999, 0)
"""a version of a library that is above all others"""
SWITCH_LIMIT_BYTES_PER_S = {"ampere": 235e9}
"""the highest rate over the switches of a node by architecture; of rings FOUND as above, of trees INFERENCE"""


def version_of(text: str | None) -> tuple[int, int]:
    """Returns (major, minor) of a version; the latest without one.

    >>> version_of("2.18"), version_of(None) == LATEST
    ((2, 18), True)
    """
    if text is None:
        return LATEST
    major, minor = text.split(".")
    return int(major), int(minor)


GENERATIONS = ("kepler", "maxwell", "pascal", "volta", "turing", "ampere", "ada", "hopper", "blackwell")
"""NVIDIA's architectures by age. An unknown one, and those of other vendors, count as Ampere: INFERENCE"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """The members of a collective, as far as the protocols of a library depend on them.

    Args:
        ranks: their number.
        nodes: the number of their nodes.
        architecture: the oldest architecture of their devices, as in the device catalogue; "" if it is not known.
        nvlink: whether NVLinks join the members of every node.
        switched: whether switches join them.
        memory_bytes_per_s: the traffic that the main memory of a node sustains.
    """

    ranks: int
    nodes: int
    architecture: str = ""
    nvlink: bool = False
    switched: bool = False
    memory_bytes_per_s: float = math.inf

    @property
    def generation(self) -> int:
        """The place of their architecture in `GENERATIONS`.

        >>> Members(ranks=8, nodes=1, architecture="hopper").generation > Members(ranks=8, nodes=1).generation
        True
        """
        return GENERATIONS.index(self.architecture if self.architecture in GENERATIONS else "ampere")

    def since(self, architecture: str) -> bool:
        """Returns whether all devices are of this architecture or of a later one."""
        return self.generation >= GENERATIONS.index(architecture)


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """How a library moves the messages of an algorithm.

    A step over a medium takes step_s[medium] if that is given, plus latency_factor times the latency of the network and
    what other latencies have above `USUAL_LATENCY_S`, else latency_factor · latency + step_extra_s. Its bytes are
    transferred at bandwidth_factor of the rate, at most at limit_bytes_per_s.

    Args:
        name: the library's name of it.
        algorithm: the algorithm that it is for; `any` is for all.
        transport: the transport that it uses: `tcp`, or `any` if no more specific one matches.
        base_s: once for the whole collective.
        step_s: by medium (`memory`, `nvlink`, `pcie`, `network`), seconds of a step without the network's latency.
        latency_factor: how often a message incurs the latency: 3 for request, answer and data.
        step_extra_s: in addition to the latency.
        bandwidth_factor: the share of the link's rate that carries data.
        by_size: the share of that for vectors of 64 bytes, 128, 256 …; above the last one, all.
        limit_bytes_per_s: the highest rate of the data of one rank, however fast the links are.
        memory_bytes_per_s: the highest rate of one rank inside a node, if all of its ranks share its memory at once.
        exchange_s: in addition in rounds in which ranks send and receive at once.
        crossing_s: in addition for messages to other nodes, whose ranks share a card.
        from_bytes: the smallest message that uses it.
        below_bytes: messages of this size and above do not use it.
        since: the library's first version that has it.
        provenance: where the figures come from.
    """

    name: str
    algorithm: str = "any"
    transport: str = "any"
    base_s: float = 0.0
    step_s: Mapping[str, float] = field(default_factory=dict)
    latency_factor: float = 1.0
    step_extra_s: float = 0.0
    bandwidth_factor: float = 1.0
    by_size: tuple[float, ...] = ()
    limit_bytes_per_s: float = math.inf
    memory_bytes_per_s: float = math.inf
    exchange_s: float = 0.0
    crossing_s: float = 0.0
    from_bytes: float = 0
    below_bytes: float = math.inf
    since: tuple[int, int] = (0, 0)
    provenance: str

    def data_share(self, nbytes: float) -> float:
        """Returns the share of the rate that carries data in a collective of vectors of so many bytes.

        >>> tree = next(one for one in LIBRARIES["nccl"].protocols if (one.algorithm, one.name) == ("tree", "Simple"))
        >>> round(tree.data_share(1e6), 2), tree.data_share(1e10)
        (0.46, 0.92)
        """
        octave = math.log2(max(nbytes, 64.0) / 64)
        return self.bandwidth_factor * (self.by_size[int(octave)] if octave < len(self.by_size) else 1.0)


@dataclass(frozen=True, slots=True)
class Decision:
    """The algorithm below this number of ranks and bytes; the first decision that matches is used."""

    below_ranks: float
    below_bytes: float
    algorithm: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Receiving:
    """How a library receives messages from one rank to another.

    Args:
        order: `in-order`: a message above the eager limit stays at its sender until a receive has matched it
            (rendezvous); `shared`: every message flows when it is sent.
        eager_bytes: by transport (`tcp`, or `any` for others), the largest message that does not wait for a receive.
        copies: when a core of the receiver copies a message that came over a network: `tcp`: from sockets only, because
            RDMA writes into the receiver's memory; a message up to the eager limit is always copied.
        core_bytes_per_s: the rate of that copy, if it is lower than the core's own.
        overhead_s: processor time for each message, in addition to the link's.
        provenance: where the figures come from.
    """

    order: Literal["in-order", "shared"]
    eager_bytes: Mapping[str, float] = field(default_factory=dict)
    copies: Literal["always", "tcp", "never"]
    core_bytes_per_s: float = math.inf
    overhead_s: float = 0.0
    provenance: str

    def eager(self, nbytes: float, transport: str) -> bool:
        """Returns whether a message does not wait for its receive, if large ones do.

        Args:
            nbytes: the size in bytes.
            transport: the transport, such as "tcp".
        """
        return nbytes <= self.eager_bytes.get(transport, self.eager_bytes.get("any", 0.0))

    def copied(self, nbytes: float, transport: str) -> bool:
        """Returns whether a core copies a message that came over a network.

        Args:
            nbytes: the size in bytes.
            transport: the transport, such as "tcp".

        >>> LIBRARIES["mpi"].receiving.copied(100, "any"), LIBRARIES["mpi"].receiving.copied(10**6, "any")
        (True, False)
        """
        if self.copies == "tcp":
            return transport == "tcp" or (self.order == "in-order" and self.eager(nbytes, transport))
        return self.copies == "always"


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """A communication library.

    Args:
        name: its name.
        protocols: the protocols of its algorithms; of several that match, the cheapest is used.
        algorithms: those for an all-reduce, by their names in `paceline.topologies.closed_forms`.
        decisions: the algorithm of an all-reduce, by the first version of the library that decides so; without any, the
            cheapest.
        receiving: how it receives messages.
        reduces: whether the device or one core of the rank's host adds what is received; `fused`: the kernels that move
            the data add while they do; None: the device of a GPU, a core of other nodes.
        occupies: which processors of a device communication takes; None: no processor.
        through_host: how data of devices pass the memory of their hosts: `copied`: whole vectors, before and after the
            operation; `pipelined`: in pieces, while they are sent to other nodes; `never`: they do not.
        gpudirect: whether they do not where the system has GPUDirect RDMA.
        segment_bytes: the largest segment of a message of a ring, of which two are in flight: one is added while the
            next one arrives; 0: a message is added when it has arrived.
        sums_steps: whether the latencies of steps do not overlap with the bytes of others: all are paid first.
        adapt: returns a protocol as the members of a collective of so many bytes use it with a version, or None if they
            cannot.
        provenance: where the algorithms come from.

    >>> LIBRARIES["mpi"].algorithm(144, 65536), LIBRARIES["mpi"].algorithm(144, 2**20)
    ('reduce-broadcast', 'halving-doubling')
    """

    name: str
    protocols: tuple[Protocol, ...]
    algorithms: tuple[str, ...]
    decisions: Mapping[tuple[int, int], tuple[Decision, ...]] = field(default_factory=dict)
    receiving: Receiving
    reduces: Literal["device", "core", "fused"] | None = None
    occupies: Literal["multiprocessors", "core"] | None = None
    through_host: Literal["never", "pipelined", "copied"] = "never"
    gpudirect: bool = False
    segment_bytes: float = 0.0
    sums_steps: bool = False
    adapt: Callable[[Protocol, Members, float, tuple[int, int]], Protocol | None] | None = None
    provenance: str

    def protocols_of(self, members: Members, nbytes: float, version: tuple[int, int] = LATEST) -> tuple[Protocol, ...]:
        """Returns the protocols that the members of a collective can use.

        Args:
            members: the members.
            nbytes: the n of the closed forms.
            version: (major, minor) of the library; the latest by default.

        >>> old = Members(ranks=8, nodes=1, architecture="pascal", nvlink=True)
        >>> [f"{one.algorithm} {one.name}" for one in LIBRARIES["nccl"].protocols_of(old, 1e6, (2, 4))]
        ['tree LL', 'tree Simple', 'ring LL', 'ring Simple']
        """
        known = [protocol for protocol in self.protocols if protocol.since <= version]
        if self.adapt is None:
            return tuple(known)
        adapted = [self.adapt(protocol, members, nbytes, version) for protocol in known]
        return tuple(protocol for protocol in adapted if protocol is not None)

    def algorithm(self, ranks: int, nbytes: float, version: tuple[int, int] = LATEST) -> str | None:
        """Returns this version's algorithm for an all-reduce of `nbytes` among `ranks`; None: the cheapest.

        Args:
            ranks: the number of ranks.
            nbytes: bytes of the vector of one rank.
            version: (major, minor) of the library; the latest by default.
        """
        known = [since for since in self.decisions if since <= version]
        for decision in self.decisions[max(known)] if known else ():
            if ranks < decision.below_ranks and nbytes < decision.below_bytes:
                return decision.algorithm
        return None

    def message(self, nbytes: float, transport: str = "any") -> Protocol:
        """Returns the protocol of one message, for libraries that choose it by size.

        Args:
            nbytes: the size in bytes.
            transport: the transport, such as "tcp".

        >>> LIBRARIES["mpi"].message(100_000, "tcp").latency_factor
        4.5
        """
        fits = [protocol for protocol in self.protocols if protocol.from_bytes <= nbytes < protocol.below_bytes]
        return next((fit for fit in fits if fit.transport == transport), fits[0])


def _nccl_protocol(algorithm: str, name: str) -> Protocol:
    base, nvlink, pcie, network = (float(f"{latency_us}e-6") for latency_us in LATENCY_US[algorithm, name])
    share = {"ring": {"LL": 0.5, "LL128": 0.92, "Simple": 1.0}, "tree": {"LL": 0.92 / 3.8, "LL128": 0.92 * 7 / 9}}
    since = {"LL": (2, 1), "LL128": (2, 5), "Simple": (1, 0)}[name]
    return Protocol(
        name=name,
        algorithm=algorithm,
        base_s=LAUNCH_S + base,
        step_s={"nvlink": nvlink, "pcie": pcie, "network": network},
        bandwidth_factor=share.get(algorithm, {}).get(name, 0.92 if algorithm == "tree" else NVLS_SHARE["hopper"]),
        by_size=TREE_CORRECTION[name] if algorithm == "tree" else (),
        since=max(since, NCCL_SINCE[algorithm]),
        provenance=f"{NCCL_TUNER}; first versions MEMORY high, of LL MEMORY low; a launch of 10 us INFERENCE",
    )


RINGS_SINCE = (2, 0)
"""NCCL's first version with several rings; before, there is one in the order of the devices on the PCIe bus: FOUND
(orderRanks and commBuildMaps in core.cu of v1.3.4)"""
BALANCED_SINCE = (2, 8)
"""NCCL's first version whose trees between two nodes use a card in both directions at once: MEMORY medium"""
NCCL_SINCE = {"ring": (1, 0), "tree": (2, 4), "nvls": (2, 17), "nvls-tree": (2, 18)}
"""the first versions of NCCL's algorithms: MEMORY high"""


def _adapted_by_nccl(protocol: Protocol, members: Members, nbytes: float, version: tuple[int, int]) -> Protocol | None:
    """Returns a protocol of NCCL for some members, as its tuner does; None if they cannot use it."""
    several = members.nodes > 1
    if protocol.name == "LL128" and not (members.nvlink and members.since("volta")):
        return None
    if protocol.algorithm in ("nvls", "nvls-tree"):
        share = NVLS_SHARE.get(members.architecture)
        fits = members.switched and several == (protocol.algorithm == "nvls-tree")
        return None if share is None or not fits else replace(protocol, bandwidth_factor=share)
    if members.switched and members.architecture in SWITCH_LIMIT_BYTES_PER_S:
        protocol = replace(
            protocol, limit_bytes_per_s=protocol.bandwidth_factor * SWITCH_LIMIT_BYTES_PER_S[members.architecture]
        )
    if protocol.name == "LL":
        column = min(members.nodes, 3) - 1
        known = max((GENERATIONS.index(name), limits[column]) for name, limits in LL_LIMIT_GB_PER_S.items()
                    if name == "volta" or members.since(name))  # fmt: skip
        protocol = replace(protocol, limit_bytes_per_s=min(protocol.limit_bytes_per_s, known[1] * 1e9))
    if protocol.algorithm == "tree" and members.nodes == 2 and version < BALANCED_SINCE:
        return replace(protocol, bandwidth_factor=protocol.bandwidth_factor / 2)
    if protocol.algorithm != "ring" or not several:
        return protocol
    least_s = POST_S.get(protocol.name, 1e-6)
    step_s = {
        medium: second if medium == "network" else max(second, least_s) for medium, second in protocol.step_s.items()
    }
    if members.ranks == members.nodes:  # the latency of a tree step is not hidden
        step_s["network"] = float(f"{LATENCY_US['tree', protocol.name][3]}e-6")
    growth = 1.0
    if protocol.name == "Simple" and nbytes >= PLATEAU_FROM_BYTES * members.ranks:
        growth = PLATEAU["new" if members.since("ampere") else "old"]
    return replace(
        protocol,
        base_s=LAUNCH_S + growth * (protocol.base_s - LAUNCH_S),
        step_s={medium: growth * second for medium, second in step_s.items()},
        latency_factor=growth,
    )


MEMORY_TRAFFIC = 3
"""bytes that pass the memory for each byte that is copied or added: two are read and one is written"""
CACHE_TRAFFIC = 2
"""bytes that pass between caches for each byte copied: it is read from one and written to another; what is then added
is in the core's own cache: INFERENCE"""
CARD_MESSAGES_PER_S = 100e6
"""messages of several ranks that pass a card: MEMORY medium (vendors state 150 to 215 million since 2015)"""
EXCHANGE_S = 0.5e-6
"""work of a rank of MPI in a round in which it sends and receives at once, beyond the latency of one message: DERIVED,
two ranks of a node all-reduce 64 bytes in 0.94 us with a latency of 0.3 to 0.46 us (FOUND, as `shared-memory`)"""
SLOW_CORES = {"knights-landing": 3.0}
"""factor of the time that a core needs for the software of a message: MEMORY medium (1.4 GHz, two wide)"""


def _adapted_by_mpi(protocol: Protocol, members: Members, nbytes: float, _version: tuple[int, int]) -> Protocol:
    """Returns a protocol of MPI for some members: ranks of a node share its memory and its cards."""
    each = max(1.0, members.ranks / members.nodes)
    slow = SLOW_CORES.get(members.architecture, 1.0)
    traffic = CACHE_TRAFFIC if 2 * nbytes <= CACHE_BYTES_PER_CORE else MEMORY_TRAFFIC
    return replace(
        protocol,
        latency_factor=slow * protocol.latency_factor,
        memory_bytes_per_s=members.memory_bytes_per_s / traffic / each,
        exchange_s=slow * EXCHANGE_S,
        crossing_s=(each - 1) / CARD_MESSAGES_PER_S,
    )


EAGER_TCP_BYTES = 65_536.0 - 64
"""messages of this size and above ask the receiver first, in Open MPI over TCP: MEMORY high"""
GLOO_CORE_BYTES_PER_S = 1.16e9
"""what one core sends or receives through gloo: FOUND (gloo issue 248: 20 MB in 17.25 ms). This all-reduce of two ranks
adds half of its bytes, one segment while the next arrives, so the rate contains what adding costs beside"""
GLOO_SEGMENT_BYTES = 2**20
"""bytes of the largest segment of a ring: FOUND facebookincubator/gloo gloo/allreduce.h @cc44198 (kMaxSegmentSize)"""


def _over_tcp() -> tuple[Protocol, ...]:
    """Messages of one packet, of several, and above the limit from which the receiver is asked first."""
    measured = "FOUND osu_latency of Open MPI over TCP (GKE): 19.3, 38.4 and 87 us, in pieces of at most 6 % error"
    sizes = ((0.0, 1460.0, 1.0), (1460.0, EAGER_TCP_BYTES, 2.0), (EAGER_TCP_BYTES, math.inf, 4.5))
    return tuple(
        Protocol(
            name=name,
            transport="tcp",
            latency_factor=factor,
            from_bytes=low,
            below_bytes=high,
            provenance=f"{measured}; eager limit 64 KiB MEMORY high",
        )
        for name, (low, high, factor) in zip(("packet", "packets", "rendezvous"), sizes, strict=True)
    )


def _table(*rows: tuple[float, float, str]) -> tuple[Decision, ...]:
    return tuple(Decision(*row) for row in rows)


ALL, RD, HD, RING, TREE = math.inf, "recursive-doubling", "halving-doubling", "ring", "reduce-broadcast"
OPEN_MPI_4_1 = _table(
    (4, 8, RING), (4, 4096, RD), (4, 8192, RING), (4, 16384, RD), (4, 262144, RING), (4, ALL, HD),
    (8, 16, RING), (16, 8192, RD), (16, ALL, HD), (32, 64, RING), (32, 4096, RD), (32, ALL, HD),
    (64, 128, RING), (64, ALL, HD), (128, 262144, RD), (128, ALL, HD),
    (256, 131072, TREE), (256, 262144, RD), (256, ALL, HD), (512, 4096, TREE), (512, ALL, HD),
    (ALL, 2048, TREE), (ALL, 16384, RD), (ALL, ALL, HD),
)  # fmt: skip
HIERARCHY_SINCE = (5, 0)
"""Open MPI's first version in which all-reduces of several nodes use coll/han: MEMORY high; its priority is FOUND"""
HIERARCHY_SEGMENT_BYTES = 65_536
"""segment size of vectors: FOUND open-mpi/ompi coll_han_component.c (allreduce_segsize; priority 35, tuned: 30)"""
OPEN_MPI_1 = _table((ALL, 10_000, RD), (ALL, ALL, RING))

LIBRARIES: dict[str, Library] = {
    library.name: library
    for library in (
        Library(
            name="plain",
            protocols=(Protocol(name="plain", provenance="no costs of its own: the links' latency and bandwidth"),),
            algorithms=(RING, RD, HD, "tree"),
            receiving=Receiving(
                order="shared",
                copies="tcp",
                provenance="RPC servers, such as gRPC, read all connections at once: MEMORY high; one copy: INFERENCE",
            ),
            provenance="textbook",
        ),
        Library(
            name="nccl",
            protocols=tuple(_nccl_protocol(*key) for key in LATENCY_US),
            algorithms=(RING, "double-tree", "nvls", "nvls-tree"),
            sums_steps=True,
            adapt=_adapted_by_nccl,
            receiving=Receiving(
                order="in-order",
                copies="never",
                provenance="a send needs a posted receive, and GPUs copy, GPUDirect without the host: MEMORY high",
            ),
            reduces="fused",
            occupies="multiprocessors",
            through_host="pipelined",
            gpudirect=True,
            provenance=f"{NCCL_TUNER}; it takes the cheapest; its kernels add what they receive while they pass it on: "
            "MEMORY certain (recvReduceSend in src/device); pieces through host memory without GPUDirect: MEMORY "
            "certain (src/transport/net.cc)",
        ),
        Library(
            name="mpi",
            protocols=(
                Protocol(name="eager", below_bytes=8192, provenance="limit of UCX about 8 KiB: MEMORY medium"),
                Protocol(
                    name="rendezvous",
                    from_bytes=8192,
                    latency_factor=3.0,
                    provenance="asks, is answered, sends: textbook; limit of UCX about 8 KiB: MEMORY medium",
                ),
                *_over_tcp(),
            ),
            algorithms=(RING, RD, HD, TREE),
            adapt=_adapted_by_mpi,
            decisions={(1, 0): OPEN_MPI_1, (4, 1): OPEN_MPI_4_1},
            receiving=Receiving(
                order="in-order",
                eager_bytes={"any": 8191, "tcp": EAGER_TCP_BYTES - 1},
                copies="tcp",
                provenance="rendezvous and eager limits as in its protocols; RDMA into its memory: MEMORY high",
            ),
            reduces="core",
            occupies="core",
            through_host="copied",
            gpudirect=True,
            provenance="FOUND open-mpi/ompi coll_tuned_decision_fixed.c @v4.0.0 and @8efebee (since v4.1.0); programs "
            "copy whole vectors unless MPI is CUDA-aware: MEMORY certain",
        ),
        Library(
            name="gloo",
            protocols=(
                Protocol(
                    name="segments",
                    limit_bytes_per_s=GLOO_CORE_BYTES_PER_S,
                    step_extra_s=20e-6,
                    provenance="rate of one core FOUND (gloo issue 248: 20 MB in 17.25 ms); 20 us a step MEMORY medium",
                ),
            ),
            algorithms=(RING,),
            receiving=Receiving(
                order="in-order",
                copies="always",
                core_bytes_per_s=GLOO_CORE_BYTES_PER_S,
                overhead_s=20e-6,
                provenance="measured, torch 2.13: a send of 4 B to 40 MB ends with its receive; the core's rate and "
                "20 us as in its protocol",
            ),
            reduces="core",
            segment_bytes=GLOO_SEGMENT_BYTES,
            occupies="core",
            through_host="copied",
            provenance="FOUND facebookincubator/gloo docs/algorithms.md, gloo/allreduce.cc @cc44198; copies to pinned "
            "tensors of the host and back: MEMORY certain (pytorch ProcessGroupGlooCuda.cpp, host work)",
        ),
    )
}
"""the libraries by name; `mpi` is Open MPI"""
