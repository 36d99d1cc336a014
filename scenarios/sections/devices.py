"""Devices of a scenario: by two numbers, by measured steps, by a name in the catalogue, or by a machine file.

* Rates of updates and copies that `cluster.charges` does not give are those of the catalogue. A host is known if a
  machine names its processor, if the scenario does, or if the node's device is of the catalogue; otherwise its charges
  are free.
* A device of a machine file takes the time of a gradient with as many ranks busy as its node has workers, by the batch;
  the share of each layer; and the rates of updates and copies, if they were measured. Messages and collectives are
  those of the network.
* A node of a machine file is a host of such devices, with as many workers as were calibrated. A cluster is such nodes
  with the measured costs inside a host.
* The distribution of the measured times is the jitter of the node, unless the node has its own: the fitted law, or the
  measured factors. Correlations are not used, since the jitter of a modelled cluster is independent between steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import BeforeValidator, PlainValidator, ValidationError, WithJsonSchema, WrapValidator, model_validator

from paceline import topologies
from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.traffic import COMBINE
from paceline.scenarios.machine_file import MachinePart, load_machine
from paceline.scenarios.values import fields
from paceline.scenarios.values.mistakes import complain, expected, problems_of, wrong
from paceline.scenarios.values.section import Default, Field, Given, Quantity, Section, Values
from paceline.topologies import NO_JITTER, Jitter
from paceline.topologies.catalogue.charge_rates import (
    DEFAULT_HOST,
    DEFAULT_SOCKETS,
    ChargeRates,
    device_rates,
    host_rates,
)
from paceline.topologies.catalogue.device import measured_times
from paceline.topologies.catalogue.device_names import alias_of, named
from paceline.topologies.catalogue.gradient_times import shared_cores
from paceline.topologies.catalogue.machine_profile import CALIBRATED
from paceline.topologies.cluster import Site
from paceline.topologies.compute import device_model
from paceline.topologies.compute.chip_groups import group_device
from paceline.topologies.compute.model_work import Mode
from paceline.topologies.graphs.graph import Graph
from paceline.topologies.graphs.machines import knl_node
from paceline.workloads.models.layer_tables import ModelInfo, find_model
from paceline.workloads.models.transformer_config import is_size, shape_of

if TYPE_CHECKING:
    from paceline.scenarios.sections.workload import TracedTimes, Workload


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
    sockets: fields.Count | None = Field(
        default=None, description="number of these processors in a node; default: as many as the node has, or 1"
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

    def device(self, device: topologies.DeviceModel) -> topologies.DeviceModel:
        """The device with these rates; one without rates and without a given bandwidth stays as it is."""
        if self.device_bandwidth is None and (device.rates is None or self.device_launch is None):
            return device
        known = device.rates or given_rates(1.0, 0.0)
        bandwidths = known.bandwidths if self.device_bandwidth is None else ((0.0, self.device_bandwidth),)
        launch_s = known.launch_s if self.device_launch is None else self.device_launch
        return replace(device, rates=replace(known, bandwidths=bandwidths, launch_s=launch_s, provenance=GIVEN))

    def on_host(self, device: topologies.DeviceModel, site: Site) -> ChargeRates | None:
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
        sockets = self.sockets or len(site.sockets) or (DEFAULT_SOCKETS if name is None else 1)
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


def _own_host(device: topologies.DeviceModel) -> str | None:
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

    def build(self, model: str, batch: int, workers: int) -> topologies.DeviceModel:
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
        speeds = [shared_cores(costs.cores, point)(workers) for point in costs.gradients]
        points = [(point.batch, point.alone_s / speed) for point, speed in zip(costs.gradients, speeds, strict=True)]
        near = costs.gradient(batch)
        forward, backward = near.layer_shares() if near.backward else ((), ())
        return topologies.DeviceModel(
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
        part = min(self._of(model).gradients, key=lambda point: abs(point.batch - batch))
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
        complain(
            [(("node", *problem.place), wrong(problem.text), node) for problem in problems_of(error, MachineDevice)]
        )
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
        complain([(problem.place, wrong(problem.text), file) for problem in problems_of(error, MachineDevice)])
    return {**given, "nodes": [{"node": {"machine": file}, "count": nodes or 1}]}


def _count(nodes: object) -> bool:
    return isinstance(nodes, int) and not isinstance(nodes, bool) and nodes > 0


class MeasuredStep(Section):
    """A measured step of a device."""

    batch: fields.Count = Field(description="samples in one gradient")
    time: Given[fields.Period, str | float] = Field(
        description="duration of a step with this batch, with its unit: '164 ms'"
    )


def _catalogued(value: object, _: object) -> str | None:
    """Validates the name of a device of the catalogue."""
    if value is None or isinstance(value, str):
        try:
            return value and named(value).name
        except InputError as error:
            raise wrong(str(error)) from None
    raise expected("a device of `paceline list devices`, by name")


class Device(Section):
    """The device of a worker: a line of step time against batch, or measured steps.

    >>> Device(name="fast", overhead="4 ms", per_sample=0.0005).document()
    {'name': 'fast', 'overhead': '4 ms', 'per_sample': '0.0005 s'}
    """

    name: fields.Name = Field(description="a name for tables and figures")
    like: Annotated[str | None, WrapValidator(_catalogued)] = Field(
        default=None,
        description="a device of `paceline list devices` that it is in all but its step time: libraries choose by its "
        "architecture, updates take time by its memory, layers share a step by its rates",
    )
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

    def build(self) -> topologies.DeviceModel:
        """Returns the device; a profile is a curve through its points, see `measured_times`.

        >>> points = [MeasuredStep(batch=32, time="164.1 ms"), MeasuredStep(batch=64, time="292.2 ms")]
        >>> round(Device(name="p100", profile=points).build().compute_s(48), 3)
        0.228
        """
        spec = None if self.like is None else named(self.like)
        rates = None if spec is None else device_rates(spec)
        if self.memory_bandwidth is not None:
            rates = given_rates(self.memory_bandwidth, self.launch_overhead)
        what: dict[str, Any] = {"name": self.name, "rates": rates}
        if spec is not None:
            what |= {"like": spec.name, "kind": spec.kind, "architecture": spec.architecture}
        if self.profile:
            return topologies.DeviceModel(
                measured=measured_times([(point.batch, point.time) for point in self.profile]),
                provenance=f"{len(self.profile)} measured steps given in the scenario",
                **what,
            )
        assert self.overhead is not None
        assert self.per_sample is not None
        return topologies.DeviceModel(overhead_s=self.overhead, per_sample_s=self.per_sample, **what)


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
) -> topologies.DeviceModel:
    """Returns a device for the gradients of a workload.

    Args:
        which: the device as the scenario names it.
        workload: the workload.
        workers: the workers of its node.
        optimizer_copies: numbers of optimizer state per weight.

    Raises:
        InputError: the gradients do not fit into the device's memory, or were not measured; or the device and the
            workload both have the time of a gradient.
    """
    if (times := workload.traced_times()) is not None:
        return _traced(which, times)
    if isinstance(which, MachineDevice):
        return which.build(workload.model, workload.batch_per_worker, workers)
    if isinstance(which, Device):
        return which.build()
    batch = workload.batch_per_worker
    return of_catalogue(which, workload.model, workload.compute_dtype, batch, optimizer_copies)


def _traced(which: Device | MachineDevice | str, times: TracedTimes) -> topologies.DeviceModel:
    """Returns a device whose gradients take the time of a trace; the rest is that of the catalogue."""
    if not isinstance(which, str):
        name = which.name if isinstance(which, Device) else which.machine
        raise InputError(
            f"trace: found beside the device {name}, which has its own time of a gradient; expected the name of a "
            "device of `paceline list devices`"
        )
    spec = named(which)
    return topologies.DeviceModel(
        name=spec.name,
        measured=measured_times([(times.batch, times.seconds)]),
        provenance=times.words,
        forward_shares=times.forward,
        backward_shares=times.backward,
        kind=spec.kind,
        architecture=spec.architecture,
        rates=device_rates(spec),
    )


@lru_cache(maxsize=64)
def of_catalogue(
    name: str, model: str, arithmetic: str, batch: int, optimizer_copies: int = 1
) -> topologies.DeviceModel:
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
def split_of_given_time(device: str, work: ModelInfo, arithmetic: str, batch: int) -> LayerSplit | None:
    """Divides the time of a device that was given or measured as a whole, by the operations and bytes of each layer.

    The rates are those of the device of the catalogue that has the same name, or else of a usual one.

    Args:
        device: the name that the scenario gives it.
        work: the model.
        arithmetic: the precision of the computation.
        batch: samples of a gradient.

    Returns:
        The split; None if the operations of the model's layers are not known.
    """
    if not work.works:
        return None
    spec = alias_of(device) or named(device_model.REFERENCE)
    forward, backward = device_model.shares_of_given_time(spec, work, arithmetic, batch)
    return LayerSplit(forward, backward, f"by their operations and bytes, at the rates of a {spec.name}")


# Groups of cores of a chip:
#
# * Every group is a worker with its own weights and its own copy of the data. All groups share the memory of the
#   chip, so the bandwidth depends on what a step of all of them touches.
# * `workload.batch_per_worker` is the batch of the chip, as in chip-partitioned-sgd: each group computes its part. A
#   method that gives every worker a whole batch needs more memory for activations than is counted here.


class CoreGroups(Section):
    """Groups of the cores of a many-core chip, each of which is a worker."""

    count: fields.Count = Field(description="number of groups of whole tiles of cores, each a worker")
    data: Quantity[fields.Size] = Field(default=0.0, description="the data that every group keeps in memory: '687 MB'")
    memory_mode: Default[Annotated[Mode, *fields.choices("flat", "cache")]] = Field(
        default="flat", description="mode of the near memory: flat, or cache of the far memory"
    )

    def check(self, device: str) -> None:
        """Raises `InputError` if the chip cannot be divided into so many groups."""
        spec = named(device)
        spec.part(self.count)
        if spec.far_bytes is None:
            raise InputError(f"found a {spec.name}, which has no near and far memory; expected a chip such as knl-7250")

    def graph(self) -> Graph:
        """The groups on the mesh of the chip."""
        return knl_node(parts=self.count)

    def device(self, name: str, workload: Workload, optimizer_copies: int = 1) -> topologies.DeviceModel:
        """Returns one group of a chip.

        Args:
            name: the chip.
            workload: the model, and the batch of the chip.
            optimizer_copies: numbers of optimizer state per weight.
        """
        if workload.trace is not None:
            raise InputError("trace: found beside groups of a chip; expected one of them")
        batch = workload.batch_per_worker
        return _group(name, workload.model, self.count, batch, self.data, self.memory_mode, optimizer_copies)


@lru_cache(maxsize=64)
def _group(
    name: str, model: str, groups: int, batch: int, data_bytes: float, mode: Mode, optimizer_copies: int
) -> topologies.DeviceModel:
    work = find_model(model)
    return group_device(
        named(name), work, groups, samples=batch, data_bytes=data_bytes, optimizer_copies=optimizer_copies, mode=mode
    )
