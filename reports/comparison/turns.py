"""Calibration and measured runs in turn, for runs that are not paced, and the part of an error that is the machine's.

* The speed of a shared machine changes by tens of per cent within seconds. So a few rounds of probes come first, and
  another one before each run that would begin more than `FRESH_S` after the last round.
* Every run is predicted from the rounds before it, and the prediction is stored before the run begins.
* Rounds and runs that other programs or a hypervisor disturbed are repeated, at most `PROBES` times in all.
* The slowness of a prediction is that of the latest rounds and runs before it, of whose steps it uses nothing.
* After a run, its speed reference says how slow the machine was meanwhile. The same prediction at that slowness shows
  which part of the error is the machine's change, and which is that of the model. No prediction uses a time of the run.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

from paceline.records import Run, RunsFailed
from paceline.records.machine import BUSY, PROBES, OtherLoad, least_disturbed
from paceline.records.machine_speed import MachineSpeed
from paceline.reports.comparison.predict import WRONG_MODELS, Prediction, Stage, predict
from paceline.scenarios import Scenario, load
from paceline.scenarios.resolution.plan import Plan
from paceline.topologies.catalogue.machine_profile import MeasuredCosts

if TYPE_CHECKING:
    from paceline.backend.calibration.rounds import ProbeRounds

OPENING = 3
"""rounds before the first prediction: as many as `paceline calibrate` makes at least"""
FRESH_S = 30.0
"""age in seconds of the last round at which a run gets another one before it; provenance: ours. Stolen time came in
bursts of 2 to 10 s on the machines that were looked at"""
RECENT = 3
"""the latest rounds and runs whose mean slowness a prediction takes; provenance: ours, as many as the first one has"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineChange:
    """What the change of a machine's speed between calibration and run did to a prediction.

    Args:
        predicted: the slowness that the prediction assumed.
        measured: the slowness during the run.
        waiting: the largest share of its time for which a rank of the run was ready but had no core.
        run: the same prediction at the slowness of the run.
    """

    predicted: float
    measured: float
    waiting: float
    run: Run

    @property
    def relative(self) -> float:
        """By how much the machine was slower in the run than predicted, over the latter."""
        return self.measured / self.predicted - 1


@dataclass(kw_only=True)
class TurnResults:
    """The runs of a scenario, predicted and measured.

    Args:
        predicted: the predictions, one for each run.
        measured: the measured runs.
        changes: the changes of the machine's speed, by algorithm and seed, as far as they are known.
    """

    predicted: list[Prediction] = field(default_factory=list)
    measured: list[Run] = field(default_factory=list)
    changes: dict[tuple[str, int], MachineChange] = field(default_factory=dict)

    @property
    def other_load(self) -> float:
        """The share of all cores that other programs used, as a mean over the measured runs."""
        return fmean(run.machine["other_load"] for run in self.measured)

    @property
    def prediction(self) -> Prediction:
        """All predictions together."""
        each = self.predicted
        return Prediction(
            simulated=[run for prediction in each for run in prediction.simulated],
            wrong={model: [run for prediction in each for run in prediction.wrong[model]] for model in WRONG_MODELS},
            variation={name: waiting for prediction in each for name, waiting in prediction.variation.items()},
        )


def take_turns(
    scenario: Scenario,
    *,
    stage: Stage = lambda _: None,
    keep: Callable[[Run], Run] = lambda run: run,
    explain: bool = False,
) -> TurnResults:
    """Calibrates this machine and measures the runs of a scenario in turn.

    Args:
        scenario: the scenario, whose runs are not paced.
        stage: called with the name of each stage; returns the stage's progress callback.
        keep: called with each simulated run before its measurement, and with each measured run; returns the stored run.
        explain: whether to find out which part of the variation of steps makes workers wait.

    Raises:
        InputError: the network cannot be emulated here.
        RunsFailed: a measured run failed.
    """
    from paceline.backend.calibration.rounds import ProbeRounds
    from paceline.backend.emulation.emulated_network import refuse_emulation
    from paceline.backend.training import seed_by_seed
    from paceline.simulator.runs.consistency import consistent
    from paceline.simulator.runs.dry_run import dry_run

    plans = scenario.plans()
    for plan in plans if scenario.train.network == "emulated" else ():
        refuse_emulation(plan)
    rounds, loads, turns = ProbeRounds(scenario, dry_run(plans), consistent=consistent), list[float](), TurnResults()
    slowness = deque[float](maxlen=RECENT)
    ended_s = -math.inf

    def calibrate(fewest: int) -> None:
        """Performs rounds until there are so many undisturbed ones, or `PROBES` times as many."""
        nonlocal ended_s
        first = len(loads)
        while sum(load <= BUSY for load in loads[first:]) < fewest and len(loads) - first < PROBES * fewest:
            with OtherLoad() as other:
                rounds.perform(stage(f"calibrating, round {rounds.count + 1}") or (lambda _what, _share: None))
            loads.append(other.share)
            slowness.append(rounds.latest_slowness)
        ended_s = time.monotonic()

    calibrate(OPENING)
    for plan in seed_by_seed(plans):
        if time.monotonic() - ended_s > FRESH_S:
            calibrate(1)
        costs = rounds.costs().at(fmean(slowness)).judged(_verdict(rounds, loads))
        change = _turn(plan, costs, turns, stage, keep, explain=explain)
        if change is not None:
            slowness.append(change.measured)
    return turns


def _turn(
    plan: Plan,
    costs: MeasuredCosts,
    turns: TurnResults,
    stage: Stage,
    keep: Callable[[Run], Run],
    *,
    explain: bool,
) -> MachineChange | None:
    """Predicts one run, measures it, and adds both; returns what the machine's speed changed."""
    alone = load(plan.document)
    number = f"{plan.name}, seed {plan.seed}"
    told = stage(f"predicting {number}")
    predicted = renamed(predict(alone, costs, stage=lambda _: told, explain=explain), plan.name, keep)
    run = _undisturbed(alone, stage(f"measuring {number}"), plan.name, keep)
    turns.predicted.append(predicted)
    turns.measured.append(run)
    if (change := change_of(alone, costs, run, predicted.simulated)) is not None:
        turns.changes[plan.name, plan.seed] = change
    return change


def _undisturbed(alone: Scenario, progress: Any, name: str, keep: Callable[[Run], Run]) -> Run:
    """Measures a run, and again if it was disturbed; stores and returns the least disturbed one."""
    from paceline.backend.training import train

    def measure() -> Run:
        try:
            (run,) = train(alone, progress=progress)
        except RunsFailed as failure:
            raise RunsFailed(failure.message, [keep(replace(run, algorithm=name)) for run in failure.runs]) from failure
        return run

    run, _ = least_disturbed(measure)
    return keep(replace(run, algorithm=name))


def change_of(alone: Scenario, costs: MeasuredCosts, run: Run, predicted: Sequence[Run]) -> MachineChange | None:
    """Returns what the change of the machine's speed did to the prediction of a run; None if it is not known.

    Args:
        alone: the scenario of this run only.
        costs: the costs from which it was predicted.
        run: the measured run.
        predicted: its prediction, which has what is learned.
    """
    from paceline.simulator.runs.run import simulate

    speed = MachineSpeed.read(run.machine.get("speed"))
    if speed is None or costs.slowness is None or costs.paced:
        return None
    (plan,) = alone.plans()
    own = [each for each in predicted if (each.algorithm, each.seed) == (run.algorithm, run.seed)]
    learned = [replace(each, algorithm=plan.name) for each in own]  # alone, a method has no options in its name
    (simulated,) = simulate(alone, machine=costs.at(speed.slowness), learned=learned)
    return MachineChange(
        predicted=costs.slowness,
        measured=speed.slowness,
        waiting=max(speed.waiting.values()),
        run=replace(simulated, algorithm=run.algorithm),
    )


def renamed(predicted: Prediction, name: str, keep: Callable[[Run], Run]) -> Prediction:
    """Returns a prediction with the measured run's name of the algorithm, with the simulated runs stored.

    The name differs if the scenario had the method several times, such as ``agd delay=4``.
    """
    return Prediction(
        simulated=[keep(replace(run, algorithm=name)) for run in predicted.simulated],
        wrong={model: [replace(run, algorithm=name) for run in runs] for model, runs in predicted.wrong.items()},
        variation=dict.fromkeys([name], next(iter(predicted.variation.values()))) if predicted.variation else {},
    )


def _verdict(rounds: ProbeRounds, loads: Sequence[float]) -> str:
    """Returns the verdict on the rounds so far; those that were repeated do not count if there are enough others."""
    from paceline.backend.calibration.rounds import verdict

    kept = sorted(loads)[: max(OPENING, sum(load <= BUSY for load in loads))]
    return verdict(fmean(kept), rounds.count, rounds.width)
