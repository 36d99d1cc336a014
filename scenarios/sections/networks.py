"""The section of a scenario for the network between nodes: links, topology, routing, collectives.

A network takes the parameters that `paceline list topologies` lists, beside the keys that every network has. If the
scenario does not give its size, it has room for all nodes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    ConfigDict,
    PlainSerializer,
    PlainValidator,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

from paceline import topologies
from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.naming import near_miss
from paceline.scenarios.sections.fault_sections import listed, parse_share
from paceline.scenarios.sections.referenced_files import File, graph_of
from paceline.scenarios.values import fields
from paceline.scenarios.values.key_hints import key_hint
from paceline.scenarios.values.mistakes import Fault, complain, expected, problems_of, wrong
from paceline.scenarios.values.section import Default, Field, Given, Nested, Quantity, Section, Values, summarised
from paceline.scenarios.values.units import RATE
from paceline.topologies import LINKS
from paceline.topologies.faults import link_faults
from paceline.topologies.graphs import links as variations
from paceline.topologies.graphs.graph import Graph
from paceline.topologies.graphs.graph_registry import NETWORKS, build, parameters, sized
from paceline.topologies.graphs.links import CORRELATION, EVERY_S, FLOOR, MOST_CV, WIRES, LinkPiece
from paceline.topologies.importing import takes_links
from paceline.topologies.importing.slurm import SETTINGS as SLURM_SETTINGS


def _number(words: str, above: float, below: float, *, ends: bool) -> PlainValidator:
    """Returns the validator of a number between two others; `ends`: the first is excluded and the last included."""

    def check(value: object) -> float:
        right = isinstance(value, int | float) and not isinstance(value, bool)
        if not right or not (above < value <= below if ends else above <= value < below):  # type: ignore[operator]
            raise expected(words)
        return float(value)  # type: ignore[arg-type]

    return PlainValidator(check)


Cv = Annotated[
    float,
    _number(f"a number above 0 and at most {MOST_CV:g}: standard deviation over mean", 0.0, MOST_CV, ends=True),
    WithJsonSchema({"type": "number", "exclusiveMinimum": 0, "maximum": MOST_CV}),
]
BelowOne = Annotated[
    float,
    _number("a number from 0 to less than 1", 0.0, 1.0, ends=False),
    WithJsonSchema({"type": "number", "minimum": 0, "exclusiveMaximum": 1}),
]


class Variation(Section):
    """How the bandwidth of a link varies over time.

    >>> Variation(cv=0.3, every="10 s").document()
    {'cv': 0.3, 'every': '10 s'}
    """

    cv: Cv = Field(description="coefficient of variation of the bandwidth over time: standard deviation over mean")
    every: Quantity[fields.Period] = Field(
        default=EVERY_S, description="how long a bandwidth lasts until the next one is drawn"
    )
    correlation: Default[BelowOne] = Field(default=CORRELATION, description="correlation of two successive bandwidths")
    floor: Default[BelowOne] = Field(default=FLOOR, description="smallest bandwidth, as a fraction of the mean")
    provenance: Default[str] = Field(default="given in the scenario", description="source of these values")

    def build(self) -> variations.VariationModel:
        """Returns the variation."""
        return variations.VariationModel(
            cv=self.cv,
            every_s=self.every,
            correlation=self.correlation,
            floor=self.floor,
            provenance=self.provenance,
        )


def part_of(variation: variations.VariationModel | None) -> Variation | None:
    """Returns a variation of the catalogue as a section."""
    if variation is None:
        return None
    return Variation.model_construct(
        cv=variation.cv,
        every=variation.every_s,
        correlation=variation.correlation,
        floor=variation.floor,
        provenance=variation.provenance,
    )


def _parsed(value: object, words: str) -> object:
    """Parses a section here rather than as a choice of a union, whose messages would name the choices."""
    if not isinstance(value, dict):
        if isinstance(value, Variation):
            return value
        raise expected(f"{words}, or a mapping such as {{cv: 0.3, every: 10 s, correlation: 0.8}}")
    try:
        return Variation.model_validate(value)
    except ValidationError as error:
        complain([(problem.place, wrong(problem.text), value) for problem in problems_of(error, Variation)])
        raise


def _of_link(value: object) -> object:
    return None if value in (None, "none") else _parsed(value, "none")


def _of_network(value: object) -> object:
    if value in (None, "links", "none"):
        return value or "links"
    return _parsed(value, "links or none")


LinkVariation = Annotated[
    Variation | None, BeforeValidator(_of_link, json_schema_input_type=Variation | Literal["none"] | None)
]
"""of one link; none: its bandwidth is constant"""
NetworkVariation = Annotated[Variation | Literal["links", "none"], BeforeValidator(_of_network)]
"""of all links of the network; links: each link has its own"""


def parse_ends(value: object) -> tuple[str, str]:
    """Parses the names of two vertices."""
    names = value if isinstance(value, list | tuple) else ()
    if len(names) != 2 or not all(isinstance(name, str | int) and not isinstance(name, bool) for name in names):
        raise expected("the two ends of a link, as `paceline topology` draws them: [host0, switch]")
    return str(names[0]), str(names[1])


def parse_left(value: object) -> float:
    """Parses the remaining fraction of a bandwidth.

    >>> parse_left("50 %"), parse_left(0)
    (0.5, 0.0)
    """
    if value == 0 and not isinstance(value, bool):
        return 0.0
    words = "a share from 0, which is broken, to less than 1, such as 0.5 or '50 %'"
    try:
        share = parse_share(value)
    except PydanticCustomError:
        raise expected(words) from None
    if share == 1.0:
        raise expected(words)
    return share


Ends = Annotated[
    tuple[str, str],
    PlainValidator(parse_ends),
    PlainSerializer(list, return_type=list[str]),
    WithJsonSchema({"type": "array", "items": {"type": ["string", "integer"]}, "minItems": 2, "maxItems": 2}),
]
RateLeft = Annotated[
    float,
    PlainValidator(parse_left),
    WithJsonSchema({"type": ["number", "string"], "description": "such as 0.5 or '50 %'", "unit": "fraction"}),
]


class LinkFault(Section):
    """A link that is slow or broken for some time."""

    between: Ends = Field(description="the two ends of a link, as `paceline topology` draws them: [host0, switch]")
    at: Given[fields.Time, str | float] = Field(
        description="a time with its unit, on the run's own clock: when it begins"
    )
    lasts: Quantity[fields.Period | None] = Field(
        default=None, validation_alias="for", description="how long it lasts; default: until the end of the run"
    )
    rate: Quantity[RateLeft] = Field(
        default=0.0, description="the fraction of its bandwidth that is left; 0: it is broken"
    )

    @model_serializer(mode="wrap")
    def _as_written(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {"for" if key == "lasts" else key: value for key, value in handler(self).items()}

    def build(self) -> link_faults.LinkFaultModel:
        """Returns the fault."""
        lasts_s = math.inf if self.lasts is None else self.lasts
        return link_faults.LinkFaultModel(between=self.between, at_s=self.at, lasts_s=lasts_s, rate=self.rate)


LinkFaults = Given[Annotated[tuple[LinkFault, ...], BeforeValidator(listed)], Sequence[LinkFault | Values] | None]


def misjoined(parts: Sequence[LinkFault], graph: Graph) -> list[Fault]:
    """Returns the mistakes of links that a graph does not have."""
    return [
        (("network", "faults", index, "between"), wrong(text), part.between)
        for index, part in enumerate(parts)
        for text in link_faults.mistakes(graph, part.between)
    ]


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

    def build(self) -> topologies.LinkModel:
        """Returns the link."""
        return topologies.LinkModel(
            name=self.name,
            latency_s=self.latency,
            bytes_per_s=self.count * self.bandwidth,
            provenance=self.provenance if self.count == 1 else f"{self.count} links: {self.provenance}",
            medium=self.medium,
            send_s=self.send,
            receive_s=self.receive,
            pieces=tuple(LinkPiece(piece.up_to, piece.latency, self.count * piece.bandwidth) for piece in self.pieces),
            fitted_bytes=self.fitted_up_to,
            download_bytes_per_s=None if self.download is None else self.count * self.download,
            variation=None if self.variation is None else self.variation.build(),
            hop_s=self.hop,
        )


def known_link(name: str) -> Link:
    """Returns a link of the catalogue as a section."""
    link = KNOWN_LINKS[name]
    pieces = tuple(
        LinkRange.model_construct(up_to=piece.up_to_bytes, latency=piece.latency_s, bandwidth=piece.bytes_per_s)
        for piece in link.pieces
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
    links: dict[str, str | Link] = {}
    faults: list[Fault] = []
    for key, part in given.items():
        try:
            link = LINK.validate_python(part)
            links[key] = part if isinstance(part, str) else link
        except ValidationError as error:
            faults += [((key, *problem.place), wrong(problem.text), part) for problem in problems_of(error, Link)]
    complain(faults)
    return links


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
    faults: LinkFaults = Field(default=(), description="a list of links that are slow or broken for some time")

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
        without_links = whole and takes_links(value["file"])
        known = parameters(topology) if not whole else dict.fromkeys(SLURM_SETTINGS, "") if without_links else {}
        keys = list(dict.fromkeys([*cls.model_fields, *known]))
        for key in ("parameters", *(("topology",) if without_links else ("topology", "link") if whole else ())):
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
        unused = ("topology",) if "link" in self.model_fields_set else ("topology", "link")
        for key in ("file",) if self.file is None else unused:
            del dumped[key]
        return dumped | own

    def _settings(self) -> dict[str, object]:
        """Returns the parameters for `build`."""
        parts = {**self.parameters, "link": self.link}
        return {key: part.build() if isinstance(part, Link) else part for key, part in parts.items()}

    def _file_settings(self) -> dict[str, object]:
        """Returns what a file without links, such as Slurm's, is read with."""
        return {**self.parameters, **({"link": self.link.build()} if "link" in self.model_fields_set else {})}

    def graph(self, hosts: int) -> Graph:
        """Returns the network with room for this number of hosts; raises `InputError` if it has less."""
        if self.file is not None:
            graph = graph_of(self.file, self._file_settings())
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
            graph = graph_of(file, self._file_settings())
        except InputError as error:
            complain([(("file",), wrong(line), file) for line in str(error).splitlines()])
            raise
        if graph.of_kind("device"):
            words = f"found devices in {file}; expected hosts alone (for a whole machine: cluster.file)"
            complain([(("file",), wrong(words), file)])
        return self
