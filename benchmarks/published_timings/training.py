"""Training throughput: turns a row of a table into seconds of a step, on one device and on several.

Rules of this file:

* A step is a gradient on every device, of which the slowest counts, and the part of the exchange that the backward pass
  does not hide. One device is predicted by the device model. If it was fitted to figures of the same table, it is
  fitted again without any row of that chip, so the prediction uses rows of other chips only.
* A model without a layer table takes the time of its nearest relative with one, scaled by the operations that the row
  states.
* Scaling starts from the measured rate of one device and predicts the cost of the exchange and the jitter at N devices.
"""

from __future__ import annotations

import csv
import dataclasses
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from scipy import stats

from paceline.algorithms.core.errors import InputError, PacelineError
from paceline.scenarios.sections.fitted_devices import without
from paceline.topologies.catalogue.device import Interval
from paceline.topologies.catalogue.device_catalogue import DATA, SPECS, Spec
from paceline.topologies.catalogue.device_names import find, named
from paceline.topologies.compute.device_parameters import Parameters, chip_key
from paceline.topologies.compute.layer_times import gradient_s
from paceline.topologies.compute.prediction_errors import interval_of
from paceline.topologies.compute.software import read_software
from paceline.workloads.models.layer_tables import MODELS, ModelInfo
from published_timings.cost_model import cheapest_s, costs
from published_timings.machines import read
from published_timings.parsing import Row, Unread, number, text_of, whole

LeftOut = Literal["chip", "model", "family"]
FREE: dict[str, Any] = {"bytes_per_s": math.inf, "launch_s": 0.0}
"""memory and kernel launches that cost nothing"""
ITEM = 4
"""bytes of a gradient's element: frameworks exchange float32, also in mixed precision: INFERENCE"""
BUCKET_BYTES = 25e6
"""gradients are exchanged in buckets of this size: MEMORY certain for PyTorch's DDP, INFERENCE for others"""
BATCH = 32.0
"""of a device where none is given: INFERENCE"""
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
    plain = _plain(str(row.get("model") or ""))
    table = next((name for name in MODELS if _plain(name) == plain), None)
    if table and MODELS[table].works:
        return MODELS[table], 1.0
    flops = number(row, "train_gflop_per_image") * 1e9
    like = MODELS[next((name for words, name in RELATIVES if words in plain), "resnet50")]
    found = dataclasses.replace(like, name=plain or "unnamed")
    return found, flops / like.training_flops


def spec_of(row: Row, precision: str) -> Spec:
    """Returns the device of a row from the catalogue, or one like the nearest, with the peak that the row states."""
    text = str(row.get("device") or "")
    try:
        return find(text)
    except InputError:
        try:
            peak = number(row, "peak_tflops") * 1e12
        except Unread:
            raise Unread(f"device: {text!r} is not in the catalogue, and no peak_tflops is given") from None
    like = min(SPECS.values(), key=lambda spec: abs(spec.peak(precision) - peak))
    scale = peak / like.peak(precision)
    return dataclasses.replace(
        like, name="unknown", peaks={one: scale * rate for one, rate in like.peaks.items()},
        bytes_per_s=scale * like.bytes_per_s, sustained_bytes_per_s=scale * like.sustained_bytes_per_s,
    )  # fmt: skip


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
