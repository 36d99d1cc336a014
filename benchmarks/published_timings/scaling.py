"""Training on several devices: a row becomes a plan of the product, and its step is the one that `simulate` gives.

Rules of this file:

* It prices nothing. Words decide the product's method, library, network and storage: a framework whose exchange hides
  behind the backward pass is `layerwise-sgd`, one that hides nothing is `sync-sgd`, a parameter server `sync-sgd-ps`.
* The gradient of a device is given. It is the device model's, and updates then take what they take on the device; or
  the measured step of one device, which contains its updates.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import cache
from itertools import accumulate, pairwise

from paceline.algorithms.core import job as jobs
from paceline.algorithms.core.buckets import buckets
from paceline.algorithms.core.method import Method
from paceline.algorithms.core.values import Layer, Layout
from paceline.algorithms.methods.layerwise import Layerwise
from paceline.records.trace import Schedule
from paceline.scenarios import load
from paceline.scenarios.resolution.plan import NetworkRules, Plan
from paceline.simulator.network.network import ClusterNetwork
from paceline.simulator.runs.cost_model import cluster_network
from paceline.simulator.runs.run import perform
from paceline.topologies import Jitter, StorageModel
from paceline.topologies.catalogue.charge_rates import ChargeRates, device_rates
from paceline.topologies.catalogue.device import DeviceModel
from paceline.topologies.catalogue.host_memory import StagingModel
from paceline.topologies.catalogue.libraries import LATEST
from paceline.topologies.compute.device_model import shares_of_given_time
from paceline.workloads.learners.timing_only import TimingOnly
from paceline.workloads.reading import ReadingSettings
from published_timings.machines import Machine, read
from published_timings.parsing import Row, Unread, text_of, whole
from published_timings.training import Job, spec_of

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
        full = [re.sub(r"^(rn|incv|inc)(?=\d)", lambda found: SHORT[found[1]], name) for name in names]
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
    trace = perform(plan, Schedule(every=math.inf), network=_network(plan))
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
        step_time=Jitter.of("norm", loc=1.0, scale=SPREAD) if job.devices > 1 else cluster.step_time,
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
    cuts = [0, *accumulate(len(one.layers) for one in joined)]
    layers = tuple(Layer(one.name, one.part.start, one.part.stop) for one in joined)
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
    return Layout(tuple(Layer(one.name, round(scale * one.start), round(scale * one.stop)) for one in layout.layers))


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


def _network(plan: Plan) -> ClusterNetwork:
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
