"""Predicts the runs of a scenario before they are watched, with costs that need no measurement at that moment.

* With a calibrated machine, its costs are used. In paced runs the device times of the scenario replace its gradients.
* Without one, the scenario's devices and links are used, as by `paceline simulate`. Nothing is probed, because a probe
  takes half a minute to several minutes.
* In joined processes the links of the scenario connect hosts like the calibrated one.
* Progress is counted in gradients of all workers. Every method computes them, and both simulated and real runs count
  them in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.algorithms.core.job import Reason
from paceline.records import Run
from paceline.reports.comparison.ranking import Aim, aim_of
from paceline.scenarios import Scenario
from paceline.scenarios.machine_file import load_machine
from paceline.scenarios.resolution.machine_costs import check
from paceline.simulator.kernel.garbage_collection import collected_seldom
from paceline.simulator.runs.run import perform
from paceline.topologies.catalogue.machine_profile import JoinedHosts, MeasuredCosts
from paceline.workloads.models.threads import torch_threads

Seconds = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedProgress:
    """The predicted progress of one run.

    Args:
        ends_s: when each gradient of any worker ends, ascending.
        gradient_s: the durations of each worker's gradients, in their order, by rank.
        wall_s: when the run ends.
        stop_reason: why it ends.
        aim: its target, if it has one.
        aim_s: when it reaches the target; None if it does not.

    >>> run = PredictedProgress(ends_s=np.array([1.0, 2.0, 3.0, 4.0]), gradient_s={}, wall_s=4.5)
    >>> run.time_of(2), run.time_of(2.5), run.time_of(6), run.gradients_by(2.2)
    (2.0, 2.5, 6.0, 2)
    """

    ends_s: Seconds
    gradient_s: Mapping[int, Seconds]
    wall_s: float
    stop_reason: Reason | None = None
    aim: Aim | None = None
    aim_s: float | None = None

    @staticmethod
    def of(run: Run, workers: int) -> PredictedProgress:
        """Returns the progress of a simulated run.

        Args:
            run: the run.
            workers: number of workers, ranks 0 … workers − 1.
        """
        spans, summary = run.tables.spans, run.summary
        gradients = spans[(spans["activity"] == "compute") & (spans["rank"] < workers)]
        each = gradients.groupby(["rank", "step"]).agg({"start_s": "min", "end_s": "max"}).reset_index()
        each = each.sort_values("start_s", kind="stable")
        each["lasted_s"] = each["end_s"] - each["start_s"]
        figures: Mapping[str, Any] = summary
        aim = aim_of(summary)
        return PredictedProgress(
            ends_s=np.sort(each["end_s"].to_numpy()),
            gradient_s={int(str(rank)): rows["lasted_s"].to_numpy() for rank, rows in each.groupby("rank")},
            wall_s=summary["wall_s"],
            stop_reason=summary["stop_reason"],
            aim=aim,
            aim_s=None if aim is None else figures[aim.path],
        )

    @property
    def gradients(self) -> int:
        """The number of gradients of the whole run."""
        return len(self.ends_s)

    def gradients_by(self, time_s: float) -> int:
        """Returns how many gradients have ended by this time."""
        return int(np.searchsorted(self.ends_s, time_s, side="right"))

    def time_of(self, gradients: float) -> float:
        """Returns when so many gradients have ended: interpolated, and beyond the run at its mean rate."""
        total = self.gradients
        if gradients <= 0 or not total:
            return 0.0
        if gradients > total:
            return float(self.ends_s[-1] * gradients / total)
        before = int(gradients)
        start_s = float(self.ends_s[before - 1]) if before else 0.0
        if before == gradients:
            return start_s
        return start_s + (gradients - before) * (float(self.ends_s[before]) - start_s)


Key = tuple[str, int]
"""the algorithm's name in the scenario, and the seed"""
Report = Callable[[str, float], None]
"""called with the algorithm, and the completed fraction of all predictions, 0 … 1"""


@dataclass(frozen=True, slots=True)
class PredictionCosts:
    """The costs that predictions use.

    Args:
        machine: the calibrated machine; None: the devices and links of the scenario.
        words: a description.
    """

    machine: MeasuredCosts | None
    words: str


def costs_of(scenario: Scenario, machine: Path | None, *, joined: bool) -> PredictionCosts:
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
        return PredictionCosts(None, f"the scenario's devices and links; nothing was measured here; {hint}")
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
    return PredictionCosts(MeasuredCosts(profile, joined=JoinedHosts() if joined else None), words)


def predict_runs(
    scenario: Scenario, costs: PredictionCosts, report: Report | None = None
) -> dict[Key, PredictedProgress]:
    """Predicts every algorithm and seed of a scenario.

    Args:
        scenario: the scenario.
        costs: the costs.
        report: called with the progress.

    Returns:
        The predicted progress of each run.
    """
    plans = scenario.plans(paced=True)  # no effect on runs that are not paced
    predictions = {}
    for number, plan in enumerate(plans):
        job = plan.measured_job

        def progress(samples: int, now_s: float, number: int = number, name: str = plan.name) -> None:
            if report is not None:
                spent = plans[number].job.budget.spent(samples=samples, seconds=now_s)
                report(name, (number + spent) / len(plans))

        with collected_seldom(), torch_threads(scenario.train.torch_threads):  # the same number gives the same bits
            trace = perform(replace(plan, job=job), plan.schedule(), progress, machine=costs.machine)
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
        predictions[plan.name, plan.seed] = PredictedProgress.of(run, job.workers)
    return predictions
