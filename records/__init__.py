"""What a run leaves behind. Read `trace` first, then `tables`, `summary`, `store`."""

from typing import TYPE_CHECKING

from paceline.algorithms.deferred import deferred

if TYPE_CHECKING:
    from paceline.records.run import Run, RunsFailed
else:
    __getattr__, __dir__ = deferred(__name__, {"Run": "run", "RunsFailed": "run"})

__all__ = ["Run", "RunsFailed"]
