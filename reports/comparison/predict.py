"""Predicts the runs of a scenario from measured costs: by simulation, and by three simpler models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from paceline.records import Run
from paceline.reports.comparison.alpha_beta import Costs, alpha_beta_runs
from paceline.scenarios import Scenario

PARTIAL_MODELS = ("no_message_cost", "no_spread")
"""names of the simulations that leave a part out"""
WRONG_MODELS: tuple[str, ...] = (*PARTIAL_MODELS, "alpha_beta")
"""names of the simpler predictions"""

Report = Callable[[str, float], None]
"""called with the current task and the completed fraction, 0 … 1"""

Stage = Callable[[str], Report | None]
"""called with the name of each stage when it begins; returns the stage's progress callback"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The predicted runs of a scenario.

    Args:
        simulated: one run for each algorithm and seed.
        wrong: the runs of the simpler predictions, by the names of `WRONG_MODELS`.
    """

    simulated: list[Run]
    wrong: dict[str, list[Run]]


def predict(
    scenario: Scenario,
    costs: Costs,
    *,
    stage: Stage = lambda _: None,
    keep: Callable[[Run], Run] = lambda run: run,
) -> Prediction:
    """Predicts every algorithm and seed of a scenario.

    Args:
        scenario: the scenario.
        costs: the measured costs of the machine, and of the network that it emulates.
        stage: called with the name of each stage; returns the stage's progress callback.
        keep: called with each simulated run, to store it; returns the stored run.
    """
    from paceline.simulator.runs.run import simulate

    simulated = simulate(scenario, network=costs, progress=stage("predicting"), records="full", keep=keep)
    progress = stage("predicting without message cost")
    free = simulate(scenario, network=costs, message_cost=False, progress=progress)
    even = simulate(scenario, network=costs, jitter=False, progress=stage("predicting without spread"))
    lines = alpha_beta_runs(scenario, costs, simulated)
    return Prediction(simulated=simulated, wrong=dict(zip(WRONG_MODELS, (free, even, lines), strict=True)))
