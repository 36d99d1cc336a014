"""The records of a run: trace, tables, summary, and their storage on disk.

Read `trace` first, then `tables`, `summary` and `store`.
"""

from typing import TYPE_CHECKING

from paceline.algorithms.core.lazy_imports import deferred

if TYPE_CHECKING:
    from paceline.records.run import Run, RunsFailed
else:
    __getattr__, __dir__ = deferred(
        __name__,
        {
            "Run": "run",
            "RunsFailed": "run",
        },
    )

__all__ = ["Run", "RunsFailed"]
