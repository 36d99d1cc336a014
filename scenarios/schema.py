"""The scenario: which methods, on which cluster, with which work, until when. `Scenario` is the whole file.

Rules of this file:

* Sections are frozen, and a key that is not here is a mistake. Each key's description says what belongs there.
* A scenario that exists is right: names are resolved, quantities are in SI units, and the sections fit each other. What
  needs several sections is checked as soon as those are right, so that one mistake does not hide another; hence
  the order of the sections in `Scenario`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

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

from paceline import workloads
from paceline.scenarios import fields
from paceline.scenarios.methods import Algorithm, hyperparameters
from paceline.scenarios.problems import Fault, complain, expected, near_miss, one_of, wrong
from paceline.topologies import LINKS, NO_SPREAD, Cluster, Device, Link, Node

if TYPE_CHECKING:
    from paceline.scenarios.plan import Plan

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


def _cluster(value: object) -> object:
    if isinstance(value, str):
        raise expected("a mapping with nodes; clusters known by name come with a later version")
    return value


def _some(value: object) -> object:
    if isinstance(value, list | tuple) and value:
        return value
    raise expected("a list of at least one")


class ClusterPart(Part):
    nodes: Annotated[tuple[NodePart, ...], BeforeValidator(_some)] = Field(
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


class WorkloadPart(Part):
    model: str = Field(description=one_of(list(workloads.MODELS)), json_schema_extra={"enum": list(workloads.MODELS)})
    data: str | None = Field(default=None, description="the data set; the model's own if not given")
    batch_per_worker: fields.Count = Field(default=32, description="samples in one gradient of one worker")
    learning: str = Field(default="train", description="train, quadratic, or none: timing only")
    precision: str = Field(default="float32", description="of weights and gradients: float32 or float64")
    options: dict[str, Any] = Field(default={}, description="of the learning problem; the quadratic has some")

    def learner(self, seed: int) -> workloads.LayerwiseLearner:
        """What is learned, for one seed."""
        return workloads.build(
            self.model,
            data=self.data,
            learning=self.learning,  # type: ignore[arg-type]  # checked by workloads.problems
            seed=seed,
            precision=self.precision,  # type: ignore[arg-type]
            **self.options,
        )

    @property
    def population(self) -> int:
        """Samples in one epoch."""
        return self.learner(0).population if self.learning == "quadratic" else workloads.MODELS[self.model].population


class TrainPart(Part):
    pace: fields.Pace = Field(default="device", description="device: hold steps to device times; none: run freely")
    network: fields.RealNetwork = Field(default="local", description="local: messages cross this machine only")
    threads: fields.Count = Field(default=1, description="threads of each worker")
    stretch: fields.Factor = Field(default=1.0, description="multiplies device times in a paced run")


class EvaluatePart(Part):
    every: fields.Interval = Field(default=fields.Every(1.0, "epochs"), description="how often: '1 epoch', '2 s'")


class StopPart(Part):
    accuracy: fields.Accuracy | None = Field(default=None, description="end when an evaluation reaches this accuracy")
    epochs: fields.Positive | None = Field(default=None, description="end after so many epochs")
    updates: fields.Count | None = Field(default=None, description="end after so many steps of the weights' keeper")
    samples: fields.Count | None = Field(default=None, description="end after so many samples, of all workers together")
    seconds: fields.Period | None = Field(
        default=None, description="end after this time, with its unit, on the run's own clock"
    )


class TargetPart(Part):
    accuracy: fields.Accuracy | None = Field(default=None, description="what the time to accuracy is measured to")


class Scenario(Part):
    """Methods, a cluster, work and an end: everything that a run needs, whoever runs it."""

    name: fields.Name = Field(description="a name of letters, digits, '.', '-' and '_'")
    cluster: Annotated[ClusterPart, BeforeValidator(_cluster)] = Field(description="a mapping with nodes")
    workload: WorkloadPart = Field(description="a mapping with a model: what is trained")
    hyperparameters: dict[str, Any] = Field(
        default={}, exclude=True, description="for every algorithm that has them and gives none itself"
    )
    algorithms: Annotated[tuple[Algorithm, ...], BeforeValidator(_some)] = Field(
        description="a list of methods, by name or as mappings with name and hyper-parameters"
    )
    train: TrainPart = Field(default=TrainPart(), description="how a real run is made")
    evaluate: EvaluatePart = Field(default=EvaluatePart(), description="when the weights are evaluated")
    stop: StopPart = Field(
        description="a mapping with epochs, updates, samples or seconds, and accuracy: when a run ends"
    )
    target: TargetPart = Field(
        default=TargetPart(), description="what the time to accuracy is measured to; else stop.accuracy"
    )
    seed: fields.Index = Field(default=1, description="of initial weights, samples and spread")
    seeds: fields.Count = Field(default=1, description="how many runs of each algorithm: with seed, seed + 1, …")

    @field_validator("workload")
    @classmethod
    def _trainable(cls, workload: WorkloadPart, info: ValidationInfo) -> WorkloadPart:
        given = workload.model_dump(exclude={"batch_per_worker"})
        faults: list[Fault] = []
        for text in workloads.problems(**given):
            key, _, rest = text.partition(": ")
            faults.append((tuple(key.split(".")), wrong(rest), workload))
        complain(faults)
        if "cluster" in info.data:
            workers, batch = info.data["cluster"].build().workers, workload.batch_per_worker
            if workers * batch > workload.population:
                words = f"at most {workload.population // workers}, so that {workers} workers"
                words += f" together take no more than all {workload.population} samples at once"
                complain([(("batch_per_worker",), expected(words), batch)])
        return workload

    @field_validator("algorithms")
    @classmethod
    def _told_apart(cls, algorithms: tuple[Algorithm, ...]) -> tuple[Algorithm, ...]:
        text = "is there twice with the same hyper-parameters; expected once"
        twice = [index for index, method in enumerate(algorithms) if method in algorithms[:index]]
        complain([((index,), wrong(f"{algorithms[index].name} {text}"), None) for index in twice])
        return algorithms

    @field_validator("stop")
    @classmethod
    def _ends(cls, stop: StopPart) -> StopPart:
        if all(rule is None for rule in (stop.epochs, stop.updates, stop.samples, stop.seconds)):
            found = "only accuracy, which may never be reached" if stop.accuracy else "no rule"
            complain([((), wrong(f"found {found}; expected one of epochs, updates, samples or seconds too"), None)])
        return stop

    @property
    def target_accuracy(self) -> float | None:
        """What the time to accuracy is measured to."""
        return self.stop.accuracy if self.target.accuracy is None else self.target.accuracy

    def dump(self) -> dict[str, Any]:
        """The resolved scenario as plain data; loading it gives an equal scenario."""
        return self.model_dump(mode="json")

    def plans(self, *, paced: bool = False) -> list[Plan]:
        """One plan per algorithm and seed, algorithm by algorithm.

        Args:
            paced: for a paced real run and its prediction: device times are multiplied by `train.stretch`. Without
                effect where `train.pace` is none.

        Raises:
            ScenarioError: if `paced` and a device is too fast for this machine to hold its pace.
        """
        from paceline.scenarios.plan import plans  # plans know scenarios, which is the direction that matters

        return plans(self, paced=paced)


def unused_hyperparameters(data: Any, methods: dict[str, Any]) -> list[str]:
    """Names under `hyperparameters` that change nothing: no algorithm has them, or each gives its own."""
    if not isinstance(data, dict):
        return []
    shared, entries = data.get("hyperparameters"), data.get("algorithms")
    if not isinstance(shared, dict) or not isinstance(entries, list):
        return []
    taking: set[str] = set()
    for entry in entries:
        given = entry if isinstance(entry, dict) else {"name": entry}
        method = methods.get(str(given.get("name")))
        taking |= set(hyperparameters(method)) - set(given) if method else set()
    return [str(name) for name in shared if name not in taking]
