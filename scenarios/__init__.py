"""The scenario: schema, loading with every mistake reported at once, and the scenario files themselves.

Read `quickstart.yaml` first, then `schema`, then `loading` and `plan`.
"""

from typing import TYPE_CHECKING

from paceline.algorithms.deferred import deferred

if TYPE_CHECKING:
    from paceline.scenarios.loading import json_schema, load
    from paceline.scenarios.plan import Plan
    from paceline.scenarios.problems import ScenarioError
    from paceline.scenarios.schema import Scenario
    from paceline.scenarios.text import SHIPPED
else:
    _HOMES = {
        "SHIPPED": "text",
        "Plan": "plan",
        "Scenario": "schema",
        "ScenarioError": "problems",
        "json_schema": "loading",
        "load": "loading",
    }
    __getattr__, __dir__ = deferred(__name__, _HOMES)

__all__ = ["SHIPPED", "Plan", "Scenario", "ScenarioError", "json_schema", "load"]
