"""Notes on where a run is outside the ranges that its device, network and learning models were fitted on.

* A range is stored with the values that were fitted on it (a device's batches, a link's messages, a profile's sizes),
  and nowhere else. There is no note if no range is known.
* A note has the place in the scenario, the value found, and the range with its source.
* The published throughput, on which devices are fitted, covers some chips, families of models, precisions and batches.
* The time of a gradient on a device of the catalogue has the interval of similar predictions.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import TypedDict

from paceline.algorithms.core.errors import InputError
from paceline.records.figures import significant
from paceline.records.targets import SMOOTHING
from paceline.scenarios.resolution.plan import Plan
from paceline.scenarios.sections.devices import of_catalogue
from paceline.scenarios.sections.workload import StandInData, Workload, usual_data
from paceline.topologies.catalogue import device_catalogue
from paceline.topologies.catalogue.device_catalogue import SPECS, THIS_MACHINE, Spec
from paceline.topologies.catalogue.device_names import named
from paceline.topologies.catalogue.machine_profile import CALIBRATED, caution
from paceline.topologies.compute.device_parameters import chip_key, precision_class
from paceline.workloads.datasets import DATA
from paceline.workloads.datasets.sentences import lowest_loss
from paceline.workloads.models.layer_tables import find_model
from paceline.workloads.models.zoo import ZOO


@dataclass(frozen=True, slots=True)
class Covered:
    """What a published row covers."""

    chip: str
    family: str
    precision: str
    batch: int


@cache
def covered() -> tuple[Covered, ...]:
    """Returns the rows of `throughput.csv`."""
    with (device_catalogue.DATA / "throughput.csv").open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    specs = {line["device"]: named(line["device"]) for line in lines}
    return tuple(
        Covered(
            chip_key(specs[line["device"]]),
            "transformer" if "@" in line["model"] else ZOO[line["model"]].family,
            precision_class(specs[line["device"]], line["precision"]),
            int(line["batch"]),
        )
        for line in lines
    )


def gaps(spec: Spec, model: str, family: str, precision: str, batch: int) -> Iterator[tuple[str, str]]:
    """Yields where a prediction lies outside the published throughput: the key of the scenario, and a sentence.

    Args:
        spec: the device.
        model: the model's name.
        family: of the model.
        precision: of the arithmetic.
        batch: samples of a gradient.

    >>> from paceline.topologies.catalogue.device_catalogue import SPECS
    >>> [key for key, _ in gaps(SPECS["p100-sxm2"], "resnet50", "resnet", "fp32", 64)]
    []
    >>> [key for key, _ in gaps(SPECS["l40s"], "lenet", "lenet", "amp", 64)]
    ['cluster', 'workload.model']
    """
    rows = covered()
    chip = [row for row in rows if row.chip == chip_key(spec)]
    alike = [row for row in rows if row.family == family]
    if not chip:
        yield (
            "cluster",
            f"found {spec.name}, of which the fit has no published throughput; its time follows from other chips",
        )
    if not alike:
        yield "workload.model", f"found {model}; the fit has no published throughput of its family, on any chip"
    group = precision_class(spec, precision)
    if chip and all(row.precision != group for row in chip):
        yield (
            "workload.compute_dtype",
            f"found {precision}; the fit has no published throughput of {spec.name} in such arithmetic",
        )
    own = [row.batch for row in alike if row in chip]
    same = own or [row.batch for row in alike]
    if same and not min(same) <= batch <= max(same):
        fitted = " to ".join(str(size) for size in sorted({min(same), max(same)}))
        if own:
            yield "workload.batch_per_worker", f"found {batch}; the time of {spec.name} was fitted at {fitted}"
        else:
            published = f"the fit has throughput of its family at {fitted}, on other chips than {spec.name}"
            yield "workload.batch_per_worker", f"found {batch}; {published}"


class PredictedTime(TypedDict):
    """The time of a gradient on a device of the catalogue, in seconds."""

    device: str
    samples: int
    gradient_s: float
    low_s: float
    high_s: float
    share: float
    """of similar predictions whose measurements lay between `low_s` and `high_s`"""
    similar: str
    """the predictions that count as similar"""


def predicted_times(plan: Plan) -> list[PredictedTime]:
    """Returns the time of a worker's gradient on each device of the catalogue; none for devices that were measured.

    >>> from paceline.scenarios import load
    >>> (one,) = predicted_times(load("dgx1-p100").plans()[0])
    >>> one["device"], one["samples"], one["low_s"] < one["gradient_s"] < one["high_s"]
    ('p100-sxm2', 128, True)
    """
    times = []
    for device, batch in plan.gradients:
        if (interval := device.interval) is None:
            continue
        seconds = device.compute_s(batch) * plan.time_dilation
        times.append(
            PredictedTime(
                device=device.name,
                samples=batch,
                gradient_s=seconds,
                low_s=interval.low * seconds,
                high_s=interval.high * seconds,
                share=interval.share,
                similar=interval.similar,
            )
        )
    return times


def describe_time(time: PredictedTime) -> str:
    """Describes a predicted time in a sentence.

    >>> describe_time(PredictedTime(device="p100", samples=64, gradient_s=0.045, low_s=0.034, high_s=0.061, share=0.8,
    ...                             similar=""))
    'p100: a gradient of 64 samples is predicted to take 45 ms (34 to 61 ms, 80 % of similar predictions)'
    """
    seconds, low, high = (significant(1e3 * time[key]) for key in ("gradient_s", "low_s", "high_s"))
    return (
        f"{time['device']}: a gradient of {time['samples']} samples is predicted to take {seconds} ms ({low} to {high} "
        f"ms, {100 * time['share']:.0f} % of similar predictions)"
    )


def outside(plan: Plan, *, timed: bool = True) -> list[str]:
    """Returns the notes on a plan, before it is run.

    Args:
        plan: the plan.
        timed: whether steps take the time of the modelled devices, which is false for a real run without pace.

    >>> from paceline.scenarios import load
    >>> outside(load("quickstart").plans()[0])
    []
    >>> outside(load("dgx1-p100", ["workload.batch_per_worker=16"]).plans()[0])  # doctest: +ELLIPSIS
    ['workload.batch_per_worker: found 16; the time of p100-sxm2 was fitted at 128 to 512 (device model of ...)']
    """
    sentences = (
        [*_devices(plan), *_tensor_cores(plan), *_cables(plan), *_files(plan), *_calibrations(plan)] if timed else []
    )
    return [*sentences, *_stand_ins(plan), *_targets(plan), *_below_entropy(plan), *_evaluations(plan)]


def _cables(plan: Plan) -> Iterator[str]:
    """Yields a note if nodes from files are taken to have a cable for each of their network cards."""
    several = sorted({count for count in plan.scenario.cluster.cards_of_files if count > 1})
    if several and len(plan.cluster.nodes) > 1:
        counts = " or ".join(map(str, several))
        yield f"cluster.network.cables: not given; nodes from files have {counts}, one for each of their network cards"


def _files(plan: Plan) -> Iterator[str]:
    """Yields a note for each graph of a file with what was assumed or approximated when it was read."""
    keys: dict[tuple[str, ...], str] = {}
    for key, graph in plan.scenario.cluster.graphs_of_files.items():
        if graph.assumed and keys.setdefault(graph.assumed, key) == key:
            yield f"{key}: {graph.name}: {'; '.join(graph.assumed)}"


def _calibrations(plan: Plan) -> Iterator[str]:
    """Yields notes on devices whose times are from the file of a poor calibration."""
    for device in plan.cluster.devices_of(plan.job.team[0].workers.ranks):
        if device.provenance.startswith(CALIBRATED) and (text := caution(device.provenance.removeprefix(CALIBRATED))):
            yield f"cluster.nodes.device.machine: the calibration {text}"


def _stand_ins(plan: Plan) -> Iterator[str]:
    """Yields a note if another problem than the scenario's data set is learned."""
    if note := plan.scenario.workload.stood_in_note:
        yield note


def _tensor_cores(plan: Plan) -> Iterator[str]:
    """Yields notes on devices whose tensor cores the workload does not use."""
    workload = plan.scenario.workload
    if workload.compute_dtype != "fp32":
        return
    for device, batch in plan.gradients:
        if device.name not in SPECS or precision_class(SPECS[device.name], "fp16") != "tensor":
            continue
        try:
            faster = of_catalogue(device.name, workload.model, "amp", batch)
            own = of_catalogue(device.name, workload.model, "fp32", batch)
            if replace(own, rates=device.rates) != device:
                continue  # a device that the scenario describes itself, under a name of the catalogue
        except InputError:
            continue
        now, then = (batch / spec.compute_s(batch) for spec in (device, faster))
        yield (
            f"workload.compute_dtype: found fp32 on {device.name}, which has tensor cores: {now:,.0f} samples/s each; "
            f"amp (mixed precision) would make it {then:,.0f}"
        )


def _devices(plan: Plan) -> Iterator[str]:
    """Yields notes on devices, models, precisions and batches outside the data that device times were fitted to."""
    workload = plan.scenario.workload
    for device, batch in plan.gradients:
        if device.times is not None and device.name != THIS_MACHINE:
            family = find_model(workload.model).family
            spec, dtype = named(device.name), workload.compute_dtype
            for key, words in gaps(spec, workload.model, family, dtype, batch):
                yield f"{key}: {words} ({device.provenance})"
        elif device.measured and not device.measured.batches[0] <= batch <= device.measured.batches[-1]:
            batches = device.measured.batches
            known = " to ".join(f"{size}" for size in sorted({batches[0], batches[-1]}))
            yield (
                f"workload.batch_per_worker: found {batch}; the time of {device.name} was measured at {known} "
                f"({device.provenance})"
            )


def _targets(plan: Plan) -> Iterator[str]:
    """Yields a note on a target accuracy if the problem has no accuracy: a quadratic without a link."""
    workload = plan.scenario.workload
    if workload.learning == "quadratic" and workload.options.get("link") is None and plan.target is not None:
        place = "stop" if plan.scenario.target.accuracy is None else "target"
        yield (
            f"{place}.accuracy: found {plan.target:g}; the noisy quadratic has a loss and no accuracy, so that this is "
            f"never reached ({place}.loss is)"
        )


def _below_entropy(plan: Plan) -> Iterator[str]:
    """Yields a note on a target loss that is below the entropy of a generated text."""
    workload = plan.scenario.workload
    learned: Workload | StandInData = workload.stood_in or workload
    name = usual_data(learned.model, learned.dataset)
    if workload.learning != "train" or name is None or name not in DATA or not DATA[name].tokens:
        return
    if plan.target_loss is not None and plan.target_loss < (lowest := lowest_loss()):
        place = "stop" if plan.scenario.target.loss is None else "target"
        yield (
            f"{place}.loss: found {plan.target_loss:g}; the best possible model has {lowest:.3f} nats per token on the "
            f"held-out part of {name}, so that this is hardly ever reached; expected more than {lowest:.3f}"
        )


def _evaluations(plan: Plan) -> Iterator[str]:
    """Yields a note if the run is too short for the smoothing of its targets."""
    workload, every = plan.scenario.workload, plan.scenario.evaluate.every
    if workload.learning == "none" or (plan.target is None and plan.target_loss is None):
        return
    samples, seconds = plan.job.budget.samples or math.inf, plan.job.budget.seconds or math.inf
    length = {
        "epochs": samples / plan.job.learner.num_samples,
        "samples": samples,
        "updates": samples / plan.job.samples_in(1),
        "seconds": seconds,
    }[every.unit]
    count = length / every.count
    if count < SMOOTHING:
        yield (
            f"evaluate.every: found {every.text}, so about {math.ceil(count)} after the start; targets are read from "
            f"the mean of {SMOOTHING}"
        )
