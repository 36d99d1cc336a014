"""The file of a calibrated machine: the costs that `paceline calibrate` measured, with their units and their origin.

A file holds `MeasuredCosts` for each of its models, all on hosts of one kind. Models share the costs of messages and
collectives. Times and sizes are quantities with units, as in scenarios.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, ValidationError

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.files import write_whole
from paceline.scenarios.values import fields
from paceline.scenarios.values.mistakes import problems_of, raise_all
from paceline.scenarios.values.section import FileMapping
from paceline.scenarios.values.text import read
from paceline.topologies import NO_JITTER, Jitter
from paceline.topologies.catalogue.gradient_times import GradientTimes, GradientVariation
from paceline.topologies.catalogue.machine_profile import (
    EmulationCosts,
    Handled,
    JoinedHosts,
    MeasuredCosts,
    Points,
    Profile,
)


class OriginPart(FileMapping):
    """Where imported figures come from; figures without an origin were measured by `paceline calibrate`."""

    file: str = Field(description="the name of the imported file")
    tool: str = Field(description="the program that wrote it: 'nccl-tests all_reduce'")
    version: str = Field(default="", description="the version of the program, if the file contains it")
    details: str = Field(default="", description="devices and settings that the file contains")
    notes: tuple[str, ...] = Field(
        default=(), description="what was assumed or left out when the file was read; printed by `simulate`"
    )


class FitPart(FileMapping):
    """A law that was fitted to gradient times."""

    law: fields.StepTimeLaw = Field(description="the law with the parameters of the highest likelihood")
    statistic: fields.Share = Field(
        description="the largest distance to the measured distribution (Kolmogorov-Smirnov)"
    )
    p_value: fields.Share = Field(description="the share of samples of this law, fitted again, with a larger distance")


class RatePart(FileMapping):
    rate: fields.Rate = Field(description="the median of the rounds: '8 GB/s'")
    low: fields.Rate | None = Field(default=None, description="that of the slowest round")
    high: fields.Rate | None = Field(default=None, description="that of the fastest round")


class RatesPart(FileMapping):
    update: RatePart | None = Field(default=None, description="bytes of weights that an update changes per second")
    copy_in_cache: RatePart | None = Field(
        default=None, description="bytes of a vector of the size of the weights that one core copies per second"
    )
    copy_in_memory: RatePart | None = Field(
        default=None, description="bytes of a vector larger than the caches that one core copies per second"
    )


class StartPart(FileMapping):
    """How long the processes of a run need until the first step."""

    time: fields.Time = Field(description="the median of the launches")
    low: fields.Time | None = Field(default=None, description="the shortest launch")
    high: fields.Time | None = Field(default=None, description="the longest launch")


Format = Annotated[Literal[1], Field(description="the version of the file's layout")]
LAW_SLICES = 1000
"""slices of equal probability in which a fitted law is drawn: INFERENCE, its largest 0.1 % are one slice"""


class BytesPart(FileMapping):
    bytes: fields.Index = Field(description="bytes of the value or message")
    time: fields.Time = Field(description="its mean time: '20 us'")


class CurvePart(FileMapping):
    operation: str = Field(description="message, send, receive, start, or a collective such as AllReduce")
    ranks: fields.Count = Field(default=2, description="the members of a collective")
    shared_memory: fields.Flag = Field(default=False, description="whether it goes through shared memory of a host")
    hosts: fields.Count = Field(default=1, description="the hosts of these members")
    points: tuple[BytesPart, ...] = Field(description="its times, smallest first")
    origin: OriginPart | None = Field(
        default=None, description="the log that it was imported from; then it holds with and without shared memory"
    )


class BusyPart(FileMapping):
    ranks: fields.Count = Field(description="the ranks of a host that compute at the same time")
    mean: fields.Time = Field(description="the mean time of a gradient then")
    low: fields.Time | None = Field(default=None, description="the mean of the fastest launch")
    high: fields.Time | None = Field(default=None, description="the mean of the slowest launch")


class PausePart(FileMapping):
    pause: fields.Time = Field(description="the time since the previous gradient of the rank")
    longer: fields.Time = Field(description="the time that is added to the mean")


class GradientPart(FileMapping):
    batch: fields.Count = Field(description="samples of a gradient")
    busy: tuple[BusyPart, ...] = Field(description="its time by the number of busy ranks, from one on")
    factors: tuple[fields.Positive, ...] = Field(
        default=(1.0,), description="its distribution: means of slices of equal probability, over the mean"
    )
    started: fields.Positive = Field(
        default=1.0, description="the time of a gradient that a program starts and waits for later, over its time"
    )
    layered: fields.Positive = Field(default=1.0, description="the time of a layer-wise gradient over its time")
    beside: fields.Share = Field(default=1.0, description="its speed while a collective is in flight")
    overlap: fields.Share = Field(default=1.0, description="the speed of that collective")
    pauses: tuple[PausePart, ...] = Field(
        default=(), description="how much longer it takes if its rank has computed none for a while before it"
    )
    forward: fields.Share = Field(default=0.0, description="the share of the forward pass in a layer-wise gradient")
    backward: tuple[fields.Share, ...] = Field(
        default=(), description="the share of each layer in its backward pass, first layer first"
    )
    law: fields.StepTimeLaw = Field(
        default=NO_JITTER, description="a law that fits the distribution, taken instead of factors; null: none fits"
    )
    fits: tuple[FitPart, ...] = Field(default=(), description="the laws that were fitted to the distribution")
    between_steps: fields.Correlation = Field(
        default=0.0, description="rank correlation of a rank's successive gradient times, -1 to 1"
    )
    between_ranks: fields.Correlation = Field(
        default=0.0, description="rank correlation of simultaneous gradient times of two ranks, -1 to 1"
    )
    origin: OriginPart | None = Field(default=None, description="the trace or run that it was imported from")

    def times(self) -> GradientTimes:
        """Returns the times of this batch."""
        return GradientTimes(
            batch=self.batch,
            busy=tuple((group.ranks, group.mean) for group in self.busy),
            factors=self.factors if self.law == NO_JITTER else law_factors(self.law),
            layered=self.layered,
            beside=self.beside,
            overlap=self.overlap,
            pauses=tuple((pause.pause, pause.longer) for pause in self.pauses),
            started=self.started,
            forward=self.forward,
            backward=self.backward,
            between_steps=self.between_steps,
            between_ranks=self.between_ranks,
        )


@lru_cache(maxsize=64)
def law_factors(law: Jitter) -> tuple[float, ...]:
    """Returns a fitted law as factors: the middles of `LAW_SLICES` slices of equal probability."""
    return law.quantiles(LAW_SLICES)


class OwnPart(FileMapping):
    """A rank's own work, as in `Profile`."""

    load: fields.Time = Field(default=0.0, description="loading a batch")
    late: fields.Time = Field(default=0.0, description="by how much a paced gradient is late")
    rest: fields.Time = Field(default=0.0, description="the rest of a step, outside all operations")
    lane: fields.Time = Field(default=0.0, description="starting a sub-program")
    wait: fields.Time = Field(default=0.0, description="from the end of a started operation until the program goes on")
    update: fields.Time = Field(default=0.0, description="an update of all weights at a worker, into new memory")
    update_beside: fields.Time = Field(default=0.0, description="the same while a collective is in flight")
    update_into: fields.Time = Field(default=0.0, description="an update of all weights into memory in use")
    server_load: fields.Time = Field(default=0.0, description="loading a batch in runs with a server")
    server_rest: fields.Time = Field(default=0.0, description="the rest of a step in runs with a server")
    update_few: fields.Time = Field(default=0.0, description="an update of a few numbers")
    serve: fields.Time = Field(default=0.0, description="a server's work for one message")
    snapshot: fields.Time = Field(default=0.0, description="storing the weights for an evaluation")


class BesidePart(FileMapping):
    message: fields.Share = Field(default=1.0, description="the speed of messages")
    serve: fields.Share = Field(default=1.0, description="the speed of a server's work")
    factors: tuple[fields.Positive, ...] = Field(
        default=(), description="the distribution of gradients in runs with a server, over their mean; empty: as others"
    )
    between_steps: fields.Correlation = Field(
        default=0.0, description="rank correlation of a rank's successive gradient times then, -1 to 1"
    )


class MadePart(FileMapping):
    date: str = Field(description="when it was measured")
    processor: str = Field(default="", description="the processor of the host")
    versions: dict[str, str] = Field(default={}, description="of paceline, torch and python")
    seconds: fields.Time = Field(default=0.0, description="how long the measurement took")
    other_load: fields.Share = Field(default=0.0, description="the share of the cores that other programs used")
    slowness: fields.Positive | None = Field(
        default=None, description="how slow the machine was, by its speed reference; figures hold for this slowness"
    )
    spread: fields.Share | None = Field(
        default=None, description="standard deviation of a run's step time around its prediction, over the time"
    )
    verdict: str = Field(default="", description="how far the figures can be trusted")


class ModelPart(FileMapping):
    """A further model of a file."""

    model: str = Field(description="the model whose gradients were measured")
    own: OwnPart = Field(default=OwnPart(), description="a rank's own work besides gradients")
    gradients: tuple[GradientPart, ...] = Field(default=(), description="by batch, smallest first")


class HostPart(FileMapping):
    ranks: fields.Count = Field(description="the workers of the calibration on this host")
    processor: str = Field(default="", description="its processor")
    cores: fields.Count = Field(default=1, description="cores that its processes may use")
    memory_bytes: fields.Index = Field(default=0, description="bytes of its memory")
    other_load: fields.Share = Field(default=0.0, description="the share of its cores that other programs used")


class LinePart(FileMapping):
    name: str = Field(description="one direction of a link: 'from>to'")
    bandwidth: fields.Rate = Field(description="its bandwidth: '20 Mbit/s'")
    latency: fields.Time = Field(description="its latency: '2 ms'")


class EmulatedPart(FileMapping):
    hosts: tuple[fields.Index, ...] = Field(description="the emulated host of each worker")
    lines: tuple[LinePart, ...] = Field(description="the lines between the hosts")
    message: fields.Time = Field(description="a message between hosts, without the latencies of its route")
    all_reduce: fields.Time = Field(description="an all-reduce of a few numbers by all workers, with its route")
    bytes: fields.Index = Field(description="bytes of these numbers")
    packet: fields.Count = Field(description="bytes of the largest packet")
    leads: tuple[fields.Time, ...] = Field(
        default=(), description="how long before the last worker each one entered that all-reduce"
    )
    start: fields.Time = Field(default=0.0, description="starting a collective, until the next can be started")

    def added(self) -> EmulationCosts:
        """Returns the costs that the host adds to the network."""
        return EmulationCosts(
            message_s=self.message,
            all_reduce_s=self.all_reduce,
            few_bytes=self.bytes,
            packet_bytes=self.packet,
            leads_s=self.leads,
            start_s=self.start,
        )


class MachinePart(FileMapping):
    format: Format = 1
    made: MadePart = Field(description="when, where and with what it was measured")
    model: str = Field(description="the model whose gradients were measured")
    ranks: fields.Count = Field(description="the ranks of the calibration on one host")
    cores: fields.Count = Field(description="the cores that the ranks of a host share")
    torch_threads: fields.Threads = Field(default=1, description="threads of each rank")
    own: OwnPart = Field(default=OwnPart(), description="a rank's own work besides gradients")
    beside: BesidePart = Field(
        default=BesidePart(), description="how fast messages are while all other workers of the host compute"
    )
    gradients: tuple[GradientPart, ...] = Field(default=(), description="by batch, smallest first")
    costs: tuple[CurvePart, ...] = Field(default=(), description="of messages, collectives, and starting them")
    hosts: tuple[HostPart, ...] = Field(default=(), description="the hosts, if several were measured together")
    emulated: EmulatedPart | None = Field(default=None, description="the network that the host emulated, if it did")
    rates: RatesPart = Field(default=RatesPart(), description="bytes per second of updates and copies")
    startup: StartPart | None = Field(
        default=None, description="from the launch of a run's processes to their first step"
    )
    imported: tuple[OriginPart, ...] = Field(default=(), description="the logs, traces and runs that were imported")
    models: tuple[ModelPart, ...] = Field(default=(), description="further models, with the same ranks and threads")

    @property
    def assumed(self) -> list[str]:
        """What was assumed or left out when files were imported."""
        return [f"{origin.file}: {note}" for origin in self.imported for note in origin.notes]

    def names(self) -> list[str]:
        """Returns the models of the file."""
        return [self.model, *(model.model for model in self.models)]

    def of_model(self, model: str) -> MachinePart:
        """Returns the machine with the gradients and the own work of one of its models.

        Args:
            model: the model's name.

        Raises:
            InputError: the file has no gradients of this model. One without any gradients is for all models.
        """
        if model == self.model or not (self.gradients or self.models):
            return self
        for part in self.models:
            if part.model == model:
                return self.model_copy(update={"model": model, "own": part.own, "gradients": part.gradients})
        raise InputError(f"found gradients of {', '.join(self.names())}, expected those of workload.model, {model}")

    def alone(self) -> MeasuredCosts:
        """Returns the costs of a host, with those of the network that it emulates, if it does."""
        added = None if self.emulated is None else self.emulated.added()
        return MeasuredCosts(self.profile(), added, slowness=self.made.slowness, spread=self.made.spread)

    def joined(self) -> MeasuredCosts:
        """Returns the costs of a host, and those between hosts if there are such."""
        between = self._costs(between=True) if any(curve.hosts > 1 for curve in self.costs) else None
        hosts = JoinedHosts(between, tuple(host.ranks for host in self.hosts), tuple(self.assumed))
        return MeasuredCosts(self.profile(), joined=hosts, slowness=self.made.slowness, spread=self.made.spread)

    def profile(self) -> Profile:
        """Returns the costs of a host."""
        return replace(
            self._costs(between=False),
            **{f"{name}_s": seconds for name, seconds in self.own},
            message_beside=self.beside.message,
            serve_beside=self.beside.serve,
            served=GradientVariation(self.beside.factors, self.beside.between_steps) if self.beside.factors else None,
            gradients=tuple(part.times() for part in self.gradients),
            cores=self.cores,
            verdict=self.made.verdict,
        )

    def _costs(self, *, between: bool) -> Profile:
        """Returns the messages and collectives inside a host, or between hosts.

        A curve of one host that was imported holds with and without shared memory.
        """
        collectives: dict[bool, dict[tuple[str, int], Points]] = {False: {}, True: {}}
        handling: dict[tuple[Handled, bool], Points] = {}
        messages: dict[bool, Points] = {}
        for curve in sorted(self.costs, key=lambda measured: measured.origin is not None):
            if (curve.hosts > 1) is not between:
                continue
            points = tuple((point.bytes, point.time) for point in curve.points)
            ways = (curve.shared_memory,) if curve.origin is None or between else (False, True)
            match curve.operation:
                case "message":
                    messages |= dict.fromkeys(ways, points)
                case "send" | "receive" | "start":
                    handling[curve.operation, curve.shared_memory] = points
                case operation:
                    for shared in ways:
                        collectives[shared][operation, curve.ranks] = points
        return Profile(
            collectives=collectives[False],
            inside=collectives[True],
            messages=messages.get(False, ()),
            inside_messages=messages.get(True, ()),
            handling=handling,
        )


def sections_of(costs: MeasuredCosts, hosts: int = 2) -> dict[str, Any]:
    """Returns measured costs as sections of a file: `own`, `beside` and `costs` of a `MachinePart`.

    `MachinePart.alone` and `MachinePart.joined` are the way back.

    Args:
        costs: what was measured.
        hosts: the number of hosts between which costs were measured.
    """
    host, names = costs.host, OwnPart.model_fields
    between = None if costs.joined is None else costs.joined.between
    return {
        "own": OwnPart.model_construct(**{name: getattr(host, f"{name}_s") for name in names}),
        "beside": BesidePart.model_construct(
            message=host.message_beside,
            serve=host.serve_beside,
            factors=host.served.factors if host.served is not None else (),
            between_steps=host.served.between_steps if host.served is not None else 0.0,
        ),
        "costs": _curves(host, 1) + (() if between is None else _curves(between, hosts)),
    }


def _curves(profile: Profile, hosts: int) -> tuple[CurvePart, ...]:
    found = [("message", 2, False, profile.messages), ("message", 2, True, profile.inside_messages)]
    found += [(kind, 2, shared, points) for (kind, shared), points in profile.handling.items()]
    for shared in (False, True):
        for (operation, ranks), points in sorted(profile.measured(shared).items()):
            found.append((operation, ranks, shared, points))
    return tuple(
        CurvePart(
            operation=operation,
            ranks=ranks,
            shared_memory=shared,
            hosts=hosts,
            points=tuple(BytesPart.model_construct(bytes=nbytes, time=seconds) for nbytes, seconds in points),
        )
        for operation, ranks, shared, points in found
        if points
    )


HEADING = "# A machine file of `paceline calibrate`. `paceline simulate` and `compare` take it as --machine.\n"
OPTIONAL = ("rates", "imported", "models")
"""sections that are left out if they are empty"""


def load_machine(path: str | Path) -> MachinePart:
    """Reads a machine file.

    Args:
        path: the file.

    Raises:
        InputError: it is missing or wrong; with the location, the value and the fix of every mistake.
    """
    file = Path(path)
    if not file.is_file():
        raise InputError(
            f"--machine: found {str(path)!r}, which is no file; expected one that `paceline calibrate` wrote"
        )
    return _read(file, file.stat().st_mtime_ns)


@lru_cache(maxsize=16)
def _read(path: Path, _: int) -> MachinePart:
    name, data, problems = read(path)
    try:
        machine = MachinePart.model_validate(data)
    except ValidationError as error:
        raise_all(name, [*problems, *problems_of(error, MachinePart)])
    if problems:
        raise_all(name, problems)
    if not machine.gradients and not machine.costs:
        raise InputError(
            f"{name}: gradients: found none, and no costs; expected at least one batch size; run `paceline calibrate`"
        )
    return machine


def save_machine(machine: MachinePart, path: Path) -> None:
    """Writes a machine file; an interrupted write leaves an existing file as it is.

    Args:
        machine: the machine.
        path: the file.
    """
    data = machine.model_dump(mode="json", exclude_none=True)
    for key in OPTIONAL:
        if not data.get(key):
            data.pop(key, None)
    write_whole(path, HEADING + yaml.safe_dump(data, sort_keys=False, width=120))
