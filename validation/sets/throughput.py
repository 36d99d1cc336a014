"""Published images per second of one device and of several, in one node or in more.

The same job on one device is given. The year of a row says which NCCL its framework came with.
"""

from __future__ import annotations

import re

from paceline.validation.machines import Unread, number, spec_named, text_of, whole
from paceline.validation.sets import Line, of_steps
from paceline.validation.steps import TENSORFLOW_1, Row
from paceline.workloads.models.layer_tables import MODELS

COLUMNS = frozenset(
    {"device", "n_devices", "n_nodes", "model", "batch_per_device", "precision", "framework", "images_per_s"}
)
SAME_JOB = ("device", "model", "batch_per_device", "precision", "framework", "data", "source")
"""the columns in which a row equals that of one device"""
BUNDLED_NCCL = "NCCL 1.3"
"""of TensorFlow 1 in 2017: FOUND (its workspace.bzl names NVIDIA/nccl @03d85697 of August 2017, after v1.3.4)"""
NCCL_OF = {2016: "NCCL 1.2", 2017: "NCCL 2.0", 2018: "NCCL 2.3"}
"""the library's version by the year of a row; later ones the latest: INFERENCE"""
SHORT = {"rn": "resnet", "incv": "inception", "inc": "inception"}


def plain(name: str) -> str:
    """Returns the name of a model in the letters by which tables agree.

    >>> plain("Inception-v3"), plain("resnet50_v1.5"), plain("ResNet50 v1")
    ('inception3', 'resnet50v15', 'resnet50')
    """
    letters = re.sub(r"[^a-z0-9]", "", name.lower()).replace("inceptionv", "inception")
    return {"googlenetv1": "googlenet", "inception1": "googlenet"}.get(
        letters, re.sub(r"^(resnet\d+)v1$", r"\1", letters)
    )


def precision_of(text: str) -> str:
    """Returns the precision that a word means; fp32 for one that the table's author guessed."""
    words = {"amp": "amp|mixed", "bf16": "bf16|bfloat", "fp16": "fp16|half", "tf32": "tf32", "fp64": "64"}
    return next((name for name, word in words.items() if "?" not in text and re.search(word, text)), "fp32")


def row_of(line: Line) -> Row | None:
    """Returns the row of a line; None for a job whose images per second are not on several devices or one."""
    model = next((name for name in MODELS if plain(name) == plain(line["model"])), None)
    if model is None or not line["batch_per_device"]:
        return None  # the set `devices` predicts it on one device
    devices, batch, samples_per_s = (
        whole(line, "n_devices") or 1,
        round(number(line, "batch_per_device")),
        number(line, "images_per_s"),
    )
    by_server = _by_server(line, model)
    return Row(
        group=" ".join(line.get(column, "").strip().lower() for column in SAME_JOB),
        name=f"line {line['line']}",
        family="parameter server" if by_server else "all-reduce",
        words={
            "device": line["device"], "topology": line["interconnect"], "library": _library(line),
            "notes": line["notes"], "framework": line["framework"], "data": line["data"],
            "method": "sync-sgd-ps" if by_server else "",
        },
        devices=devices,
        nodes=min(devices, whole(line, "n_nodes") or 1),
        model=model,
        batch=batch,
        precision=precision_of(text_of(line, "precision")),
        step_s=devices * batch / samples_per_s,
        source=line["source"],
    )  # fmt: skip


def _library(line: Line) -> str:
    spec = spec_named(line["device"])
    if spec is None:
        raise Unread(f"device: {line['device']!r} is not in the catalogue")
    if spec.kind != "gpu":
        return "MPI"
    year = whole(line, "year") or 2020
    if re.search(TENSORFLOW_1, text_of(line, "framework")) and year == 2017:
        return BUNDLED_NCCL
    return NCCL_OF.get(max(year, min(NCCL_OF)), "NCCL")


def _by_server(line: Line, model: str) -> bool:
    """Whether a clause of the notes that is about this model, or about all, names a parameter server."""
    for clause in text_of(line, "notes", "framework").split(";"):
        models, colon, words = clause.rpartition(":")
        names = [name.strip() for name in models.split("/")] if colon else [""]
        full = [re.sub(r"^(rn|incv|inc)(?=\d)", lambda match: SHORT[match[1]], name) for name in names]
        if re.search(r"parameter[ _-]?server", words) and any(plain(model).startswith(name) for name in full):
            return True
    return False


SET = of_steps(
    name="throughput",
    title="Published images per second: one device to several",
    file="published_throughput.csv",
    columns=COLUMNS,
    aim=(0.06, None),
    row=row_of,
    in_sight=True,
)
