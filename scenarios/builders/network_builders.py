"""Builders of the network and its links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from paceline.scenarios.builders.builder import Bandwidth, Builder, Size, Time, Values
from paceline.scenarios.values.fields import AnyPattern


@dataclass(frozen=True, kw_only=True, repr=False)
class LinkRange(Builder):
    """Latency and bandwidth of messages up to a size."""

    up_to: Size
    """the largest message of this piece: '32 kB'"""
    latency: Time
    """one way: '20 us'"""
    bandwidth: Bandwidth
    """bandwidth limit of one such message: '5 GB/s'"""


@dataclass(frozen=True, kw_only=True, repr=False)
class Variation(Builder):
    """How the bandwidth of a link varies over time.

    >>> Variation(cv=0.3, every="10 s").document()
    {'cv': 0.3, 'every': '10 s'}
    """

    cv: float
    """coefficient of variation of the bandwidth over time: standard deviation over mean"""
    every: Time | None = None
    """how long a bandwidth lasts until the next one is drawn"""
    correlation: float | None = None
    """correlation of two successive bandwidths"""
    floor: float | None = None
    """smallest bandwidth, as a fraction of the mean"""
    provenance: str | None = None
    """source of these values"""


@dataclass(frozen=True, kw_only=True, repr=False)
class Link(Builder):
    """A link of the network.

    >>> Link(latency="20 us", bandwidth=1.25e9).document()
    {'latency': '20 us', 'bandwidth': '1250000000.0 B/s'}
    """

    latency: Time | None = None
    """one way: '20 us'"""
    bandwidth: Bandwidth | None = None
    """in each direction: '10 Gbit/s'"""
    like: str | None = None
    """the name of a link of `paceline list links` whose values hold where none are given"""
    count: int | None = None
    """parallel links of this bandwidth, over which every message is divided"""
    download: Bandwidth | None = None
    """the bandwidth towards the node, if it is larger than that from the node; only in a star"""
    name: str | None = None
    """a name for tables and figures"""
    provenance: str | None = None
    """source of the two values"""
    medium: Literal["memory", "nvlink", "pcie", "network"] | None = None
    """the medium of the link"""
    send: Time | None = None
    """part of the latency that occupies the sender, one message at a time"""
    receive: Time | None = None
    """part of the latency that occupies the receiver, one message at a time"""
    hop: Time | None = None
    """the latency of one more hop between switches; default: a twentieth of the latency that is given, or that of the
    catalogue's link"""
    pieces: Sequence[LinkRange | Values] | None = None
    """latency and bandwidth of smaller messages"""
    fitted_up_to: Size | None = None
    """the largest message that these values were fitted to, if they were"""
    variation: Variation | Values | str | None = None
    """how the bandwidth varies over time around `bandwidth`, its mean; none: it does not"""


@dataclass(frozen=True, kw_only=True, repr=False)
class LinkFault(Builder):
    """A link that is slow or broken for some time."""

    keys: ClassVar[Mapping[str, str]] = {"lasts": "for"}  # a keyword of Python

    between: tuple[str, str]
    """the two ends of a link, as `paceline topology` draws them: [host0, switch]"""
    at: Time
    """on the run's own clock: when it begins"""
    lasts: Time | None = None
    """how long it lasts; default: until the end of the run"""
    rate: str | float | None = None
    """the fraction of its bandwidth that is left; 0: it is broken"""


@dataclass(frozen=True, kw_only=True, repr=False)
class Network(Builder):
    """How the nodes are connected."""

    topology: str | None = None
    """the network's graph, one of `paceline list topologies`; a star has no bottleneck"""
    file: str | Path | None = None
    """the path of a file that describes a network of hosts, instead of a topology"""
    link: Link | Values | str | None = None
    """link from a node to the network: a name of `paceline list links`, or latency and bandwidth"""
    parameters: Values | None = None
    """parameters of the topology; they may also be given directly, beside the other keys"""
    intra_node_link: Link | Values | str | None = None
    """link between ranks of one host: a name, or latency and bandwidth"""
    routing: Literal["auto", "shortest", "ecmp", "minimal", "valiant"] | None = None
    """routing rule: shortest, ecmp, a dragonfly's minimal or valiant; auto: the topology's usual one"""
    allreduce_algorithm: AnyPattern | None = None
    """the algorithm of an all-reduce; auto: the one with the shortest predicted time"""
    library: Literal["plain", "nccl", "mpi", "gloo"] | None = None
    """the library whose protocols collectives use, and how its messages are received: plain (protocols without
    costs), nccl, mpi, gloo"""
    library_version: str | None = None
    """version of nccl or mpi, such as '2.18', on which protocols depend; default: the latest"""
    variation: Variation | Values | str | None = None
    """how the bandwidth of every link between nodes varies over time; links: each as its link says; none: not at
    all"""
    faults: Sequence[LinkFault | Values] | None = None
    """a list of links that are slow or broken for some time"""
