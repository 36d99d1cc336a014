"""The predicted progress of one run: when its gradients end, and how long those of each rank take.

Progress is counted in gradients of all workers. Every method computes them, and both simulated and real runs count them
in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.algorithms.core.job import Reason
from paceline.records import Run
from paceline.reports.comparison.time_to_target import Aim, aim_of

Seconds = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedProgress:
    """The predicted progress of one run.

    Args:
        ends_s: when each gradient of any worker ends, ascending.
        gradient_s: the durations of each worker's gradients, in their order, by rank.
        wall_s: when the run ends.
        stop_reason: why it ends.
        aim: its target, if it has one.
        aim_s: when it reaches the target; None if it does not.

    >>> run = PredictedProgress(ends_s=np.array([1.0, 2.0, 3.0, 4.0]), gradient_s={}, wall_s=4.5)
    >>> run.time_of(2), run.time_of(2.5), run.time_of(6), run.gradients_by(2.2)
    (2.0, 2.5, 6.0, 2)
    """

    ends_s: Seconds
    gradient_s: Mapping[int, Seconds]
    wall_s: float
    stop_reason: Reason | None = None
    aim: Aim | None = None
    aim_s: float | None = None

    @staticmethod
    def of(run: Run, workers: int) -> PredictedProgress:
        """Returns the progress of a simulated run.

        Args:
            run: the run.
            workers: number of workers, ranks 0 … workers − 1.
        """
        spans, summary = run.tables.spans, run.summary
        mine = spans[(spans["activity"] == "compute") & (spans["rank"] < workers)]
        each = mine.groupby(["rank", "step"]).agg({"start_s": "min", "end_s": "max"}).reset_index()
        each = each.sort_values("start_s", kind="stable")
        each["lasted_s"] = each["end_s"] - each["start_s"]
        figures: Mapping[str, Any] = summary
        aim = aim_of(summary)
        return PredictedProgress(
            ends_s=np.sort(each["end_s"].to_numpy()),
            gradient_s={int(str(rank)): one["lasted_s"].to_numpy() for rank, one in each.groupby("rank")},
            wall_s=summary["wall_s"],
            stop_reason=summary["stop_reason"],
            aim=aim,
            aim_s=None if aim is None else figures[aim.path],
        )

    @property
    def gradients(self) -> int:
        """The number of gradients of the whole run."""
        return len(self.ends_s)

    def gradients_by(self, time_s: float) -> int:
        """Returns how many gradients have ended by this time."""
        return int(np.searchsorted(self.ends_s, time_s, side="right"))

    def time_of(self, gradients: float) -> float:
        """Returns when so many gradients have ended: interpolated, and beyond the run at its mean rate."""
        total = self.gradients
        if gradients <= 0 or not total:
            return 0.0
        if gradients > total:
            return float(self.ends_s[-1] * gradients / total)
        before = int(gradients)
        start_s = float(self.ends_s[before - 1]) if before else 0.0
        if before == gradients:
            return start_s
        return start_s + (gradients - before) * (float(self.ends_s[before]) - start_s)
