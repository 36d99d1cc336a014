"""Published samples per second of one device, predicted by the device model without the rows of its chip.

If the device model was fitted to figures of the same table, it is fitted again without any row of the chip, so that the
prediction uses other chips only; two further families leave out the row's model, and its family of models. A model
without a layer table takes the time of its nearest relative with one, scaled by the operations that the row states.
"""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Iterable, Sequence
from typing import Literal

from paceline.algorithms.core.errors import PacelineError
from paceline.scenarios.sections.fitted_devices import published_model, without
from paceline.topologies.catalogue.device_catalogue import DATA, SPECS, Spec
from paceline.topologies.catalogue.device_names import named
from paceline.topologies.compute.device_parameters import Parameters, chip_key, read_software
from paceline.topologies.compute.layer_times import gradient_s
from paceline.topologies.compute.prediction_errors import interval_of
from paceline.validation.machines import Unread, number, spec_named, text_of, whole
from paceline.validation.outcome import LeftOut, Outcome
from paceline.validation.sets import Line, MeasurementSet
from paceline.validation.sets.throughput import COLUMNS, plain, precision_of
from paceline.workloads.models.layer_tables import MODELS, ModelInfo

LeftOutOfFit = Literal["chip", "model", "family"]
BATCH = 32
"""of a device where none is given: INFERENCE"""
RELATIVES = (
    ("inception", "inception3"), ("vgg", "vgg16"), ("alexnet", "alexnet-owt"), ("overfeat", "alexnet-owt"),
    ("squeezenet", "googlenet"), ("bert", "transformer"), ("transformer", "transformer"),
)  # fmt: skip
"""words in a model's name and a model with a layer table that is built alike: INFERENCE; ResNet-50 for all others"""
KIND = {"chip": "chip left out", "model": "model left out", "family": "family of models left out"}


def model_of(line: Line) -> tuple[ModelInfo, float]:
    """Returns the model of a row, or its nearest relative with a layer table, and its operations relative to these."""
    given = line.get("model", "")
    if "@" in given:
        return published_model(given), 1.0
    letters = plain(given)
    table = next((name for name in MODELS if plain(name) == letters), None)
    if table and MODELS[table].works:
        return MODELS[table], 1.0
    flops = number(line, "train_gflop_per_image") * 1e9
    like = MODELS[next((name for words, name in RELATIVES if words in letters), "resnet50")]
    return dataclasses.replace(like, name=letters or "unnamed"), flops / like.training_flops


def spec_of(line: Line, precision: str) -> Spec:
    """Returns the device of a row from the catalogue, or one like the nearest, with the peak that the row states."""
    text = line.get("device", "")
    if (spec := spec_named(text)) is not None:
        return spec
    try:
        peak = number(line, "peak_tflops") * 1e12
    except Unread:
        raise Unread(f"device: {text!r} is not in the catalogue, and no peak_tflops is given") from None
    like = min(SPECS.values(), key=lambda spec: abs(spec.peak(precision) - peak))
    scale = peak / like.peak(precision)
    return dataclasses.replace(
        like, name="unknown", peaks={kind: scale * rate for kind, rate in like.peaks.items()},
        bytes_per_s=scale * like.bytes_per_s, sustained_bytes_per_s=scale * like.sustained_bytes_per_s,
    )  # fmt: skip


def chips_of(lines: Iterable[Line]) -> frozenset[str]:
    """Returns the keys of the chips with figures of this table among the rows that the device model is fitted to."""
    figures = set()
    for line in lines:
        try:
            figures.add((chip_key(spec_of(line, "fp32")), number(line, "images_per_s")))
        except PacelineError:
            continue  # it is not predicted either
    with (DATA / "throughput.csv").open(newline="", encoding="utf-8") as file:
        known = {(chip_key(named(line["device"])), float(line["samples_per_s"])) for line in csv.DictReader(file)}
    return frozenset(chip for chip, rate in known & figures)


def groups_of(lines: Sequence[Line]) -> tuple[list[list[tuple[Line, bool]]], list[LeftOut]]:
    """Returns the rows of one device by chip, each with whether its chip can be left out of the fit."""
    chips = chips_of(lines)
    groups: dict[str, list[tuple[Line, bool]]] = {}
    left_out = []
    for line in lines:
        try:
            if (whole(line, "n_devices") or 1) == 1:
                chip = chip_key(spec_of(line, precision_of(text_of(line, "precision"))))
                groups.setdefault(chip, []).append((line, chip in chips))
        except PacelineError as error:
            left_out.append(LeftOut("devices", f"line {line['line']}", str(error)))
    return list(groups.values()), left_out


def outcomes(rows: Sequence[tuple[Line, bool]]) -> list[Outcome | LeftOut]:
    """Predicts the rows of a chip, with the chip, the model and the family of models left out of the fit."""
    results: list[Outcome | LeftOut] = []
    kinds: tuple[LeftOutOfFit, ...] = ("chip", "model", "family")
    for line, fitted in rows:
        for kind in kinds:
            try:
                results.append(_outcome(line, kind, fitted=fitted))
            except PacelineError as error:
                results.append(LeftOut("devices", f"line {line['line']}", str(error)))
    return results


def _outcome(line: Line, kind: LeftOutOfFit, *, fitted: bool) -> Outcome:
    precision = precision_of(text_of(line, "precision"))
    spec, (model, scale) = spec_of(line, precision), model_of(line)
    batch = number(line, "batch_per_device") if line.get("batch_per_device", "").strip() else BATCH
    software = read_software(text_of(line, "framework", "device"), spec.kind, whole(line, "year"))
    parameters = _parameters(kind, spec, model, fitted=fitted)
    seconds = scale * gradient_s(model.works, parameters.rates(spec, precision, software), batch)
    interval = interval_of(spec, precision, known=_parameters("chip", spec, model, fitted=fitted).knows(spec))
    rate = batch / seconds
    framework = line.get("framework", "").strip() or "no framework named"
    return Outcome(
        set="devices",
        name=f"line {line['line']}, {KIND[kind]}",
        system=f"{line.get('device', '').strip()} / {framework}",
        family=KIND[kind],
        unit="samples/s",
        measured=number(line, "images_per_s"),
        predicted=rate,
        interval=(rate / interval.high, rate / interval.low) if kind == "chip" else None,
        assumed=tuple(filter(None, ["" if scale == 1 else f"as {scale:.3g} of the operations of a relative"])),
        source=line.get("source", ""),
        chip=spec.name,
    )


def _parameters(kind: LeftOutOfFit, spec: Spec, model: ModelInfo, *, fitted: bool) -> Parameters:
    if kind == "model":
        return without(model=model.name)
    if kind == "family":
        return without(family=model.family)
    return without(chip=chip_key(spec)) if fitted else without()


SET = MeasurementSet(
    name="devices",
    title="Published samples per second of one device, without its chip, its model or its family of models",
    file="published_throughput.csv",
    in_sight=True,
    columns=COLUMNS,
    groups=groups_of,
    predict=outcomes,
    quick=lambda groups: groups[:3],
)
