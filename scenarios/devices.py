"""Devices of the catalogue, made into what a step takes on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paceline.topologies import Device

if TYPE_CHECKING:
    from paceline.scenarios.clusters import DevicePart
    from paceline.scenarios.schema import WorkloadPart


def known_devices() -> list[str]:
    """The names in the catalogue."""
    return []


def device_of(which: DevicePart | str, workload: WorkloadPart | None) -> Device:
    """A device as it works on a workload."""
    if isinstance(which, str):
        raise NotImplementedError(which)
    return which.build()
