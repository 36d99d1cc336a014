"""What a run of a sweep costs, where the scenario says what its nodes cost.

Rules of this file: this is the only place where sweeps ask for prices. A scenario without prices has no costs, and its
sweeps have no columns and figures of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paceline.scenarios import Scenario


def hourly_price(scenario: Scenario) -> float | None:
    """Returns the price of a scenario's cluster in USD per hour; None, since scenarios have no prices yet."""
    del scenario
    return None


def cost_of(scenario: Scenario, summary: Mapping[str, Any]) -> dict[str, float] | None:
    """Returns the cost of a run: the price of all nodes per hour times the simulated hours.

    Args:
        scenario: the scenario of the run.
        summary: its summary.

    Returns:
        ``cost_usd`` of the whole run, and ``cost_to_accuracy_usd`` if it has reached its target; None without prices.
    """
    usd_per_hour = hourly_price(scenario)
    if usd_per_hour is None:
        return None
    times = {"cost_usd": summary.get("wall_s"), "cost_to_accuracy_usd": summary.get("time_to_accuracy_s")}
    return {name: usd_per_hour * seconds / 3600 for name, seconds in times.items() if seconds is not None}
