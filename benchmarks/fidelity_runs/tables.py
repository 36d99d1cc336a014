"""Tables of errors by group and method and of the order of methods, beside simpler models of `paceline compare`."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import permutations
from typing import Any

import numpy as np
from rich.table import Table
from scipy.stats import kendalltau, rankdata

from common.harness import table
from fidelity_runs.measuring import SIMPLER, Row, parsed_times
from fidelity_runs.settings import GROUPS
from paceline.reports.comparison.ranking import told_apart

FEWEST_SEEDS = 2
"""seeds from which on a difference has an interval"""
FEWEST_RANKED = 5
"""methods of a setting from which on their order is evaluated; our choice"""
ALL = "all"


def tables(rows: Sequence[Row]) -> Iterator[Table]:
    """Yields the tables of all rows."""
    models = ("", "_no_message_cost", "_no_spread", "_alpha_beta")
    names = {"group": "group", "method": "method", "n": "n:"}
    for figure, what in (("step_error", "step time"), ("time_error", "time to accuracy")):
        heads = {
            "mean": "mean:.1%",
            "p90": "p90:.1%",
            "worst": "worst:.1%",
            "without messages": "mean_no_message_cost:.1%",
        }
        heads |= {"without spread": "mean_no_spread:.1%", "α–β model": "mean_alpha_beta:.1%"}
        lines = [{**line, **_sizes(own, figure, models)} for line, own in families(rows)]
        yield table(f"Error of the {what}; of simpler models the mean", lines, names | heads)
    figures = {"staleness_tv": ".3f", "share_points": ".1f", "communication_points": ".1f"}
    lines = [
        {**line, **{f"{key}_{of}": value for of in figures for key, value in sizes([row[of] for row in own]).items()}}
        for line, own in families(rows)
    ]
    heads = {f"{of}, {key}": f"{key}_{of}:{form}" for of, form in figures.items() for key in ("mean", "worst")}
    yield table("Staleness (total variation), and fractions of time in points", lines, names | heads)
    taus = {"methods": "methods:", "τ": "tau:.2f", **{name: f"tau_{name}:.2f" for name in SIMPLER}}
    cells = {"setting": "setting", "group": "group", "target not reached": "unreached", **taus}
    yield table("Order of the methods by time to accuracy: Kendall's τ", orders(rows), cells)
    if pairs := wrong_pairs(rows):
        errors = {"error of sooner": "error_sooner:+.1%", "error of later": "error_later:+.1%"}
        by = {"later by, measured": "measured:+.1%", "predicted": "predicted:+.1%", **errors}
        cells = {"setting": "setting", "sooner": "sooner", "later": "later", **by, "seeds distinguish them": "apart"}
        yield table("Pairs of methods in the wrong order", pairs, cells)


def families(rows: Sequence[Row]) -> Iterator[tuple[dict[str, Any], list[Row]]]:
    """Yields the names of a line and its rows: of each group all rows, and then those of each method."""
    by_group = grouped(rows, "group")
    for group in GROUPS:
        if own := by_group.get(group):
            yield {"group": group, "method": ALL, "n": len(own)}, own
            for method, same in grouped(own, "method").items():
                yield {"group": "", "method": method, "n": len(same)}, same


def grouped(rows: Sequence[Row], key: str) -> dict[str, list[Row]]:
    """Returns the rows by the value of a column, in the order of their first rows."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[key], []).append(row)
    return groups


def sizes(errors: Sequence[float | None]) -> dict[str, float]:
    """Returns mean, 90th percentile (interpolated linearly) and maximum of errors without their signs; {} for none.

    >>> sizes([0.1, -0.3, None])
    {'mean': 0.2, 'p90': 0.28, 'worst': 0.3}
    """
    known = np.abs([error for error in errors if error is not None])
    if not len(known):
        return {}
    figures = {"mean": known.mean(), "p90": np.percentile(known, 90), "worst": known.max()}
    return {name: round(float(value), 12) for name, value in figures.items()}


def _sizes(rows: Sequence[Row], figure: str, models: Sequence[str]) -> dict[str, float]:
    """Returns the sizes of a figure's errors for each model; `n` is the number of our errors that are not missing."""
    named = {
        f"{key}{model}": value
        for model in models
        for key, value in sizes([row[f"{figure}{model}"] for row in rows]).items()
    }
    return {"n": sum(row[figure] is not None for row in rows), **named}


# --- the order of methods ---------------------------------------------------------------------------------------------


def ranked(rows: Sequence[Row], fewest: int) -> Iterator[tuple[str, list[Row]]]:
    """Yields the settings with enough methods, and their rows."""
    for setting, own in grouped(rows, "setting").items():
        if len(own) >= fewest:
            yield setting, own


def orders(rows: Sequence[Row], fewest: int = FEWEST_RANKED) -> list[dict[str, Any]]:
    """Returns how well the order of methods by time to accuracy was predicted in each setting with enough methods.

    A method that does not reach the target has the last place. One that reaches it on neither side is left out.
    """
    lines = []
    for setting, all_of_it in ranked(rows, fewest):
        reaching = [row for row in all_of_it if (row["time_predicted_s"], row["time_measured_s"]) != (None, None)]
        if len(reaching) < fewest:
            continue
        measured = [row["time_measured_s"] for row in reaching]
        unreached = [row["method"] for row in all_of_it if None in (row["time_predicted_s"], row["time_measured_s"])]
        line = {
            "setting": setting,
            "group": reaching[0]["group"],
            "methods": len(reaching),
            "unreached": ", ".join(unreached),
        }
        simpler = {f"tau_{name}": kendall([_time(row, name) for row in reaching], measured) for name in SIMPLER}
        lines.append({**line, "tau": kendall([row["time_predicted_s"] for row in reaching], measured), **simpler})
    return lines


def _time(row: Row, model: str) -> float | None:
    """Returns the time to accuracy by a simpler model."""
    error, measured_s = row[f"time_error_{model}"], row["time_measured_s"]
    return None if error is None or measured_s is None else float(measured_s * (1 + error))


def kendall(predicted: Sequence[float | None], measured: Sequence[float | None]) -> float | None:
    """Returns Kendall's τ-b of two orders of methods by their times; a missing time has the last place.

    It is 1 for equal orders, −1 for opposite ones, and None if one side does not order the methods.

    >>> kendall([1.0, 2.0, None], [2.0, 3.0, 4.0])
    1.0
    """
    ranks = [rankdata([math.inf if time is None else time for time in side]) for side in (predicted, measured)]
    tau = float(kendalltau(*ranks).statistic)
    return None if math.isnan(tau) else round(tau, 12)


def wrong_pairs(rows: Sequence[Row], fewest: int = FEWEST_RANKED) -> list[dict[str, Any]]:
    """Returns the pairs of methods whose predicted order is not the measured one, in settings with enough methods.

    `measured` is the measured time of the later method over that of the sooner one, less 1 (None if it missed the
    target); `predicted` the predicted one, below 0. `apart` says whether the measured seeds distinguish the two.
    """
    pairs = []
    for setting, own in ranked(rows, fewest):
        for sooner, later in permutations(own, 2):
            measured, predicted = (_seconds(later, side) - _seconds(sooner, side) for side in ("measured", "predicted"))
            if measured > 0 > predicted:
                times = (parsed_times(row["times_measured"]) for row in (sooner, later))
                pairs.append(
                    {
                        "setting": setting,
                        "sooner": sooner["method"],
                        "later": later["method"],
                        "predicted": _beyond(sooner["time_predicted_s"], later["time_predicted_s"]),
                        "measured": _beyond(sooner["time_measured_s"], later["time_measured_s"]),
                        "apart": _apart(*times),
                        "error_sooner": sooner["time_error"],
                        "error_later": later["time_error"],
                    }
                )
    return pairs


def _seconds(row: Row, side: str) -> float:
    """Returns a time as a finite number; a missing one is later than any other."""
    time_s = row[f"time_{side}_s"]
    return sys.float_info.max if time_s is None else float(time_s)


def _beyond(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else second / first - 1


def _apart(first: Sequence[float | None], second: Sequence[float | None]) -> bool | None:
    """Returns whether seeds distinguish two methods (paired differences, 95 %); None if a seed missed the target."""
    if None in (*first, *second) or len(first) < FEWEST_SEEDS:
        return None
    differ: Callable[..., bool] = told_apart
    return differ(first, second)
