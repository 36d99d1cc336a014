"""The sections of a scenario that describe the cluster: devices, nodes, a named system, network, server."""

from __future__ import annotations

from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import (
    Field,
    TypeAdapter,
    ValidationInfo,
    WrapValidator,
    field_validator,
    model_validator,
)

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.values import Rank
from paceline.scenarios.sections.charges import ChargesPart
from paceline.scenarios.sections.devices import DevicePart, any_device, device_of
from paceline.scenarios.sections.fault_sections import (
    CrashesPart,
    OwnStepTimes,
    Slowdowns,
    Stragglers,
    faults_of,
    misplaced,
)
from paceline.scenarios.sections.layout import Layout, of_file, of_nodes, of_system
from paceline.scenarios.sections.link_outages import misjoined
from paceline.scenarios.sections.networks import LinkPart, NetworkPart
from paceline.scenarios.sections.reading import AnyStorage
from paceline.scenarios.sections.referenced_files import File, NodeFilePart, any_node, graph_of
from paceline.scenarios.values import fields
from paceline.scenarios.values.limits import MOST_WORKERS
from paceline.scenarios.values.mistakes import Fault, Place, complain, expected, wrong
from paceline.scenarios.values.section import Part
from paceline.topologies import NO_JITTER, Cluster, Device, Node
from paceline.topologies.catalogue.host_memory import host_memory
from paceline.topologies.cluster import sites
from paceline.topologies.graphs.graph import Graph
from paceline.topologies.graphs.graph_registry import build

if TYPE_CHECKING:
    from paceline.scenarios.sections.workload import WorkloadPart

AnyDevice = Annotated[DevicePart | str, WrapValidator(any_device)]


class NodePart(Part):
    device: AnyDevice | None = Field(
        default=None,
        description="a device's name, or a mapping with name, overhead and per_sample; a known node has devices itself",
    )
    node: Annotated[fields.NodeName | NodeFilePart | None, WrapValidator(any_node)] = Field(
        default=None,
        description="what is in it: one of the nodes of `paceline list topologies`, or {file: PATH}; else one host",
    )
    settings: dict[str, Any] = Field(
        default={}, description="parameters of that node, such as {gpu: v100}; of nvidia-smi's text link and pcie"
    )
    count: fields.Count = Field(default=1, description="how many such nodes there are")
    workers_per_node: fields.Count | None = Field(
        default=None, description="workers of a node, each with a device; default: 1, or all devices of a known node"
    )
    step_time: fields.StepTimeLaw | None = Field(default=None, description="of these devices; else the cluster's")

    @model_validator(mode="after")
    def _complete(self) -> NodePart:
        if self.node is None:
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

    def inside(self) -> Graph | None:
        """The graph of the node; None where it is one host."""
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
        """A mistake in the node's parameters, or in its file."""
        key, _, text = line.partition(": ")
        if key in self.settings:
            return ("settings", key), wrong(text), self.settings
        if isinstance(self.node, str):
            return ("settings",), wrong(text), self.settings
        return ("node", "file"), wrong(line), self.node

    @property
    def workers(self) -> int:
        """In one such node."""
        inside = self.inside()
        return self.workers_per_node or (1 if inside is None else len(inside.endpoints))


class ServerPart(Part):
    node: fields.Index = Field(default=0, description="the node that hosts the server, counted from 0")
    threads: fields.Count = Field(
        default=1, description="messages that the server handles at once, in a simulation; a real run's handles one"
    )
    receive: fields.ReceiveOrder = Field(
        default="auto",
        description="when a large message to the server flows: in-order: when its receive has matched, one at a time; "
        "shared: when it is sent; auto: as network.library does",
    )


def cluster_mapping(value: object) -> object:
    """A name stands for the system of that name."""
    if isinstance(value, str):
        return {"system": value}
    return value


def some(value: object) -> object:
    """Refuses what is no list, and the empty list."""
    if isinstance(value, list | tuple) and value:
        return value
    raise expected("a list of at least one")


def _nodes(value: object, _: Any, info: ValidationInfo) -> object:
    """A list of nodes or, of a system, their number."""
    if "system" not in info.data or "file" not in info.data:
        return None  # which is refused already
    if info.data["system"] is None and info.data["file"] is None:
        return TypeAdapter(tuple[NodePart, ...]).validate_python(some(value))
    return None if value is None else TypeAdapter(fields.Count).validate_python(value)


class ClusterPart(Part):
    system: fields.System | None = Field(default=None, description="a machine of `paceline list topologies`, by name")
    file: File | None = Field(default=None, description="or a machine in a file, by its path")
    nodes: Annotated[tuple[NodePart, ...] | fields.Count | None, WrapValidator(_nodes)] = Field(
        default=None, description="a list of nodes, each with a device; of a system, how many", validate_default=True
    )
    device: AnyDevice | None = Field(
        default=None, description="for a system or a file: the device to use instead of its own, or if it names none"
    )
    network: NetworkPart = Field(default=NetworkPart(), description="how the nodes are connected")
    charges: ChargesPart = Field(
        default=ChargesPart(),
        description="how fast updates, averages and copies are, where the catalogue is not to be used",
    )
    storage: AnyStorage | None = Field(
        default=None, description="what samples are read from: a name of `paceline list storage`, or a mapping"
    )
    step_time: fields.StepTimeLaw = Field(
        default=NO_JITTER,
        description="jitter of the step times of equal devices: a distribution of scipy.stats, scaled to mean 1",
    )
    server: ServerPart = Field(
        default=ServerPart(), description="where the parameter server runs, and how it handles messages"
    )
    step_times: OwnStepTimes = Field(default=(), description="jitter of single nodes or workers")
    stragglers: Stragglers = Field(default=(), description="stragglers: nodes or workers whose every step takes longer")
    slowdowns: Slowdowns = Field(
        default=(), description="temporary stragglers: nodes or workers that are slower for some time"
    )
    crashes: CrashesPart | None = Field(default=None, description="when workers crash, and what that costs")

    @field_validator("nodes")
    @classmethod
    def _countable(cls, nodes: tuple[NodePart, ...] | int | None) -> tuple[NodePart, ...] | int | None:
        if isinstance(nodes, tuple):
            workers = sum(node.count * node.workers for node in nodes)
            if workers > MOST_WORKERS:
                complain([((), wrong(f"found {workers} workers in all, expected at most {MOST_WORKERS}"), nodes)])
        return nodes

    @model_validator(mode="after")
    def _fits(self) -> ClusterPart:
        if self.file is not None and self.system is not None:
            complain([(("file",), wrong("found a system and a file; expected one of them"), None)])
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
        """What a machine as a whole brings along: it would be passed over."""
        if self.system is None and self.file is None:
            return []
        usual, name = NetworkPart(), self.system or self.file
        words = f"nothing: {name} has its own network; for another one give nodes as a list"
        return [
            (("network", key), expected(words), given.name if isinstance(given, LinkPart) else given)
            for key in ("topology", "file", "link", "parameters")
            if (given := getattr(self.network, key)) != getattr(usual, key)
        ]

    def _misfit(self, line: str) -> Fault:
        """What is wrong with the layout, and where it is named."""
        key, _, text = line.partition(": ")
        if key == "nodes":
            return ("nodes",), wrong(text), self.nodes
        return (("file",), wrong(line), self.file) if self.file else (("network", key), wrong(text), self.nodes)

    @cached_property
    def layout(self) -> Layout:
        """The graph, and where the workers sit on it; raises `InputError` where nodes and network do not fit."""
        if self.file is not None:
            assert not isinstance(self.nodes, tuple)
            return of_file(self.file, self.nodes)
        if self.system is not None:
            assert not isinstance(self.nodes, tuple)
            return of_system(self.system, self.nodes)
        assert isinstance(self.nodes, tuple)
        return of_nodes(self.network.graph, [(part.inside(), part.workers, part.count) for part in self.nodes])

    @property
    def workers(self) -> int:
        """In all."""
        return sum(len(site.seats) for site in self.layout.sites)

    @property
    def placement(self) -> list[list[Rank]]:
        """The worker ranks of each node, which do not depend on what its devices are."""
        sizes = [len(site.seats) for site in self.layout.sites]
        return [
            [Rank(rank) for rank in range(end - size, end)] for size, end in zip(sizes, accumulate(sizes), strict=True)
        ]

    def build(self, workload: WorkloadPart) -> Cluster:
        """The cluster, node by node.

        Args:
            workload: what the devices compute.
        """
        local = self.network.intra_node_link.build()
        kinds = [device for _, device in self.devices(workload)]
        counts = [part.count for part in self.nodes] if isinstance(self.nodes, tuple) else [len(self.layout.sites)]
        spreads = [part.step_time for part in self.nodes] if isinstance(self.nodes, tuple) else [None]
        pairs = zip(zip(kinds, spreads, strict=True), counts, strict=True)
        each = [pair for pair, count in pairs for _ in range(count)]
        nodes = [
            Node(
                name=site.name,
                device=device,
                seats=site.seats,
                host=site.host,
                intra_node_link=local,
                step_time=spread,
                memory=host_memory(rates := self.charges.on_host(device, site)),
                host_rates=rates,
            )
            for site, (device, spread) in zip(self.layout.sites, each, strict=True)
        ]
        return Cluster(
            nodes=tuple(nodes),
            graph=self.layout.graph,
            step_time=self.step_time,
            server_node=self.server.node,
            faults=faults_of(self),
            link_faults=tuple(part.build() for part in self.network.faults),
            storage=None if self.storage is None else self.storage.build(),
        )

    def devices(self, workload: WorkloadPart) -> list[tuple[Place, Device]]:
        """The device of each kind of node, and where in the section it is named."""
        if not isinstance(self.nodes, tuple):
            return [(("device",), self._device(self.device, 0, workload))]
        firsts = accumulate((part.count for part in self.nodes[:-1]), initial=0)
        return [
            (("nodes", index, "device"), self._device(part.device, first, workload))
            for index, (part, first) in enumerate(zip(self.nodes, firsts, strict=True))
        ]

    def _device(self, given: DevicePart | str | None, site: int, workload: WorkloadPart) -> Device:
        which = self.layout.sites[site].devices[0] if given is None else given
        assert which is not None, "a node whose devices nobody names is refused"
        return self.charges.device(device_of(which, workload))
