"""What a run leaves behind. Read `trace` first, then `tables`, `summary`, `store`."""

from paceline.records.run import Run, RunsFailed

__all__ = ["Run", "RunsFailed"]
