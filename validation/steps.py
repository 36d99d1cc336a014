"""Predicts the step times of a training job on many devices from its measured steps on few.

Rules of this file:

* Rows of one group differ only in their devices, placement and batch. Those with the fewest devices are given; all
  others are predicted.
* The time of a gradient is such that the simulation of a given row takes its measured step: whatever that step contains
  beside the gradient is simulated in it, too. Batches between given ones are interpolated. If only other batches were
  given, the device model of the catalogue says by how much a gradient is longer or shorter.
* A row becomes a scenario, and the predicted step is the one that `paceline simulate` gives for it. The words of the
  row decide the keys (see `machines`), by the same rules for every set and for users' rows.
* Frameworks: TensorFlow 1 without Horovod exchanges nothing before the gradient is complete (`sync-sgd`), or has a
  parameter server if the row says so (`sync-sgd-ps`). All others exchange buckets of gradients while the backward pass
  runs, as PyTorch's DDP does (`layerwise-sgd`): INFERENCE.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from paceline.algorithms import METHODS
from paceline.algorithms.core.errors import PacelineError
from paceline.records.trace import Schedule
from paceline.scenarios import load
from paceline.scenarios.resolution.plan import Plan
from paceline.simulator.network.network import ClusterNetwork
from paceline.simulator.runs.cost_model import cluster_network
from paceline.simulator.runs.run import perform
from paceline.topologies.catalogue.charge_rates import host_rates
from paceline.topologies.catalogue.device_catalogue import Spec
from paceline.topologies.catalogue.device_names import named
from paceline.topologies.closed_forms import ring_all_reduce_s
from paceline.topologies.compute import device_model
from paceline.topologies.compute.device_parameters import read_software
from paceline.validation.machines import Machine, read, spec_named
from paceline.validation.outcome import ALPHA_BETA, LINEAR, LeftOut, Outcome
from paceline.workloads.models.layer_tables import find_model

STEPS = ((128, 4), (1024, 2))
"""steps that count, after a first one, up to so many devices, of which the slowest varies less the more they are; with
more devices, and with one, a single step"""
STEP_TIME = {"profile": "dedicated"}
"""how steps of a device vary: as on nodes of a job's own"""
LEAST = 0.02
"""of a measured step: the shortest gradient that is taken, if messages alone take longer than the step: INFERENCE"""
CLOSE = 1e-3
"""relative difference of a simulated given step from the measured one at which the search for its gradient ends"""
DECODED_PER_CORE_S = 200
"""pictures that a core decodes and crops per second: MEMORY medium; ignored for nodes where GPUs do it"""
CORES = ((2020, 128), (2017, 48), (0, 40))
"""cores of a node with GPUs since that year: MEMORY high for DGX-1 (40) and DGX A100 (128), 2 x 24 MEMORY medium"""
PICTURE_BYTES = 110_000
"""of a picture in storage; only pictures per second count here"""
TENSORFLOW_1 = r"^(?!.*horovod).*\b(tf|tensorflow) ?1\b"
SERVERS = ("sync-sgd-ps", "async-sgd")
BY_VARIABLES = r"\btf\b|tensorflow|mxnet"
"""frameworks whose workers exchange each variable with the server that has it, on its own: see `_exchanging`"""
PARTS = 8
"""of the weights on a host, each of which is exchanged on its own, in place of single variables: INFERENCE"""
FLOAT_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class Row:
    """A measured step of a training job.

    Args:
        group: What the row has in common with those that it is predicted from.
        name: The name of the row, unique in its set.
        family: The kind of rows whose errors are summed up.
        words: The columns that say what the machine is, as `machines.READ`, and `framework` and `method`.
        devices, nodes: Their numbers.
        placement: The devices of each node; empty: as many in each.
        model: A model of `paceline list models`, a size, or module:function.
        batch: Samples of a gradient of one device.
        precision: Of the arithmetic.
        step_s: Measured seconds of a step.
        rate: Whether samples per second were published, not steps.
        source: Where it was published.
        gang: Devices of one process, which adds up their gradients before it exchanges them. The sums are free:
            INFERENCE, they are made during the backward pass.
        assumed: What the row does not say.
        spread: Standard deviation of a gradient relative to its mean, if its samples differ in size; 0: they do not.
    """

    group: str
    name: str
    family: str
    words: Mapping[str, str]
    devices: int
    nodes: int
    placement: tuple[int, ...] = ()
    model: str
    batch: int
    precision: str = "fp32"
    step_s: float
    rate: bool = True
    source: str = ""
    gang: int = 1
    assumed: tuple[str, ...] = ()
    spread: float = 0.0
    keys: Mapping[str, Any] = field(default_factory=dict)
    """keys of the scenario that the set gives beside those of the words, such as options of the method"""

    @property
    def samples_per_s(self) -> float:
        """Samples per second of all devices."""
        return self.devices * self.batch / self.step_s

    @property
    def per_node(self) -> tuple[int, ...]:
        """The devices of each node."""
        if self.placement:
            return self.placement
        least, more = divmod(self.devices, self.nodes)
        return (least + 1,) * more + (least,) * (self.nodes - more)


Points = tuple[tuple[int, float], ...]
"""batches and seconds of a gradient of one device"""


# --- a row as a scenario ----------------------------------------------------------------------------------------------


@cache
def _machine(words: tuple[tuple[str, str], ...]) -> Machine:
    return read(dict(words))


def machine_of(row: Row) -> Machine:
    """Returns the machine of a row. Raises `Unread`."""
    most = max(row.per_node)
    words = {**row.words, "nranks": str(max(2, most * row.nodes)), "nnodes": str(row.nodes if row.devices > 1 else 1)}
    return _machine(tuple(sorted(words.items())))


def spec_of(row: Row) -> Spec | None:
    """Returns the device of a row in the catalogue; None if it is not there."""
    return spec_named(row.words.get("device", ""))


def method_of(row: Row) -> str:
    """Returns the product's method that exchanges gradients as the row's framework does."""
    method, framework = row.words.get("method", "").strip().lower(), row.words.get("framework", "").lower()
    if row.devices == 1:
        return "sequential-sgd"
    if method in METHODS:
        return method
    if re.search(r"parameter[ _-]?server", f"{method} {framework}"):
        return "sync-sgd-ps"
    return "sync-sgd" if re.search(TENSORFLOW_1, framework) else "layerwise-sgd"


def scenario_of(row: Row, points: Points) -> dict[str, Any]:
    """Returns the scenario of a row.

    Args:
        row: The row.
        points: Gradients of its device.

    Raises:
        Unread: The words of the row name no machine that can be simulated.
    """
    machine, spec = machine_of(row), spec_of(row)
    named_so = re.sub(r"[^A-Za-z0-9._-]+", "-", row.words.get("device", "")).strip("-.")[:60]
    device: dict[str, Any] = {"name": spec.name if spec else named_so or "device"}
    device["like"] = spec.name if spec else machine.device
    points = tuple(point for point in points if point[0] == row.batch) or points
    (batch, seconds), *others = points
    if others:
        device["profile"] = [{"batch": row.gang * batch, "time": f"{seconds!r} s"} for batch, seconds in points]
    else:
        device |= {"overhead": "0 s", "per_sample": f"{seconds / (row.gang * batch)!r} s"}
    processes = [count // row.gang for count in row.per_node]
    cluster = machine.section(device, processes)
    method, updates = method_of(row), _steps(sum(processes)) + 1
    if method in SERVERS:  # a framework's own server, joined to its workers by none of the libraries
        network = {key: value for key, value in cluster["network"].items() if key != "library_version"}
        cluster["network"] = {**network, "library": "plain"}
        cluster["charges"] = {**cluster["charges"], "core_bandwidth": f"{_all_cores_bytes_per_s(machine)!r} B/s"}
    if sum(processes) > 1:
        own = {"distribution": "norm", "loc": 1.0, "scale": row.spread}
        cluster["step_time"] = own if row.spread else STEP_TIME
    scenario: dict[str, Any] = {
        "name": re.sub(r"[^a-z0-9]+", "-", row.name.lower()).strip("-")[:60].strip("-") or "row",
        "cluster": cluster,
        "workload": {
            "model": row.model, "learning": "none", "batch_per_worker": row.gang * row.batch,
            "compute_dtype": row.precision,
        },
        "algorithms": [_exchanging(row)],
        "stop": {"updates": updates * sum(processes) if method == "async-sgd" else updates},
        "records": "summary",
    }  # fmt: skip
    return _merged(_merged(scenario, _data_keys(row, spec)), row.keys)


def _exchanging(row: Row) -> str | dict[str, Any]:
    """Returns the method with what a framework sends.

    MXNet's gradients in mixed precision are float16. MEMORY high: its optimizers keep float32 copies of float16 weights
    (multi_precision), whose gradients it exchanges. PyTorch before 1.7 joins layers in the order of the forward pass.

    TensorFlow's and MXNet's workers send each variable to its server when its gradient is ready, and fetch it when the
    forward pass needs it. FOUND for TensorFlow (tensorflow/benchmarks @8fb7907: VariableMgrDistributedFetchFromPS has
    each variable on the server with the fewest bytes, and cross_replica_sync, the default, a barrier at the end of a
    step). For MXNet MEMORY high (model.py pushes and pulls each key with a priority, last layers first).
    """
    method, framework = method_of(row), row.words.get("framework", "").lower()
    if method == "sync-sgd-ps" and re.search(BY_VARIABLES, framework):
        layers = len(find_model(row.model).layers)
        return {"name": method, "servers": row.nodes * max(1, min(PARTS, layers // row.nodes)), "layerwise": True}
    if method == "layerwise-sgd" and re.search(r"torch 1\.[0-6]\b", framework):
        return {"name": method, "joined": "forward"}
    mxnet = "mxnet" in framework
    if mxnet and row.precision == "amp" and method in ("layerwise-sgd", "sync-sgd"):
        return {"name": method, "compression": {"kind": "cast", "dtype": "fp16"}}
    return method


def _all_cores_bytes_per_s(machine: Machine) -> float:
    """Returns the bytes per second of a host whose cores add together.

    TensorFlow divides an operation among the threads of a pool with one for each core (Eigen's ThreadPoolDevice, the
    default of intra_op_parallelism_threads): MEMORY certain, taken in with rows in sight.
    """
    return host_rates(named(machine.host), 2).total_bytes_per_s


def _data_keys(row: Row, spec: Spec | None) -> dict[str, Any]:
    """Returns the keys of a row that says what its samples are: synthetic ones lie on the devices already.

    Without DALI, which decodes on GPUs, the cores of a node decode real pictures; several devices may wait for them.
    """
    words = f"{row.words.get('data', '')} {row.words.get('framework', '')}".lower()
    if "synthetic" in words:
        return {"cluster": {"staging": {"batches": "none"}}}
    if not re.search(r"real|imagenet", words) or "dali" in words or row.devices == 1:
        return {}
    cores = next(cores for since, cores in CORES if (spec.year if spec else 2018) >= since)
    pictures = {
        "name": "decoded", "latency": "0 s", "bandwidth": f"{cores * DECODED_PER_CORE_S * PICTURE_BYTES:g} B/s",
        "read_ahead": None,
    }  # fmt: skip
    reading = {"buffer": row.batch, "record": f"{PICTURE_BYTES} B"}
    return {"cluster": {"storage": pictures}, "workload": {"reading": reading}}


def _merged(base: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a document with the keys of another one in place of its own, at any depth."""
    merged = dict(base)
    for key, value in more.items():
        own = merged.get(key)
        merged[key] = _merged(own, value) if isinstance(own, Mapping) and isinstance(value, Mapping) else value
    return merged


# --- its simulation ---------------------------------------------------------------------------------------------------

_networks: dict[tuple[object, ...], ClusterNetwork] = {}


def _network(plan: Plan) -> ClusterNetwork:
    """Returns a network that serves all plans of one machine, whose collectives are then priced once."""
    cluster = plan.cluster
    nodes = tuple((node.seats, node.device.name, node.host_rates) for node in cluster.nodes)
    key = cluster.graph, nodes, cluster.staging, plan.wiring, cluster.server_node, cluster.servers
    if key not in _networks:
        if len(_networks) > 8:
            _networks.clear()
        _networks[key] = cluster_network(plan)
    return _networks[key]


def simulated_step_s(plan: Plan) -> float:
    """Returns the mean seconds of a step after the first one; of asynchronous workers, one of each."""
    trace = perform(plan, Schedule(every=math.inf), network=_network(plan), engine="cohort")
    ends_s = sorted(update.time_s for update in trace.updates)
    steps = _steps(plan.job.workers)
    each = len(ends_s) // (steps + 1)
    return (ends_s[-1] - ends_s[each - 1]) / steps


def _steps(devices: int) -> int:
    return 1 if devices == 1 else next((steps for most, steps in STEPS if devices <= most), 1)


def step_s(row: Row, points: Points) -> float:
    """Returns the seconds of a step that `simulate` gives. Arguments and errors as for `scenario_of`."""
    (plan,) = load(scenario_of(row, points)).plans()
    return simulated_step_s(plan)


def gradient_s(row: Row, simulated: Callable[[Row, Points], float] = step_s) -> float:
    """Returns the seconds of a gradient with which the simulated step takes as long as the measured one.

    A step grows with its gradient by at most as much, so the search begins at the measured step and goes down.

    Args:
        row: A given row.
        simulated: Returns the step of a row with given gradients.

    >>> row = Row(group="", name="", family="", words={}, devices=2, nodes=1, model="", batch=8, step_s=1.0)
    >>> round(gradient_s(row, lambda row, points: max(points[0][1] + 0.1, 0.7)), 3)
    0.9
    """
    high_s, low_s = row.step_s, LEAST * row.step_s
    seconds = high_s
    for _ in range(12):
        over_s = simulated(row, ((row.batch, seconds),)) - row.step_s
        if abs(over_s) <= CLOSE * row.step_s:
            break
        if over_s > 0:
            high_s = seconds
        else:
            low_s = seconds
        seconds = seconds - over_s
        if not low_s < seconds < high_s:
            seconds = (low_s + high_s) / 2
        if high_s - low_s <= CLOSE * row.step_s:
            break
    return seconds


# --- groups -----------------------------------------------------------------------------------------------------------


def given_and_predicted(rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Divides a group: the rows with the fewest devices, on the fewest nodes, are given."""
    least = min((row.devices, row.nodes) for row in rows)
    given = [row for row in rows if (row.devices, row.nodes) == least]
    return given, [row for row in rows if (row.devices, row.nodes) != least]


def points_of(given: Iterable[Row], simulated: Callable[[Row, Points], float] = step_s) -> Points:
    """Returns the gradients of one device by batch; of a batch that was measured repeatedly, the mean."""
    return _means(given, lambda row: gradient_s(row, simulated))


def _means(rows: Iterable[Row], seconds_of: Callable[[Row], float]) -> Points:
    """Returns the mean seconds of the rows of each batch."""
    seconds: dict[int, list[float]] = {}
    for row in rows:
        seconds.setdefault(row.batch, []).append(seconds_of(row))
    return tuple((batch, math.fsum(each) / len(each)) for batch, each in sorted(seconds.items()))


def with_batch(points: Points, row: Row) -> tuple[Points, str]:
    """Returns the points with the batch of a row, and the assumption that they rest on.

    Between two given batches, a straight line joins them. Beyond them, the gradient changes as that of the device model
    does, from the nearest given batch.
    """
    batches = [batch for batch, _ in points]
    if row.batch in batches or batches[0] < row.batch < batches[-1]:
        return points, ""
    near, seconds = min(points, key=lambda point: abs(math.log(point[0] / row.batch)))
    spec, model = spec_of(row), find_model(row.model)
    if spec is None or not model.works:
        own_s = seconds * row.batch / near
        words = f"a gradient of {row.batch} samples takes {row.batch}/{near} of one of {near}"
    else:
        longer = _modelled_s(spec.name, row, row.batch) / _modelled_s(spec.name, row, near)
        own_s = seconds * longer
        words = f"a gradient of {row.batch} samples takes {longer:.2f} of one of {near}, by the device model"
    return tuple(sorted({**dict(points), row.batch: own_s}.items())), words


def _modelled_s(device: str, row: Row, batch: int) -> float:
    spec = named(device)
    software = read_software(row.words.get("framework", ""), spec.kind)
    made = device_model.device(spec, find_model(row.model), row.precision, samples=1, software=software)
    return made.compute_s(batch)


def outcomes(name: str, rows: Sequence[Row]) -> list[Outcome | LeftOut]:
    """Predicts the rows of a group from those with the fewest devices.

    Args:
        name: The name of the set.
        rows: All rows of the group.
    """
    given, others = given_and_predicted(rows)
    if not others:
        return []
    try:
        points = points_of(given)
        alone = _alpha_beta_points(given)
    except PacelineError as error:
        return [LeftOut(name, row.name, str(error)) for row in others]
    results: list[Outcome | LeftOut] = []
    for row in others:
        try:
            results.append(_outcome(name, row, given, points, alone))
        except PacelineError as error:
            results.append(LeftOut(name, row.name, str(error)))
    return results


def _outcome(name: str, row: Row, given: Sequence[Row], points: Points, alone: Points) -> Outcome:
    own, assumed = with_batch(points, row)
    machine, spec = machine_of(row), spec_of(row)
    scenario = scenario_of(row, own)
    (plan,) = load(scenario).plans()
    steps = {
        "": simulated_step_s(plan),
        LINEAR: _linear_s(given, row),
        ALPHA_BETA: _seconds(with_batch(alone, row)[0], row.batch) + _ring_s(row),
    }
    samples = row.devices * row.batch
    figures = {key: samples / seconds if row.rate else seconds for key, seconds in steps.items()}
    return Outcome(
        set=name,
        name=row.name,
        system=row.group,
        family=row.family,
        unit="samples/s" if row.rate else "s",
        measured=row.samples_per_s if row.rate else row.step_s,
        predicted=figures.pop(""),
        simpler=figures,
        assumed=tuple(filter(None, (*row.assumed, assumed, *machine.assumed))),
        source=row.source,
        scenario=scenario,
        chip="" if spec is None else spec.name,
        network=machine.link.name if row.nodes > 1 else "",
    )


def _seconds(points: Points, batch: int) -> float:
    """Returns the seconds of a batch on the line through the points; beyond them in proportion."""
    below = [point for point in points if point[0] <= batch]
    above = [point for point in points if point[0] >= batch]
    if not below or not above:
        near, seconds = (above or below[::-1])[0]
        return seconds * batch / near
    (low, low_s), (high, high_s) = below[-1], above[0]
    return low_s if low == high else low_s + (batch - low) / (high - low) * (high_s - low_s)


def _linear_s(given: Sequence[Row], row: Row) -> float:
    """Returns a step as if more devices waited for nothing: that of the given rows."""
    return _seconds(_means(given, lambda each: each.step_s), row.batch)


def _ring_s(row: Row) -> float:
    """Returns the seconds of a ring all-reduce of the gradient over the slowest link."""
    if row.devices == 1:
        return 0.0
    machine, nbytes = machine_of(row), FLOAT_BYTES * find_model(row.model).parameters
    latency_s, bytes_per_s = machine.slowest
    return ring_all_reduce_s(row.devices, nbytes, latency_s, 1 / bytes_per_s)


def _alpha_beta_points(given: Sequence[Row]) -> Points:
    """Returns the gradients of the α–β model: what a given step leaves after its all-reduce."""
    return _means(given, lambda row: max(LEAST * row.step_s, row.step_s - _ring_s(row)))
