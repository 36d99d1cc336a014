"""Devices of the catalogue, made into what a step takes on them."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import TYPE_CHECKING

from paceline.algorithms.errors import InputError
from paceline.topologies import Device
from paceline.topologies.catalogue import THIS_MACHINE
from paceline.topologies.finding import named
from paceline.topologies.roofline import device
from paceline.workloads import find_model

if TYPE_CHECKING:
    from paceline.scenarios.clusters import DevicePart
    from paceline.scenarios.schema import WorkloadPart


def unknown_device(name: str) -> str | None:
    """What is wrong with the name of a device; None where there is one. Nothing is measured."""
    if name != THIS_MACHINE:
        try:
            named(name)
        except InputError as error:
            return str(error)
    return None


def device_of(which: DevicePart | str, workload: WorkloadPart | None) -> Device:
    """A device as it works on a workload; one of the catalogue by the roofline, at the workload's batch.

    Raises:
        InputError: the batch does not fit into its memory, or nothing is known of the model's arithmetic.
    """
    if not isinstance(which, str):
        return which.build()
    assert workload is not None, "devices of the catalogue take their time from what they work on"
    return _known(which, workload.model, workload.precision, workload.batch_per_worker)


@cache
def _known(name: str, model: str, precision: str, samples: int) -> Device:
    made = device(named(name), find_model(model), precision, samples=samples)
    return dataclasses.replace(made, name=name.replace("/", "-of-"))
