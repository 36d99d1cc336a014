"""The interval of a run's predicted times, where devices of the catalogue leave their gradients' times uncertain.

The interval says how far predictions of gradient times were from measurements. Errors of the network, of charges and of
jitter are not in it; neither is chance, which several seeds show.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, cast

from paceline.records.figures import Figure, at


class Bounds(TypedDict):
    """The ends of the interval of a figure, in the figure's unit."""

    low: float
    high: float


class PredictionInterval(TypedDict):
    """The intervals of the figures of a run."""

    share: float
    """of similar predictions whose measurements lay in their interval"""
    similar: list[str]
    """the predictions that count as similar, for each device"""
    step_s: Bounds | None
    """of the mean step time"""
    samples_per_s: Bounds | None
    time_to_accuracy_s: Bounds | None
    time_to_loss_s: Bounds | None


Name = Literal["step_s", "samples_per_s", "time_to_accuracy_s", "time_to_loss_s"]
FIGURES: Mapping[Name, str] = {
    "step_s": "step_s.mean",
    "samples_per_s": "samples_per_s",
    "time_to_accuracy_s": "time_to_accuracy_s",
    "time_to_loss_s": "time_to_loss_s",
}
"""the figures that have an interval, with their paths in a summary"""
RATES = ("samples_per_s",)
"""figures that fall when steps take longer"""


@dataclass(frozen=True, slots=True)
class StepFactors:
    """Factors on the mean step time, with all gradients at the ends of the intervals of their devices.

    Args:
        low, high: the factors.
        share: the share of similar predictions in the interval.
        similar: the predictions that count as similar, for each device.
    """

    low: float
    high: float
    share: float
    similar: tuple[str, ...]


SHARE, QUANTILE = 0.8, 1.2816
"""the share of measurements that an interval is meant to hold, and the quantile of the normal law for its upper end"""


def spread_factors(spread: float) -> StepFactors:
    """Returns the factors on the step time of a run on a calibrated machine.

    factors = exp(∓ 1.2816 · spread): 80 % of a lognormal law

    Args:
        spread: the standard deviation of a run's mean step time around its prediction, over the time.

    >>> factors = spread_factors(0.1)
    >>> round(factors.low, 3), round(factors.high, 3)
    (0.88, 1.137)
    """
    words = (f"runs on this machine: a standard deviation of {100 * spread:.0f} % by its speed and by the model",)
    return StepFactors(math.exp(-QUANTILE * spread), math.exp(QUANTILE * spread), SHARE, words)


def prediction_interval(summary: Mapping[str, Any], factors: StepFactors) -> PredictionInterval:
    """Returns the intervals of a run's figures.

    interval of a time = time · factors;  interval of a rate = rate / factors

    Times to a target are assumed to need as many steps, with the same effect, as in the predicted run.

    Args:
        summary: the summary of the run.
        factors: the factors on the mean step time.

    >>> factors = StepFactors(0.8, 1.25, 0.8, ("55 predictions of GPUs",))
    >>> figures = {"step_s": {"mean": 0.1}, "samples_per_s": 100.0, "time_to_accuracy_s": None, "time_to_loss_s": 40.0}
    >>> found = prediction_interval(figures, factors)
    >>> found["samples_per_s"], found["time_to_accuracy_s"], found["time_to_loss_s"]
    ({'low': 80.0, 'high': 125.0}, None, {'low': 32.0, 'high': 50.0})
    """

    def of(name: Name) -> Bounds | None:
        value = at(summary, FIGURES[name])
        if value is None:
            return None
        if name in RATES:
            return Bounds(low=value / factors.high, high=value / factors.low)
        return Bounds(low=factors.low * value, high=factors.high * value)

    return _intervals(factors.share, factors.similar, of)


def _intervals(share: float, similar: Iterable[str], of: Callable[[Name], Bounds | None]) -> PredictionInterval:
    intervals: dict[str, Any] = {"share": share, "similar": list(similar), **{str(name): of(name) for name in FIGURES}}
    return cast(PredictionInterval, intervals)


def bounds_of(summary: Mapping[str, Any], figure: Figure) -> Bounds | None:
    """Returns the interval of a figure among similar predictions; None if the run or the figure has none.

    Args:
        summary: the summary of a run, or of several seeds together.
        figure: the figure.
    """
    intervals = summary.get("prediction_interval")
    name = next((name for name, key in FIGURES.items() if key == figure.key), None)
    return None if intervals is None or name is None else intervals.get(name)


def mean_interval(several: Sequence[PredictionInterval]) -> PredictionInterval:
    """Returns the intervals of means over seeds: the means of their ends; None where a seed has none.

    Args:
        several: the intervals of the seeds' runs.
    """

    def of(name: Name) -> Bounds | None:
        ends = [bounds for summary in several if (bounds := summary[name]) is not None]
        if len(ends) < len(several):
            return None
        return Bounds(
            low=sum(bounds["low"] for bounds in ends) / len(ends),
            high=sum(bounds["high"] for bounds in ends) / len(ends),
        )

    return _intervals(several[0]["share"], several[0]["similar"], of)
