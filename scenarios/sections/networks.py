"""The section of a scenario for the network between nodes: links, topology, routing, collectives.

Rules of this file: a network takes the parameters that `paceline list topologies` lists, beside the keys that every
network has. If the scenario does not give its size, it has room for all nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    BeforeValidator,
    ConfigDict,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    ValidationError,
    model_serializer,
    model_validator,
)

from paceline import topologies
from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.naming import near_miss
from paceline.scenarios.sections.link_outages import LinkFault, LinkFaults
from paceline.scenarios.sections.link_variation import LinkVariation, NetworkVariation, Variation, part_of
from paceline.scenarios.sections.referenced_files import File, graph_of
from paceline.scenarios.values import fields
from paceline.scenarios.values.key_hints import key_hint
from paceline.scenarios.values.mistakes import Fault, complain, expected, problems_of, wrong
from paceline.scenarios.values.section import Default, Field, Given, Nested, Quantity, Section, Values, summarised
from paceline.scenarios.values.units import RATE
from paceline.topologies import LINKS
from paceline.topologies.graphs.graph import Graph
from paceline.topologies.graphs.graph_registry import NETWORKS, build, parameters, sized
from paceline.topologies.graphs.links import Piece
from paceline.topologies.graphs.wires import WIRES

GIVEN = "given in the scenario"
KNOWN_LINKS = LINKS | WIRES


class LinkRange(Section):
    """Latency and bandwidth of messages up to a size."""

    up_to: Given[fields.Size, str | float] = Field(description="the largest message of this piece: '32 kB'")
    latency: Given[fields.Time, str | float] = Field(description="a time with its unit, one way: '20 us'")
    bandwidth: Given[fields.Rate, str | float] = Field(description="bandwidth limit of one such message: '5 GB/s'")


def _needs_values(schema: dict[str, Any]) -> None:
    """Latency and bandwidth are required, unless those of a link of the catalogue are taken."""
    summarised(schema)
    values = schema.pop("required")
    schema["anyOf"] = [{"required": ["like"]}, {"required": values}]


class Link(Section):
    """A link of the network.

    >>> Link(latency="20 us", bandwidth=1.25e9).document()
    {'latency': '20 us', 'bandwidth': '1250000000.0 B/s'}
    """

    model_config = ConfigDict(json_schema_extra=_needs_values)

    like: Annotated[str, fields.choices(*KNOWN_LINKS)] | None = Field(
        default=None,
        exclude=True,
        description="the name of a link of `paceline list links` whose values hold where none are given",
    )
    name: Default[fields.Name] = Field(default="inline", description="a name for tables and figures")
    latency: Quantity[fields.Time] = Field(  # the default is none: it is left out only beside `like`
        default=..., description="a time with its unit, one way: '20 us'"
    )
    bandwidth: Quantity[fields.Rate] = Field(
        default=..., description="a bandwidth with its unit, in each direction: '10 Gbit/s'"
    )
    count: Default[fields.Count] = Field(
        default=1,
        description="parallel links of this bandwidth, over which every message is divided: 12 nvlink3 of an A100",
    )
    download: Quantity[fields.Rate | None] = Field(
        default=None,
        description="the bandwidth towards the node, if it is larger than that from the node; only in a star",
    )
    provenance: Default[str] = Field(default=GIVEN, description="source of the two values")
    medium: Default[fields.MediumName] = Field(default="network", description="the medium of the link")
    send: Quantity[fields.Time] = Field(
        default=0.0, description="part of the latency that occupies the sender, one message at a time"
    )
    receive: Quantity[fields.Time] = Field(
        default=0.0, description="part of the latency that occupies the receiver, one message at a time"
    )
    hop: Quantity[fields.Time | None] = Field(
        default=None,
        description="the latency of one more hop between switches; default: a twentieth of the latency that is given, "
        "or that of the catalogue's link",
    )
    pieces: Given[tuple[LinkRange, ...], Sequence[LinkRange | Values] | None] = Field(
        default=(), description="latency and bandwidth of smaller messages"
    )
    fitted_up_to: Quantity[fields.Size | None] = Field(
        default=None, description="the largest message that these values were fitted to, if they were"
    )
    variation: Given[LinkVariation, Variation | Values | str | None] = Field(
        default=None, description="how the bandwidth varies over time around `bandwidth`, its mean; none: it does not"
    )

    @model_validator(mode="before")
    @classmethod
    def _completed(cls, value: object) -> object:
        """Takes the values that are not given from a link of the catalogue."""
        if not isinstance(value, Mapping) or value.get("like") is None:
            return value
        if (name := value["like"]) not in KNOWN_LINKS:
            words = f"one of {', '.join(KNOWN_LINKS)}{near_miss(name, KNOWN_LINKS)}"
            complain([(("like",), expected(words), name)])
        usual = known_link(name).model_dump(mode="json")
        own = {key: part for key, part in value.items() if key != "like"}
        if "latency" in own:
            usual["hop"] = None  # a share of this latency
        if own and "provenance" not in own:
            usual["provenance"] += f"; given in the scenario: {', '.join(own)}"
        return usual | own

    @model_validator(mode="after")
    def _faster_down(self) -> Link:
        if self.download is not None and self.download <= self.bandwidth:
            words = f"more than the bandwidth {RATE.text(self.bandwidth)}, which is that of the upload"
            complain([(("download",), expected(words), RATE.text(self.download))])
        return self

    def build(self) -> topologies.Link:
        """Returns the link."""
        return topologies.Link(
            name=self.name,
            latency_s=self.latency,
            bytes_per_s=self.count * self.bandwidth,
            provenance=self.provenance if self.count == 1 else f"{self.count} links: {self.provenance}",
            medium=self.medium,
            send_s=self.send,
            receive_s=self.receive,
            pieces=tuple(Piece(piece.up_to, piece.latency, self.count * piece.bandwidth) for piece in self.pieces),
            fitted_bytes=self.fitted_up_to,
            download_bytes_per_s=None if self.download is None else self.count * self.download,
            variation=None if self.variation is None else self.variation.build(),
            hop_s=self.hop,
        )


def known_link(name: str) -> Link:
    """Returns a link of the catalogue as a section."""
    link = KNOWN_LINKS[name]
    pieces = tuple(
        LinkRange.model_construct(up_to=one.up_to_bytes, latency=one.latency_s, bandwidth=one.bytes_per_s)
        for one in link.pieces
    )
    return Link.model_construct(
        name=link.name,
        latency=link.latency_s,
        bandwidth=link.bytes_per_s,
        provenance=link.provenance,
        fitted_up_to=link.fitted_bytes,
        medium=link.medium,
        send=link.send_s,
        receive=link.receive_s,
        hop=link.hop_s,
        pieces=pieces,
        like=None,
        download=link.download_bytes_per_s,
        variation=part_of(link.variation),
    )


def _link(value: object) -> object:
    if isinstance(value, dict | Link):
        return value
    if isinstance(value, str) and value in KNOWN_LINKS:
        return known_link(value)
    hint = near_miss(value, KNOWN_LINKS)
    raise expected(f"one of {', '.join(LINKS)}, or a mapping with latency and bandwidth{hint}")


VERSIONED = ("nccl", "mpi")
"""libraries whose costs depend on their version"""
AnyLink = Annotated[
    Link, BeforeValidator(_link, json_schema_input_type=Annotated[str, fields.choices(*KNOWN_LINKS)] | Link)
]


LINK: TypeAdapter[Link] = TypeAdapter(AnyLink)


def _links(given: Mapping[str, object]) -> dict[str, str | Link]:
    """Validates a topology's own links; names stay names, so that the scenario can be written again."""
    found: dict[str, str | Link] = {}
    faults: list[Fault] = []
    for key, part in given.items():
        try:
            link = LINK.validate_python(part)
            found[key] = part if isinstance(part, str) else link
        except ValidationError as error:
            faults += [((key, *one.place), wrong(one.text), part) for one in problems_of(error, Link)]
    complain(faults)
    return found


class Network(Section):
    """How the nodes are connected."""

    topology: Default[fields.Topology] = Field(
        default="star", description="the network's graph, one of `paceline list topologies`; a star has no bottleneck"
    )
    file: Given[File | None, str | Path | None] = Field(
        default=None, description="the path of a file that describes a network of hosts, instead of a topology"
    )
    link: Given[AnyLink, Link | Values | str | None] = Field(
        default=known_link("eth-10g"),
        description="link from a node to the network: a name of `paceline list links`, or latency and bandwidth",
    )
    parameters: Nested[dict[str, Any]] = Field(
        default={}, description="parameters of the topology; they may also be given directly, beside the other keys"
    )
    intra_node_link: Given[AnyLink, Link | Values | str | None] = Field(
        default=known_link("shared-memory"),
        description="link between ranks of one host: a name, or latency and bandwidth",
    )
    routing: Default[fields.Routing] = Field(
        default="auto",
        description="routing rule: shortest, ecmp, a dragonfly's minimal or valiant; auto: the topology's usual one",
    )
    allreduce_algorithm: Default[fields.Collective] = Field(
        default="auto", description="the algorithm of an all-reduce; auto: the one with the shortest predicted time"
    )
    library: Default[fields.LibraryName] = Field(
        default="plain",
        description="the library whose protocols collectives use, and how its messages are received: plain (protocols "
        "without costs), nccl, mpi, gloo",
    )
    library_version: fields.LibraryVersion = Field(
        default=None,
        description="version of nccl or mpi, such as '2.18', on which protocols depend; default: the latest",
    )
    variation: Given[NetworkVariation, Variation | Values | str | None] = Field(
        default="links",
        description="how the bandwidth of every link between nodes varies over time; links: each as its link says; "
        "none: not at all",
    )
    faults: Given[LinkFaults, Sequence[LinkFault | Values] | None] = Field(
        default=(), description="a list of links that are slow or broken for some time"
    )

    @model_validator(mode="before")
    @classmethod
    def _own_parameters(cls, value: object) -> object:
        """Collects the topology's parameters, and sets its usual link."""
        if not isinstance(value, Mapping):
            return value
        topology = value.get("topology", "star")
        if not isinstance(topology, str) or topology not in NETWORKS:
            return value  # rejected as a field
        whole = value.get("file") is not None  # a graph in a file has its own size and links
        known = {} if whole else parameters(topology)
        keys = list(dict.fromkeys([*cls.model_fields, *known]))
        for key in ("parameters", *(("topology", "link") if whole else ())):
            keys.remove(key)
        complain(
            [
                ((key,), wrong(f"unknown key{key_hint(key, keys)}; there are {', '.join(keys)}"), part)
                for key, part in value.items()
                if key not in keys and key != "parameters"
            ]
        )
        own = {key: part for key, part in value.items() if key in known and key != "link"}
        own |= _links({key: part for key, part in own.items() if known[key] == "auto" != part})
        rest = {key: part for key, part in value.items() if key not in own}
        given = rest.get("parameters", {})
        if isinstance(given, Mapping):
            rest["parameters"] = own | dict(given)
        return rest if whole else {"link": known["link"]} | rest

    @model_serializer(mode="wrap")
    def _beside(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        dumped: dict[str, Any] = handler(self)
        own: dict[str, Any] = dumped.pop("parameters", {})
        for key in ("file",) if self.file is None else ("topology", "link"):
            del dumped[key]
        return dumped | own

    def _settings(self) -> dict[str, object]:
        """Returns the parameters for `build`."""
        parts = {**self.parameters, "link": self.link}
        return {key: part.build() if isinstance(part, Link) else part for key, part in parts.items()}

    def graph(self, hosts: int) -> Graph:
        """Returns the network with room for this number of hosts; raises `InputError` if it has less."""
        if self.file is not None:
            graph = graph_of(self.file)
            if (room := len(graph.of_kind("host"))) < hosts:
                raise InputError(f"file: found {room} hosts in {self.file}, expected {hosts} or more, one a node")
            return graph
        graph = build(self.topology, sized(self.topology, hosts, self._settings()))
        if (room := len(graph.of_kind("host"))) < hosts:
            given = ", ".join(f"{key} = {part}" for key, part in self.parameters.items())
            raise InputError(f"topology: found a {self.topology} of {room} hosts ({given}), expected {hosts} or more")
        return graph

    def varied(self, graph: Graph) -> Graph:
        """Returns a graph whose links vary as this section says."""
        if self.variation == "links":
            return graph
        return graph.with_variation(self.variation.build() if isinstance(self.variation, Variation) else None)

    @model_validator(mode="after")
    def _possible_links(self) -> Network:
        inside = self.intra_node_link
        faults: list[Fault] = []
        if inside.download is not None:
            faults.append((("intra_node_link", "download"), expected("none inside a host"), RATE.text(inside.download)))
        if inside.variation is not None:
            words = "none: only links between nodes vary over time"
            faults.append((("intra_node_link", "variation"), expected(words), inside.variation.cv))
        links = {"link": self.link, **self.parameters} if self.topology != "star" else {}
        for key, part in links.items():
            link = known_link(part) if isinstance(part, str) and part in KNOWN_LINKS else part
            if isinstance(link, Link) and link.download is not None:
                words = f"none in a {self.topology}: only in a star is it clear which direction is the download"
                faults.append(((key, "download"), expected(words), RATE.text(link.download)))
        complain(faults)
        return self

    @model_validator(mode="after")
    def _versioned(self) -> Network:
        if self.library_version is not None and self.library not in VERSIONED:
            words = f"found a version of {self.library}, expected one of {' or '.join(VERSIONED)} only"
            complain([(("library_version",), wrong(words), self.library_version)])
        return self

    @model_validator(mode="after")
    def _buildable(self) -> Network:
        if self.file is not None:
            return self._readable(self.file)
        try:
            build(self.topology, sized(self.topology, 4, self._settings()))
        except InputError as error:
            faults = []
            for line in str(error).splitlines():
                key, _, text = line.partition(": ")
                place = key if key in self.parameters else "topology"
                faults.append(((place,), wrong(text if place == key else line), self.topology))
            complain(faults)
        return self

    def _readable(self, file: str) -> Network:
        try:
            graph = graph_of(file)
        except InputError as error:
            complain([(("file",), wrong(line), file) for line in str(error).splitlines()])
            raise
        if graph.of_kind("device"):
            words = f"found devices in {file}; expected hosts alone (for a whole machine: cluster.file)"
            complain([(("file",), wrong(words), file)])
        return self
