"""The scenario: schema, loading with every mistake reported at once, and the scenario files themselves.

Read `quickstart.yaml` first, then `resolution.schema`, `resolution.load_scenario` and `resolution.plan`.
"""

from typing import TYPE_CHECKING

from paceline.algorithms.core.lazy_imports import deferred

if TYPE_CHECKING:
    from paceline.scenarios.resolution.load_scenario import json_schema, load
    from paceline.scenarios.resolution.plan import Plan
    from paceline.scenarios.resolution.schema import Scenario
    from paceline.scenarios.sections.extrapolate import ExtrapolatePart, RelationPart, StandInPart
    from paceline.scenarios.values.mistakes import ScenarioError
    from paceline.scenarios.values.text import SHIPPED
else:
    __getattr__, __dir__ = deferred(
        __name__,
        {
            "ExtrapolatePart": "sections.extrapolate",
            "Plan": "resolution.plan",
            "RelationPart": "sections.extrapolate",
            "SHIPPED": "values.text",
            "Scenario": "resolution.schema",
            "ScenarioError": "values.mistakes",
            "StandInPart": "sections.extrapolate",
            "json_schema": "resolution.load_scenario",
            "load": "resolution.load_scenario",
        },
    )

__all__ = [
    "SHIPPED",
    "ExtrapolatePart",
    "Plan",
    "RelationPart",
    "Scenario",
    "ScenarioError",
    "StandInPart",
    "json_schema",
    "load",
]
