"""The scenario: schema, loading with every mistake reported at once, and the scenario files themselves.

Read `quickstart.yaml` first, then `resolution.schema`, `resolution.load_scenario` and `resolution.plan`.
"""

from typing import TYPE_CHECKING

from paceline.algorithms.core.lazy_imports import deferred

if TYPE_CHECKING:
    from paceline.scenarios.resolution.load_scenario import json_schema, load
    from paceline.scenarios.resolution.plan import Plan
    from paceline.scenarios.resolution.schema import Scenario
    from paceline.scenarios.sections.extrapolate import Extrapolate, Relation, StandInWorkload
    from paceline.scenarios.values.mistakes import ScenarioError
    from paceline.scenarios.values.text import SHIPPED
else:
    __getattr__, __dir__ = deferred(
        __name__,
        {
            "Extrapolate": "sections.extrapolate",
            "Plan": "resolution.plan",
            "Relation": "sections.extrapolate",
            "SHIPPED": "values.text",
            "Scenario": "resolution.schema",
            "ScenarioError": "values.mistakes",
            "StandInWorkload": "sections.extrapolate",
            "json_schema": "resolution.load_scenario",
            "load": "resolution.load_scenario",
        },
    )

__all__ = [
    "SHIPPED",
    "Extrapolate",
    "Plan",
    "Relation",
    "Scenario",
    "ScenarioError",
    "StandInWorkload",
    "json_schema",
    "load",
]
