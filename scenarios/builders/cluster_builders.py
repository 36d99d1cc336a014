"""Builders of the cluster: devices, nodes, server, storage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from paceline.scenarios.builders.builder import Bandwidth, Builder, Power, Price, Size, Time, Values
from paceline.scenarios.builders.fault_builders import Crashes, Death, OwnStepTime, Slowdown, Straggler
from paceline.scenarios.builders.network_builders import Link, Network


@dataclass(frozen=True, kw_only=True, repr=False)
class MeasuredStep(Builder):
    """A measured step of a device."""

    batch: int
    """samples in one gradient"""
    time: Time
    """duration of a step with this batch: '164 ms'"""


@dataclass(frozen=True, kw_only=True, repr=False)
class Device(Builder):
    """The device of a worker: a line of step time against batch, or measured steps.

    >>> Device(name="fast", overhead="4 ms", per_sample=0.0005).document()
    {'name': 'fast', 'overhead': '4 ms', 'per_sample': '0.0005 s'}
    """

    name: str
    """a name for tables and figures"""
    overhead: Time | None = None
    """the part of a step that does not depend on the batch"""
    per_sample: Time | None = None
    """the part of a step for each sample"""
    profile: Sequence[MeasuredStep | Values] | None = None
    """measured steps instead, each with batch and time; a line joins neighbouring batches"""
    memory_bandwidth: Bandwidth | None = None
    """of the device: '500 GB/s'; updates and copies take time by it, else they are free"""
    launch_overhead: Time | None = None
    """what each kernel of an update costs beside its memory traffic"""


@dataclass(frozen=True, kw_only=True, repr=False)
class CoreGroups(Builder):
    """Groups of the cores of a many-core chip, each of which is a worker."""

    count: int
    """number of groups of whole tiles of cores, each a worker"""
    data: Size | None = None
    """the data that every group keeps in memory: '687 MB'"""
    memory_mode: Literal["flat", "cache"] | None = None
    """mode of the near memory: flat, or cache of the far memory"""


@dataclass(frozen=True, kw_only=True, repr=False)
class Nodes(Builder):
    """Equal nodes of a cluster.

    >>> Nodes(device="v100-sxm2", count=4, workers_per_node=8).document()
    {'device': 'v100-sxm2', 'count': 4, 'workers_per_node': 8}
    """

    device: Device | Values | str | None = None
    """a device's name, a mapping with name, overhead and per_sample, or {machine: PATH} of `paceline calibrate`;
    not for a known node"""
    node: Values | str | None = None
    """a node of `paceline list topologies`, {file: PATH}, or {machine: PATH} of `paceline calibrate`; default: one
    host"""
    settings: Values | None = None
    """parameters of that node of `paceline list topologies`, as {gpu: v100}; of a file: link, pcie"""
    count: int | None = None
    """number of such nodes"""
    workers_per_node: int | None = None
    """workers of a node, each with a device; default: 1, or all devices of a known node"""
    batch_per_worker: int | None = None
    """samples in one gradient of a worker of such a node; default: that of the workload"""
    link: Link | Values | str | None = None
    """link from such a node to the network, as network.link; default: network.link; only in a star"""
    step_time: Values | None = None
    """jitter of these devices; default: that of the cluster"""
    price_per_hour: Price | None = None
    """price of such a node: '12.5 USD/h'; default: that of the cluster, or the list price of its
    devices in the catalogue"""
    power: Power | None = None
    """mean power of such a node while it trains: '6.5 kW'; default: that of the cluster, or the
    thermal design power of its devices in the catalogue"""
    groups: CoreGroups | Values | None = None
    """divides a many-core chip into groups of cores, which are the workers"""


@dataclass(frozen=True, kw_only=True, repr=False)
class Server(Builder):
    """The parameter server."""

    node: int | None = None
    """the node that hosts the server, counted from 0"""
    threads: int | None = None
    """messages that the server handles at once, in a simulation; a real run's handles one"""
    receive: Literal["auto", "in-order", "shared"] | None = None
    """when a large message to the server flows: in-order: when its receive has matched, one at a time; shared:
    when it is sent; auto: as network.library does"""


@dataclass(frozen=True, kw_only=True, repr=False)
class Charges(Builder):
    """How fast updates, averages and copies are, where the catalogue is not to be used."""

    device_bandwidth: Bandwidth | None = None
    """memory bandwidth of every device, read and written together: '500 GB/s'"""
    device_launch: Time | None = None
    """to launch a kernel on a device: '10 us'"""
    host: str | None = None
    """the processor of every node, a name of `paceline list devices`"""
    core_bandwidth: Bandwidth | None = None
    """memory bandwidth of one core of a host, outside its cache: '12 GB/s'"""
    core_cache_bandwidth: Bandwidth | None = None
    """memory bandwidth of one core of a host, inside its cache: '30 GB/s'; if only the other one is given and no host
    is known, in proportion to it"""
    cache: Size | None = None
    """last cache of a host: '35 MB'"""
    host_launch: Time | None = None
    """to launch a kernel on a host: '5 us'"""


@dataclass(frozen=True, kw_only=True, repr=False)
class Staging(Builder):
    """How batches, gradients and weights are copied between hosts and devices."""

    batches: Literal["pinned", "pageable", "none"] | None = None
    """the host memory that batches are copied from: pinned; pageable: a core copies them to pinned memory first,
    and nothing is prefetched; none: batches are on the devices already"""
    prefetch: int | None = None
    """batches copied ahead of the one that is computed; 0: a worker waits for every copy"""
    gpudirect: Literal["auto", "on", "off"] | None = None
    """whether NICs read and write the memory of devices; auto: of GPUs, on networks without TCP. Without it, nccl
    and mpi go through host memory; gloo always does, plain never"""


@dataclass(frozen=True, kw_only=True, repr=False)
class Storage(Builder):
    """The storage that samples are read from."""

    latency: Time
    """latency of a request that does not continue another one, '0.7 ms'"""
    bandwidth: Bandwidth
    """total of all readers, '10 GB/s'"""
    name: str | None = None
    """a name of `paceline list storage`, which gives defaults for the other values; or a new name"""
    reader: Bandwidth | None = None
    """bandwidth limit of one reader; default: no limit"""
    client: Bandwidth | None = None
    """bandwidth limit of all readers of a node; default: no limit"""
    depth: float | None = None
    """requests whose latencies overlap, also 1.5; 1: a disk with one arm; default: no limit"""
    waiting: float | None = None
    """fraction of a request's latency that excludes other requests, 0 to 1"""
    stripes: int | None = None
    """servers that the file lies on, with equal bandwidths"""
    stripe: Size | None = None
    """amount of the file on one server before the next: '1 MiB'"""
    read_ahead: Size | None = None
    """distance of read-ahead for sequential readers: '128 KiB'; null: none"""
    shared: bool | None = None
    """true: one for all nodes; false: one in each"""
    provenance: Values | None = None
    """source of each value"""


@dataclass(frozen=True, kw_only=True, repr=False)
class Cluster(Builder):
    """The cluster: its nodes or a known system, its network and its faults.

    >>> Cluster(nodes=[Nodes(device="v100-sxm2", count=2)], network=Network(link="eth-10g")).document()
    {'nodes': [{'device': 'v100-sxm2', 'count': 2}], 'network': {'link': 'eth-10g'}}
    """

    system: str | None = None
    """a machine of `paceline list topologies`, by name"""
    file: str | Path | None = None
    """the path of a file that describes a machine, instead of a system"""
    nodes: Sequence[Nodes | Values] | int | None = None
    """a list of nodes, each with a device; for a system or a file: the number of nodes"""
    device: Device | Values | str | None = None
    """for a system or a file: the device to use instead of its own"""
    price_per_hour: Price | None = None
    """price of a node that gives none of its own: '12.5 USD/h'"""
    power: Power | None = None
    """mean power of a node that gives none of its own: '6.5 kW'"""
    machine: str | Path | None = None
    """the path of a machine that `paceline calibrate` measured: simulations take its gradients, and its costs
    inside a host; between hosts it takes those measured there, or else the links. Without a list of nodes, they
    are such hosts, one or `nodes`"""
    network: Network | Values | None = None
    """how the nodes are connected"""
    charges: Charges | Values | None = None
    """how fast updates, averages and copies are, where the catalogue is not to be used"""
    interference: float | None = None
    """the part of a device that a message or collective takes while it overlaps a gradient, 0 to 1; default: by
    device and network.library"""
    staging: Staging | Values | None = None
    """how batches, gradients and weights are copied between hosts and devices, on a modelled cluster"""
    storage: Storage | Values | str | None = None
    """the storage that samples are read from: a name of `paceline list storage`, or a mapping"""
    step_time: Values | None = None
    """jitter of the step times of equal devices: a distribution of scipy.stats, scaled to mean 1"""
    server: Server | Values | None = None
    """where the parameter server runs, and how it handles messages"""
    step_times: Sequence[OwnStepTime | Values] | None = None
    """jitter of single nodes or workers"""
    stragglers: Sequence[Straggler | Values] | None = None
    """nodes or workers whose steps all take longer"""
    slowdowns: Sequence[Slowdown | Values] | None = None
    """temporary stragglers: nodes or workers that are slower for some time"""
    crashes: Crashes | Values | None = None
    """crashes of workers and their cost"""
    deaths: Sequence[Death | Values] | None = None
    """workers or nodes that die and do not return, also in real runs"""
