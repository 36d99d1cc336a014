"""Statistics of the rows: errors of a family or a group, and the order of methods."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
from scipy.stats import kendalltau, rankdata

from fidelity_runs.results import Row, parsed_times
from paceline.reports.comparison.ranking import told_apart

FEWEST_SEEDS = 2
"""seeds from which on a difference has an interval"""
FEWEST_RANKED = 5
"""methods of a setting from which on their order is evaluated; our choice"""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of some errors, without their signs.

    Args:
        count: the number of errors that are not missing.
        mean: their mean.
        p90: their 90th percentile, interpolated linearly.
        worst: the largest.
    """

    count: int
    mean: float
    p90: float
    worst: float


def sizes(errors: Iterable[float | None]) -> Sizes | None:
    """Returns the statistics of errors; None if all are missing.

    >>> sizes([0.1, -0.3, None])
    Sizes(count=2, mean=0.2, p90=0.28, worst=0.3)
    """
    found = np.abs([error for error in errors if error is not None])
    if not len(found):
        return None
    figures = (float(found.mean()), float(np.percentile(found, 90)), float(found.max()))
    return Sizes(len(found), *(round(value, 12) for value in figures))


def grouped(rows: Sequence[Row], key: Callable[[Row], str]) -> dict[str, list[Row]]:
    """Returns the rows by a key, in the order of their first rows.

    Args:
        rows: the rows.
        key: the key of a row.
    """
    found: dict[str, list[Row]] = {}
    for one in rows:
        found.setdefault(key(one), []).append(one)
    return found


@dataclass(frozen=True, slots=True)
class Order:
    """How well the order of methods by time to accuracy was predicted in a setting.

    Args:
        setting: its name.
        group: its group.
        methods: the number of methods.
        tau: Kendall's τ-b of the simulation; None if all times are equal on one side.
        simpler: that of the simpler models, in the order of `SIMPLER`.
        unreached: methods that reached the target on one side only, or on none.
    """

    setting: str
    group: str
    methods: int
    tau: float | None
    simpler: tuple[float | None, ...]
    unreached: tuple[str, ...]


SIMPLER = ("no_message_cost", "no_spread", "alpha_beta")


def orders(rows: Sequence[Row], fewest: int = FEWEST_RANKED) -> list[Order]:
    """Returns the orders of the settings with enough methods.

    A method that does not reach the target has the last place. One that reaches it on neither side is left out.

    Args:
        rows: the rows.
        fewest: the least number of methods of a setting.
    """
    found = []
    for setting, all_of_it in grouped(rows, lambda one: one.setting).items():
        mine = [one for one in all_of_it if one.time_predicted_s is not None or one.time_measured_s is not None]
        if len(mine) >= fewest:
            measured = [one.time_measured_s for one in mine]
            simpler = tuple(kendall([_time(one, model) for one in mine], measured) for model in SIMPLER)
            tau = kendall([one.time_predicted_s for one in mine], measured)
            unreached = tuple(one.method for one in all_of_it if None in (one.time_predicted_s, one.time_measured_s))
            found.append(Order(setting, mine[0].group, len(mine), tau, simpler, unreached))
    return found


@dataclass(frozen=True, slots=True)
class WrongPair:
    """Two methods of a setting whose order was predicted wrongly.

    Args:
        setting: the setting.
        sooner: the method that reaches the target sooner in the measurement.
        later: the other one.
        predicted: the predicted time of `later` over that of `sooner`, less 1; below 0.
        measured: the measured one; above 0. None if `later` missed the target.
        apart: whether the measured seeds distinguish the two (paired differences, 95 %); None for a single seed.
        error_sooner: the error of the predicted time of `sooner`; None if it was missed on one side.
        error_later: that of `later`.
    """

    setting: str
    sooner: str
    later: str
    predicted: float | None
    measured: float | None
    apart: bool | None
    error_sooner: float | None
    error_later: float | None


def wrong_pairs(rows: Sequence[Row], fewest: int = FEWEST_RANKED) -> list[WrongPair]:
    """Returns the pairs of methods whose predicted order is not the measured one, in settings with enough methods.

    Args:
        rows: the rows.
        fewest: the least number of methods of a setting.
    """
    found = []
    for setting, mine in grouped(rows, lambda one: one.setting).items():
        if len(mine) < fewest:
            continue
        for sooner, later in permutations(mine, 2):
            measured = _seconds(later.time_measured_s) - _seconds(sooner.time_measured_s)
            predicted = _seconds(later.time_predicted_s) - _seconds(sooner.time_predicted_s)
            if measured > 0 > predicted:
                found.append(_pair(setting, sooner, later))
    return found


def _seconds(time_s: float | None) -> float:
    """Returns a time as a finite number; a missing one is later than any other."""
    return sys.float_info.max if time_s is None else time_s


def _pair(setting: str, sooner: Row, later: Row) -> WrongPair:
    def ratio(first: float | None, second: float | None) -> float | None:
        return None if first is None or second is None else second / first - 1

    return WrongPair(
        setting=setting,
        sooner=sooner.method,
        later=later.method,
        predicted=ratio(sooner.time_predicted_s, later.time_predicted_s),
        measured=ratio(sooner.time_measured_s, later.time_measured_s),
        apart=_apart(parsed_times(sooner.times_measured), parsed_times(later.times_measured)),
        error_sooner=sooner.time_error,
        error_later=later.time_error,
    )


def _apart(one: Sequence[float | None], other: Sequence[float | None]) -> bool | None:
    """Returns whether seeds distinguish two methods; None if there are too few seeds that reached the target."""
    pairs = [
        (first, second) for first, second in zip(one, other, strict=True) if first is not None and second is not None
    ]
    if len(pairs) < FEWEST_SEEDS or len(pairs) < len(one):
        return None
    return told_apart(*zip(*pairs, strict=True))


def _time(one: Row, model: str) -> float | None:
    """Returns the time to accuracy by a simpler model."""
    error: float | None = getattr(one, f"time_error_{model}")
    return None if error is None or one.time_measured_s is None else one.time_measured_s * (1 + error)


def kendall(predicted: Sequence[float | None], measured: Sequence[float | None]) -> float | None:
    """Returns Kendall's τ-b of two orders; a missing time has the last place.

    Args:
        predicted: a time for each method.
        measured: the measured ones.

    Returns:
        1 for equal orders, −1 for opposite ones; None if one side does not order the methods.

    >>> kendall([1.0, 2.0, None], [2.0, 3.0, 4.0])
    1.0
    """
    ranks = [rankdata([math.inf if time is None else time for time in side]) for side in (predicted, measured)]
    found = float(kendalltau(*ranks).statistic)
    return None if math.isnan(found) else round(found, 12)
