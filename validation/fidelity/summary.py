"""Errors of the rows of a study by group and by method, and how well the order of the methods was predicted.

Kendall's τ of a group is over the pairs of methods of one setting: pairs in the right order less those in the wrong
one, as a part of all pairs with different measured times to accuracy. A pair with equal predicted times counts as
neither. A method that does not reach the target is later than any that does; of two that do not, none is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np

from paceline.reports.comparison.ranking import told_apart
from paceline.validation.fidelity.rows import CORRECTED, MODELS, OURS, Row
from paceline.validation.fidelity.settings import GROUPS

FEWEST_SEEDS = 2
"""seeds from which on a difference has an interval"""
ALL = "all"


@dataclass(frozen=True, slots=True)
class Sizes:
    """Mean, 90th percentile (interpolated linearly) and maximum of errors without their signs."""

    n: int
    mean: float
    p90: float
    worst: float

    @staticmethod
    def of(errors: Iterable[float | None]) -> Sizes | None:
        """Returns the sizes of the errors that are not None; None if there are none.

        >>> Sizes.of([0.1, -0.3, None])
        Sizes(n=2, mean=0.2, p90=0.28, worst=0.3)
        """
        known = np.abs([error for error in errors if error is not None])
        if not len(known):
            return None
        figures = (known.mean(), np.percentile(known, 90), known.max())
        return Sizes(len(known), *(round(float(figure), 12) for figure in figures))


# --- the order of methods ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pair:
    """Two methods of one setting, of which the first was measured to reach the target sooner.

    Args:
        sooner, later: their rows.
        apart: whether the measured seeds distinguish them (paired differences, 95 %).
    """

    sooner: Row
    later: Row
    apart: bool

    def sign(self, model: str) -> int | None:
        """Returns 1 if a prediction has the measured order, −1 for the other, 0 for equal times; None without times."""
        first, second = (_predicted_s(row, model) for row in (self.sooner, self.later))
        if first is None or second is None:
            return None
        return (second > first) - (second < first)


def _predicted_s(row: Row, model: str) -> float | None:
    """Returns the predicted time to accuracy, infinite if our prediction does not reach it; None if it is not known."""
    if model == OURS:
        return math.inf if row.time_predicted_s is None else row.time_predicted_s
    error = row.error(model).time
    return None if error is None or row.time_measured_s is None else row.time_measured_s * (1 + error)


def pairs_of(rows: Sequence[Row]) -> Iterator[Pair]:
    """Yields the pairs of methods of each setting whose measured times to accuracy differ."""
    for own in grouped(rows, "setting").values():
        for first, second in combinations(own, 2):
            times_s = [math.inf if row.time_measured_s is None else row.time_measured_s for row in (first, second)]
            if times_s[0] != times_s[1]:
                sooner, later = (first, second) if times_s[0] < times_s[1] else (second, first)
                yield Pair(sooner, later, _apart(sooner.times_measured_s, later.times_measured_s))


def _apart(first: Sequence[float | None], second: Sequence[float | None]) -> bool:
    """Returns whether seeds distinguish two methods; if a seed missed the target, only if all of one and none of the
    other reached it.
    """
    if len(first) < FEWEST_SEEDS or len(first) != len(second):
        return False
    if None in (*first, *second):
        reached = {time_s is not None for time_s in first}, {time_s is not None for time_s in second}
        return reached in (({True}, {False}), ({False}, {True}))
    return bool(told_apart(first, second))  # type: ignore[arg-type]  # none of them is None


def tau(pairs: Iterable[Pair], model: str = OURS) -> float | None:
    """Returns Kendall's τ of a prediction over pairs: 1 if all are in the measured order, −1 if none is.

    None if the prediction has times for no pair.
    """
    signs = [sign for pair in pairs if (sign := pair.sign(model)) is not None]
    return sum(signs) / len(signs) if signs else None


# --- groups -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The errors of some rows.

    Args:
        group: their group.
        method: their method, or `ALL`.
        n: the number of configurations.
        step, time, staleness: sizes of errors by prediction, as far as a prediction has them.
        tau: Kendall's τ by prediction, over all pairs.
        tau_apart: the same over the pairs that the seeds distinguish.
        pairs, pairs_apart: the numbers of those pairs.
        intervals: the number of measured runs with a stated interval.
        within: the share of them inside it; None without.
    """

    group: str
    method: str
    n: int
    step: Mapping[str, Sizes]
    time: Mapping[str, Sizes]
    staleness: Mapping[str, Sizes]
    tau: Mapping[str, float]
    tau_apart: Mapping[str, float]
    pairs: int
    pairs_apart: int
    intervals: int
    within: float | None

    def document(self) -> dict[str, Any]:
        """Returns the summary for a JSON document."""
        return asdict(self)

    @property
    def better(self) -> list[str]:
        """The simpler predictions whose mean error of the step time is smaller than that of ours."""
        ours = self.step.get(OURS)
        others = {name: sizes for name, sizes in self.step.items() if name not in (OURS, CORRECTED)}
        return [name for name, sizes in others.items() if ours is not None and sizes.mean < ours.mean]


def summary_of(rows: Sequence[Row], *, group: str, method: str = ALL) -> Summary:
    """Returns the errors of rows.

    Args:
        rows: the rows.
        group: the name of their group.
        method: the name of their method.
    """

    def sizes(figure: str) -> dict[str, Sizes]:
        every = {model: Sizes.of(getattr(row.error(model), figure) for row in rows) for model in MODELS}
        return {model: known for model, known in every.items() if known is not None}

    pairs = list(pairs_of(rows)) if method == ALL else []
    apart = [pair for pair in pairs if pair.apart]
    stated = [row for row in rows if row.within is not None]
    intervals = sum(row.seeds for row in stated)
    return Summary(
        group=group,
        method=method,
        n=len(rows),
        step=sizes("step"),
        time=sizes("time"),
        staleness=sizes("staleness"),
        tau=_taus(pairs),
        tau_apart=_taus(apart),
        pairs=len(pairs),
        pairs_apart=len(apart),
        intervals=intervals,
        within=sum((row.within or 0.0) * row.seeds for row in stated) / intervals if intervals else None,
    )


def _taus(pairs: Sequence[Pair]) -> dict[str, float]:
    every = {model: tau(pairs, model) for model in MODELS}
    return {model: known for model, known in every.items() if known is not None}


def by_group(rows: Sequence[Row]) -> list[Summary]:
    """Returns the errors of each group that has rows, in the order of `GROUPS`."""
    groups = grouped(rows, "group")
    return [summary_of(groups[group], group=group) for group in GROUPS if group in groups]


def by_method(rows: Sequence[Row]) -> list[Summary]:
    """Returns the errors of each method in each group that has rows."""
    groups = grouped(rows, "group")
    return [
        summary_of(own, group=group, method=method)
        for group in GROUPS
        if group in groups
        for method, own in grouped(groups[group], "method").items()
    ]


def grouped(rows: Iterable[Row], key: str) -> dict[str, list[Row]]:
    """Returns the rows by the value of a field, in the order of their first rows."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(getattr(row, key), []).append(row)
    return groups
