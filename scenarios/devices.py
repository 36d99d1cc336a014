"""Devices of a scenario: given by two numbers, or made from the catalogue for what is computed."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from pydantic import Field

from paceline.algorithms.errors import InputError
from paceline.scenarios import fields
from paceline.scenarios.part import Part
from paceline.scenarios.problems import expected, wrong
from paceline.topologies import Device, roofline
from paceline.topologies.finding import named
from paceline.workloads.models import find_model

if TYPE_CHECKING:
    from paceline.scenarios.schema import WorkloadPart


class DevicePart(Part):
    name: fields.Name = Field(description="a name for tables and figures")
    overhead: fields.Time = Field(description="a time with its unit: what every step costs, however few its samples")
    per_sample: fields.Time = Field(description="a time with its unit: what each sample of a step adds")

    def build(self) -> Device:
        """The device."""
        return Device(name=self.name, overhead_s=self.overhead, per_sample_s=self.per_sample)


def any_device(value: object, _: object) -> object:
    """A mapping, or a name in the catalogue."""
    if isinstance(value, DevicePart):
        return value
    if isinstance(value, dict):
        return DevicePart.model_validate(value)
    if not isinstance(value, str):
        raise expected("a device of `paceline list devices`, or a mapping with name, overhead and per_sample")
    try:
        return value if value == "this-machine" else named(value).name
    except InputError as error:
        raise wrong(str(error)) from None


def device_of(which: DevicePart | str, workload: WorkloadPart) -> Device:
    """A device as it computes gradients of a workload; raises `InputError` where these do not fit into its memory."""
    if isinstance(which, DevicePart):
        return which.build()
    return _of_catalogue(which, workload.model, workload.arithmetic, workload.batch_per_worker)


@lru_cache(maxsize=64)
def _of_catalogue(name: str, model: str, arithmetic: str, batch: int) -> Device:
    return roofline.device(named(name), find_model(model), arithmetic, samples=batch)
