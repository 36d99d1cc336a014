"""When a run reaches its targets, in time, samples and updates, with the resolution of these figures.

The rules of `records.goals` are applied to each curve. A figure is None if the target is not reached or not set.
Samples and updates to a target show the statistical efficiency of a method alone; the time to a target also depends on
the speed of the cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
import pandas as pd

from paceline.records.goals import Crossing, crossing, reading
from paceline.records.metrics import smoothed


class TargetFigures(TypedDict):
    """The targets, and the time, samples and updates to reach them."""

    evaluations: int
    """how many there are, those at the start and at the end included"""
    target_accuracy: float | None
    target_loss: float | None
    smoothing: int
    """number of evaluations in the trailing mean from which figures are computed"""
    interpolation: str
    """a description of how they are computed"""
    time_to_accuracy_s: float | None
    time_to_accuracy_resolution_s: float | None
    """time between the two evaluations around it"""
    samples_to_accuracy: float | None
    updates_to_accuracy: float | None
    time_to_loss_s: float | None
    time_to_loss_resolution_s: float | None
    samples_to_loss: float | None
    updates_to_loss: float | None


@dataclass(frozen=True, slots=True)
class Axes:
    """The time, samples and updates at each evaluation of a run."""

    times_s: Sequence[float]
    samples: Sequence[float]
    updates: Sequence[float]


def axes_of(evaluations: pd.DataFrame, updates: pd.DataFrame) -> Axes:
    """Returns the axes of a run.

    Args:
        evaluations: the table.
        updates: one row for each update that counts; an evaluation at the time of an update follows it.
    """
    times_s = evaluations["time_s"].to_numpy()
    done = np.searchsorted(np.sort(updates["time_s"].to_numpy()), times_s, side="right")
    return Axes(times_s.tolist(), evaluations["samples"].tolist(), done.tolist())


def target_figures(
    evaluations: pd.DataFrame, axes: Axes, *, accuracy: float | None, loss: float | None, smoothing: int
) -> TargetFigures:
    """Returns the figures at a target accuracy and a target loss.

    Args:
        evaluations: the table.
        axes: of its rows.
        accuracy: the target accuracy, reached from below; None without one.
        loss: the target loss, reached from above; None without one.
        smoothing: number of evaluations in the trailing mean.
    """
    curves = {name: smoothed(evaluations[name].tolist(), smoothing).tolist() for name in ("accuracy", "loss")}
    up = None if accuracy is None else crossing(accuracy, curves["accuracy"])
    down = None if loss is None else crossing(loss, curves["loss"], falling=True)
    return TargetFigures(
        evaluations=len(evaluations),
        target_accuracy=accuracy,
        target_loss=loss,
        smoothing=smoothing,
        interpolation=reading(smoothing),
        time_to_accuracy_s=_at(up, axes.times_s),
        time_to_accuracy_resolution_s=None if up is None else up.resolution(axes.times_s),
        samples_to_accuracy=_at(up, axes.samples),
        updates_to_accuracy=_at(up, axes.updates),
        time_to_loss_s=_at(down, axes.times_s),
        time_to_loss_resolution_s=None if down is None else down.resolution(axes.times_s),
        samples_to_loss=_at(down, axes.samples),
        updates_to_loss=_at(down, axes.updates),
    )


def _at(found: Crossing | None, positions: Sequence[float]) -> float | None:
    return None if found is None else found.at(positions)
