"""Whether a paced run held its pace: what its gradients took, against what their devices were to take.

Rules of this file:

* A gradient is late at its end, where the true one took longer than the device or its process was not woken in time;
  and at its start, by the time before it in which its rank did nothing that is recorded and waited for nobody.
* What messages took is no matter of pace: that is what a run is made to measure. On a machine that is too busy to hold
  its pace they are late too, so the times of such a run are not to be trusted.
* A gradient that was given up has no length to hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypedDict

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from paceline.algorithms.core.values import Rank

TOLERANCE = 0.05
"""a pace is held if no rank's gradients took longer than asked by more than this, on average; provenance: issue"""
GIVEN_UP_S = 1e-6
"""shorter than asked by more than rounding: it was not computed to its end"""

Asked = Callable[[Rank, int, float], float]
"""seconds that a rank's gradient of a step was to take that began at a time"""


class RankPace(TypedDict):
    """One rank's pace."""

    rank: int
    asked_s: float
    achieved_s: float
    ratio: float


class PaceFigures(TypedDict):
    """Means over gradients; `achieved_s` is their length with their late start."""

    asked_s: float
    achieved_s: float
    ratio: float
    """achieved / asked"""
    held: bool
    """whether it was, by the worst rank too"""
    late_start_s: float
    """part of `achieved_s`"""
    worst: RankPace
    by_rank: list[list[float]]
    """``[[rank, ratio], …]``"""


def pace_figures(spans: pd.DataFrame, asked: Asked) -> PaceFigures | None:
    """The pace of a run; None where no gradient was computed to its end.

    Args:
        spans: the table.
        asked: what the device was to take.
    """
    made = gradients(spans)
    which = zip(made["rank"], made["step"], made["start_s"], strict=True)
    made["asked_s"] = np.array([asked(Rank(rank), step, start_s) for rank, step, start_s in which], dtype=np.float64)
    made["took_s"] = made["end_s"] - made["start_s"]
    made = made[(made["asked_s"] > 0) & (made["took_s"] >= made["asked_s"] - GIVEN_UP_S)]
    if made.empty:
        return None
    made["achieved_s"] = made["took_s"] + made["late_start_s"]
    means = made.groupby("rank")[["asked_s", "achieved_s"]].mean()
    each = [
        RankPace(rank=rank, asked_s=due, achieved_s=took, ratio=took / due) for rank, due, took in means.itertuples()
    ]
    worst = max(each, key=lambda pace: pace["ratio"])
    asked_s, achieved_s = float(made["asked_s"].mean()), float(made["achieved_s"].mean())
    return PaceFigures(
        asked_s=asked_s,
        achieved_s=achieved_s,
        ratio=achieved_s / asked_s,
        held=worst["ratio"] <= 1 + TOLERANCE,
        late_start_s=float(made["late_start_s"].mean()),
        worst=worst,
        by_rank=[[pace["rank"], pace["ratio"]] for pace in each],
    )


def say_pace(pace: PaceFigures, time_dilation: float) -> str | None:
    """That a pace was not held, by whom and by how much, and what to do; None where it was.

    The excess is taken to stay as long as it is when the clock is stretched.

    Args:
        pace: of a run.
        time_dilation: by how much its device times were stretched.

    >>> worst = RankPace(rank=3, asked_s=0.005, achieved_s=0.006, ratio=1.2)
    >>> print(say_pace(PaceFigures(asked_s=0.005, achieved_s=0.0055, ratio=1.1, held=False, late_start_s=0.0,
    ...     worst=worst, by_rank=[]), time_dilation=2.0))
    the pace was not held: rank 3 took 6 ms a step where its device was to take 5 ms, 20 % more (10 % over all ranks); \
times of this run are this machine's in part. Give `train.time_dilation: 8`, fewer ranks, or an idle machine
    """
    if pace["held"]:
        return None
    worst = pace["worst"]
    its, all_ = (f"{100 * ratio - 100:.0f} %" for ratio in (worst["ratio"], pace["ratio"]))
    needed = math.ceil((worst["ratio"] - 1) / TOLERANCE - 1e-9) * time_dilation  # 4 times TOLERANCE is 4, not 5
    return (
        f"the pace was not held: rank {worst['rank']} took {worst['achieved_s'] * 1e3:.3g} ms a step where its device "
        f"was to take {worst['asked_s'] * 1e3:.3g} ms, {its} more ({all_} over all ranks); times of this run are this "
        f"machine's in part. Give `train.time_dilation: {needed:g}`, fewer ranks, or an idle machine"
    )


def gradients(spans: pd.DataFrame) -> pd.DataFrame:
    """One row per gradient, (rank, step, start_s, end_s, late_start_s): one that came layer by layer is one."""
    computed = spans[spans["activity"] == "compute"]
    whole = computed[computed["layer"].isna()][["rank", "step", "start_s", "end_s"]]
    parts = computed[computed["layer"].notna()].groupby(["rank", "step", "lane"])
    layered = parts.agg({"start_s": "min", "end_s": "max"}).reset_index()[["rank", "step", "start_s", "end_s"]]
    made = pd.concat([part for part in (whole, layered) if len(part)] or [whole], ignore_index=True)
    made["late_start_s"] = 0.0
    for rank, mine in made.groupby("rank"):
        others = spans[spans["rank"] == rank]
        starts_s = mine["start_s"].to_numpy()
        made.loc[mine.index, "late_start_s"] = idle_before(
            starts_s, others["start_s"].to_numpy(), others["end_s"].to_numpy()
        )
    return made


def idle_before(
    at_s: NDArray[np.float64], start_s: NDArray[np.float64], end_s: NDArray[np.float64]
) -> NDArray[np.float64]:
    """For how long before each of these times nothing had lasted; 0 before anything had, and where something lasts.

    >>> idle_before(np.array([0.5, 1.5, 3.5, 4.0]), np.array([1.0, 3.5]), np.array([2.0, 4.0]))
    array([0. , 0. , 1.5, 0. ])
    """
    order = np.argsort(start_s, kind="stable")
    starts, ends = start_s[order], np.maximum.accumulate(end_s[order]) if len(end_s) else end_s
    before = np.searchsorted(starts, at_s, side="left")  # of what began earlier, the latest end
    latest = np.where(before > 0, ends[np.maximum(before, 1) - 1] if len(ends) else 0.0, at_s)
    return np.maximum(0.0, at_s - latest)
