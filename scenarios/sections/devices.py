"""Devices of a scenario: given by two numbers, by measured steps, or by a name in the catalogue."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from pydantic import model_validator

from paceline import topologies
from paceline.algorithms.core.errors import InputError
from paceline.scenarios.sections.charges import given_rates
from paceline.scenarios.sections.machine_devices import MachineDevice
from paceline.scenarios.values import fields
from paceline.scenarios.values.mistakes import complain, expected, wrong
from paceline.scenarios.values.section import Field, Given, Quantity, Section, Values
from paceline.topologies.catalogue.device_names import alias_of, named
from paceline.topologies.catalogue.measured_times import measured_times
from paceline.topologies.compute import device_model
from paceline.workloads.models.layer_tables import find_model
from paceline.workloads.models.transformer_config import is_size, shape_of

if TYPE_CHECKING:
    from paceline.scenarios.sections.workload import Workload


class MeasuredStep(Section):
    """A measured step of a device."""

    batch: fields.Count = Field(description="samples in one gradient")
    time: Given[fields.Period, str | float] = Field(
        description="duration of a step with this batch, with its unit: '164 ms'"
    )


class Device(Section):
    """The device of a worker: a line of step time against batch, or measured steps.

    >>> Device(name="fast", overhead="4 ms", per_sample=0.0005).document()
    {'name': 'fast', 'overhead': '4 ms', 'per_sample': '0.0005 s'}
    """

    name: fields.Name = Field(description="a name for tables and figures")
    overhead: Quantity[fields.Time | None] = Field(
        default=None, description="a time with its unit: the part of a step that does not depend on the batch"
    )
    per_sample: Quantity[fields.Time | None] = Field(
        default=None, description="a time with its unit: the part of a step for each sample"
    )
    profile: Given[tuple[MeasuredStep, ...], Sequence[MeasuredStep | Values] | None] = Field(
        default=(),
        description="measured steps instead, each with batch and time; a line joins neighbouring batches",
    )

    memory_bandwidth: Quantity[fields.Rate | None] = Field(
        default=None,
        description="of the device, with its unit: '500 GB/s'; updates and copies take time by it, else they are free",
    )
    launch_overhead: Quantity[fields.Time] = Field(
        default=0.0, description="a time with its unit: what each kernel of an update costs beside its memory traffic"
    )

    @model_validator(mode="after")
    def _one_way(self) -> Device:
        missing = [key for key in ("overhead", "per_sample") if getattr(self, key) is None]
        if self.profile and len(missing) < 2:
            complain([(("profile",), wrong("found beside overhead or per_sample; expected one of the two ways"), None)])
        if not self.profile:
            about = type(self).model_fields
            complain([((key,), wrong(f"missing; expected {about[key].description}"), None) for key in missing])
        return self

    def build(self) -> topologies.Device:
        """Returns the device; a profile is a curve through its points, see `measured_times`.

        >>> points = [MeasuredStep(batch=32, time="164.1 ms"), MeasuredStep(batch=64, time="292.2 ms")]
        >>> round(Device(name="p100", profile=points).build().compute_s(48), 3)
        0.228
        """
        rates = None if self.memory_bandwidth is None else given_rates(self.memory_bandwidth, self.launch_overhead)
        if not self.profile:
            assert self.overhead is not None
            assert self.per_sample is not None
            return topologies.Device(
                name=self.name, overhead_s=self.overhead, per_sample_s=self.per_sample, rates=rates
            )
        return topologies.Device(
            name=self.name,
            measured=measured_times([(point.batch, point.time) for point in self.profile]),
            provenance=f"{len(self.profile)} measured steps given in the scenario",
            rates=rates,
        )


def any_device(value: object, _: object) -> object:
    """Validates a device: a mapping, or a name in the catalogue."""
    if isinstance(value, Device | MachineDevice):
        return value
    if isinstance(value, dict):
        return (MachineDevice if "machine" in value else Device).model_validate(value)
    if not isinstance(value, str):
        raise expected(
            "a device of `paceline list devices`, a mapping with name, overhead and per_sample, or {machine: FILE}"
        )
    try:
        return value if value == "this-machine" else named(value).name
    except InputError as error:
        system = fields.place_of_system(value)
        raise wrong(f"found {value!r}, expected a device{system}" if system else str(error)) from None


def device_of(
    which: Device | MachineDevice | str, workload: Workload, workers: int = 1, optimizer_copies: int = 1
) -> topologies.Device:
    """Returns a device for the gradients of a workload.

    Args:
        which: the device as the scenario names it.
        workload: the workload.
        workers: the workers of its node.
        optimizer_copies: numbers of optimizer state per weight.

    Raises:
        InputError: the gradients do not fit into the device's memory, or were not measured.
    """
    if isinstance(which, MachineDevice):
        return which.build(workload.model, workload.batch_per_worker, workers)
    if isinstance(which, Device):
        return which.build()
    batch = workload.batch_per_worker
    return of_catalogue(which, workload.model, workload.compute_dtype, batch, optimizer_copies)


@lru_cache(maxsize=64)
def of_catalogue(name: str, model: str, arithmetic: str, batch: int, optimizer_copies: int = 1) -> topologies.Device:
    """Returns a device of the catalogue for the gradients of a model.

    Args:
        name: the device's name in the catalogue.
        model: the model's name.
        arithmetic: the precision of the computation.
        batch: samples of a gradient.
        optimizer_copies: numbers of optimizer state per weight.

    Raises:
        InputError: the gradients do not fit into the device's memory.
    """
    copies = optimizer_copies
    try:
        return device_model.device(named(name), find_model(model), arithmetic, samples=batch, optimizer_copies=copies)
    except InputError as error:
        if not is_size(model):
            raise
        shorter = f"a sample has {shape_of(model).context} tokens; sequence_length of the model's size makes it shorter"
        raise InputError(f"{error}; {shorter}") from error


class LayerSplit(NamedTuple):
    """How the time of a gradient is divided among the layers with parameters, first layer first."""

    forward: Sequence[float]
    backward: Sequence[float]
    """together with `forward` they add up to 1"""
    words: str
    """the rule, after "divided among layers"; "" if the device has shares of its own"""


@lru_cache(maxsize=64)
def split_of_given_time(device: str, model: str, arithmetic: str, batch: int) -> LayerSplit | None:
    """Divides the time of a device that was given or measured as a whole, by the operations and bytes of each layer.

    The rates are those of the device of the catalogue that has the same name, or else of a usual one.

    Args:
        device: the name that the scenario gives it.
        model: the model's name.
        arithmetic: the precision of the computation.
        batch: samples of a gradient.

    Returns:
        The split; None if the operations of the model's layers are not known.
    """
    work = find_model(model)
    if not work.works:
        return None
    spec = alias_of(device) or named(device_model.REFERENCE)
    forward, backward = device_model.shares_of_given_time(spec, work, arithmetic, batch)
    return LayerSplit(forward, backward, f"by their operations and bytes, at the rates of a {spec.name}")
