"""Scenarios and requests for tests of ``paceline plan``: a noisy quadratic that reaches its target in a few steps."""

from __future__ import annotations

from typing import Any

from paceline.reports.comparison.ranking import Aim
from paceline.reports.planning.request import Limits, PlanRequest
from paceline.scenarios import Scenario, load

QUADRATIC: dict[str, Any] = {
    "name": "small",
    "algorithms": ["sync-sgd", "async-sgd"],
    "workload": {
        "model": "quadratic",
        "batch_per_worker": 8,
        "learning": "quadratic",
        "options": {"dimensions": 8, "spectrum": 0.0, "noise": 0.1},
    },
    "cluster": {
        "nodes": [
            {"device": {"name": "fast", "overhead": "4 ms", "per_sample": "0.5 ms"}, "price_per_hour": "4 USD/h"},
            {"device": {"name": "slow", "overhead": "8 ms", "per_sample": "1 ms"}, "price_per_hour": "1 USD/h"},
        ]
    },
    "evaluate": {"every": "16 samples"},
    "stop": {"samples": 4000},
    "seed": 3,
}


def small(**plan: Any) -> Scenario:
    """Returns the scenario with a section `plan`."""
    return load({**QUADRATIC, "plan": plan})


def request_for(scenario: Scenario, *, trials: int = 10, batch: int = 4, **limits: float) -> PlanRequest:
    """Returns a request for the scenario."""
    return PlanRequest(
        scenario=scenario.dump(),
        part=scenario.plan.model_dump(mode="json"),
        target=Aim("loss", 0.05),
        objectives=("time", "cost"),
        limits=Limits(**limits),
        trials=trials,
        tuning_seeds=2,
        reported_seeds=3,
        batch=batch,
    )
