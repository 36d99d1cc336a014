"""Calibrates this machine for a scenario: gradients, messages and collectives, in rounds that take turns.

Rules of this file:

* A round launches every probe once, so that a disturbance of some seconds falls on all of them and not on one.
* Rounds end when the intervals of all gradient times are narrow, or when the time is over. At least `FEWEST_ROUNDS` are
  made, because launches differ in how the processes are placed on cores.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

import numpy as np

from paceline.backend.calibration.emulation_costs import NetworkCosts, asked_inside, emulation_task, without_overlap
from paceline.backend.calibration.gradient_costs import (
    FEWEST,
    Gradients,
    GradientTask,
    available_cores,
    gradient_tasks,
    means_s,
)
from paceline.backend.calibration.gradient_costs import pooled as pooled_gradients
from paceline.backend.calibration.message_costs import Costs, message_tasks, pooled
from paceline.records.machine import OtherLoad, machine_facts, package_versions
from paceline.scenarios.resolution.emulated_machine import emulated_part
from paceline.scenarios.resolution.schema import Scenario
from paceline.scenarios.sections.machine_file import (
    BusyPart,
    GradientPart,
    MachinePart,
    MadePart,
    costs_of,
    own_of,
)
from paceline.topologies.catalogue.machine_profile import Asked

Progress = Callable[[str, float], None]
FEWEST_ROUNDS = 3
SECONDS = 180.0
"""after which no further round begins"""
NARROW = 0.03
"""half the width of an interval over its median, from which on more rounds are not needed"""
QUIET, BUSY = 0.05, 0.2
"""shares of other programs in the processor time up to which the figures are good, and from which they are poor"""


def calibrate(
    scenario: Scenario,
    asked: Sequence[Asked],
    *,
    batches: Sequence[int] = (),
    seconds: float = SECONDS,
    progress: Progress | None = None,
) -> MachinePart:
    """Measures this machine for the runs of a scenario.

    Args:
        scenario: the scenario with its model, ranks and threads.
        asked: the collectives of its runs.
        batches: batch sizes at which gradients are measured; by default a quarter of the scenario's, its own, and four
            times as many.
        seconds: the time after which no further round begins.
        progress: called with what is being measured and the completed share, 0 … 1.

    Returns:
        The machine as a section, which can be written to a file.

    Raises:
        InputError: the scenario has an emulated network, which is not possible here.
    """
    begun_s, report = time.monotonic(), progress or (lambda _name, _share: None)
    gradients = gradient_tasks(scenario, batches or usual_batches(scenario.workload.batch_per_worker))
    network = emulation_task(scenario) if scenario.train.network == "emulated" else None
    messages = message_tasks(scenario, asked if network is None else asked_inside(scenario, asked))
    steps = {task: task.steps(task.measure(FEWEST)) for task in gradients}
    launches: dict[GradientTask, list[Gradients]] = {task: [] for task in gradients}
    costs, between, rounds = list[Costs](), list[NetworkCosts](), 0
    with OtherLoad() as other:
        while rounds < FEWEST_ROUNDS or (widest(launches) > NARROW and time.monotonic() - begun_s < seconds):
            rounds += 1
            done = min(0.99, (time.monotonic() - begun_s) / seconds)
            for task in gradients:
                report(f"round {rounds}: {task.name}", done)
                launches[task].append(task.measure(steps[task]))
            for probe in messages:
                report(f"round {rounds}: {probe.name}", done)
                costs.append(probe.measure(rounds))
            if network is not None:
                report(f"round {rounds}: {network.name}", done)
                between.append(network.measure(rounds))
    profile = pooled(costs)
    return MachinePart.model_construct(
        format=1,
        made=_made(time.monotonic() - begun_s, other.share, rounds, widest(launches)),
        model=str(scenario.workload.model),
        ranks=gradients[0].plan.job.workers,
        cores=available_cores(),
        torch_threads=scenario.train.torch_threads,
        own=own_of(profile),
        gradients=tuple(_gradient_part(task, found) for task, found in launches.items()),
        costs=costs_of(profile),
        emulated=None if network is None else emulated_part(network.plan, network.profile(profile, between)),
    )


def usual_batches(batch: int) -> tuple[int, ...]:
    """Returns the batch sizes at which gradients are measured.

    >>> usual_batches(64), usual_batches(2)
    ((16, 64, 256), (1, 2, 8))
    """
    return tuple(sorted({max(1, batch // 4), batch, 4 * batch}))


def widest(launches: Mapping[GradientTask, Sequence[Gradients]]) -> float:
    """Returns the largest relative half-width of the intervals of mean gradient times.

    The interval is the median of the launches ± 1.25 standard errors, the standard error of a median.

    Args:
        launches: the times of each launch.
    """
    widths = [0.0]
    for found in launches.values():
        for count in found[0].by_busy if found else ():
            means = means_s(found, count)
            spread = float(np.std(means, ddof=1)) if len(means) > 1 else float("inf")
            widths.append(1.25 * spread / np.sqrt(len(means)) / float(np.median(means)))
    return max(widths)


def _gradient_part(task: GradientTask, found: Sequence[Gradients]) -> GradientPart:
    times = pooled_gradients(task.batch, found)
    if task.scenario.train.network == "emulated":
        times = without_overlap(times)
    busy = []
    for count, mean_s in times.busy:
        means = means_s(found, count)
        busy.append(BusyPart.model_construct(ranks=count, mean=mean_s, low=min(means), high=max(means)))
    return GradientPart.model_construct(
        batch=task.batch,
        busy=tuple(busy),
        factors=times.factors,
        layered=times.layered,
        beside=times.beside,
        overlap=times.overlap,
        forward=times.forward,
        backward=times.backward,
    )


def _made(seconds: float, load: float, rounds: int, width: float) -> MadePart:
    versions = package_versions()
    return MadePart.model_construct(
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        processor=str(machine_facts()["processor"]),
        versions={name: versions[name] for name in ("paceline", "torch", "python") if name in versions},
        seconds=seconds,
        other_load=load,
        verdict=verdict(load, rounds, width),
    )


def verdict(load: float, rounds: int, width: float) -> str:
    """Returns a sentence on the quality of a calibration.

    Args:
        load: the share of the cores that other programs used, 0 to 1.
        rounds: the rounds that were made.
        width: the largest relative half-width of the intervals of gradient times.

    >>> verdict(0.01, 4, 0.02)
    'good: other programs used 1 % of the cores, and gradient times are within ±2 % in 4 rounds'
    """
    quality = "good" if load <= QUIET and width <= NARROW else "poor" if load > BUSY or width > 4 * NARROW else "fair"
    return (
        f"{quality}: other programs used {100 * load:.0f} % of the cores, and gradient times are within "
        f"±{100 * width:.0f} % in {rounds} rounds"
    )
