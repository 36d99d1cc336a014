"""Predicts a row by the product: a collective on the cluster of its machine, or the plan of its training.

Rules of this file:

* It prices nothing. The ways to run a collective are those that the tuner of `simulate` offers, and their times are
  those of the simulation; a step is the one that `simulate` gives.
* A `Cost` is one way to run a collective: an algorithm with a protocol. Its time is λ · latency_s + transfer_s / σ. The
  catalogue means λ = σ = 1, and only these two factors are ever fitted. Latency is the time of all steps without their
  bytes.
* A library whose version is not given gets the cheapest way of each table of decisions before Open MPI 5.
* One device is predicted by the device model. If it was fitted to figures of the same table, it is fitted again without
  any row of that chip, so the prediction uses rows of other chips only. A model without a layer table takes the time of
  its nearest relative with one, scaled by the operations that the row states.
* The gradient of a device on several is the device model's, and updates then take what they take on the device; or the
  measured step of one device, which contains its updates. Words decide the product's method, library, network and
  storage: a framework whose exchange hides behind the backward pass is `layerwise-sgd`, one that hides nothing is
  `sync-sgd`, a parameter server `sync-sgd-ps`.
"""

from __future__ import annotations

import csv
import dataclasses
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate, pairwise
from typing import Any, Literal

import numpy as np

from paceline.algorithms.core import job as jobs
from paceline.algorithms.core.buckets import buckets
from paceline.algorithms.core.errors import InputError, PacelineError
from paceline.algorithms.core.method import Method
from paceline.algorithms.core.values import Group, Layer, Layout, Rank
from paceline.algorithms.methods.layerwise import Layerwise
from paceline.records.trace import Schedule
from paceline.scenarios import load
from paceline.scenarios.resolution.plan import NetworkRules, Plan
from paceline.scenarios.sections.fitted_devices import published_model, without
from paceline.simulator.collectives.pattern_time import alone_s, steps_s
from paceline.simulator.collectives.patterns import Kind
from paceline.simulator.collectives.plans import CollectivePlan
from paceline.simulator.flows.fabric import GraphFabric
from paceline.simulator.network.network import ClusterNetwork
from paceline.simulator.runs.cost_model import cluster_network
from paceline.simulator.runs.run import perform
from paceline.topologies import Jitter, StorageModel
from paceline.topologies.catalogue.charge_rates import ChargeRates, device_rates
from paceline.topologies.catalogue.device import DeviceModel, Interval
from paceline.topologies.catalogue.device_catalogue import DATA, SPECS, Spec
from paceline.topologies.catalogue.device_names import find, named
from paceline.topologies.catalogue.host_memory import StagingModel
from paceline.topologies.catalogue.libraries import LATEST
from paceline.topologies.compute.device_model import shares_of_given_time
from paceline.topologies.compute.device_parameters import Parameters, chip_key, read_software
from paceline.topologies.compute.layer_times import gradient_s
from paceline.topologies.compute.prediction_errors import interval_of
from paceline.topologies.faults.step_times import StepTimes
from paceline.validation.machines import Machine, Row, Unread, number, read, text_of, whole
from paceline.workloads.learners.stand_in import TimingOnly
from paceline.workloads.models.layer_tables import MODELS, ModelInfo
from paceline.workloads.reading import ReadingSettings

KINDS: dict[str, Kind] = {
    "allreduce": "AllReduce",
    "reducescatter": "ReduceScatter",
    "allgather": "AllGather",
    "broadcast": "Broadcast",
    "reduce": "Reduce",
}
PATTERNS = {
    "ring": ("ring", "ring-channels"),
    "ring-whole": ("ring",),
    "double-tree": ("double-tree",),
    "nvls": ("nvls", "nvls-tree"),
    "recursive-doubling": ("recursive-doubling",),
    "halving-doubling": ("halving-doubling",),
}
"""patterns of the product by the algorithms that a row names"""
VERSIONS = {"mpi": ((1, 0), (4, 1))}
"""versions of which each may be meant if none is given; of other libraries, the latest"""


@dataclass(frozen=True, slots=True)
class Cost:
    """One way to run a collective."""

    name: str
    latency_s: float
    transfer_s: float

    def seconds(self, latency_factor: float = 1.0, bandwidth_factor: float = 1.0) -> float:
        """Returns λ · latency + transfer / σ.

        >>> Cost("ring", 1.0, 4.0).seconds(2.0, 4.0)
        3.0
        """
        return latency_factor * self.latency_s + self.transfer_s / bandwidth_factor


def cheapest_s(costs: tuple[Cost, ...], latency_factor: float = 1.0, bandwidth_factor: float = 1.0) -> float:
    """Returns the seconds of the cheapest way."""
    return min(cost.seconds(latency_factor, bandwidth_factor) for cost in costs)


def kind_of(text: str) -> str:
    """Returns the collective that a word means. Raises `Unread`.

    >>> kind_of("All-Reduce"), kind_of("reduce_scatter_perf")
    ('allreduce', 'reducescatter')
    """
    word = "".join(letter for letter in text.lower() if letter.isalpha())
    for kind in KINDS:
        if kind in word:
            return kind
    if not word or "bcast" in word:
        return "broadcast" if word else "allreduce"
    raise Unread(f"collective: found {text!r}, which is not modelled")


def costs(machine: Machine, kind: str, nbytes: float) -> tuple[Cost, ...]:
    """Returns the ways in which the machine's library may run a collective, its choice first."""
    group = Group(tuple(map(Rank, range(machine.cluster.workers))))
    named = {pattern for name in machine.algorithms for pattern in PATTERNS.get(name, ())}
    ways = []
    for version in [machine.version] if machine.version else VERSIONS.get(machine.library, (LATEST,)):
        network = _machine_network(machine, version)
        offers = list(network.tuner.offers(KINDS[kind], group, nbytes))
        kept = [offer for offer in offers if offer.algorithm in named]
        if named and not kept and kind == "allreduce" and machine.library != "nccl":  # another one than by the table
            network = _machine_network(machine, version, min(named))
            kept = list(network.tuner.offers("AllReduce", group, nbytes))
        tuner, copies = network.tuner, _copies(network.fabric, machine, nbytes)
        chosen = min(kept or offers, key=lambda offer: tuner.predicted_s(offer.plan))
        for offer in kept or offers:
            ways.append((offer is not chosen, _cost(offer.label, offer.plan, network.fabric, copies)))
    return tuple(cost for _, cost in sorted(ways, key=lambda pair: (pair[0], pair[1].seconds())))


@cache
def _machine_network(machine: Machine, version: tuple[int, int], pattern: str = "auto") -> ClusterNetwork:
    """Returns the network of `simulate` for a machine, whose paths and channels are then looked up once."""
    return ClusterNetwork(machine.cluster, pattern, library=machine.library, version=version)


def _cost(name: str, plan: CollectivePlan, fabric: GraphFabric, copies: Cost) -> Cost:
    whole_s, latency_s = float(np.max(alone_s(plan, fabric, compiled=True))), steps_s(plan)
    return Cost(name, latency_s + copies.latency_s, whole_s - latency_s + copies.transfer_s)


def _copies(fabric: GraphFabric, machine: Machine, nbytes: float) -> Cost:
    """Returns the copies of a vector to the host and back, if the library works there."""
    latency_s = transfer_s = 0.0
    for rank, socket in list(fabric.buffers.copied.items())[:1]:
        path = fabric.between(machine.cluster.vertex_of(rank), socket, nbytes)
        latency_s = 2 * path.latency_s
        transfer_s = 2 * nbytes / min(fabric.capacity[port] for port in path.ports)
    return Cost("copies", latency_s, transfer_s)


# --- training on one device -------------------------------------------------------------------------------------------

LeftOut = Literal["chip", "model", "family"]
FREE: dict[str, Any] = {"bytes_per_s": math.inf, "launch_s": 0.0}
"""memory and kernel launches that cost nothing"""
BATCH = 32.0
"""of a device where none is given: INFERENCE"""
RELATIVES = (
    ("inception", "inception3"), ("vgg", "vgg16"), ("alexnet", "alexnet-owt"), ("overfeat", "alexnet-owt"),
    ("squeezenet", "googlenet"), ("bert", "transformer"), ("transformer", "transformer"),
)  # fmt: skip
"""words in a model's name and a model with a layer table that is built alike: INFERENCE; ResNet-50 for all others"""


@dataclass(frozen=True, slots=True)
class Job:
    """The content of a row of throughput."""

    row: Row
    devices: int
    nodes: int
    model: ModelInfo
    batch: float
    precision: str
    images_per_s: float
    scale: float = 1.0
    """operations of the row's model relative to those of `model`, which stands in for it"""

    @property
    def step_s(self) -> float:
        """Seconds of a step, from the measured rate."""
        return self.devices * self.batch / self.images_per_s


def job_of(row: Row) -> Job:
    """Returns the job of a row. Raises `Unread`."""
    devices = whole(row, "n_devices") or 1
    nodes = min(devices, whole(row, "n_nodes") or 1)
    model, scale = model_of(row)
    return Job(
        row=row,
        devices=devices,
        nodes=nodes,
        model=model,
        batch=number(row, "batch_per_device") if str(row.get("batch_per_device") or "").strip() else BATCH,
        precision=_precision(text_of(row, "precision")),
        images_per_s=number(row, "images_per_s"),
        scale=scale,
    )


def _precision(text: str) -> str:
    if "?" in text:  # the table's author guessed the value, so it is ignored
        return "fp32"
    for name, words in (
        ("amp", "amp|mixed"),
        ("bf16", "bf16|bfloat"),
        ("fp16", "fp16|half"),
        ("tf32", "tf32"),
        ("fp64", "64"),
    ):
        if re.search(words, text):
            return name
    return "fp32"


def _plain(name: str) -> str:
    """
    >>> _plain("Inception-v3"), _plain("resnet50_v1.5"), _plain("ResNet50 v1")
    ('inception3', 'resnet50v15', 'resnet50')
    """
    plain = re.sub(r"[^a-z0-9]", "", name.lower()).replace("inceptionv", "inception")
    return {"googlenetv1": "googlenet", "inception1": "googlenet"}.get(plain, re.sub(r"^(resnet\d+)v1$", r"\1", plain))


def model_of(row: Row) -> tuple[ModelInfo, float]:
    """Returns the model of a row, or its nearest relative with a layer table, and its operations relative to these."""
    given = str(row.get("model") or "")
    if "@" in given:
        return published_model(given), 1.0
    plain = _plain(given)
    table = next((name for name in MODELS if _plain(name) == plain), None)
    if table and MODELS[table].works:
        return MODELS[table], 1.0
    flops = number(row, "train_gflop_per_image") * 1e9
    like = MODELS[next((name for words, name in RELATIVES if words in plain), "resnet50")]
    relative = dataclasses.replace(like, name=plain or "unnamed")
    return relative, flops / like.training_flops


def spec_of(row: Row, precision: str) -> Spec:
    """Returns the device of a row from the catalogue, or one like the nearest, with the peak that the row states."""
    text = str(row.get("device") or "")
    if (spec := _named(text)) is not None:
        return spec
    try:
        peak = number(row, "peak_tflops") * 1e12
    except Unread:
        raise Unread(f"device: {text!r} is not in the catalogue, and no peak_tflops is given") from None
    like = min(SPECS.values(), key=lambda spec: abs(spec.peak(precision) - peak))
    scale = peak / like.peak(precision)
    return dataclasses.replace(
        like, name="unknown", peaks={kind: scale * rate for kind, rate in like.peaks.items()},
        bytes_per_s=scale * like.bytes_per_s, sustained_bytes_per_s=scale * like.sustained_bytes_per_s,
    )  # fmt: skip


@cache
def _named(text: str) -> Spec | None:
    try:
        return find(text)
    except InputError:
        return None


def chips_of(table: Iterable[Row]) -> frozenset[str]:
    """Returns the keys of the chips with figures of this table among the rows that the device model is fitted to."""
    figures = set()
    for row in table:
        try:
            figures.add((chip_key(spec_of(row, "fp32")), number(row, "images_per_s")))
        except PacelineError:
            continue  # it is not predicted either
    with (DATA / "throughput.csv").open(newline="", encoding="utf-8") as file:
        known = {(chip_key(named(line["device"])), float(line["samples_per_s"])) for line in csv.DictReader(file)}
    return frozenset(chip for chip, rate in known & figures)


def parameters_for(job: Job, left_out: LeftOut, chips: frozenset[str] = frozenset()) -> Parameters:
    """Returns the parameters of the device model for a row.

    Args:
        job: The row.
        left_out: The kind of rows that the model is fitted without.
        chips: Keys of the chips that may be left out.
    """
    if left_out == "model":
        return without(model=job.model.name)
    if left_out == "family":
        return without(family=job.model.family)
    chip = chip_key(spec_of(job.row, job.precision))
    return without(chip=chip) if chip in chips else without()


def gradient_parts_s(job: Job, left_out: LeftOut = "chip", chips: frozenset[str] = frozenset()) -> tuple[float, float]:
    """Returns the seconds of one device's gradient in memory and kernel launches, and in arithmetic.

    Args:
        job: The row.
        left_out: The kind of rows that the model is fitted without.
        chips: Keys of the chips that may be left out.
    """
    spec = spec_of(job.row, job.precision)
    software = read_software(text_of(job.row, "framework", "device"), spec.kind, whole(job.row, "year"))
    rates = parameters_for(job, left_out, chips).rates(spec, job.precision, software)
    arithmetic_s = job.scale * gradient_s(job.model.works, dataclasses.replace(rates, **FREE), job.batch)
    return job.scale * gradient_s(job.model.works, rates, job.batch) - arithmetic_s, arithmetic_s


def interval_of_row(job: Job, chips: frozenset[str]) -> Interval:
    """Returns the interval of a prediction with the chip left out, if it is among `chips`."""
    spec = spec_of(job.row, job.precision)
    return interval_of(spec, job.precision, known=parameters_for(job, "chip", chips).knows(spec))


# --- training on several devices --------------------------------------------------------------------------------------

TENSORFLOW_1 = r"^(?!.*horovod).*\b(tf|tensorflow) ?1\b"
"""the framework's own exchange, not Horovod's, which waits for an event of each tensor"""
BUNDLED_NCCL = "NCCL 1.3"
"""of TensorFlow 1 in 2017: FOUND (its workspace.bzl names NVIDIA/nccl @03d85697 of August 2017, after v1.3.4)"""
NCCL_OF = {2016: "NCCL 1.2", 2017: "NCCL 2.0", 2018: "NCCL 2.3"}
"""the library's version by the year of a row; later ones the latest: INFERENCE"""
SPREAD = 0.01
"""standard deviation of step times between devices, relative to the mean, normal: INFERENCE, chosen with rows in
sight"""
STEPS = 4
"""steps of several devices that count, after a first one: the mean of the slowest of eight is then known to 0.3 %"""
DECODED_PER_CORE_S = 200.0
"""pictures that a core decodes and crops per second: MEMORY medium; ignored for nodes where GPUs do it"""
CORES = ((2020, 128), (2017, 48), (0, 40))
"""cores of a node with GPUs since that year: MEMORY high for DGX-1 (40) and DGX A100 (128), 2 x 24 MEMORY medium"""
EPOCH = 10**9
"""samples of an epoch; no run comes to its end"""
PICTURE_BYTES = 110_000
"""of a sample in storage; only pictures per second count here"""
PARAMETERS = {
    "inception4": 42.68e6, "mobilenet": 4.23e6, "squeezenet": 1.25e6, "densenet121": 7.98e6, "overfeat": 145.9e6,
    "resnext50": 25.03e6, "bertbase": 110e6, "bertlarge": 336e6, "resnet18": 11.69e6, "resnet34": 21.80e6,
}  # fmt: skip
"""of models without a layer table; MEMORY certain, of BERT MEMORY high"""


def method_of(job: Job) -> str:
    """Returns the product's method that exchanges gradients as the row's framework does.

    TensorFlow 1 starts an all-reduce when the last GPU has handed in its tensor; the communication stream then waits
    for whatever is queued in the compute streams: FOUND (tensorflow/contrib/nccl/kernels/nccl_manager.cc,
    `ThenWaitFor(p->tensor_stream)`). Hosts queue a step faster than GPUs compute it: INFERENCE. So nothing is hidden.
    All other frameworks have the buckets of PyTorch's DDP, the method's default: INFERENCE.
    """
    if job.devices == 1:
        return "sequential-sgd"
    if _by_server(job):
        return "sync-sgd-ps"
    return "sync-sgd" if re.search(TENSORFLOW_1, text_of(job.row, "framework")) else "layerwise-sgd"


SHORT = {"rn": "resnet", "incv": "inception", "inc": "inception"}


def _by_server(job: Job) -> bool:
    """Whether a clause of the notes that is about this model, or about all, names a parameter server."""
    for clause in text_of(job.row, "notes", "framework").split(";"):
        models, colon, words = clause.rpartition(":")
        names = [name.strip() for name in models.split("/")] if colon else [""]
        full = [re.sub(r"^(rn|incv|inc)(?=\d)", lambda match: SHORT[match[1]], name) for name in names]
        if re.search(r"parameter[ _-]?server", words) and any(job.model.name.startswith(name) for name in full):
            return True
    return False


def step_s(job: Job, gradient_s: float, *, measured: bool = False) -> float:
    """Returns the seconds of a step, as `simulate` gives them.

    Args:
        job: The row.
        gradient_s: The seconds of a gradient on one device.
        measured: Whether these are a measured step of one device, which contains its update.

    Raises:
        Unread: The row has no cluster or no model whose size is known.
    """
    return simulated_step_s(plan_of(job, gradient_s, measured=measured))


def simulated_step_s(plan: Plan) -> float:
    """Returns the mean seconds of a step after the first one."""
    trace = perform(plan, Schedule(every=math.inf), network=_plan_network(plan))
    ends_s = sorted(update.time_s for update in trace.updates)
    steps = _steps(plan.job.workers)
    each = len(ends_s) // (steps + 1)
    return (ends_s[-1] - ends_s[each - 1]) / steps


def _steps(devices: int) -> int:
    return STEPS if devices > 1 else 1


def plan_of(job: Job, gradient_s: float, *, measured: bool = False) -> Plan:
    """Returns the plan of a row; arguments as for `step_s`."""
    batch = round(job.batch) or 1
    machine = None if job.devices == 1 else machine_of(job)
    nodes = 1 if machine is None else machine.nodes
    plan = _usual(method_of(job), nodes, job.devices // nodes, batch)
    cluster = plan.cluster if machine is None else machine.cluster
    layout, shares = _in_buckets(plan.job.method, _layout(job), _shares(job))
    device = _device(job, gradient_s, shares, measured=measured)
    words = text_of(job.row, "data", "framework")
    real = bool(re.search(r"real|imagenet", words)) and "synthetic" not in words
    decoded = real and "dali" not in words and job.devices > 1
    cluster = replace(
        cluster,
        nodes=tuple(
            replace(node, device=device, host_rates=_all_cores(node.host_rates) if _by_server(job) else node.host_rates)
            for node in cluster.nodes
        ),
        step_time=StepTimes(law=Jitter.of("norm", loc=1.0, scale=SPREAD)) if job.devices > 1 else cluster.step_time,
        staging=replace(
            cluster.staging or StagingModel(),
            batches="pinned" if real else "none",
            sample_bytes=float(job.model.sample_bytes),
        ),
        storage=_pictures(spec_of(job.row, job.precision).year) if decoded else None,
    )
    work = plan.work
    if decoded:
        work = replace(work, samples=EPOCH, reading=ReadingSettings(buffer=batch), record_bytes=PICTURE_BYTES)
    usual, learner = plan.job, TimingOnly(layout, EPOCH)
    own = jobs.Job.of(usual.method, cluster.placement, learner, batch=batch, budget=usual.budget)
    wiring = plan.wiring if machine is None else _wiring(job, machine)
    return replace(plan, job=own, cluster=cluster, wiring=wiring, work=work)


Shares = tuple[tuple[float, ...], tuple[float, ...]]
"""of the layers in the time of a gradient, forward and backward"""


def _device(job: Job, gradient_s: float, shares: Shares, *, measured: bool) -> DeviceModel:
    spec = spec_of(job.row, job.precision)
    return DeviceModel(
        name=spec.name,
        per_sample_s=gradient_s / (round(job.batch) or 1),
        forward_shares=shares[0],
        backward_shares=shares[1],
        kind=spec.kind,
        architecture=spec.architecture,
        rates=None if measured else device_rates(spec),
    )


def _shares(job: Job) -> Shares:
    return shares_of_given_time(spec_of(job.row, job.precision), job.model, job.precision, round(job.batch) or 1)


def _in_buckets(method: Method, layout: Layout, shares: Shares) -> tuple[Layout, Shares]:
    """Joins the layers of each bucket, whose exchange begins when the gradient of the first of them is there.

    Without buckets, all layers are one.
    """
    least, first = (method.bucket, method.first_bucket) if isinstance(method, Layerwise) else (layout.size, None)
    joined = buckets(layout.layers, least, first)[::-1]
    cuts = [0, *accumulate(len(bucket.layers) for bucket in joined)]
    layers = tuple(Layer(bucket.name, bucket.part.start, bucket.part.stop) for bucket in joined)
    forward, backward = (tuple(math.fsum(of[a:b]) for a, b in pairwise(cuts)) for of in shares)
    return Layout(layers), (forward, backward)


def _all_cores(rates: ChargeRates | None) -> ChargeRates | None:
    """Returns the rates of a host all of whose cores add together, as `charges.core_bandwidth` says in a scenario.

    TensorFlow divides an operation among the threads of a pool with one for each core (Eigen's ThreadPoolDevice, the
    default of intra_op_parallelism_threads): MEMORY certain, taken in with rows in sight. All rows with a server are
    TensorFlow's.
    """
    return rates and replace(rates, bandwidths=((0.0, rates.total_bytes_per_s),))


def _layout(job: Job) -> Layout:
    """Returns the layers of a row's model; those of its relative, scaled, if it has no layer table."""
    layout = job.model.layout()
    if job.scale == 1:
        return layout
    if (parameters := PARAMETERS.get(job.model.name)) is None:
        raise Unread(f"model: the parameters of {job.model.name!r} are not known")
    scale = parameters / layout.size
    return Layout(
        tuple(Layer(layer.name, round(scale * layer.start), round(scale * layer.stop)) for layer in layout.layers)
    )


def _pictures(year: int) -> StorageModel:
    """Returns what supplies the decoded pictures of a node: as many a second as its cores decode."""
    cores = next(cores for since, cores in CORES if year >= since)
    return StorageModel(name="decoded", latency_s=0.0, bytes_per_s=cores * DECODED_PER_CORE_S * PICTURE_BYTES)


def machine_of(job: Job) -> Machine:
    """Returns the machine of a row of throughput on several devices. Raises `Unread`."""
    year = whole(job.row, "year") or 2020
    library = NCCL_OF.get(max(year, min(NCCL_OF)), "NCCL")
    if re.search(TENSORFLOW_1, text_of(job.row, "framework")) and year == 2017:
        library = BUNDLED_NCCL
    if spec_of(job.row, job.precision).kind != "gpu":
        library = "MPI"
    given = {
        "device": job.row.get("device"), "topology": job.row.get("interconnect"), "library": library,
        "nranks": job.devices, "nnodes": job.nodes, "notes": job.row.get("notes"),
    }  # fmt: skip
    return read({key: str(value or "") for key, value in given.items()})


def _wiring(job: Job, machine: Machine) -> NetworkRules:
    """Returns the rules of the row's network: a server of a framework and its workers are joined by none of the
    libraries.
    """
    library = "plain" if _by_server(job) else machine.library
    return NetworkRules(all_reduce="auto", routing="auto", library=library, version=machine.version or LATEST)


_networks: dict[tuple[object, ...], ClusterNetwork] = {}


def _plan_network(plan: Plan) -> ClusterNetwork:
    """Returns a network that serves all plans of one machine, whose collectives are then priced once."""
    cluster = plan.cluster
    nodes = tuple((node.seats, node.device.name, node.host_rates) for node in cluster.nodes)
    key = cluster.graph, nodes, cluster.staging, plan.wiring
    if key not in _networks:
        _networks[key] = cluster_network(plan)
    return _networks[key]


@cache
def _usual(method: str, nodes: int, workers: int, batch: int) -> Plan:
    """Returns a plan with so many workers, whose devices, network and model are replaced."""
    any_device = {"name": "any", "overhead": "0 s", "per_sample": "1 s"}
    document = {
        "name": "row",
        "cluster": {
            "nodes": [{"device": any_device, "count": nodes, "workers_per_node": workers}],
        },
        "workload": {"model": "lenet", "learning": "none", "batch_per_worker": batch},
        "algorithms": [method],
        "stop": {"updates": _steps(nodes * workers) + 1},
        "records": "summary",
    }  # fmt: skip
    (plan,) = load(document).plans()
    return plan


def scaled_images_per_s(job: Job, alone: Job) -> float:
    """Returns the images per second at N devices, from the measured step of one device."""
    return job.devices * job.batch / step_s(job, alone.step_s, measured=True)


def same_job(row: Row) -> tuple[str, ...]:
    """Returns the key by which a row is matched with that of one device."""
    columns = ("device", "model", "batch_per_device", "precision", "framework", "data", "source")
    return tuple(str(row.get(column) or "").strip().lower() for column in columns)
