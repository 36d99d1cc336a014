"""Training on several devices: what the exchange of gradients and the slowest device add to the step of one.

Rules of this file:

* A step is a gradient on every device, of which the slowest counts, and the part of the exchange that the backward pass
  does not hide.
* Scaling starts from the measured rate of one device and predicts the cost of the exchange and the jitter at N devices.
"""

from __future__ import annotations

import re

from scipy import stats

from paceline.workloads.models.layer_tables import ModelInfo
from published_timings.clusters import cheapest_s, costs
from published_timings.machines import read
from published_timings.parsing import Row, Unread, text_of, whole
from published_timings.training import Job, spec_of

ITEM = 4
"""bytes of a gradient's element: frameworks exchange float32, also in mixed precision: INFERENCE"""
BUCKET_BYTES = 25e6
"""gradients are exchanged in buckets of this size: MEMORY certain for PyTorch's DDP, INFERENCE for others"""
TENSORFLOW_1 = r"^(?!.*horovod).*\b(tf|tensorflow) ?1\b"
"""the framework's own exchange, not Horovod's, which waits for an event of each tensor"""
BUNDLED_NCCL = "NCCL 1.3"
"""of TensorFlow 1 in 2017: FOUND (its workspace.bzl names NVIDIA/nccl @03d85697 of August 2017, after v1.3.4)"""
SPREAD = 0.01
"""standard deviation of step times between devices, relative to the mean, normal: INFERENCE"""
DECODED_PER_CORE_S = 200.0
"""pictures that a core decodes and crops per second: MEMORY medium; ignored for nodes where GPUs do it"""
CORES = ((2020, 128), (2017, 48), (0, 40))
"""cores of a node with GPUs since that year: MEMORY high for DGX-1 (40) and DGX A100 (128), 2 x 24 MEMORY medium"""
PARAMETERS = {
    "inception4": 42.68e6, "mobilenet": 4.23e6, "squeezenet": 1.25e6, "densenet121": 7.98e6, "overfeat": 145.9e6,
    "resnext50": 25.03e6, "bertbase": 110e6, "bertlarge": 336e6, "resnet18": 11.69e6, "resnet34": 21.80e6,
}  # fmt: skip
"""of models without a layer table; MEMORY certain, of BERT MEMORY high"""


def exchange_s(job: Job, gradient_s: float) -> float:
    """Returns the seconds of a gradient exchange that are not hidden behind a backward pass of this length.

    The gradients of the layers are ready one after the other, the last layer's first; buckets are sent one after the
    other.
    """
    if job.devices == 1:
        return 0.0
    nbytes = ITEM * (job.model.parameters if job.scale == 1 else PARAMETERS.get(job.model.name, 0))
    if not nbytes:
        raise Unread(f"model: the parameters of {job.model.name!r} are not known")
    whole_s = _whole_exchange_s(job, nbytes)
    if _waits_for_queue(job):
        return whole_s
    return _behind(job.model, ITEM * job.model.parameters, gradient_s, whole_s)


def _behind(model: ModelInfo, nbytes: float, gradient_s: float, whole_s: float) -> float:
    flops = sum(work.forward.flops + work.backward.flops for work in model.works)
    ready_s = gradient_s * sum(work.forward.flops for work in model.works) / flops
    done_s, waiting = 0.0, 0.0
    for work in reversed(model.works):
        ready_s += gradient_s * work.backward.flops / flops
        waiting += ITEM * work.parameters
        if waiting >= BUCKET_BYTES:
            done_s, waiting = max(done_s, ready_s) + whole_s * waiting / nbytes, 0.0
    done_s = max(done_s, ready_s) + whole_s * waiting / nbytes
    return max(0.0, done_s - gradient_s)


def _waits_for_queue(job: Job) -> bool:
    """Whether the exchange waits for all kernels that the host has queued, so that nothing is hidden.

    TensorFlow 1 starts an all-reduce when the last GPU has handed in its tensor; the communication stream then waits
    for whatever is queued in the compute streams: FOUND (tensorflow/contrib/nccl/kernels/nccl_manager.cc,
    `ThenWaitFor(p->tensor_stream)`). Hosts queue a step faster than GPUs compute it: INFERENCE.
    """
    return bool(re.search(TENSORFLOW_1, text_of(job.row, "framework"))) and not _by_server(job)


def _whole_exchange_s(job: Job, nbytes: float) -> float:
    """Returns the seconds of the exchange of all gradients with nothing else running."""
    if _by_server(job):
        return (
            2 * nbytes / 12e9 * min(2, job.devices)
        )  # two GPUs share a PCIe switch, so each one's upload is the other's download
    year = whole(job.row, "year") or 2020
    known = {2016: "NCCL 1.2", 2017: "NCCL 2.0", 2018: "NCCL 2.3"}
    if re.search(TENSORFLOW_1, text_of(job.row, "framework")):
        known[2017] = BUNDLED_NCCL
    cpu = spec_of(job.row, job.precision).kind != "gpu"
    library = "MPI" if cpu else known.get(max(year, 2016), "NCCL")
    interconnect = str(job.row.get("interconnect") or "")
    asked = {
        "device": job.row.get("device"), "topology": interconnect, "library": library, "nranks": job.devices,
        "nnodes": job.nodes, "notes": job.row.get("notes"),
    }  # fmt: skip
    machine = read({key: str(value or "") for key, value in asked.items()})
    buckets = max(1.0, nbytes / BUCKET_BYTES)
    return buckets * cheapest_s(costs(machine, "allreduce", nbytes / buckets))


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


def slowest(devices: int) -> float:
    """Returns the time of the slowest of several devices, relative to the mean.

    >>> slowest(1), round(slowest(8), 4)
    (1.0, 1.0143)
    """
    return 1.0 + (SPREAD * float(stats.norm.ppf((devices - 0.375) / (devices + 0.25))) if devices > 1 else 0.0)


def scaled_images_per_s(job: Job, alone: Job) -> float:
    """Returns the images per second at N devices, from the measured step of one device."""
    gradient_s = alone.step_s * slowest(job.devices)
    rate = job.devices * job.batch / (gradient_s + exchange_s(job, gradient_s))
    words = text_of(job.row, "data", "framework")
    if re.search(r"real|imagenet", words) and "dali" not in words and "synthetic" not in words:
        year = spec_of(job.row, job.precision).year
        cores = next(cores for since, cores in CORES if year >= since)
        return min(rate, DECODED_PER_CORE_S * cores * job.nodes)
    return rate


def same_job(row: Row) -> tuple[str, ...]:
    """Returns the key by which a row is matched with that of one device."""
    columns = ("device", "model", "batch_per_device", "precision", "framework", "data", "source")
    return tuple(str(row.get(column) or "").strip().lower() for column in columns)
