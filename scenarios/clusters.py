"""The sections of a scenario that describe the cluster: devices, nodes, links, network, server."""

from __future__ import annotations

from typing import Annotated

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from paceline.scenarios import fields
from paceline.scenarios.problems import complain, expected, near_miss, wrong
from paceline.topologies import LINKS, NO_SPREAD, Cluster, Device, Link, Node

GIVEN = "given in the scenario"
MOST_WORKERS = 100_000
"""larger than any machine there is; a slip of the keyboard would otherwise fill the memory"""


class Part(BaseModel):
    """A section of a scenario."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    @model_validator(mode="before")
    @classmethod
    def _empty(cls, value: object) -> object:
        return {} if value is None else value  # in YAML, a section whose keys are all left out is null


class DevicePart(Part):
    name: fields.Name = Field(description="a name for tables and figures")
    overhead: fields.Time = Field(description="a time with its unit: what every step costs, however few its samples")
    per_sample: fields.Time = Field(description="a time with its unit: what each sample of a step adds")

    def build(self) -> Device:
        """The device."""
        return Device(name=self.name, overhead_s=self.overhead, per_sample_s=self.per_sample)


def _device(value: object) -> object:
    if isinstance(value, dict | DevicePart):
        return value
    raise expected("a mapping with name, overhead and per_sample; devices known by name come with a later version")


class NodePart(Part):
    device: Annotated[DevicePart, BeforeValidator(_device)] = Field(
        description="a mapping with name, overhead and per_sample"
    )
    count: fields.Count = Field(default=1, description="how many such nodes there are")
    per_node: fields.Count = Field(default=1, description="how many such devices, each with a worker, are in a node")


class LinkPart(Part):
    name: fields.Name = Field(default="inline", description="a name for tables and figures")
    latency: fields.Time = Field(description="a time with its unit, one way: '20 us'")
    bandwidth: fields.Rate = Field(description="a bandwidth with its unit, in each direction: '10 Gbit/s'")
    provenance: str = Field(default=GIVEN, description="where the two values come from")

    def build(self) -> Link:
        """The link."""
        return Link(name=self.name, latency_s=self.latency, bytes_per_s=self.bandwidth, provenance=self.provenance)


def _known(name: str) -> LinkPart:
    link = LINKS[name]
    return LinkPart.model_construct(
        name=link.name, latency=link.latency_s, bandwidth=link.bytes_per_s, provenance=link.provenance
    )


def _link(value: object) -> object:
    if isinstance(value, dict | LinkPart):
        return value
    if isinstance(value, str) and value in LINKS:
        return _known(value)
    hint = near_miss(value, LINKS)
    raise expected(f"one of {', '.join(LINKS)}, or a mapping with latency and bandwidth{hint}")


LINK_SCHEMA = {
    "oneOf": [
        {"enum": list(LINKS)},
        {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "latency": {"type": "string", "examples": ["20 us"]},
                "bandwidth": {"type": "string", "examples": ["10 Gbit/s"]},
                "provenance": {"type": "string"},
            },
            "required": ["latency", "bandwidth"],
            "additionalProperties": False,
        },
    ]
}
AnyLink = Annotated[LinkPart, BeforeValidator(_link), WithJsonSchema(LINK_SCHEMA)]


class NetworkPart(Part):
    topology: fields.Topology = Field(
        default="star", description="star: all nodes hang on one switch, never the bottleneck"
    )
    link: AnyLink = Field(
        default=_known("eth-10g"), description="a link's name, or latency and bandwidth: to the switch"
    )
    local: AnyLink = Field(
        default=_known("shared-memory"), description="a link's name, or latency and bandwidth: within a node"
    )
    collective: fields.Collective = Field(
        default="auto", description="the pattern of an all-reduce; auto: the cheapest"
    )


class ServerPart(Part):
    node: fields.Index = Field(default=0, description="the node that hosts the server, counted from 0")


def cluster_mapping(value: object) -> object:
    """Refuses names of clusters, with words of its own."""
    if isinstance(value, str):
        raise expected("a mapping with nodes; clusters known by name come with a later version")
    return value


def some(value: object) -> object:
    """Refuses what is no list, and the empty list."""
    if isinstance(value, list | tuple) and value:
        return value
    raise expected("a list of at least one")


class ClusterPart(Part):
    nodes: Annotated[tuple[NodePart, ...], BeforeValidator(some)] = Field(
        description="a list of nodes, each with a device"
    )
    network: NetworkPart = Field(default=NetworkPart(), description="how the nodes are connected")
    spread: fields.SpreadLaw = Field(default=NO_SPREAD, description="how much steps of equal devices differ")
    server: ServerPart = Field(default=ServerPart(), description="where the server is")

    @field_validator("nodes")
    @classmethod
    def _countable(cls, nodes: tuple[NodePart, ...]) -> tuple[NodePart, ...]:
        workers = sum(node.count * node.per_node for node in nodes)
        if workers > MOST_WORKERS:
            complain([((), wrong(f"found {workers} workers in all, expected at most {MOST_WORKERS}"), nodes)])
        return nodes

    @field_validator("server")
    @classmethod
    def _on_a_node(cls, server: ServerPart, info: ValidationInfo) -> ServerPart:
        if "nodes" in info.data and server.node >= (there := sum(node.count for node in info.data["nodes"])):
            complain([(("node",), expected(f"a node below {there}, the number of nodes"), server.node)])
        return server

    def build(self) -> Cluster:
        """The cluster, node by node."""
        link, local = self.network.link.build(), self.network.local.build()
        nodes = [
            Node(name=f"{kind}.{copy}", device=part.device.build(), workers=part.per_node, link=link, local=local)
            for kind, part in enumerate(self.nodes)
            for copy in range(part.count)
        ]
        return Cluster(nodes=tuple(nodes), spread=self.spread, server_node=self.server.node)
