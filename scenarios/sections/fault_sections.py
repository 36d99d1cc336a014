"""The sections of a scenario for faults of the cluster: jitter, stragglers, slowdowns, crashes, deaths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from pydantic import BeforeValidator, PlainSerializer, PlainValidator, WithJsonSchema, model_validator

from paceline.scenarios.values import fields
from paceline.scenarios.values.mistakes import Fault, complain, expected, one_of, wrong
from paceline.scenarios.values.mistakes import Place as At
from paceline.scenarios.values.section import Field, Given, Nested, Quantity, Section, Values
from paceline.scenarios.values.step_times import StepTimesField
from paceline.scenarios.values.units import PERIOD
from paceline.topologies.faults import worker_faults
from paceline.topologies.faults.jitter import NO_JITTER
from paceline.topologies.faults.worker_faults import CrashAt, DeathAt, FaultPlace, Faults, count_of

if TYPE_CHECKING:
    from paceline.scenarios.sections.clusters import Cluster

NOWHERE = "node, worker or share: at most one of them; none means all workers"


def parse_share(value: object) -> float:
    """Parses a share above 0 and at most 1.

    >>> parse_share("5 %"), parse_share(0.25)
    (0.05, 0.25)
    """
    if (share := fields.share_of(value)) is None or share == 0:
        raise expected("a share above 0 and at most 1, such as '5 %' or 0.05")
    return share


Share = Annotated[
    float,
    PlainValidator(parse_share),
    WithJsonSchema(
        {
            "type": ["string", "number"],
            "description": "such as '5 %' or 0.05",
            "examples": ["5 %"],
            "unit": "fraction",
        }
    ),
]


SHORTEST_S = 1e-3
"""shortest time between two recurring events, each of which is simulated; provenance: ours"""
HOPELESS = 10.0
"""longest time between checkpoints in mean times between failures: one attempt in e¹⁰ gets that far"""


def _apart(value: object) -> float:
    period_s = PERIOD.parse(value)
    if period_s < SHORTEST_S:
        raise expected("a time of 1 ms or more with its unit, such as '10 min'")
    return period_s


Apart = Annotated[
    float,
    PlainValidator(_apart),
    PlainSerializer(PERIOD.text, return_type=str),
    WithJsonSchema({"type": "string", "description": "a time of 1 ms or more with its unit: '10 min'", "unit": "s"}),
    PERIOD,
]


class Placed(Section):
    """A section with a place: a node, a worker, a share of the nodes, or all workers."""

    node: fields.Index | None = Field(default=None, description="a node with all its workers, counted from 0")
    worker: fields.Index | None = Field(default=None, description="one worker, counted from 0 over all nodes")
    share: Quantity[Share | None] = Field(default=None, description="a fraction of the nodes, drawn by the seed: '5 %'")

    @model_validator(mode="after")
    def _one_place(self) -> Placed:
        given = [name for name in ("node", "worker", "share") if getattr(self, name) is not None]
        if len(given) > 1:
            complain([((), wrong(f"found {one_of(given).replace(' or ', ' and ')}; expected {NOWHERE}"), None)])
        return self

    @property
    def place(self) -> FaultPlace:
        return FaultPlace(node=self.node, worker=self.worker, share=self.share)


class OwnStepTime(Placed):
    """The jitter of single nodes or workers."""

    step_time: Given[StepTimesField, Values | None] = Field(description="as cluster.step_time; null: none")

    def build(self) -> worker_faults.OwnStepTimeModel:
        return worker_faults.OwnStepTimeModel(place=self.place, step_time=self.step_time)


class Straggler(Placed):
    """Nodes or workers whose steps all take longer."""

    factor: fields.Factor = Field(description="a number of 1 or more: factor on the duration of every step")

    def build(self) -> worker_faults.StragglerModel:
        return worker_faults.StragglerModel(place=self.place, factor=self.factor)


class Slowdown(Placed):
    """Nodes or workers that are slower for some time, once or again and again."""

    factor: fields.Factor = Field(description="a number of 1 or more: factor on the duration of work meanwhile")
    lasts: Given[fields.Period, str | float] = Field(description="a time with its unit: mean duration of a slowdown")
    at: Quantity[fields.Time | None] = Field(
        default=None, description="when a single slowdown begins, on the run's own clock"
    )
    every: Quantity[Apart | None] = Field(
        default=None,
        description="for recurring slowdowns: mean of the exponential time from the end of one to the next",
    )
    duration: Nested[fields.StepTimeLaw] = Field(
        default=NO_JITTER, description="distribution of the durations of recurring slowdowns, scaled to mean 1"
    )

    @model_validator(mode="after")
    def _once_or_again(self) -> Slowdown:
        faults: list[Fault] = []
        if (self.at is None) == (self.every is None):
            actual = "neither at nor every" if self.at is None else "at and every"
            faults.append(((), wrong(f"found {actual}; expected one of them"), None))
        elif self.at is not None and self.duration != NO_JITTER:
            faults.append(
                (("duration",), wrong("is there for slowdowns that recur; expected every instead of at"), None)
            )
        complain(faults)
        return self

    def build(self) -> worker_faults.SlowdownModel:
        return worker_faults.SlowdownModel(
            place=self.place,
            factor=self.factor,
            lasts_s=self.lasts,
            at_s=self.at,
            every_s=self.every,
            duration=self.duration,
        )


class Crash(Placed):
    """A crash at a given time."""

    at: Given[fields.Time, str | float] = Field(description="a time with its unit, on the run's own clock")

    def build(self) -> CrashAt:
        return CrashAt(place=self.place, at_s=self.at)


class Death(Placed):
    """Workers that die and do not return, in simulations and in real runs."""

    at: Quantity[fields.Time | None] = Field(default=None, description="when, on the run's own clock")
    step: fields.Index | None = Field(
        default=None, description="instead of at: the worker's own step that it dies in place of beginning, from 0"
    )
    detection: Quantity[fields.Time] = Field(
        default=0.0, description="how long the others do not notice; only simulations use it, a real run takes its own"
    )

    @model_validator(mode="after")
    def _one_moment(self) -> Death:
        faults: list[Fault] = []
        if (self.at is None) == (self.step is None):
            actual = "neither at nor step" if self.at is None else "at and step"
            faults.append(((), wrong(f"found {actual}; expected one of them"), None))
        if self.place == FaultPlace():
            faults.append(((), wrong("found no place; expected node, worker or share"), None))
        complain(faults)
        return self

    def build(self) -> DeathAt:
        return DeathAt(place=self.place, at_s=self.at, step=self.step, detection_s=self.detection)


class CrashCheckpoints(Section):
    """The checkpoints to which workers return after a crash."""

    every: Given[Apart, str | float] = Field(description="a time with its unit: useful work between two checkpoints")
    cost: Quantity[fields.Time] = Field(default=0.0, description="a time with its unit: duration of writing one")


def listed(value: object) -> object:
    """Rejects values that are not lists."""
    if not isinstance(value, list | tuple):
        raise expected("a list of mappings")
    return value


def _returns(value: object) -> object:
    """Rejects a recovery without an end, and says where it belongs."""
    if isinstance(value, str) and value.strip().lower() in {"never", "none", "inf", "infinite", "infinity"}:
        raise expected("a time with its unit, such as '5 min'; a worker that never returns belongs to cluster.deaths")
    return value


class Crashes(Section):
    """Crashes of workers and their cost."""

    at: Given[Annotated[tuple[Crash, ...], BeforeValidator(listed)], Sequence[Crash | Values] | None] = Field(
        default=(), description="a list of crashes at given times, each with a place and a time"
    )
    mtbf: Quantity[Apart | None] = Field(default=None, description="mean time between failures of one worker")
    node_mtbf: Quantity[Apart | None] = Field(
        default=None, description="mean time between failures of one node, with all its workers"
    )
    recovery: Quantity[Annotated[fields.Time, BeforeValidator(_returns)]] = Field(
        default=0.0, description="a time with its unit: how long a worker is down"
    )
    checkpoint: Nested[CrashCheckpoints | None] = Field(
        default=None, description="a mapping with every and cost; without it, a crash loses all work so far"
    )

    @model_validator(mode="after")
    def _some(self) -> Crashes:
        if not self.at and self.mtbf is None and self.node_mtbf is None:
            complain([((), wrong("found no crash; expected at, mtbf or node_mtbf"), None)])
        if self.mtbf is not None and self.checkpoint is not None:
            apart_s = self.checkpoint.every + self.checkpoint.cost
            if apart_s > HOPELESS * self.mtbf:
                words = (
                    f"found {apart_s:g} s from one to the next with a failure every {self.mtbf:g} s; hardly any would "
                )
                words += f"ever be reached; expected at most {HOPELESS * self.mtbf:g} s"
                complain([(("checkpoint",), wrong(words), None)])
        return self

    def build(self) -> worker_faults.CrashModel:
        return worker_faults.CrashModel(
            at=tuple(crash.build() for crash in self.at),
            mtbf_s=self.mtbf,
            node_mtbf_s=self.node_mtbf,
            recovery_s=self.recovery,
            checkpoint_every_s=None if self.checkpoint is None else self.checkpoint.every,
            checkpoint_cost_s=0.0 if self.checkpoint is None else self.checkpoint.cost,
        )


OwnStepTimes = Given[Annotated[tuple[OwnStepTime, ...], BeforeValidator(listed)], Sequence[OwnStepTime | Values] | None]
Stragglers = Given[Annotated[tuple[Straggler, ...], BeforeValidator(listed)], Sequence[Straggler | Values] | None]
Slowdowns = Given[Annotated[tuple[Slowdown, ...], BeforeValidator(listed)], Sequence[Slowdown | Values] | None]
Deaths = Given[Annotated[tuple[Death, ...], BeforeValidator(listed)], Sequence[Death | Values] | None]


def faults_of(cluster: Cluster) -> Faults:
    """Returns all faults of a cluster."""
    return Faults(
        step_times=tuple(part.build() for part in cluster.step_times),
        stragglers=tuple(part.build() for part in cluster.stragglers),
        slowdowns=tuple(part.build() for part in cluster.slowdowns),
        crashes=None if cluster.crashes is None else cluster.crashes.build(),
        deaths=tuple(part.build() for part in cluster.deaths),
    )


def misplaced(cluster: Cluster, *, nodes: int, workers: int) -> list[Fault]:
    """Returns the mistakes of places that do not exist in the cluster.

    Args:
        cluster: the section.
        nodes: number of nodes.
        workers: number of workers.
    """
    faults: list[Fault] = []
    lists: list[tuple[At, Sequence[Placed]]] = [
        (("step_times",), cluster.step_times),
        (("stragglers",), cluster.stragglers),
        (("slowdowns",), cluster.slowdowns),
        (("deaths",), cluster.deaths),
        (("crashes", "at"), () if cluster.crashes is None else cluster.crashes.at),
    ]
    for key, parts in lists:
        for index, part in enumerate(parts):
            place: At = (*key, index)
            if part.node is not None and part.node >= nodes:
                faults.append(((*place, "node"), expected(f"a node below {nodes}, the number of nodes"), part.node))
            if part.worker is not None and part.worker >= workers:
                words = f"a worker below {workers}, the number of workers"
                faults.append(((*place, "worker"), expected(words), part.worker))
            if part.share is not None and count_of(part.share, nodes) == 0:
                words = f"a share that is a node at least: {0.5 / nodes:.2g} or more of {nodes} nodes"
                faults.append(((*place, "share"), expected(words), part.share))
    return faults
