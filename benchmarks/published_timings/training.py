"""Training throughput: turns a row of a table into a job, and its gradient on one device into seconds.

Rules of this file:

* One device is predicted by the device model. If it was fitted to figures of the same table, it is fitted again without
  any row of that chip, so the prediction uses rows of other chips only. What several devices add is in `scaling.py`.
* A model without a layer table takes the time of its nearest relative with one, scaled by the operations that the row
  states.
"""

from __future__ import annotations

import csv
import dataclasses
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from paceline.algorithms.core.errors import InputError, PacelineError
from paceline.scenarios.sections.fitted_devices import published_model, without
from paceline.topologies.catalogue.device import Interval
from paceline.topologies.catalogue.device_catalogue import DATA, SPECS, Spec
from paceline.topologies.catalogue.device_names import find, named
from paceline.topologies.compute.device_parameters import Parameters, chip_key, read_software
from paceline.topologies.compute.layer_times import gradient_s
from paceline.topologies.compute.prediction_errors import interval_of
from paceline.workloads.models.layer_tables import MODELS, ModelInfo
from published_timings.parsing import Row, Unread, number, text_of, whole

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
    found = dataclasses.replace(like, name=plain or "unnamed")
    return found, flops / like.training_flops


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
        like, name="unknown", peaks={one: scale * rate for one, rate in like.peaks.items()},
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
