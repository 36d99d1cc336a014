"""Gradient age against change of loss, for those who ask why: pure functions of a run's tables.

Rules of this file:

* Two answers. `between_evaluations` is free and in every run, and says what went together, not what caused what: early
  in a run the loss falls fast whatever the staleness. `by_staleness` is what single updates did to the loss on data
  held out, measured just before and just after them, in simulations that were asked for it.
* Early updates change the loss most, whatever their staleness. So `slope` compares probes with their neighbours in time
  alone: with those of the same block of `BLOCK` successive ones.
* Intervals are of 95 %, by Student's t; what has fewer than two values has none.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TypedDict

import numpy as np
import pandas as pd

from paceline.algorithms.core.values import may_diverge
from paceline.records.metrics import finite, interval, student

BLOCK = 10
"""successive probes that are compared with each other; provenance: ours"""
LEAST = 5
"""probes that a staleness must have to count in a slope, which one odd update would decide else; provenance: ours"""


class Stretch(TypedDict):
    """A run between two evaluations, from after `from_s` up to and with `to_s`."""

    from_s: float
    to_s: float
    gradients: int
    staleness: float | None
    """mean over the gradients applied in it"""
    age_s: float | None
    """mean time from a gradient's start to its application, seconds"""
    loss_change: float | None
    """of the evaluated loss, from the first evaluation to the second"""
    loss_change_per_gradient: float | None


def between_evaluations(updates: pd.DataFrame, evaluations: pd.DataFrame) -> list[Stretch]:
    """What was applied between successive evaluations, and what became of the loss.

    >>> updates = pd.DataFrame({"time_s": [1.0, 2.0, 3.0], "staleness": [0, 2, 9], "age_s": [0.5, 1.5, 9.0]})
    >>> evaluations = pd.DataFrame({"time_s": [0.0, 2.0], "loss": [2.0, 1.0]})
    >>> (one,) = between_evaluations(updates, evaluations)
    >>> one["gradients"], one["staleness"], one["loss_change_per_gradient"]
    (2, 1.0, -0.5)
    """
    times_s = updates["time_s"].to_numpy()  # rising, as in every table
    seen: list[list[float]] = evaluations[["time_s", "loss"]].to_numpy().tolist()
    stretches = []
    for (from_s, loss), (to_s, later) in pairwise(seen):
        first, last = np.searchsorted(times_s, [from_s, to_s], side="right")
        inside = updates.iloc[first:last]
        change = finite(later - loss)
        stretches.append(
            Stretch(
                from_s=from_s,
                to_s=to_s,
                gradients=len(inside),
                staleness=finite(inside["staleness"].mean()),
                age_s=finite(inside["age_s"].mean()),
                loss_change=change,
                loss_change_per_gradient=None if change is None or not len(inside) else change / len(inside),
            )
        )
    return stretches


class Interval(TypedDict):
    """A mean, with its 95 % interval where there are two values or more."""

    mean: float
    low: float | None
    high: float | None


class AtStaleness(TypedDict):
    """What the probed updates of one staleness did to the loss."""

    staleness: int
    """mean staleness of an update's inputs, rounded; the least of them where several are put together"""
    count: int
    loss_change: Interval


def by_staleness(probes: pd.DataFrame, width: int = 1) -> list[AtStaleness]:
    """Change of the loss held out by one update, mean and interval for each staleness; what is no number is left out.

    Args:
        probes: the table.
        width: successive values of staleness that are put together.

    >>> rows = {"staleness": [0.0, 0.0, 3.0], "loss_before": [2.0, 2.0, 1.0], "loss_after": [1.5, 1.7, 1.25]}
    >>> for one in by_staleness(pd.DataFrame(rows)):
    ...     print(one["staleness"], one["count"], one["loss_change"]["mean"])
    0 2 -0.4
    3 1 0.25
    """
    found = _changes(probes)
    values = found["staleness"].round().astype(int) // width * width
    return [
        AtStaleness(staleness=int(str(lag)), count=len(part), loss_change=_interval(part.to_numpy()))
        for lag, part in found["change"].groupby(values)
    ]


@may_diverge
def slope(probes: pd.DataFrame) -> Interval | None:
    """By how much more an update changes the loss for each unit of staleness; None where probes do not tell.

    slope = Σ s' c' / Σ s'², least squares of change c on staleness s, both less their block's mean
    its variance = n / (n − blocks − 1) · Σ s'² e² / (Σ s'²)², with what is left, e, which early updates have more of

    Args:
        probes: the table; a staleness with fewer than `LEAST` probes is left out.

    Source of the variance: White, Econometrica 48 (1980), with the correction for degrees of freedom.

    >>> rows = {"staleness": [0.0, 1.0] * 5, "loss_before": [2.0] * 10, "loss_after": [1.0, 1.5] * 5}
    >>> slope(pd.DataFrame(rows))["mean"]
    0.5
    """
    found = _changes(probes)
    rounded = found["staleness"].round()
    found = found[rounded.map(rounded.value_counts()) >= LEAST]
    block = np.arange(len(found)) // BLOCK
    within = found[["staleness", "change"]] - found[["staleness", "change"]].groupby(block).transform("mean")
    spread, free = float((within["staleness"] ** 2).sum()), len(found) - len(set(block)) - 1
    if spread == 0 or free < 1:
        return None
    mean = float((within["staleness"] * within["change"]).sum() / spread)
    left = within["change"] - mean * within["staleness"]
    error = float(np.sqrt(len(found) / free * ((within["staleness"] * left) ** 2).sum())) / spread
    half = float(student(free)) * error
    return Interval(mean=mean, low=finite(mean - half), high=finite(mean + half)) if np.isfinite(mean) else None


@may_diverge
def _changes(probes: pd.DataFrame) -> pd.DataFrame:
    change = probes["loss_after"] - probes["loss_before"]
    found: pd.DataFrame = probes.assign(change=change)[np.isfinite(change.to_numpy())]
    return found


@may_diverge
def _interval(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Interval:
    if len(values) < 2:
        return Interval(mean=float(values.mean()), low=None, high=None)
    found = interval(values.tolist())
    return Interval(mean=found["mean"], low=finite(found["low"]), high=finite(found["high"]))
