"""The times of gradients on devices of the catalogue, with the intervals of similar predictions."""

from __future__ import annotations

from typing import TypedDict

from paceline.records.figures import significant
from paceline.scenarios.resolution.plan import Plan


class PredictedTime(TypedDict):
    """The time of a gradient on a device of the catalogue, in seconds."""

    device: str
    samples: int
    gradient_s: float
    low_s: float
    high_s: float
    share: float
    """of similar predictions whose measurements lay between `low_s` and `high_s`"""
    similar: str
    """the predictions that count as similar"""


def predicted_times(plan: Plan) -> list[PredictedTime]:
    """Returns the time of a worker's gradient on each device of the catalogue; none for devices that were measured.

    >>> from paceline.scenarios import load
    >>> (one,) = predicted_times(load("dgx1-p100").plans()[0])
    >>> one["device"], one["samples"], one["low_s"] < one["gradient_s"] < one["high_s"]
    ('p100-sxm2', 128, True)
    """
    found = []
    for device, batch in plan.gradients:
        if (interval := device.interval) is None:
            continue
        seconds = device.compute_s(batch) * plan.time_dilation
        found.append(
            PredictedTime(
                device=device.name,
                samples=batch,
                gradient_s=seconds,
                low_s=interval.low * seconds,
                high_s=interval.high * seconds,
                share=interval.share,
                similar=interval.similar,
            )
        )
    return found


def describe_time(one: PredictedTime) -> str:
    """Describes a predicted time in a sentence.

    >>> describe_time(PredictedTime(device="p100", samples=64, gradient_s=0.045, low_s=0.034, high_s=0.061, share=0.8,
    ...                             similar=""))
    'p100: a gradient of 64 samples is predicted to take 45 ms (34 to 61 ms, 80 % of similar predictions)'
    """
    seconds, low, high = (significant(1e3 * one[key]) for key in ("gradient_s", "low_s", "high_s"))
    return (
        f"{one['device']}: a gradient of {one['samples']} samples is predicted to take {seconds} ms ({low} to {high} "
        f"ms, {100 * one['share']:.0f} % of similar predictions)"
    )
