"""Gavel (OSDI 2020): steps per second of training jobs on one GPU and on several, in one server or in several.

A job with its GPU is a group: one GPU is given with all batches, and more GPUs are predicted. FOUND in Gavel's
repository (stanford-futuredata/gavel):

* Steps per second are the sum over the processes of a job (scheduler/scripts/profiling/measure_throughput.py).
* Jobs are PyTorch programs in single precision with DistributedDataParallel and NCCL (workloads/pytorch).

The servers are not described. They are taken to be machines of a cloud with TCP between them: INFERENCE from Gavel's
prices of cloud providers and its machine image for AWS. Clouds had V100s with NVLink, K80s and P100s on PCIe: MEMORY
high. Workers on different servers have a server each: INFERENCE.
"""

from __future__ import annotations

from paceline.validation.machines import Unread, number, whole
from paceline.validation.sets import Line, of_steps
from paceline.validation.steps import Row

OWN = "paceline.validation.models:"
MODELS = {
    "resnet-18": f"{OWN}cifar_resnet18",
    "resnet-50": "resnet50-v1.5",
    "transformer": f"{OWN}translation_transformer",
    "lm": f"{OWN}lstm_lm",
}
"""the jobs that Gavel runs on several GPUs: FOUND, MULTI_GPU_JOB_TYPES of measure_throughput.py"""
INSIDE = {"v100": "nvlink"}
"""words on the node, by GPU"""
SPREADS = {"transformer": 0.12}
"""standard deviation of a gradient relative to its mean: sentences of a batch are padded to the longest (FOUND,
translation/dataset.py), whose length varies so much for 256 lognormal ones with mean 13.1 and standard deviation 4.1
words: DERIVED; these lengths of Multi30k MEMORY medium"""
FRAMEWORK = "PyTorch 1.4"
"""INFERENCE: the newest of early 2020, when the rows were measured; 1.7 came after they were published"""
VIRTUAL = "pcie of a virtual machine"


def row_of(line: Line) -> Row:
    """Returns the row of a line. Raises `Unread`."""
    job, gpu = line["model"].strip(), line["gpu"].strip().lower()
    model = MODELS.get(job.lower())
    if model is None:
        raise Unread(f"model: found {job}, of which no job with several GPUs is described")
    batch, devices = whole(line, "batch_size_per_gpu"), whole(line, "n_gpus")
    if batch is None or devices is None:
        raise Unread("batch_size_per_gpu, n_gpus: found nothing, expected counts")
    apart = line["workers_on_different_servers"].strip().lower() == "true"
    nodes = devices if apart else 1
    return Row(
        group=f"{gpu} {job}",
        name=f"{gpu} {job} {batch} x {devices}{' in as many servers' if nodes > 1 else ''}",
        family=job,
        words={
            "device": gpu, "topology": INSIDE.get(gpu, VIRTUAL), "interconnect": "tcp",
            "library": "nccl", "framework": FRAMEWORK,
        },
        devices=devices,
        nodes=nodes,
        model=model,
        batch=batch,
        step_s=devices / number(line, "steps_per_s"),
        source=line["source"],
        spread=SPREADS.get(job.lower(), 0.0),
    )  # fmt: skip


SET = of_steps(
    name="gavel",
    title="Gavel: steps per second of training jobs from one GPU to several, in one server or in several",
    file="gavel_throughputs.csv",
    columns=frozenset({"gpu", "workers_on_different_servers", "model", "batch_size_per_gpu", "n_gpus", "steps_per_s"}),
    row=row_of,
    in_sight=True,
)
