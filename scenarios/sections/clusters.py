"""The sections of a scenario that describe the cluster: devices, nodes, a named system, network, server."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import (
    TypeAdapter,
    ValidationInfo,
    WrapValidator,
    field_validator,
    model_validator,
)

from paceline import topologies
from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.values import Rank
from paceline.scenarios.sections.devices import (
    Charges,
    CoreGroups,
    Device,
    MachineDevice,
    any_device,
    device_of,
    machine_cluster,
    machine_node,
)
from paceline.scenarios.sections.fault_sections import (
    Crashes,
    Deaths,
    OwnStepTimes,
    Slowdowns,
    Stragglers,
    faults_of,
    misplaced,
)
from paceline.scenarios.sections.layout import NodeLayout, of_file, of_nodes, of_system, with_cables, with_own_links
from paceline.scenarios.sections.networks import AnyLink, Link, Network, misjoined
from paceline.scenarios.sections.reading import AnyStorage, Storage
from paceline.scenarios.sections.referenced_files import File, MachineFile, NodeFile, any_node, graph_of
from paceline.scenarios.values import fields
from paceline.scenarios.values.limits import MOST_WORKERS
from paceline.scenarios.values.mistakes import Fault, Place, complain, expected, wrong
from paceline.scenarios.values.section import Default, Field, Given, Nested, Quantity, Section, Values
from paceline.scenarios.values.step_times import StepTimesField
from paceline.topologies.catalogue import host_memory as copies
from paceline.topologies.catalogue.host_memory import Batches, GpuDirect, host_memory
from paceline.topologies.cluster import sites
from paceline.topologies.faults.step_times import NO_VARIATION, StepTimes
from paceline.topologies.graphs.graph import Graph
from paceline.topologies.graphs.graph_registry import build
from paceline.topologies.graphs.links import LINKS
from paceline.workloads.models.layer_tables import find_model

if TYPE_CHECKING:
    from paceline.scenarios.sections.workload import Workload


# What a system has follows from its graph and the catalogue, see `topologies.catalogue.host_memory`. A batch's size
# on the device is that of the model's input: it does not depend on how samples are stored.


class Staging(Section):
    """How batches, gradients and weights are copied between hosts and devices."""

    batches: Default[Annotated[Batches, *fields.choices("pinned", "pageable", "none")]] = Field(
        default="pinned",
        description="the host memory that batches are copied from: pinned; pageable: a core copies them to pinned "
        "memory first, and nothing is prefetched; none: batches are on the devices already",
    )
    prefetch: Default[fields.Prefetched] = Field(
        default=1, description="batches copied ahead of the one that is computed; 0: a worker waits for every copy"
    )
    gpudirect: Default[Annotated[GpuDirect, *fields.choices("auto", "on", "off"), fields.SWITCH]] = Field(
        default="auto",
        description="whether NICs read and write the memory of devices; auto: of GPUs, on networks without TCP. "
        "Without it, nccl and mpi go through host memory; gloo always does, plain never",
    )

    def build(self, workload: Workload) -> copies.StagingModel:
        """Returns the copies for the batches of a workload."""
        size = 0
        if workload.learning != "quadratic":
            with contextlib.suppress(InputError):  # of a model that cannot be traced, no input is known
                size = find_model(workload.model).sample_bytes
        return copies.StagingModel(
            batches=self.batches, prefetch=self.prefetch, gpudirect=self.gpudirect, sample_bytes=float(size)
        )


AnyDevice = Annotated[Device | MachineDevice | str, WrapValidator(any_device)]


class Nodes(Section):
    """Equal nodes of a cluster.

    >>> Nodes(device="v100-sxm2", count=4, workers_per_node=8).document()
    {'device': 'v100-sxm2', 'count': 4, 'workers_per_node': 8}
    """

    device: Nested[AnyDevice | None] = Field(
        default=None,
        description="a device's name, a mapping with name, overhead and per_sample, or {machine: PATH} of `paceline "
        "calibrate`; not for a known node",
    )
    node: Nested[Annotated[fields.NodeName | NodeFile | None, WrapValidator(any_node)]] = Field(
        default=None,
        description="a node of `paceline list topologies`, {file: PATH}, or {machine: PATH} of `paceline calibrate`; "
        "default: one host",
    )
    settings: Nested[dict[str, Any]] = Field(
        default={},
        description="parameters of that node of `paceline list topologies`, as {gpu: v100}; of a file: link, pcie",
    )
    count: Default[fields.Count] = Field(default=1, description="number of such nodes")
    workers_per_node: fields.Count | None = Field(
        default=None, description="workers of a node, each with a device; default: 1, or all devices of a known node"
    )
    batch_per_worker: fields.Count | None = Field(
        default=None,
        description="samples in one gradient of a worker of such a node; default: workload.batch_per_worker. Every "
        "sample counts as much: gradients are weighted by their batches",
    )
    link: Given[AnyLink | None, Link | Values | str | None] = Field(
        default=None,
        description="link from such a node to the network, as network.link; default: network.link; only in a star",
    )
    step_time: Nested[StepTimesField | None] = Field(
        default=None, description="jitter of these devices; default: that of the cluster"
    )
    price_per_hour: Quantity[fields.Price | None] = Field(
        default=None,
        description="price of such a node, with its unit: '12.5 USD/h'; default: that of the cluster, or the list "
        "price of its devices in the catalogue",
    )
    power: Quantity[fields.Power | None] = Field(
        default=None,
        description="mean power of such a node while it trains, with its unit: '6.5 kW'; default: that of the "
        "cluster, or the thermal design power of its devices in the catalogue",
    )
    groups: Nested[CoreGroups | None] = Field(
        default=None, description="divides a many-core chip into groups of cores, which are the workers"
    )

    @model_validator(mode="before")
    @classmethod
    def _of_machine(cls, value: object) -> object:
        return machine_node(value)

    @model_validator(mode="after")
    def _complete(self) -> Nodes:
        if self.groups is not None:
            complain(self._indivisible(self.groups))
        elif self.node is None:
            if self.device is None:
                complain([(("device",), wrong("missing; expected a device's name or a mapping"), None)])
            return self
        inside = self.inside()
        assert inside is not None
        if self.workers_per_node is not None and self.workers_per_node > len(inside.endpoints):
            words = f"at most {len(inside.endpoints)}, as many as a {self.node} has"
            complain([(("workers_per_node",), expected(words), self.workers_per_node)])
        if self.device is None and None in sites(inside)[0].devices:
            complain([(("device",), wrong(f"missing; a {self.node} does not say what its devices are"), None)])
        return self

    def _indivisible(self, groups: CoreGroups) -> list[Fault]:
        """Returns the mistakes of a node whose chip is divided into groups."""
        others = [key for key in ("node", "workers_per_node") if getattr(self, key) is not None]
        faults: list[Fault] = [
            ((key,), wrong("found beside groups; expected one of them: the groups are the workers"), None)
            for key in others
        ]
        if not isinstance(self.device, str):
            return [
                *faults,
                (("device",), expected("a many-core chip of `paceline list devices`, by name"), self.device),
            ]
        try:
            groups.check(self.device)
        except InputError as error:
            faults.append((("groups", "count"), wrong(str(error).removeprefix("groups: ")), groups.count))
        return faults

    def inside(self) -> Graph | None:
        """The graph of the node; None for a plain host."""
        if self.groups is not None:
            return self.groups.graph()
        if self.node is None:
            return None
        try:
            if isinstance(self.node, str):
                return build(self.node, self.settings)
            graph = graph_of(self.node.file, self.settings)
            if not graph.of_kind("device"):
                raise InputError(f"{self.node}: found no devices in it, expected the inside of a machine")
            return graph
        except InputError as error:
            complain([self._misread(line) for line in str(error).splitlines()])
            raise

    def _misread(self, line: str) -> Fault:
        """Returns the mistake in the node's parameters or file."""
        key, _, text = line.partition(": ")
        if key in self.settings:
            return ("settings", key), wrong(text), self.settings
        if isinstance(self.node, str):
            return ("settings",), wrong(text), self.settings
        return ("node", "file"), wrong(line), self.node

    def share_of(self, workload: Workload) -> Workload:
        """Returns the workload with the batch of these nodes."""
        if self.batch_per_worker is None:
            return workload
        return workload.model_copy(update={"batch_per_worker": self.batch_per_worker})

    @property
    def workers(self) -> int:
        """Number of workers in one such node."""
        inside = self.inside()
        return self.workers_per_node or (1 if inside is None else len(inside.endpoints))


def _memory_factor(local: topologies.LinkModel) -> float:
    """How many times as fast as the usual server's the memory of an unknown host is, by the link between its ranks.

    Messages over that link are copies in main memory, so it says it; a bus between devices says nothing.
    """
    return local.bytes_per_s / LINKS["shared-memory"].bytes_per_s if local.medium in ("memory", "network") else 1.0


class Server(Section):
    """The parameter server."""

    node: Default[fields.Index] = Field(
        default=0, description="the node that hosts the server, or the first of several, counted from 0"
    )
    threads: Default[fields.Count] = Field(
        default=1, description="messages that the server handles at once, in a simulation; a real run's handles one"
    )
    receive: Default[fields.ReceiveOrder] = Field(
        default="auto",
        description="when a large message to the server flows: in-order: when its receive has matched, one at a time; "
        "shared: when it is sent; auto: as network.library does",
    )


def some(value: object) -> object:
    """Rejects values that are not lists, and empty lists."""
    if isinstance(value, list | tuple) and value:
        return value
    raise expected("a list of at least one")


def _nodes(value: object, _: Any, info: ValidationInfo) -> object:
    """Validates a list of nodes or, for a system, their number."""
    if "system" not in info.data or "file" not in info.data:
        return None  # rejected by another check
    if info.data["system"] is None and info.data["file"] is None:
        return TypeAdapter(tuple[Nodes, ...]).validate_python(some(value))
    return None if value is None else TypeAdapter(fields.Count).validate_python(value)


class Cluster(Section):
    """The cluster: its nodes or a known system, its network and its faults.

    >>> Cluster(nodes=[Nodes(device="v100-sxm2", count=2)], network=Network(link="eth-10g")).document()
    {'nodes': [{'device': 'v100-sxm2', 'count': 2}], 'network': {'link': 'eth-10g'}}
    """

    system: fields.System | None = Field(default=None, description="a machine of `paceline list topologies`, by name")
    file: Given[File | None, str | Path | None] = Field(
        default=None, description="the path of a file that describes a machine, instead of a system"
    )
    nodes: Given[
        Annotated[tuple[Nodes, ...] | fields.Count | None, WrapValidator(_nodes)], Sequence[Nodes | Values] | int | None
    ] = Field(
        default=None,
        description="a list of nodes, each with a device; for a system or a file: the number of nodes",
        validate_default=True,
    )
    device: Nested[AnyDevice | None] = Field(
        default=None, description="for a system or a file: the device to use instead of its own"
    )
    price_per_hour: Quantity[fields.Price | None] = Field(
        default=None, description="price of a node that gives none of its own, with its unit: '12.5 USD/h'"
    )
    power: Quantity[fields.Power | None] = Field(
        default=None, description="mean power of a node that gives none of its own, with its unit: '6.5 kW'"
    )
    machine: Given[MachineFile | None, str | Path | None] = Field(
        default=None,
        description="the path of a machine that `paceline calibrate` measured: simulations take its gradients, and its "
        "costs inside a host; between hosts it takes those measured there, or else the links. Without a list of nodes, "
        "they are such hosts, one or `nodes`",
    )
    network: Nested[Network] = Field(default=Network(), description="how the nodes are connected")
    charges: Nested[Charges] = Field(
        default=Charges(),
        description="how fast updates, averages and copies are, where the catalogue is not to be used",
    )
    interference: fields.Share | None = Field(
        default=None,
        description="the part of a device that a message or collective takes while it overlaps a gradient, 0 to 1; "
        "default: by device and network.library",
    )
    staging: Nested[Staging] = Field(
        default=Staging(),
        description="how batches, gradients and weights are copied between hosts and devices, on a modelled cluster",
    )
    storage: Given[AnyStorage | None, Storage | Values | str | None] = Field(
        default=None,
        description="the storage that samples are read from: a name of `paceline list storage`, or a mapping",
    )
    step_time: Nested[StepTimesField] = Field(
        default=NO_VARIATION,
        description="how the step times of equal devices vary: a distribution of scipy.stats scaled to mean 1, with "
        "the shares of its variance that last, that the workers of a node have in common, and that change slowly; a "
        "profile; or measured steps",
    )
    server: Nested[Server] = Field(
        default=Server(), description="where the parameter server runs, and how it handles messages"
    )
    step_times: OwnStepTimes = Field(default=(), description="jitter of single nodes or workers")
    stragglers: Stragglers = Field(default=(), description="nodes or workers whose steps all take longer")
    slowdowns: Slowdowns = Field(
        default=(), description="temporary stragglers: nodes or workers that are slower for some time"
    )
    crashes: Nested[Crashes | None] = Field(default=None, description="crashes of workers and their cost")
    deaths: Deaths = Field(default=(), description="workers or nodes that die and do not return, also in real runs")

    @model_validator(mode="before")
    @classmethod
    def _of_name(cls, value: object) -> object:
        return {"system": value} if isinstance(value, str) else machine_cluster(value)

    @field_validator("nodes")
    @classmethod
    def _countable(cls, nodes: tuple[Nodes, ...] | int | None) -> tuple[Nodes, ...] | int | None:
        if isinstance(nodes, tuple):
            workers = sum(node.count * node.workers for node in nodes)
            if workers > MOST_WORKERS:
                complain([((), wrong(f"found {workers} workers in all, expected at most {MOST_WORKERS}"), nodes)])
        return nodes

    @model_validator(mode="after")
    def _fits(self) -> Cluster:
        if self.file is not None and self.system is not None:
            complain([(("file",), wrong("found a system and a file; expected one of them"), None)])
        complain(self._own_links())
        try:
            machines = self.layout
        except InputError as error:
            complain([self._misfit(line) for line in str(error).splitlines()])
            raise
        if self.file is not None and self.device is None and None in machines.sites[0].devices:
            complain([(("device",), wrong(f"missing; {self.file} does not say what its devices are"), None)])
        complain(self._not_its_own())
        if self.server.node >= len(machines.sites):
            words = f"a node below {len(machines.sites)}, the number of nodes"
            complain([(("server", "node"), expected(words), self.server.node)])
        places = misplaced(self, nodes=len(machines.sites), workers=self.workers)
        complain([*places, *misjoined(self.network.faults, machines.graph)])
        return self

    def _not_its_own(self) -> list[Fault]:
        """Returns the mistakes of keys that a whole machine overrides."""
        if self.system is None and self.file is None:
            return []
        usual, name = Network(), self.system or self.file
        words = f"nothing: {name} has its own network; for another one give nodes as a list"
        return [
            (("network", key), expected(words), given.name if isinstance(given, Link) else given)
            for key in ("topology", "file", "link", "parameters")
            if (given := getattr(self.network, key)) != getattr(usual, key)
        ]

    def _misfit(self, line: str) -> Fault:
        """Returns the mistake in the layout with its place."""
        key, _, text = line.partition(": ")
        if key == "nodes":
            return ("nodes",), wrong(text), self.nodes
        return (("file",), wrong(line), self.file) if self.file else (("network", key), wrong(text), self.nodes)

    @cached_property
    def layout(self) -> NodeLayout:
        """Returns the graph with the places of the workers; raises `InputError` if nodes and network do not fit."""
        if self.file is not None:
            assert not isinstance(self.nodes, tuple)
            return of_file(self.file, self.nodes)
        if self.system is not None:
            assert not isinstance(self.nodes, tuple)
            return of_system(self.system, self.nodes)
        assert isinstance(self.nodes, tuple)
        return of_nodes(self._network_graph, [(part.inside(), part.workers, part.count) for part in self.nodes])

    def _network_graph(self, hosts: int) -> Graph:
        """Returns the network with room for this number of hosts, of which some have links of their own."""
        assert isinstance(self.nodes, tuple)
        each = (part.link for part in self.nodes for _ in range(part.count))
        own = {number: link.build() for number, link in enumerate(each) if link is not None}
        network = with_own_links(self.network.graph(hosts), own)
        cards = {number: count for number, count in enumerate(self.cards_of_files) if count > 1}
        return with_cables(network, cards)

    @cached_property
    def cards_of_files(self) -> tuple[int, ...]:
        """The network cards of each node from a file, each of which gets a cable; 0 for other nodes.

        How many of its cards a known node uses is up to the scenario, as it is if `network.cables` is given.
        """
        if not isinstance(self.nodes, tuple) or self.network.file is not None or "cables" in self.network.parameters:
            return ()
        cards: list[int] = []
        for part in self.nodes:
            inside = part.inside() if isinstance(part.node, NodeFile) else None
            cards += [0 if inside is None else len(inside.of_kind("nic"))] * part.count
        return tuple(cards)

    @property
    def graphs_of_files(self) -> dict[str, Graph]:
        """The graphs that were read from files, by the key that names the file."""
        files = {"cluster.file": self.file, "cluster.network.file": self.network.file}
        graphs = {key: graph_of(file) for key, file in files.items() if file is not None and key == "cluster.file"}
        if self.network.file is not None:
            graphs["cluster.network.file"] = self.network.graph(0)
        for number, part in enumerate(self.nodes if isinstance(self.nodes, tuple) else ()):
            if isinstance(part.node, NodeFile) and (inside := part.inside()) is not None:
                graphs[f"cluster.nodes[{number}].node.file"] = inside
        return graphs

    def _own_links(self) -> list[Fault]:
        """Returns the mistakes of nodes with links of their own."""
        if not isinstance(self.nodes, tuple) or (self.network.topology == "star" and self.network.file is None):
            return []
        where = "file" if self.network.file else self.network.topology
        words = f"none in a {where}: only in a star has a node one link"
        return [
            (("nodes", index, "link"), expected(words), part.link.name)
            for index, part in enumerate(self.nodes)
            if part.link is not None
        ]

    @property
    def workers(self) -> int:
        """Number of workers in all nodes."""
        return sum(len(site.seats) for site in self.layout.sites)

    @property
    def placement(self) -> list[list[Rank]]:
        """Returns the worker ranks of each node, which do not depend on its devices."""
        sizes = [len(site.seats) for site in self.layout.sites]
        return [
            [Rank(rank) for rank in range(end - size, end)] for size, end in zip(sizes, accumulate(sizes), strict=True)
        ]

    def batches_of_kinds(self, workload: Workload) -> list[int]:
        """Returns the batch of a worker of each kind of node."""
        if not isinstance(self.nodes, tuple):
            return [workload.batch_per_worker]
        return [part.share_of(workload).batch_per_worker for part in self.nodes]

    def batches(self, workload: Workload) -> tuple[int, ...]:
        """Returns the batch of each worker, by rank."""
        kinds = self.batches_of_kinds(workload)
        counts = [part.count for part in self.nodes] if isinstance(self.nodes, tuple) else [len(self.layout.sites)]
        each = [batch for batch, count in zip(kinds, counts, strict=True) for _ in range(count)]
        return tuple(batch for batch, site in zip(each, self.layout.sites, strict=True) for _ in site.seats)

    def build(self, workload: Workload, optimizer_copies: int = 1) -> topologies.ClusterModel:
        """Returns the cluster, node by node.

        Args:
            workload: the workload that the devices compute.
            optimizer_copies: numbers of optimizer state per weight, which the memory of devices has to hold.
        """
        local = self.network.intra_node_link.build()
        kinds = [device for _, device in self.devices(workload, optimizer_copies)]
        counts = [part.count for part in self.nodes] if isinstance(self.nodes, tuple) else [len(self.layout.sites)]
        step_times = self._step_times(workload)
        pairs = zip(zip(kinds, step_times, strict=True), counts, strict=True)
        each = [pair for pair, count in pairs for _ in range(count)]
        nodes = [
            topologies.Node(
                name=site.name,
                device=device,
                seats=site.seats,
                host=site.host,
                intra_node_link=local,
                step_time=own,
                memory=host_memory(rates := self.charges.on_host(device, site), _memory_factor(local)),
                host_rates=rates,
            )
            for site, (device, own) in zip(self.layout.sites, each, strict=True)
        ]
        cluster = topologies.ClusterModel(
            nodes=tuple(nodes),
            graph=self.network.varied(self.layout.graph),
            step_time=self.step_time,
            server_node=self.server.node,
            faults=faults_of(self),
            link_faults=tuple(part.build() for part in self.network.faults),
            storage=None if self.storage is None else self.storage.build(),
        )
        if all(cluster.socket_of(Rank(rank)) is None for rank in range(cluster.workers)):
            return cluster  # its models need not be traced for the size of their input
        return replace(cluster, staging=self.staging.build(workload))

    def _step_times(self, workload: Workload) -> list[StepTimes | None]:
        """Returns how the steps of each kind of node vary: its own, or a calibrated device's; None: the cluster's."""
        own: list[tuple[Device | MachineDevice | str | None, StepTimes | None]] = [(self.device, None)]
        if isinstance(self.nodes, tuple):
            own = [(part.device, part.step_time) for part in self.nodes]
        return [
            StepTimes(law=device.jitter(workload.model, batch))
            if step_times is None and isinstance(device, MachineDevice)
            else step_times
            for (device, step_times), batch in zip(own, self.batches_of_kinds(workload), strict=True)
        ]

    def devices(self, workload: Workload, optimizer_copies: int = 1) -> list[tuple[Place, topologies.DeviceModel]]:
        """Returns the device of each kind of node, with its place in the section; arguments as in `build`."""
        if not isinstance(self.nodes, tuple):
            return [(("device",), self._device(self.device, 0, workload, None, optimizer_copies))]
        firsts = accumulate((part.count for part in self.nodes[:-1]), initial=0)
        devices: list[tuple[Place, topologies.DeviceModel]] = []
        for index, (part, first) in enumerate(zip(self.nodes, firsts, strict=True)):
            try:
                device = self._device(part.device, first, part.share_of(workload), part.groups, optimizer_copies)
            except InputError as error:
                if part.batch_per_worker is None:
                    raise
                raise InputError(f"cluster.nodes[{index}].batch_per_worker: {error}") from error
            devices.append((("nodes", index, "device"), device))
        return devices

    def _device(
        self,
        given: Device | MachineDevice | str | None,
        site: int,
        workload: Workload,
        groups: CoreGroups | None,
        optimizer_copies: int,
    ) -> topologies.DeviceModel:
        if groups is not None:
            assert isinstance(given, str), "a chip without a name is rejected before"
            return self.charges.device(groups.device(given, workload, optimizer_copies))
        which = self.layout.sites[site].devices[0] if given is None else given
        assert which is not None, "a node without a device is rejected before"
        return self.charges.device(device_of(which, workload, len(self.layout.sites[site].seats), optimizer_copies))
