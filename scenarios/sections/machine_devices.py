"""Devices, nodes and clusters of a scenario that are given by a machine file: ``{machine: machine.yaml}``.

Rules of this file:

* A device takes the time of a gradient with as many ranks busy as its node has workers, by the batch; the share of each
  layer; and the rates of updates and copies, if they were measured. Messages and collectives are those of the network.
* A node is a host of such devices, with as many workers as were calibrated. A cluster is such nodes with the measured
  costs inside a host.
* The distribution of the times is the jitter of the node, unless the node has its own: the fitted law, or the measured
  factors. Correlations are not used, since the jitter of a modelled cluster is independent between steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import PlainValidator, ValidationError, WithJsonSchema

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.traffic import COMBINE
from paceline.scenarios.machines.machine_file import MachinePart
from paceline.scenarios.machines.machine_store import load_machine
from paceline.scenarios.sections.charges import given_rates
from paceline.scenarios.values.mistakes import complain, expected, problems_of, wrong
from paceline.scenarios.values.section import Field, Given, Section
from paceline.topologies import NO_JITTER, Device, Jitter
from paceline.topologies.catalogue.charge_rates import ChargeRates
from paceline.topologies.catalogue.gradient_times import shared_cores
from paceline.topologies.catalogue.machine_profile import CALIBRATED
from paceline.topologies.catalogue.measured_times import measured_times

FILE = "the path of a file that `paceline calibrate` wrote"


def _file(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise expected(FILE)
    if not Path(value).is_file():
        raise wrong(f"found {value!r}, which is no file; expected {FILE}")
    try:
        machine = load_machine(value)
    except InputError as error:
        complain([((), wrong(line), value) for line in str(error).splitlines()])
        raise
    if not machine.gradients:
        raise wrong(f"found no gradients in {value}; expected a calibration with gradients")
    return value


class MachineDevice(Section):
    """A device that `paceline calibrate` measured."""

    machine: Given[
        Annotated[str, PlainValidator(_file), WithJsonSchema({"type": "string", "description": FILE})], str | Path
    ] = Field(description=FILE)

    @property
    def file(self) -> MachinePart:
        """The content of the file."""
        return load_machine(self.machine)

    def build(self, model: str, batch: int, workers: int) -> Device:
        """Returns the device for a workload.

        Args:
            model: the model's name.
            batch: samples of a gradient, by which the shares of layers are chosen.
            workers: the workers of the node, all of them busy.

        Raises:
            InputError: the file has no gradients of this model.
        """
        machine = self._of(model)
        costs = machine.profile()
        speeds = [shared_cores(costs.cores, one)(workers) for one in costs.gradients]
        points = [(one.batch, one.alone_s / speed) for one, speed in zip(costs.gradients, speeds, strict=True)]
        near = costs.gradient(batch)
        forward, backward = near.layer_shares() if near.backward else ((), ())
        return Device(
            name=Path(self.machine).name,
            measured=measured_times(points),
            provenance=f"{CALIBRATED}{Path(self.machine).name}: {machine.made.verdict}",
            forward_shares=tuple(share / near.layered for share in forward),
            backward_shares=tuple(share / near.layered for share in backward),
            rates=rates_of(machine),
        )

    def jitter(self, model: str, batch: int) -> Jitter:
        """Returns the distribution of gradient times at the measured batch that is nearest.

        Args:
            model: the model's name.
            batch: samples of a gradient.
        """
        part = min(self._of(model).gradients, key=lambda one: abs(one.batch - batch))
        return part.law if part.law != NO_JITTER else Jitter.measured(part.factors)

    def _of(self, model: str) -> MachinePart:
        try:
            return self.file.of_model(model)
        except InputError as error:
            raise InputError(f"{self.machine}: {error}") from None


def rates_of(machine: MachinePart) -> ChargeRates | None:
    """Returns the rates of updates and copies of a machine; None if they were not measured.

    A copy reads and writes each byte. What an update takes beyond its traffic is the overhead of each update:
    update − 3 n / (2 · copy rate), where n are the bytes of the weights.

    Args:
        machine: the machine.
    """
    update, copy = machine.rates.update, machine.rates.copy_in_memory
    if update is None or copy is None:
        return None
    traffic_s = COMBINE.passes * update.rate * machine.own.update / (2 * copy.rate)
    return given_rates(2 * copy.rate, max(0.0, machine.own.update - traffic_s))


def machine_node(value: object) -> object:
    """Replaces ``node: {machine: FILE}`` of a node by a device and the calibrated number of workers."""
    if not isinstance(value, Mapping) or not isinstance(node := value.get("node"), Mapping) or "machine" not in node:
        return value
    given = dict(value)
    if given.get("device") is not None:
        complain([(("device",), wrong("found beside node.machine; expected one of them"), given["device"])])
    try:
        part = MachineDevice.model_validate(node)
    except ValidationError as error:
        complain([(("node", *one.place), wrong(one.text), node) for one in problems_of(error, MachineDevice)])
        raise
    return {
        **given,
        "node": None,
        "device": part.model_dump(),
        "workers_per_node": given.get("workers_per_node") or part.file.ranks,
    }


def machine_cluster(value: object) -> object:
    """Adds the nodes of ``cluster: {machine: FILE}``: one host, or as many as `nodes` says."""
    if not isinstance(value, Mapping) or not isinstance(file := value.get("machine"), str):
        return value
    given: dict[str, Any] = dict(value)
    nodes = given.get("nodes")
    if given.get("system") is not None or given.get("file") is not None or not (nodes is None or _count(nodes)):
        return value
    try:
        MachineDevice.model_validate({"machine": file})
    except ValidationError as error:
        complain([(one.place, wrong(one.text), file) for one in problems_of(error, MachineDevice)])
    return {**given, "nodes": [{"node": {"machine": file}, "count": nodes or 1}]}


def _count(nodes: object) -> bool:
    return isinstance(nodes, int) and not isinstance(nodes, bool) and nodes > 0
