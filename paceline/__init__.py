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
    from paceline.backend.training.run import train
    from paceline.records import Run
    from paceline.reports.comparison.compare import Comparison, compare
    from paceline.reports.sweeps.sweep import Sweep, sweep
    from paceline.scenarios import Scenario, load
    from paceline.simulator.runs.run import simulate

# Where each name lives; imported at its first use, so that `import paceline` brings neither torch nor matplotlib.
_HOMES = {
    "Comparison": "paceline.reports.comparison.compare",
    "Run": "paceline.records",
    "Scenario": "paceline.scenarios",
    "Sweep": "paceline.reports.sweeps.sweep",
    "compare": "paceline.reports.comparison.compare",
    "load": "paceline.scenarios",
    "simulate": "paceline.simulator.runs.run",
    "sweep": "paceline.reports.sweeps.sweep",
    "train": "paceline.backend.training.run",
}

# Refused here for a method of the user's own that a checkpoint would break; `compare` and `sweep` do so themselves.
_CHECKED = {"simulate", "train"}

__all__ = ["Comparison", "Run", "Scenario", "Sweep", "compare", "load", "simulate", "sweep", "train"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'paceline' has no attribute {name!r}")
    found = getattr(import_module(_HOMES[name]), name)
    if name in _CHECKED:
        from paceline.checking.own_methods import checks_own_methods

        found = globals()[name] = checks_own_methods(found, __name__)
    return found


def __dir__() -> list[str]:
    return __all__
