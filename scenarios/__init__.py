"""The scenario: schema, loading with every mistake reported at once, and the scenario files themselves.

Read `quickstart.yaml` first, then `schema`, then `load` and `plan`.
"""

from paceline.scenarios.load import load, schema
from paceline.scenarios.plan import Plan
from paceline.scenarios.problems import ScenarioError
from paceline.scenarios.schema import Scenario
from paceline.scenarios.text import SHIPPED

__all__ = ["SHIPPED", "Plan", "Scenario", "ScenarioError", "load", "schema"]
