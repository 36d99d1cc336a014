"""Links: latency and bandwidth of one direction.

Latency is one way, for a small message, as measured by the message layer named in `provenance`; bandwidth is the
sustained rate of that layer, not the nominal one. A link whose bandwidth varies over time has its mean bandwidth. FOUND
means published by the named source; MEMORY means remembered, with the confidence that follows, and is never claimed as
validation.

A message layer changes its protocol with the size of messages, so a link may have pieces, each with its own α and β up
to a size. A part of every latency is work of the sender's and the receiver's processor, which handle one message at a
time: many small messages to one rank queue for it, however fast the link is.

How the bandwidth of a link varies over time: a random process with mean 1 that multiplies the link's bandwidth.

The factor is redrawn at multiples of an interval and constant in between. Its law is floor + (1 − floor) · lognormal,
with mean 1, so that a link's bandwidth is its mean bandwidth, whatever the other settings are. The logarithm is an
autoregressive process of order 1 (AR(1), also called Gauss-Markov), which is stationary from the first interval on.
Nothing is drawn in advance: a process yields one factor after the other, as long as a run asks for them.

Links that occur only inside graphs: one hop of a network, a bus in a machine, a channel to memory.

`LINKS` has end-to-end values of a message layer; a graph has hops. The link from a host to a switch has half of the
latency in `LINKS`, so that two hosts on one switch have all of it; `LinkModel.between_switches_s` is added for each
further hop from switch to switch. FOUND, MEMORY (with its confidence) and NOT FOUND say how well a value is known;
DERIVED is computed from such values, INFERENCE is our guess.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.naming import near_miss

STREAM = 23
"""separates these draws from others with the same seed"""
EVERY_S = 10.0
"""seconds between two redraws; INFERENCE: the interval at which studies of cloud networks sample bandwidth (Uta et al.,
NSDI 2020, from memory)"""
CORRELATION = 0.8
"""correlation of successive bandwidths; INFERENCE: congestion on wide-area paths lasts for about a minute. No published
value was found"""
FLOOR = 0.1
"""smallest factor; our choice: at cv 0.3, a lognormal without a floor falls below it once in 10¹⁴ draws"""
MOST_CV = 3.0
"""largest coefficient of variation; beyond it, a mean over a run says nothing, since rare large values dominate it"""


@dataclass(frozen=True, slots=True, kw_only=True)
class VariationModel:
    """The variation of a link's bandwidth over time.

    The factor of interval k is

        f_k = floor + (1 − floor) exp(σ z_k − σ²/2),   z_k = ρ z_(k−1) + √(1 − ρ²) ε_k,   ε_k ~ N(0, 1)

    with σ² = ln(1 + (cv / (1 − floor))²) and ρ = ln(1 + correlation (exp(σ²) − 1)) / σ². So f has mean 1, standard
    deviation `cv` and the correlation `correlation` between successive intervals, all exactly.

    Args:
        cv: the coefficient of variation: standard deviation over mean.
        every_s: the seconds between two redraws.
        correlation: the correlation of the bandwidths of two successive intervals, 0 or more and less than 1.
        floor: the smallest factor, 0 or more and less than 1.
        provenance: where the values come from.

    >>> varying = VariationModel(cv=0.3)
    >>> [round(factor, 2) for factor, _ in zip(varying.factors(seed=1, link="host0>switch"), range(4))]
    [1.31, 1.17, 1.29, 1.17]
    """

    cv: float
    every_s: float = EVERY_S
    correlation: float = CORRELATION
    floor: float = FLOOR
    provenance: str = "given in the scenario"

    @property
    def sigma(self) -> float:
        """The standard deviation of the logarithm of the lognormal part."""
        return math.sqrt(math.log1p((self.cv / (1.0 - self.floor)) ** 2))

    @property
    def log_correlation(self) -> float:
        """ρ: the correlation of successive logarithms, which is a little larger than that of successive factors."""
        squared = self.sigma**2
        return math.log1p(self.correlation * math.expm1(squared)) / squared

    def correlation_after(self, intervals: int) -> float:
        """Returns the correlation of the factors of two intervals that are so many intervals apart.

        >>> varying = VariationModel(cv=0.5, correlation=0.8)
        >>> round(varying.correlation_after(1), 12), round(varying.correlation_after(2), 3)
        (0.8, 0.643)
        """
        squared = self.sigma**2
        return math.expm1(squared * self.log_correlation**intervals) / math.expm1(squared)

    def factors(self, seed: int, link: str) -> Factors:
        """Returns the factor of each interval, without end.

        Args:
            seed: the seed of the run.
            link: the name of the link. Links with different names vary independently.
        """
        return Factors(self, seed, link)


BLOCK = 100_000
"""factors that are skipped at a time, so that their random numbers take little memory"""
FORGOTTEN = 1e-100
"""the share of an earlier logarithm in a later one that is far below the rounding of the later one"""


class Factors(Iterator[float]):
    """The factors of a link's successive intervals.

    >>> one, other = (VariationModel(cv=0.3, correlation=0.9).factors(1, "a-b") for _ in range(2))
    >>> one.skip(5000)
    >>> next(one) == [next(other) for _ in range(5001)][-1]
    True
    """

    def __init__(self, variation: VariationModel, seed: int, link: str) -> None:
        import numpy as np  # only a run draws; `paceline list topologies` starts faster without it

        key = int.from_bytes(hashlib.blake2b(link.encode(), digest_size=8).digest(), "big")
        self._generator = np.random.default_rng(np.random.SeedSequence((seed, STREAM, key)))
        self._floor, self._sigma, self._rho = variation.floor, variation.sigma, variation.log_correlation
        self._fresh = math.sqrt(1.0 - self._rho**2)
        self._z: float | None = None
        self._memory = math.ceil(math.log(FORGOTTEN) / math.log(self._rho)) if 0.0 < self._rho < 1.0 else 1
        """intervals after which a logarithm has no influence"""

    def __next__(self) -> float:
        drawn = float(self._generator.standard_normal())
        self._z = drawn if self._z is None else self._rho * self._z + self._fresh * drawn
        return self._floor + (1.0 - self._floor) * math.exp(self._sigma * self._z - self._sigma**2 / 2)

    def skip(self, count: int) -> None:
        """Leaves out factors that nobody needs; the later ones are the same as if they had been drawn one by one."""
        if count and self._z is None:
            next(self)
            count -= 1
        for first in range(0, count, BLOCK):
            drawn = self._generator.standard_normal(min(BLOCK, count - first))
            z = self._z or 0.0
            for fresh in drawn[-self._memory :].tolist():
                z = self._rho * z + self._fresh * fresh
            self._z = z


Medium = Literal["memory", "nvlink", "pcie", "network"]
"""the medium of a hop, fastest first; a communication library tunes itself for the slowest on a route"""


SWITCH_HOP_S = 0.24e-6
"""the latency of one more hop between switches: FOUND for HDR100 (perftest, 20000 pings), INFERENCE for the other links
of the catalogue"""
HOP_SHARE = 0.05
"""the same as a share of a latency that a scenario gives, so that a cluster whose times are all c times as long takes c
times as long: INFERENCE, between 0.2 (HDR100: 0.24 of 1.26 us) and 0.01 (the same switch under TCP's 20 us)"""


@dataclass(frozen=True, slots=True)
class LinkPiece:
    """α and β of messages of up to so many bytes, above the sizes of smaller pieces."""

    up_to_bytes: float
    latency_s: float
    bytes_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkModel:
    """A link in the α–β model: a message of n bytes takes latency_s + n / bytes_per_s when it is alone.

    Args:
        latency_s: α, from one end to the other.
        bytes_per_s: 1 / β, the bandwidth of all messages in one direction together; of a line with a slower upload,
            that of the upload.
        provenance: where the values come from.
        medium: the medium of the link.
        pieces: where α and β change with the size, smallest first; larger messages have the link's own values.
        fitted_bytes: the largest message to which its values were fitted; None if they were not, or it is not known.
        send_s: the part of the latency that the sender's processor needs for one message at a time.
        receive_s: the part of the latency that the receiver's processor needs for one message at a time.
        download_bytes_per_s: the bandwidth towards the node, if it is larger than that from the node to the network;
            None if both are equal. Only the links of a star may have it.
        variation: how the bandwidth varies over time; None: it does not.
        hop_s: the latency of one more hop between switches over a cable of this kind; None: `HOP_SHARE` of `latency_s`.
        peer_share: of the bandwidth, what a message reaches that passes two such links, from device to device.

    >>> round(LINKS["eth-10g"].message_s(1_150_000) * 1e3, 3)
    1.02
    >>> round(LINKS["gke-tcp"].message_s(1024) * 1e6, 1)
    21.0
    """

    name: str
    latency_s: float
    bytes_per_s: float
    provenance: str
    medium: Medium = "network"
    pieces: tuple[LinkPiece, ...] = ()
    fitted_bytes: float | None = None
    send_s: float = 0.0
    receive_s: float = 0.0
    download_bytes_per_s: float | None = None
    variation: VariationModel | None = None
    hop_s: float | None = None
    peer_share: float = 1.0

    @property
    def between_switches_s(self) -> float:
        """The latency of one more hop between switches."""
        return HOP_SHARE * self.latency_s if self.hop_s is None else self.hop_s

    def piece(self, nbytes: float) -> LinkPiece:
        """Returns α and β of a message of so many bytes."""
        own = LinkPiece(float("inf"), self.latency_s, self.bytes_per_s)
        return next((piece for piece in self.pieces if nbytes <= piece.up_to_bytes), own)

    def message_s(self, nbytes: float) -> float:
        """Returns the seconds from sending to arrival of a message that does not share the link."""
        piece = self.piece(nbytes)
        return piece.latency_s + nbytes / piece.bytes_per_s


SOFTWARE = 0.25
"""the share of a latency that is the sender's own work, and the same for the receiver: INFERENCE from LogP's o, which
for kernel TCP and for RDMA alike is a quarter to a half of the one-way time (Culler et al. 1993)"""


def _link(
    name: str, latency_us: float, gigabytes_per_s: float, provenance: str, medium: Medium = "network"
) -> LinkModel:
    latency_s = float(f"{latency_us}e-6")  # the exact decimal value; a product would end in …98e-05
    return LinkModel(
        name=name,
        latency_s=latency_s,
        bytes_per_s=gigabytes_per_s * 1e9,
        provenance=provenance,
        medium=medium,
        send_s=SOFTWARE * latency_s,
        receive_s=SOFTWARE * latency_s,
        hop_s=SWITCH_HOP_S,
    )


HANDLING_S = 5e-6
"""the work of a processor for a message over a wide-area link: as of eth-10g, since distance is no work"""


CLOUD = VariationModel(
    cv=0.1,
    provenance="cv DERIVED from FOUND throughputs: 420 pairs of AWS regions, iperf3 with 64 connections for 5 s, twice "
    "within five days (Skyplane's profiles of January 2022): 0.11 in quadratic mean, median 0.01, 0.007 between "
    "US and Europe; stable over time as Lai, Chowdhury and Madhyastha (HotCloud 2018) say. Interval and correlation "
    "INFERENCE",
)
"""between regions of one cloud. The standard deviation of two values is their difference over √2"""
INTERNET = VariationModel(
    cv=0.2,
    provenance="INFERENCE from cv 0.21 between different clouds, DERIVED as for regions of one cloud (2574 pairs, "
    "quadratic mean; median 0.04). Interval and correlation INFERENCE",
)
"""between sites on the Internet"""
CABLE = VariationModel(
    cv=0.2,
    provenance="INFERENCE: a cable is shared by neighbours; most providers delivered 80 % of the advertised rate or "
    "more at peak times (FOUND, Measuring Broadband America, 2011). Interval and correlation INFERENCE",
)
FIBRE = VariationModel(cv=0.1, provenance="INFERENCE: half of that of a cable")


def _wide(
    name: str,
    latency_ms: float,
    megabits_per_s: float,
    variation: VariationModel,
    provenance: str,
    down_megabits_per_s: float | None = None,
) -> LinkModel:
    """Returns a wide-area link, whose latency is the time of light and routers."""
    return LinkModel(
        name=name,
        latency_s=latency_ms * 1e-3,
        bytes_per_s=megabits_per_s * 125e3,
        provenance=provenance,
        send_s=HANDLING_S,
        receive_s=HANDLING_S,
        hop_s=SWITCH_HOP_S,
        download_bytes_per_s=None if down_megabits_per_s is None else down_megabits_per_s * 125e3,
        variation=variation,
    )


GKE = tuple(
    LinkPiece(up_to, latency_us * 1e-6, gb * 1e9) for up_to, latency_us, gb in ((1024, 19.3, 0.6), (32768, 38.4, 5.5))
)

GKE_BYTES = 4 * 2**20
"""the largest message of that curve: FOUND, as the pieces"""


TUNNEL_BYTES_PER_S = 5e9 / 8 * 1388 / 1460
"""data in an IP-in-IP tunnel of AWS, as `aws-ipip-50g` says"""


ONE_NVLINK = "one link, `count` for several; bandwidth FOUND (NCCL's topo.h); latency MEMORY medium"

LINKS: dict[str, LinkModel] = {
    link.name: link
    for link in (
        _link("eth-1g", 40.0, 0.110, "gloo over TCP; bandwidth FOUND 110 MB/s (gloo issue 21); latency MEMORY medium"),
        _link("eth-10g", 20.0, 1.15, "TCP; both MEMORY high"),
        _link("eth-25g", 18.0, 2.8, "TCP; both MEMORY medium"),
        _link("eth-40g-usnic", 1.93, 4.65, "Open MPI over usNIC; both FOUND (Cisco blog: 1.93 us, 37.23 Gbit/s)"),
        _link("eth-40g-gloo", 20.0, 1.16, "gloo on one pinned core; bandwidth FOUND (gloo issue 248); latency MEMORY"),
        _link("eth-100g", 16.0, 5.0, "one TCP stream; both MEMORY medium"),
        _link("eth-100g-roce", 1.67, 12.25, "Open MPI over UCX; both FOUND (OCI BM.GPU4.8: 1.67 us, 12254 MB/s)"),
        _link("efa-100g", 15.5, 12.25, "AWS EFA, one card; bandwidth DERIVED: 98 % of 100 Gbit/s by headers of packets "
              "of 8 KiB; latency MEMORY high (OSU on c5n, AWS 2019)"),
        _link("efa-100g-staged", 15.5, 8.9, "AWS EFA through host memory, for GPUs before 2020; bandwidth FOUND (NCCL "
              "over 100 Gbit/s in 2019, busbw at 1 GiB); latency as efa-100g"),
        _link("ib-qdr", 1.5, 3.3, "4x, MPI; both MEMORY high"),
        _link("ib-fdr", 1.1, 6.2, "4x, MPI; both MEMORY high"),
        _link("ib-edr", 1.0, 11.9, "4x, MPI; bandwidth FOUND about 12.0 GB/s; latency MEMORY high"),
        _link("ib-hdr100", 1.26, 12.2, "verbs; both FOUND (perftest, 20000 pings: median 1.26 us)"),
        _link("ib-hdr", 1.0, 24.0, "4x, verbs; bandwidth FOUND about 24.0 GB/s; latency MEMORY high"),
        _link("ib-ndr", 1.0, 48.0, "4x, verbs; bandwidth FOUND about 48.0 GB/s; latency MEMORY medium"),
        _link("sc17-ib-fdr", 0.7, 5.0, "You, Buluç, Demmel, SC'17, table (β = 0.2 ns/B); both MEMORY high"),
        _link("sc17-ib-qdr", 1.2, 1 / 0.3, "You, Buluç, Demmel, SC'17, table (β = 0.3 ns/B); both MEMORY high"),
        _link("sc17-eth-10g", 7.2, 1 / 0.9, "You, Buluç, Demmel, SC'17, table (NE020, β = 0.9 ns/B); both MEMORY high"),
        _link("aries", 1.3, 8.0, "Cray MPI; both FOUND (NERSC on Cori: 0.25 to 3.7 us by distance, about 8 GB/s)"),
        _link("omni-path-100", 1.0, 12.3, "PSM2 on Xeon; both MEMORY high"),
        _link("slingshot-200g", 2.0, 24.0, "CXI; bandwidth FOUND 24.0 GB/s (CSCS); latency MEMORY medium"),
        _link("pcie3-x16", 5.0, 12.0, "GPU copy; bandwidth FOUND (NCCL's PCI_BW); latency MEMORY medium", "pcie"),
        _link("pcie4-x16", 5.0, 26.3, "GPU copy; bandwidth FOUND (Azure A100: 26.28); latency MEMORY medium", "pcie"),
        _link("nvlink1", 2.0, 18.0, f"4 a P100; {ONE_NVLINK}", "nvlink"),
        _link("nvlink2", 2.0, 20.0, f"6 a V100; {ONE_NVLINK}", "nvlink"),
        _link("nvlink3", 2.0, 20.0, f"12 an A100; {ONE_NVLINK}", "nvlink"),
        _link("nvlink4", 2.0, 20.6, f"18 an H100; {ONE_NVLINK}", "nvlink"),
        _link("nvlink5", 2.0, 40.1, f"18 a B200; {ONE_NVLINK}", "nvlink"),
        _link("tpu-ici", 1.0, 70.0, "4 a TPU v3 (of 50 GB/s 6 a TPU v4); one link of a torus; both MEMORY high",
              "nvlink"),
        _link("gaudi-port", 2.0, 12.25, "10 a Gaudi; bandwidth FOUND as eth-100g-roce; latency INFERENCE",
              "nvlink"),
        _link("hccs", 2.0, 30.0, "3 an Ascend 910; both MEMORY medium", "nvlink"),
        _link("ib-edr-staged", 1.0, 5.95, "NCCL without GPUDirect, card and GPU on one PCIe switch; bandwidth DERIVED: "
              "half of ib-edr, as bytes pass the switch twice (FOUND: nccl issue 638; 6 GB/s in issue 465); latency as "
              "ib-edr"),
        _link("veth", 20.0, 2.49, "TCP between containers of one machine; bandwidth FOUND (Calico issue 10575: 19.9 "
              "Gbit/s); latency MEMORY medium"),
        dataclasses.replace(
            _link("aws-ipip-50g", 20.0, 5.94, "TCP in an IP-in-IP tunnel, such as Calico's, on AWS: 50 Gbit/s, and 5 "
                  "Gbit/s between two machines, as one tunnel is one flow (FOUND, Amazon EC2 User Guide); 1388 of 1460 "
                  "bytes are data (Calico's MTU of 1440: FOUND in its manifests), 4.75 Gbit/s; about 4.5 were measured "
                  "(FOUND, vpp-dataplane issue 398); latency as eth-10g"),
            pieces=(LinkPiece(2.0**50, 20e-6, TUNNEL_BYTES_PER_S),),
        ),
        dataclasses.replace(
            _link("aws-ipip-50g-both-ways", 20.0, 5.94, "as aws-ipip-50g, with data in both directions between two "
                  "machines: acknowledgements, one for two packets (RFC 5681: MEMORY high), pass the same queue, where "
                  "packets of any size cost the same, so 2/3 remain: INFERENCE"),
            pieces=(LinkPiece(2.0**50, 20e-6, 2 / 3 * TUNNEL_BYTES_PER_S),),
        ),
        _link("shared-memory", 0.4, 5.0, "Open MPI vader; latency FOUND 0.3 to 0.46 us; bandwidth INFERENCE", "memory"),
        dataclasses.replace(
            _link("gke-tcp", 87.0, 6.47, "Open MPI over gVNIC; pieces DERIVED from FOUND osu_latency (1.5 % off)"),
            pieces=GKE,
            fitted_bytes=GKE_BYTES,
        ),
        _wide("wan-region-5g", 36.0, 5000.0, CLOUD, "between cloud regions of a continent; one flow and, on small "
              "instances, all: bandwidth FOUND at most 5 Gbit/s (Amazon EC2 User Guide); latency FOUND, half of the "
              "72.7 ms between AWS in Virginia and California (a published table, 2017)"),
        _wide("wan-transatlantic-5g", 40.0, 5000.0, CLOUD, "US-East to Western Europe; bandwidth as wan-region-5g; "
              "latency FOUND, half of the 80.5 ms between AWS in Virginia and Ireland (that table)"),
        _wide("wan-transpacific-5g", 73.0, 5000.0, CLOUD, "US-East to Japan; bandwidth as wan-region-5g; "
              "latency FOUND, half of the 145.3 ms between AWS in Virginia and Tokyo (that table)"),
        _wide("wan-1g", 30.0, 1000.0, INTERNET, "a site with 1 Gbit/s on the Internet; nominal bandwidth: INFERENCE; "
              "latency MEMORY medium"),
        _wide("wan-100m", 30.0, 100.0, INTERNET, "a site with 100 Mbit/s on the Internet; nominal bandwidth: "
              "INFERENCE; latency MEMORY medium"),
        _wide("home-cable", 15.0, 20.0, CABLE, "a home on a cable; upload and download INFERENCE within FOUND ranges "
              "of 5 to 35 Mbit/s and 50 to 1200 Mbit/s (Comcast, network management); latency MEMORY low", 500.0),
        _wide("home-fibre", 10.0, 1000.0, FIBRE, "a home on a fibre; equal in both directions, as FOUND (Comcast, up "
              "to 2 Gbit/s); bandwidth and latency MEMORY low"),
        _link("loopback", 60.0, 4.0, "gloo over TCP; both measured on two cores, which it is bound by"),
    )
}  # fmt: skip
"""the links by name"""


PREFIXES: dict[str, Medium] = {"pcie": "pcie", "qpi": "pcie", "xbus": "pcie", "xgmi": "pcie", "upi": "pcie"}
PREFIXES |= {"arm": "pcie", "nvlink": "nvlink", "infinity": "nvlink", "mcdram": "memory", "knl": "memory"}
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
        _wire("xgmi", 0.8, 16.0, "Zen 1 and 2; bandwidth FOUND (NCCL's AMD_ZEN12_BW); latency INFERENCE"),
        _wire("xgmi-zen3", 0.8, 24.0, "Zen 3 and 4; bandwidth FOUND (NCCL's AMD_ZEN34_BW); latency INFERENCE"),
        _wire("xgmi-zen5", 0.8, 32.0, "bandwidth FOUND (NCCL's AMD_ZEN5_BW); latency INFERENCE"),
        _wire("arm-bus", 0.8, 6.0, "between Arm's sockets; bandwidth FOUND (NCCL's ARM_BW); latency INFERENCE"),
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
