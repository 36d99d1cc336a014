"""Notes on where a run is outside the ranges that its device, network and learning models were fitted on.

Rules of this file:

* A range is stored with the values that were fitted on it (a device's batches, a link's messages, a profile's sizes),
  and nowhere else. There is no note if no range is known.
* A note has the place in the scenario, the value found, and the range with its source.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from paceline.algorithms.core.errors import InputError
from paceline.records.targets import SMOOTHING
from paceline.scenarios.resolution.plan import Plan
from paceline.scenarios.sections.devices import of_catalogue
from paceline.scenarios.sections.published_rows import gaps
from paceline.scenarios.sections.stand_in_data import StandInData
from paceline.scenarios.sections.workload import Workload
from paceline.topologies.catalogue.device_catalogue import SPECS, THIS_MACHINE
from paceline.topologies.catalogue.device_names import named
from paceline.topologies.catalogue.machine_profile import CALIBRATED, caution
from paceline.topologies.compute.device_parameters import precision_class
from paceline.workloads.datasets import DATA
from paceline.workloads.datasets.sentences import lowest_loss
from paceline.workloads.models.layer_tables import find_model
from paceline.workloads.models.zoo import known_model


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
    found = (
        [*_devices(plan), *_tensor_cores(plan), *_cables(plan), *_files(plan), *_calibrations(plan)] if timed else []
    )
    return [*found, *_stand_ins(plan), *_targets(plan), *_below_entropy(plan), *_evaluations(plan)]


def _cables(plan: Plan) -> Iterator[str]:
    """Yields a note if nodes from files are taken to have a cable for each of their network cards."""
    several = sorted({count for count in plan.scenario.cluster.cards_of_files if count > 1})
    if several and len(plan.cluster.nodes) > 1:
        found = " or ".join(map(str, several))
        yield f"cluster.network.cables: not given; nodes from files have {found}, one for each of their network cards"


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
    workload = plan.scenario.workload
    if (stand_in := workload.stood_in) is not None:
        yield (
            f"workload.stand_in: {stand_in.words} stands in for {workload.model}, because its data set was not found; "
            "losses and accuracies are the stand-in's. Give workload.data_dir to train the model itself."
        )


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
        now, then = (batch / one.compute_s(batch) for one in (device, faster))
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
    known = known_model(learned.model)
    name = learned.dataset or (known and known.data)
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
