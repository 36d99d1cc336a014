"""Users' reports and README tables: the same job on few devices, and on more or by another method.

Rules of this file:

* A report is a source, a model and a machine. Its smallest row is given. Words of the columns decide what a row is, by
  the same rules for every report.
* A time to a number of epochs, or for a known number of steps, is the time of a step.
* A batch that is not stated is that of the program with its default options, or else an assumption.
* Frameworks whose workers exchange with parameter servers (TensorFlow's distributed mode, MXNet's kvstore) have one
  process a node, which adds up the gradients of its devices first, and as many servers as nodes. FOUND for TensorFlow
  (tensorflow/benchmarks @16f0098: VariableMgrDistributedFetchFromPS fetches each variable once a process and averages
  the gradients of its devices; variables are on the server with the fewest bytes). For MXNet MEMORY high
  (tools/launch.py starts as many servers as workers; kvstore_dist.h reduces over the devices before it pushes).
* TensorFlow of 2017 sends by gRPC, at `GRPC_BYTES_PER_S` at most, whatever the network is.
* All-reduces of Horovod "on CPU" are MPI's, with data that is copied to the host. On GPUs until 2017, it is Open MPI
  2.1: FOUND for Horovod (.travis.yml @d54e3a88).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paceline.validation.machines import Unread, chip_of, number, read, text_of, whole
from paceline.validation.sets import Line, of_steps
from paceline.validation.sets.throughput import plain, precision_of
from paceline.validation.steps import Row
from paceline.workloads.models.layer_tables import MODELS, find_model

GRPC_BYTES_PER_S = 0.196e9
"""of a process of TensorFlow in 2017, in each direction: FOUND (tensorflow/tensorflow pull request 11261: 196 MB/s of
the master of July 2017, before 1.3; issue 4498: 1.3 Gbit/s of a server's 40 Gbit/s; issue 6116: 100 to 200 MB/s before
August 2017, 290 to 800 MB/s after it)"""
SERVERS = r"parameter[ _-]?server|\bps\b|distributed (tf|tensorflow)|variables on|kvstore|\bdist_a?sync|\bmxnet dist"
"""words of methods with parameter servers"""


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a report of a model does not say.

    Args:
        words: Of the model.
        model: The model.
        batch: Samples of a device; 0: must be stated.
        together: Samples of all devices together; 0: each device has `batch`.
        steps: Steps of a run whose time was published; 0: unknown.
        assumed: The assumption.
    """

    words: str
    model: str
    batch: int = 0
    together: int = 0
    steps: int = 0
    assumed: str = ""


BERT_BASE = (
    "bert(hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072, "
    "vocab_size=30522, max_position_embeddings=512, type_vocab_size=2)"
)
JOBS = (
    Job(words=r"\bbert\b", model=BERT_BASE, batch=32, assumed="BERT-base, batch 32"),
    Job(words=r"nano ?gpt|gpt-?2", model="gpt2-small", together=512, steps=5500,
        assumed="512 samples a step, 5,500 steps: 10.54 minutes and the author's 115 ms a step on 16 GPUs"),
    Job(words=r"mnist", model="lenet", batch=64, steps=938,
        assumed="batch 64 and one epoch of 938 steps in every worker, as PyTorch's example by default"),
    Job(words=r"^resnet$", model="resnet50", assumed="ResNet with 50 layers, the default of MXNet's example"),
)  # fmt: skip
"""FOUND: modal-labs/multinode-training-guide, pull request 27. MEMORY high: the examples of PyTorch and MXNet; 512
sequences of 1,024 tokens. INFERENCE: BERT-base and its batch"""
BATCHES = ((r"horovod.*torch|torch.*horovod", 32, "batch 32, the default of Horovod's synthetic benchmark"),)
"""of a device where none is stated, by words of the method: FOUND, examples/pytorch/pytorch_synthetic_benchmark.py"""
TIMES = {"ms": 1e-3, "s": 1.0, "seconds": 1.0, "min": 60.0, "minutes": 60.0, "h": 3600.0, "hours": 3600.0}


def row_of(line: Line) -> Row:
    """Returns the row of a line. Raises `Unread`."""
    words = text_of(line, "what", "method", "model")
    if re.search(r"all-?reduce \d|forward only", words):
        raise Unread(f"what: found {line['what']} of {line['model']}, expected a training")
    job = _job(line)
    devices, nodes = whole(line, "n_gpus") or 1, whole(line, "n_nodes") or 1
    batch, assumed = whole(line, "batch_per_gpu") or job.batch or round(job.together / devices), job.assumed
    if not batch:
        batch, assumed = next((row[1:] for row in BATCHES if re.search(row[0], words)), (0, ""))
    if not batch:
        raise Unread("batch_per_gpu: not stated, and no default of a program is known")
    by_server = bool(re.search(SERVERS, words))
    on_hosts = bool(re.search(r"all-?reduce on cpu", words))
    library = _mpi(line) if on_hosts else "gloo" if "gloo" in words else "nccl"
    keys: Mapping[str, Any] = {"cluster": {"staging": {"gpudirect": "off"}}} if on_hosts else {}
    method = ""
    if by_server and devices > 1:
        keys, method = _method(line, nodes)
    rate = line["unit"] not in TIMES
    return Row(
        group=" ".join((line["source"], line["model"], line["hardware"], "" if rate else line["what"])).strip(),
        name=f"{line['source']} {line['what']} {line['model']} {line['method']} {devices} on {nodes}",
        family="parameter server" if by_server else "all-reduce",
        words={
            "device": line["hardware"], "interconnect": _network(line, by_server), "library": library,
            "framework": line["method"], "method": method, "data": line["note"] if "synthetic" in line["note"] else "",
        },
        devices=devices,
        nodes=nodes,
        gang=max(1, devices // nodes) if by_server and nodes > 1 else 1,
        model=job.model,
        batch=batch,
        precision={"fp16": "amp"}.get(precision_of(words), precision_of(words)),
        step_s=_step_s(line, job, devices, batch),
        rate=rate,
        source=line["source"],
        keys=keys,
        assumed=tuple(filter(None, (assumed,))),
    )  # fmt: skip


def _job(line: Line) -> Job:
    text = line["model"].strip().lower()
    known = next((job for job in JOBS if re.search(job.words, text)), None)
    if known:
        stated = whole(line, "batch_per_gpu") is not None and not known.steps
        return Job(words=known.words, model=known.model) if stated and known.batch else known
    model = next((name for name in MODELS if plain(name) == plain(text)), None)
    if model is None:
        raise Unread(f"model: found {line['model']!r}, expected one of paceline list models")
    return Job(words=text, model=model)


def _step_s(line: Line, job: Job, devices: int, batch: int) -> float:
    """Returns the seconds of a step."""
    value, unit = number(line, "value"), line["unit"]
    if unit not in TIMES:
        return (1 if "per gpu" in text_of(line, "what", "unit") else devices) * batch / value
    if re.search(r"\b(step|iteration|batch)\b", line["what"]):
        return value * TIMES[unit]
    epochs = re.search(r"(?:(\d+) )?epochs?\b", line["what"])
    samples = find_model(job.model).num_samples * int(epochs[1] or 1) if epochs else 0
    steps = samples / (devices * batch) or job.steps
    if not steps:
        raise Unread(f"what: found {line['what']}, and the number of steps is not known")
    return value * TIMES[unit] / steps


def _network(line: Line, by_server: bool) -> str:
    """Returns the words on the network, of which the method may use another protocol.

    What was seen of a network counts, not its nominal rate.
    """
    text, method = line["network"], line["method"].lower()
    if "seen" in text and (seen := re.search(r"[\d.]+ *Gbit/s(?= seen)", text)):
        text = seen[0]
    if by_server or re.search(r"\btcp\b", method):
        text = re.sub(r"(?i)\b(roce|rdma)[\w-]*", "", text) + " TCP"
    return text


def _method(line: Line, nodes: int) -> tuple[dict[str, Any], str]:
    """Returns the keys of a parameter server and its method."""
    words = text_of(line, "method")
    method = "async-sgd" if re.search(r"async", words) else "sync-sgd-ps"
    if nodes == 1:
        return {}, method
    keys: dict[str, Any] = {"algorithms": [{"name": method, "servers": nodes}]} if method == "async-sgd" else {}
    if re.search(r"\btf\b|tensorflow", words):
        keys["cluster"] = {"network": {"link": _at_most_grpc(line)}}
    return keys, method


def _mpi(line: Line) -> str:
    chip = chip_of(text_of(line, "hardware"))
    return "open mpi 2.1" if chip and chip.year <= 2017 else "open mpi"


def _at_most_grpc(line: Line) -> Mapping[str, Any]:
    words = {"device": line["hardware"], "interconnect": _network(line, by_server=True), "nranks": "2", "nnodes": "2"}
    link = read(words).link
    bytes_per_s = min(link.bytes_per_s, GRPC_BYTES_PER_S)
    return {"like": link.name, "latency": f"{link.latency_s!r} s", "bandwidth": f"{bytes_per_s!r} B/s"}


SET = of_steps(
    name="reports",
    title="Users' reports: few devices to more, all-reduces and parameter servers",
    file="scaling_reports.csv",
    columns=frozenset({"what", "hardware", "network", "model", "method", "n_gpus", "n_nodes", "value", "unit"}),
    row=row_of,
    in_sight=True,
)
