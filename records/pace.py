"""Checks whether a paced run held its pace: compares the time of its gradients with that of the modelled devices.

* A gradient ends late if the real computation took longer than the device or its process was not woken up in time. It
  starts late by the time before it in which its rank recorded no activity and no wait.
* The time of messages does not count, because a run is made to measure it. On a machine that is too busy to hold the
  pace messages are late, too, so the times of such a run are not reliable.
* Cancelled gradients do not count.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypedDict

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from paceline.algorithms.core.values import Rank
from paceline.records.figures import significant

TOLERANCE = 0.05
"""the pace is held if no rank's gradients took longer than modelled by more than this, on average; provenance: ours"""
GIVEN_UP_S = 1e-6
"""a gradient that is shorter than modelled by more than this was cancelled"""

Asked = Callable[[Rank, int, float], float]
"""returns the modelled seconds of a rank's gradient, given its step and when it began"""


class RankPace(TypedDict):
    """One rank's pace."""

    rank: int
    asked_s: float
    achieved_s: float
    ratio: float


class PaceFigures(TypedDict):
    """Means over gradients; `achieved_s` is their duration plus their delay at the start."""

    asked_s: float
    achieved_s: float
    ratio: float
    """achieved / asked"""
    held: bool
    """whether all ranks held the pace"""
    late_start_s: float
    """part of `achieved_s`"""
    worst: RankPace
    by_rank: list[list[float]]
    """``[[rank, ratio], …]``"""


def pace_figures(spans: pd.DataFrame, asked: Asked) -> PaceFigures | None:
    """Returns the pace of a run; None if no gradient was computed to its end.

    Args:
        spans: the table.
        asked: the modelled time of a gradient.
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
    """Returns a warning that the pace was not held, with the worst rank and a remedy; None if it was held.

    The excess in seconds is assumed to stay the same with a larger time dilation.

    Args:
        pace: the figures of a run.
        time_dilation: the time dilation of the run.

    >>> worst = RankPace(rank=3, asked_s=0.005, achieved_s=0.006, ratio=1.2)
    >>> print(say_pace(PaceFigures(asked_s=0.005, achieved_s=0.0055, ratio=1.1, held=False, late_start_s=0.0,
    ...     worst=worst, by_rank=[]), time_dilation=2.0))
    the pace was not held: rank 3 took 6 ms a step where its device was to take 5 ms, 20 % more (10 % over all ranks); \
times of this run depend on this machine. Use `train.time_dilation: 8`, fewer ranks, or an idle machine
    """
    if pace["held"]:
        return None
    worst = pace["worst"]
    its, all_ = (f"{100 * ratio - 100:.0f} %" for ratio in (worst["ratio"], pace["ratio"]))
    needed = math.ceil((worst["ratio"] - 1) / TOLERANCE - 1e-9) * time_dilation  # 4 times TOLERANCE is 4, not 5
    return (
        f"the pace was not held: rank {worst['rank']} took {significant(worst['achieved_s'] * 1e3)} ms a step where "
        f"its device was to take {significant(worst['asked_s'] * 1e3)} ms, {its} more ({all_} over all ranks); times "
        f"of this run depend on this machine. Use `train.time_dilation: {needed:g}`, fewer ranks, or an idle machine"
    )


def gradients(spans: pd.DataFrame) -> pd.DataFrame:
    """Returns one row per gradient, (rank, step, start_s, end_s, late_start_s), also for layer-wise gradients."""
    computed = spans[spans["activity"] == "compute"]
    whole = computed[computed["layer"].isna()][["rank", "step", "start_s", "end_s"]]
    parts = computed[computed["layer"].notna()].groupby(["rank", "step", "lane"])
    layered = parts.agg({"start_s": "min", "end_s": "max"}).reset_index()[["rank", "step", "start_s", "end_s"]]
    made = pd.concat([part for part in (whole, layered) if len(part)] or [whole], ignore_index=True)
    made["late_start_s"] = 0.0
    for rank, of_rank in made.groupby("rank"):
        others = spans[spans["rank"] == rank]
        starts_s = of_rank["start_s"].to_numpy()
        made.loc[of_rank.index, "late_start_s"] = idle_before(
            starts_s, others["start_s"].to_numpy(), others["end_s"].to_numpy()
        )
    return made


def idle_before(
    at_s: NDArray[np.float64], start_s: NDArray[np.float64], end_s: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Returns the idle time before each of these times; 0 before the first interval and during intervals.

    Args:
        at_s: the times.
        start_s: the start of each interval of activity.
        end_s: the end of each interval.

    >>> idle_before(np.array([0.5, 1.5, 3.5, 4.0]), np.array([1.0, 3.5]), np.array([2.0, 4.0]))
    array([0. , 0. , 1.5, 0. ])
    """
    order = np.argsort(start_s, kind="stable")
    starts, ends = start_s[order], np.maximum.accumulate(end_s[order]) if len(end_s) else end_s
    before = np.searchsorted(starts, at_s, side="left")  # of what began earlier, the latest end
    latest = np.where(before > 0, ends[np.maximum(before, 1) - 1] if len(ends) else 0.0, at_s)
    return np.maximum(0.0, at_s - latest)
