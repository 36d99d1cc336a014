"""Predicts the runs of a scenario before they are watched, with costs that need no measurement at that moment.

Rules of this file:

* With a calibrated machine, its costs are used. In paced runs the device times of the scenario replace its gradients.
* Without one, the scenario's devices and links are used, as by `paceline simulate`. Nothing is probed, because a probe
  takes half a minute to several minutes.
* In joined processes the links of the scenario connect hosts like the calibrated one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from paceline.records import Run
from paceline.reports.watching.predicted_progress import PredictedProgress
from paceline.scenarios import Scenario
from paceline.scenarios.sections.machine_store import load_machine
from paceline.simulator.kernel.garbage_collection import collected_seldom
from paceline.simulator.runs.machines import check
from paceline.simulator.runs.run import Measured, perform
from paceline.topologies.catalogue.machine_profile import LinkedProfile
from paceline.workloads.models.threads import torch_threads

Key = tuple[str, int]
"""the algorithm's name in the scenario, and the seed"""
Report = Callable[[str, float], None]
"""called with the algorithm, and the completed fraction of all predictions, 0 … 1"""


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs that predictions use.

    Args:
        machine: the calibrated machine; None: the devices and links of the scenario.
        words: a description.
    """

    machine: Measured | None
    words: str


def costs_of(scenario: Scenario, machine: Path | None, *, joined: bool) -> Costs:
    """Returns the costs for the predictions of a scenario's real runs.

    Args:
        scenario: the scenario.
        machine: the file of the calibrated machine; None: `cluster.machine` of the scenario, if it has one.
        joined: whether a launcher has started the ranks, perhaps on several hosts.

    Raises:
        InputError: the machine file is missing or wrong, or does not fit the scenario.
    """
    paced, path = scenario.train.pace == "device", machine or scenario.cluster.machine
    if path is None:
        hint = "--machine with a file of `paceline calibrate` adds the costs of this machine"
        return Costs(None, f"the scenario's devices and links; nothing was measured here; {hint}")
    calibrated = load_machine(path)
    mistakes = []
    if scenario.train.network != "local":
        mistakes.append(
            f"train.network: found {scenario.train.network!r} with --machine, expected local; without --machine, the "
            "scenario's links are used"
        )
    profile = check(calibrated, scenario, mistakes).profile()
    profile = replace(profile, gradients=()) if paced else profile
    words = f"the calibrated machine {path}"
    if paced:
        words = f"the scenario's devices, and messages and updates of {words}"
    return Costs(LinkedProfile(profile) if joined else profile, words)


def predict_runs(scenario: Scenario, costs: Costs, report: Report | None = None) -> dict[Key, PredictedProgress]:
    """Predicts every algorithm and seed of a scenario.

    Args:
        scenario: the scenario.
        costs: the costs.
        report: called with the progress.

    Returns:
        The predicted progress of each run.
    """
    plans = scenario.plans(paced=True)  # no effect on runs that are not paced
    found = {}
    for number, plan in enumerate(plans):
        job = plan.measured_job

        def progress(samples: int, now_s: float, number: int = number, name: str = plan.name) -> None:
            if report is not None:
                spent = plans[number].job.budget.spent(samples=samples, seconds=now_s)
                report(name, (number + spent) / len(plans))

        with collected_seldom(), torch_threads(scenario.train.torch_threads):  # the same number gives the same bits
            trace = perform(replace(plan, job=job), plan.schedule(), progress, network=costs.machine)
            run = Run.of(
                trace,
                job=job,
                kind="simulated",
                scenario={},
                name=scenario.name,
                algorithm=plan.name,
                target=plan.target,
                target_loss=plan.target_loss,
            )
        found[plan.name, plan.seed] = PredictedProgress.of(run, job.workers)
    return found
