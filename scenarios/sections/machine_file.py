"""The file of a calibrated machine: the costs that `paceline calibrate` measured, with their units and their origin.

A file holds one `Profile`, for ranks of one model on hosts of one kind. Times and sizes are quantities with units, as
in scenarios.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from paceline.scenarios.values import fields
from paceline.scenarios.values.section import Part
from paceline.topologies.catalogue.gradient_times import GradientTimes
from paceline.topologies.catalogue.machine_profile import Handled, Points, Profile

Format = Annotated[Literal[1], Field(description="the version of the file's layout")]


class BytesPart(Part):
    bytes: fields.Index = Field(description="bytes of the value or message")
    time: fields.Time = Field(description="its mean time: '20 us'")


class CurvePart(Part):
    operation: str = Field(description="message, send, receive, start, or a collective such as AllReduce")
    ranks: fields.Count = Field(default=2, description="the members of a collective")
    shared_memory: fields.Flag = Field(default=False, description="whether it goes through shared memory of a host")
    points: tuple[BytesPart, ...] = Field(description="its times, smallest first")


class BusyPart(Part):
    ranks: fields.Count = Field(description="the ranks of a host that compute at the same time")
    mean: fields.Time = Field(description="the mean time of a gradient then")
    low: fields.Time | None = Field(default=None, description="the mean of the fastest launch")
    high: fields.Time | None = Field(default=None, description="the mean of the slowest launch")


class GradientPart(Part):
    batch: fields.Count = Field(description="samples of a gradient")
    busy: tuple[BusyPart, ...] = Field(description="its time by the number of busy ranks, from one on")
    factors: tuple[fields.Positive, ...] = Field(
        default=(1.0,), description="its distribution: means of slices of equal probability, over the mean"
    )
    layered: fields.Positive = Field(default=1.0, description="the time of a layer-wise gradient over its time")
    beside: fields.Share = Field(default=1.0, description="its speed while a collective is in flight")
    overlap: fields.Share = Field(default=1.0, description="the speed of that collective")
    forward: fields.Share = Field(default=0.0, description="the share of the forward pass in a layer-wise gradient")
    backward: tuple[fields.Share, ...] = Field(
        default=(), description="the share of each layer in its backward pass, first layer first"
    )


class OwnPart(Part):
    load: fields.Time = Field(default=0.0, description="loading a batch")
    late: fields.Time = Field(default=0.0, description="by how much a paced gradient is late")
    rest: fields.Time = Field(default=0.0, description="the rest of a step, outside all operations")
    lane: fields.Time = Field(default=0.0, description="starting a sub-program")
    update: fields.Time = Field(default=0.0, description="an update of a worker")
    serve: fields.Time = Field(default=0.0, description="a server's work for one message")


class MadePart(Part):
    date: str = Field(description="when it was measured")
    processor: str = Field(default="", description="the processor of the host")
    versions: dict[str, str] = Field(default={}, description="of paceline, torch and python")
    seconds: fields.Time = Field(default=0.0, description="how long the measurement took")
    other_load: fields.Share = Field(default=0.0, description="the share of the cores that other programs used")
    verdict: str = Field(default="", description="how far the figures can be trusted")


class LinePart(Part):
    name: str = Field(description="one direction of a link: 'from>to'")
    bandwidth: fields.Rate = Field(description="its bandwidth: '20 Mbit/s'")
    latency: fields.Time = Field(description="its latency: '2 ms'")


class EmulatedPart(Part):
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


class MachinePart(Part):
    format: Format = 1
    made: MadePart = Field(description="when, where and with what it was measured")
    model: str = Field(description="the model whose gradients were measured")
    ranks: fields.Count = Field(description="the ranks of the calibration on one host")
    cores: fields.Count = Field(description="the cores that the ranks of a host share")
    torch_threads: fields.Threads = Field(default=1, description="threads of each rank")
    own: OwnPart = Field(default=OwnPart(), description="a rank's own work besides gradients")
    gradients: tuple[GradientPart, ...] = Field(default=(), description="by batch, smallest first")
    costs: tuple[CurvePart, ...] = Field(default=(), description="of messages, collectives, and starting them")
    emulated: EmulatedPart | None = Field(default=None, description="the network that the host emulated, if it did")

    def profile(self) -> Profile:
        """Returns the costs."""
        collectives: dict[bool, dict[tuple[str, int], Points]] = {False: {}, True: {}}
        handling: dict[tuple[Handled, bool], Points] = {}
        messages: dict[bool, Points] = {}
        for curve in self.costs:
            points = tuple((point.bytes, point.time) for point in curve.points)
            match curve.operation:
                case "message":
                    messages[curve.shared_memory] = points
                case "send" | "receive" | "start":
                    handling[curve.operation, curve.shared_memory] = points
                case _:
                    collectives[curve.shared_memory][curve.operation, curve.ranks] = points
        return Profile(
            collectives=collectives[False],
            inside=collectives[True],
            messages=messages.get(False, ()),
            inside_messages=messages.get(True, ()),
            handling=handling,
            load_s=self.own.load,
            late_s=self.own.late,
            rest_s=self.own.rest,
            lane_s=self.own.lane,
            update_s=self.own.update,
            serve_s=self.own.serve,
            gradients=tuple(
                GradientTimes(
                    batch=part.batch,
                    busy=tuple((one.ranks, one.mean) for one in part.busy),
                    factors=part.factors,
                    layered=part.layered,
                    beside=part.beside,
                    overlap=part.overlap,
                    forward=part.forward,
                    backward=part.backward,
                )
                for part in self.gradients
            ),
            cores=self.cores,
        )


def costs_of(profile: Profile) -> tuple[CurvePart, ...]:
    """Returns the messages and collectives of a profile as sections of a file."""
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
            points=tuple(BytesPart.model_construct(bytes=nbytes, time=seconds) for nbytes, seconds in points),
        )
        for operation, ranks, shared, points in found
        if points
    )


def own_of(profile: Profile) -> OwnPart:
    """Returns a rank's own work of a profile as a section of a file."""
    names = OwnPart.model_fields
    return OwnPart.model_construct(**{name: getattr(profile, f"{name}_s") for name in names})
