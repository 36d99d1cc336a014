"""Computes the cost of slowdowns and crashes in a run from its spans."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypedDict

import pandas as pd

from paceline.algorithms.core.values import Rank

Slowed = Callable[[Rank, float, float], float]
"""seconds that slowdowns added to a rank's work between two times"""


class FaultFigures(TypedDict):
    """Sums over all ranks, in seconds of the run's own clock. Crashes after a rank's last gradient are not counted."""

    crashes: int
    lost_s: float
    """time of redoing lost work"""
    recovery_s: float
    """time of recovery from crashes"""
    checkpoint_s: float
    """time of writing checkpoints"""
    slowed_s: float
    """time that slowdowns added to work, lost work included"""


def fault_figures(spans: pd.DataFrame, slowed: Slowed) -> FaultFigures:
    """Returns the figures of a run.

    Args:
        spans: the table.
        slowed: returns the seconds that slowdowns added to work.

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
