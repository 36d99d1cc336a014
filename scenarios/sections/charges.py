"""The section of a scenario that overrides how fast updates, averages and copies are: `cluster.charges`.

Rules of this file: what is not given is that of the catalogue. A host is known if a machine names its processor, if the
scenario does, or if the node's device is of the catalogue; otherwise its charges are free.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from pydantic import BeforeValidator

from paceline.algorithms.core.errors import InputError
from paceline.scenarios.values import fields
from paceline.scenarios.values.mistakes import expected, wrong
from paceline.scenarios.values.section import Default, Field, Quantity, Section
from paceline.topologies import Device
from paceline.topologies.catalogue.charge_rates import (
    DEFAULT_HOST,
    DEFAULT_SOCKETS,
    ChargeRates,
    host_rates,
)
from paceline.topologies.catalogue.device_names import named
from paceline.topologies.cluster import Site

GIVEN = "given in the scenario"


def _processor(value: object) -> object:
    if value is None:
        return None
    if not isinstance(value, str):
        raise expected("a processor of `paceline list devices`, by name")
    try:
        spec = named(value)
    except InputError as error:
        raise wrong(str(error)) from None
    if spec.kind == "gpu":
        raise expected("a processor of `paceline list devices`, no GPU")
    return spec.name


Processor = Annotated[str | None, BeforeValidator(_processor, json_schema_input_type=str | None)]


class Charges(Section):
    """How fast updates, averages and copies are, where the catalogue is not to be used."""

    device_bandwidth: Quantity[fields.Rate | None] = Field(
        default=None, description="memory bandwidth of every device, read and written together: '500 GB/s'"
    )
    device_launch: Quantity[fields.Time | None] = Field(
        default=None, description="to launch a kernel on a device: '10 us'"
    )
    host: Default[Processor] = Field(
        default=None, description="the processor of every node, a name of `paceline list devices`"
    )
    core_bandwidth: Quantity[fields.Rate | None] = Field(
        default=None, description="memory bandwidth of one core of a host, outside its cache: '12 GB/s'"
    )
    core_cache_bandwidth: Quantity[fields.Rate | None] = Field(
        default=None,
        description="memory bandwidth of one core of a host, inside its cache: '30 GB/s'; if only the other one is "
        "given and no host is known, in proportion to it",
    )
    cache: Quantity[fields.Size | None] = Field(default=None, description="last cache of a host: '35 MB'")
    host_launch: Quantity[fields.Time | None] = Field(default=None, description="to launch a kernel on a host: '5 us'")

    def device(self, device: Device) -> Device:
        """The device with these rates; one without rates and without a given bandwidth stays as it is."""
        if self.device_bandwidth is None and (device.rates is None or self.device_launch is None):
            return device
        known = device.rates or given_rates(1.0, 0.0)
        bandwidths = known.bandwidths if self.device_bandwidth is None else ((0.0, self.device_bandwidth),)
        launch_s = known.launch_s if self.device_launch is None else self.device_launch
        return replace(device, rates=replace(known, bandwidths=bandwidths, launch_s=launch_s, provenance=GIVEN))

    def on_host(self, device: Device, site: Site) -> ChargeRates | None:
        """The rates of one core of a node's host; None if the host is not known.

        Args:
            device: the node's device.
            site: the node.
        """
        name = self.host or next((socket for socket in site.sockets if socket is not None), None)
        if name is None and device.rates is None and self.core_bandwidth is None:
            return None
        if name is None and not site.sockets:
            name = _own_host(device)
        sockets = len(site.sockets) or (DEFAULT_SOCKETS if name is None else 1)
        rates = host_rates(named(name or DEFAULT_HOST), sockets)
        return self._core(rates if name is not None else self._in_proportion(rates))

    def _in_proportion(self, usual: ChargeRates) -> ChargeRates:
        """The usual host, if none is known: its other rates stay in proportion to a given bandwidth of its core.

        So the cost of a charge is inversely proportional to the rates that a scenario gives, and to nothing else.
        """
        if self.core_bandwidth is None:
            return usual
        factor = self.core_bandwidth / usual.bandwidths[-1][1]
        return replace(
            usual,
            bandwidths=tuple((size, factor * rate) for size, rate in usual.bandwidths),
            flops_per_s=factor * usual.flops_per_s,
            total_bytes_per_s=factor * usual.total_bytes_per_s,
        )

    def _core(self, known: ChargeRates) -> ChargeRates:
        """One core of a host, with what the scenario says."""
        (cache, inside), (_, outside) = known.bandwidths
        cache, outside = self.cache or cache, self.core_bandwidth or outside
        inside = self.core_cache_bandwidth or max(outside, inside)
        launch_s = known.launch_s if self.host_launch is None else self.host_launch
        return replace(known, bandwidths=((cache, inside), (2 * cache, outside)), launch_s=launch_s)


def _own_host(device: Device) -> str | None:
    """The name of a device of the catalogue that is its own host; None for GPUs, for coprocessors and for others."""
    try:
        spec = named(device.name)
    except InputError:
        return None
    own = spec.part_of or device.name  # groups of cores share the memory of the chip
    return own if spec.kind != "gpu" and spec.host_bytes_per_s is None else None


def given_rates(bytes_per_s: float, launch_s: float) -> ChargeRates:
    """The rates of a device that a scenario describes; its arithmetic never is the limit.

    Args:
        bytes_per_s: memory bandwidth.
        launch_s: seconds to launch a kernel.
    """
    return ChargeRates(bandwidths=((0.0, bytes_per_s),), flops_per_s=float("inf"), launch_s=launch_s, provenance=GIVEN)
