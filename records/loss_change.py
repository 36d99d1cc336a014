"""The relation of staleness and change of loss: pure functions of a run's tables.

* `between_evaluations` is available for every run. It shows correlation, not causation: early in a run the loss falls
  fast regardless of staleness. `by_staleness` shows the effect of single updates on the loss of held-out data, measured
  just before and after them; it is available for simulations with probes.
* Early updates change the loss most, regardless of staleness. So `slope` compares a probe only with its neighbours in
  time, those of the same block of `BLOCK` successive probes.
* Intervals are 95 % intervals by Student's t; they need at least two values.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TypedDict

import numpy as np
import pandas as pd

from paceline.algorithms.core.values import may_diverge
from paceline.records.metrics import finite, interval, student

BLOCK = 10
"""number of successive probes that are compared with each other; provenance: ours"""
LEAST = 5
"""smallest number of probes of a staleness in a slope, so that one outlier cannot determine it; provenance: ours"""


class Stretch(TypedDict):
    """The interval between two evaluations, without `from_s` and with `to_s`."""

    from_s: float
    to_s: float
    gradients: int
    staleness: float | None
    """mean over the gradients applied in it"""
    age_s: float | None
    """mean time from a gradient's start to its application, seconds"""
    loss_change: float | None
    """change of the evaluated loss from the first evaluation to the second"""
    loss_change_per_gradient: float | None


def between_evaluations(updates: pd.DataFrame, evaluations: pd.DataFrame, weight: float = 1.0) -> list[Stretch]:
    """Returns the gradients applied between successive evaluations, and the change of loss.

    Args:
        updates: the table.
        evaluations: the table.
        weight: the number of gradients for which a row of `updates` stands, if it is a sample.

    >>> updates = pd.DataFrame({"time_s": [1.0, 2.0, 3.0], "staleness": [0, 2, 9], "age_s": [0.5, 1.5, 9.0]})
    >>> evaluations = pd.DataFrame({"time_s": [0.0, 2.0], "loss": [2.0, 1.0]})
    >>> (one,) = between_evaluations(updates, evaluations)
    >>> one["gradients"], one["staleness"], one["loss_change_per_gradient"]
    (2, 1.0, -0.5)
    """
    times_s = updates["time_s"].to_numpy()  # ascending, as in every table
    seen: list[list[float]] = evaluations[["time_s", "loss"]].to_numpy().tolist()
    stretches = []
    for (from_s, loss), (to_s, later) in pairwise(seen):
        first, last = np.searchsorted(times_s, [from_s, to_s], side="right")
        inside = updates.iloc[first:last]
        gradients = round(weight * len(inside))
        change = finite(later - loss)
        stretches.append(
            Stretch(
                from_s=from_s,
                to_s=to_s,
                gradients=gradients,
                staleness=finite(inside["staleness"].mean()),
                age_s=finite(inside["age_s"].mean()),
                loss_change=change,
                loss_change_per_gradient=None if change is None or not gradients else change / gradients,
            )
        )
    return stretches


class Interval(TypedDict):
    """A mean, with its 95 % interval if there are at least two values."""

    mean: float
    low: float | None
    high: float | None


class AtStaleness(TypedDict):
    """The effect of the probed updates of one staleness on the loss."""

    staleness: int
    """mean staleness of an update's inputs, rounded; the smallest one if several values are merged"""
    count: int
    loss_change: Interval


def by_staleness(probes: pd.DataFrame, width: int = 1) -> list[AtStaleness]:
    """Returns the change of the held-out loss by one update, for each staleness; infinite changes and NaN are dropped.

    Args:
        probes: the table.
        width: number of successive values of staleness that are merged.

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
    """Returns the additional change of loss by an update per unit of staleness; None if the probes are too few.

    slope = Σ s' c' / Σ s'², least squares of change c on staleness s, both minus the mean of their block
    its variance = n / (n − blocks − 1) · Σ s'² e² / (Σ s'²)², with residuals e, which are larger for early updates

    Args:
        probes: the table; a staleness with fewer than `LEAST` probes is dropped.

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
