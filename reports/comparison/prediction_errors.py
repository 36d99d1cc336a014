"""Errors of predictions: pure functions of summaries.

* Errors have the structure of a summary, with the error of each figure in its place.
* The error of a figure is (simulated − measured) / measured: 0 if both are 0, None if either is missing. The error of
  an accuracy is the difference, since it is a fraction. Distributions are compared by total variation.
* With several seeds a figure is ``{mean, low, high}``: the mean and its 95 % interval by Student's t. If one seed has
  no value, the figure is missing, since a mean over the other seeds would be biased.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from paceline.records.figures import IN_SUMMARY, WITH_ERRORS, number
from paceline.records.metrics import Histogram, counts, interval, total_variation
from paceline.records.prediction_interval import mean_interval

Tree = dict[str, Any]
"""figures by name; leaves are numbers, None, or ``{mean, low, high}``"""

AIMS = ("accuracy", "loss")
"""the kinds of targets"""


def relative(simulated: float | None, measured: float | None) -> float | None:
    """Returns (simulated − measured) / measured; 0 if both are 0, None if either is missing or only measured is 0.

    >>> relative(1.1, 1.0), relative(0, 0), relative(None, 1.0), relative(1.0, 0)
    (0.10000000000000009, 0.0, None, None)
    """
    if simulated is None or measured is None:
        return None
    if measured == 0:
        return 0.0 if simulated == 0 else None
    return (simulated - measured) / measured


def figure(values: Sequence[float | None]) -> Any:
    """Returns a single value unchanged, several values as their interval, and None if one is missing."""
    present = [value for value in values if value is not None]
    if len(present) < len(values) or not present:
        return None
    return present[0] if len(present) == 1 else interval(present)


def together(summaries: Sequence[Mapping[str, Any]]) -> Tree:
    """Combines the summaries of several seeds: figures become intervals, histograms are added.

    The result has `diverged` if one of them has, and the `stop_reason` that all share, or else None.
    """
    made: Tree = copy.deepcopy(dict(summaries[0]))
    if len(summaries) == 1:
        return made
    for declared in IN_SUMMARY:
        if declared.error is not None or declared.type == "Float64":
            _put(made, declared.key, figure([declared.of(summary) for summary in summaries]))
    for part in ("faults", "lost_updates"):
        for name in made.get(part) or ():
            made[part][name] = figure([(summary[part] or {}).get(name) for summary in summaries])
    if "pace" in made:
        made["pace"] = _paces([summary["pace"] for summary in summaries if "pace" in summary])
    if "prediction_interval" in made:
        made["prediction_interval"] = mean_interval(
            [summary["prediction_interval"] for summary in summaries if "prediction_interval" in summary]
        )
    made["diverged"] = any(summary["diverged"] for summary in summaries)
    made["stop_reason"] = made["stop_reason"] if len({summary["stop_reason"] for summary in summaries}) == 1 else None
    made["staleness"]["histogram"] = _pooled([summary["staleness"]["histogram"] for summary in summaries])
    per_rank = [dict(summary["staleness"]["by_rank"]) for summary in summaries]
    made["staleness"]["by_rank"] = [
        [rank, figure([means.get(rank) for means in per_rank])] for rank in _ranks(per_rank)
    ]
    return made


def _paces(paces: Sequence[Mapping[str, Any]]) -> Tree:
    """Combines the paces of several seeds: held if every seed held it; the worst rank is that of the worst seed."""
    made: Tree = {
        name: figure([pace[name] for pace in paces]) for name in ("asked_s", "achieved_s", "ratio", "late_start_s")
    }
    per_rank = [dict(pace["by_rank"]) for pace in paces]
    return made | {
        "held": all(pace["held"] for pace in paces),
        "worst": max((pace["worst"] for pace in paces), key=lambda worst: worst["ratio"]),
        "by_rank": [[rank, figure([ratios.get(rank) for ratios in per_rank])] for rank in _ranks(per_rank)],
    }


def error(simulated: Sequence[Mapping[str, Any]], measured: Sequence[Mapping[str, Any]]) -> Tree:
    """Returns the errors of all figures and of each rank's staleness, and ``staleness_tv``.

    Args:
        simulated: summaries, one per seed.
        measured: summaries of the same seeds, in the same order.
    """
    if not simulated or len(simulated) != len(measured):
        raise ValueError(
            f"{len(simulated)} simulated and {len(measured)} measured runs: errors need the same seeds on both sides"
        )
    tree: Tree = {}
    for declared in WITH_ERRORS:
        predicted, actual = ([declared.of(summary) for summary in side] for side in (simulated, measured))
        _put(tree, declared.key, (relative_figure if declared.error == "relative" else difference)(predicted, actual))
    ours, measured_ranks = (
        [dict(summary["staleness"]["by_rank"]) for summary in side] for side in (simulated, measured)
    )
    tree["staleness"]["by_rank"] = [
        [rank, relative_figure([means.get(rank) for means in ours], [means.get(rank) for means in measured_ranks])]
        for rank in _ranks([*ours, *measured_ranks])
    ]
    histograms = zip(
        *([summary["staleness"]["histogram"] for summary in side] for side in (simulated, measured)), strict=True
    )
    tree["staleness_tv"] = figure([total_variation(histogram, other) for histogram, other in histograms])
    return tree


def relative_figure(simulated: Sequence[float | None], measured: Sequence[float | None]) -> Any:
    """Returns the relative error of the means over seeds; its interval is that of the seeds' differences.

    >>> relative_figure([1.1], [1.0]), relative_figure([1.0, 2.0], [None, 2.0])
    (0.10000000000000009, None)
    """
    predicted, other = number(figure(simulated)), number(figure(measured))
    mean = relative(predicted, other)
    if mean is None or len(simulated) == 1:
        return mean
    span = difference(simulated, measured)
    low, high = sorted(span[end] / (other or 1.0) for end in ("low", "high"))  # both 0: so are all differences
    return {"mean": mean, "low": low, "high": high}


def difference(simulated: Sequence[float | None], measured: Sequence[float | None]) -> Any:
    """Returns simulated − measured of each seed, as a figure."""
    return figure(
        [
            None if value is None or other is None else value - other
            for value, other in zip(simulated, measured, strict=True)
        ]
    )


def _pooled(histograms: Sequence[Histogram]) -> Histogram:
    total: Counter[int] = Counter()
    for histogram in histograms:
        total.update(counts(histogram))
    return [[value, count] for value, count in sorted(total.items())]


def _ranks(per_rank: Sequence[Mapping[int, float]]) -> list[int]:
    return sorted(set().union(*per_rank))


def _put(tree: Tree, path: str, value: Any) -> None:
    *above, name = path.split(".")
    for part in above:
        tree = tree.setdefault(part, {})
    tree[name] = value
