"""What slowdowns and crashes cost in a run, worked out from its spans."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypedDict

import pandas as pd

from paceline.algorithms.core.values import Rank

Slowed = Callable[[Rank, float, float], float]
"""by how much slowdowns made a rank's work longer that lasted from one time to another, in seconds"""


class FaultFigures(TypedDict):
    """Of all ranks together, in seconds of the run's own clock. A crash after a rank's last gradient goes unnoticed."""

    crashes: int
    lost_s: float
    """in which lost work was done again"""
    recovery_s: float
    """in which workers were down"""
    checkpoint_s: float
    slowed_s: float
    """by which slowdowns made work longer, lost work too"""


def fault_figures(spans: pd.DataFrame, slowed: Slowed) -> FaultFigures:
    """The figures of a run's table of spans.

    >>> columns = ["rank", "activity", "start_s", "end_s"]
    >>> rows = [(0, "compute", 0.0, 4.0), (0, "crash", 4.0, 4.0), (0, "recovery", 4.0, 5.0), (0, "redo", 5.0, 9.0)]
    >>> fault_figures(pd.DataFrame(rows, columns=columns), slowed=lambda rank, start_s, end_s: 0.5)
    {'crashes': 1, 'lost_s': 4.0, 'recovery_s': 1.0, 'checkpoint_s': 0.0, 'slowed_s': 1.0}
    """
    lasts_s = (spans["end_s"] - spans["start_s"]).groupby(spans["activity"]).sum()
    work = spans[spans["activity"].isin(["compute", "redo"])]
    rows = zip(work["rank"].tolist(), work["start_s"].tolist(), work["end_s"].tolist(), strict=True)
    return FaultFigures(
        crashes=int((spans["activity"] == "crash").sum()),
        lost_s=float(lasts_s.get("redo", 0.0)),
        recovery_s=float(lasts_s.get("recovery", 0.0)),
        checkpoint_s=float(lasts_s.get("checkpoint", 0.0)),
        slowed_s=math.fsum(slowed(Rank(rank), start_s, end_s) for rank, start_s, end_s in rows),
    )
