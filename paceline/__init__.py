"""Paceline predicts how distributed SGD methods behave on a cluster, runs them for real, and compares the two.

Read `algorithms` first (what a method is made of), then `simulator`, `backend` and `reports`.

>>> import paceline
>>> scenario = paceline.load("quickstart", ["stop.epochs=1"], algorithms=["sync-sgd"])
>>> (run,) = paceline.simulate(scenario)
>>> run.summary["updates"], int(run.tables.updates["staleness"].max())
(12, 0)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paceline.records import Run
    from paceline.reports.check_result import CheckResult, check
    from paceline.reports.comparison.compare import compare
    from paceline.reports.comparison.comparison import ComparisonResult
    from paceline.reports.planning.plan_answer import PlanResult
    from paceline.reports.planning.planner import plan
    from paceline.reports.run_results import MeasuredRuns, SimulatedRuns, simulate, train
    from paceline.reports.sweeps.sweep import SweepResult, sweep
    from paceline.scenarios import Scenario, ScenarioError, load
    from paceline.scenarios.sections.clusters import Cluster, Nodes, Server
    from paceline.scenarios.sections.devices import Device
    from paceline.scenarios.sections.fault_sections import Crash, Crashes, Death, Slowdown, Straggler
    from paceline.scenarios.sections.networks import Link, Network
    from paceline.scenarios.sections.reading import Reading, Storage
    from paceline.scenarios.sections.runs import Evaluate, Record, Stop, Target, Train
    from paceline.scenarios.sections.workload import Workload

    __version__: str

# Where each name lives; imported at its first use, so that `import paceline` brings neither torch nor matplotlib.
_MODULES = {
    "paceline.records": ("Run",),
    "paceline.reports.comparison.compare": ("compare",),
    "paceline.reports.check_result": ("CheckResult", "check"),
    "paceline.reports.comparison.comparison": ("ComparisonResult",),
    "paceline.reports.planning.plan_answer": ("PlanResult",),
    "paceline.reports.planning.planner": ("plan",),
    "paceline.reports.run_results": ("MeasuredRuns", "SimulatedRuns", "simulate", "train"),
    "paceline.reports.sweeps.sweep": ("SweepResult", "sweep"),
    "paceline.scenarios": ("Scenario", "ScenarioError", "load"),
    "paceline.scenarios.sections.clusters": ("Cluster", "Nodes", "Server"),
    "paceline.scenarios.sections.devices": ("Device",),
    "paceline.scenarios.sections.fault_sections": ("Crash", "Crashes", "Death", "Slowdown", "Straggler"),
    "paceline.scenarios.sections.networks": ("Link", "Network"),
    "paceline.scenarios.sections.reading": ("Reading", "Storage"),
    "paceline.scenarios.sections.runs": ("Evaluate", "Record", "Stop", "Target", "Train"),
    "paceline.scenarios.sections.workload": ("Workload",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "CheckResult",
    "Cluster",
    "ComparisonResult",
    "Crash",
    "Crashes",
    "Death",
    "Device",
    "Evaluate",
    "Link",
    "MeasuredRuns",
    "Network",
    "Nodes",
    "PlanResult",
    "Reading",
    "Record",
    "Run",
    "Scenario",
    "ScenarioError",
    "Server",
    "SimulatedRuns",
    "Slowdown",
    "Stop",
    "Storage",
    "Straggler",
    "SweepResult",
    "Target",
    "Train",
    "Workload",
    "check",
    "compare",
    "load",
    "plan",
    "simulate",
    "sweep",
    "train",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("paceline")
    if name not in _HOMES:
        raise AttributeError(f"module 'paceline' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
