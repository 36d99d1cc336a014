"""Where the order of two algorithms changes along an axis, with the interval of the place over seeds.

* Two algorithms are compared by their means over seeds at each value of the axis, where both have the figure for all
  seeds and at least one period of the method has passed. The place is where the ratio of the means is 1, interpolated
  between two neighbouring values, on a logarithmic axis if the values are spaced by factors.
* Only the last change of the order counts, from which on one algorithm is better up to the largest value. Without a
  difference of `DIFFERENCE` on both sides two algorithms count as equal.
* The interval is that of a bootstrap over seeds. Both algorithms and all values take the same resample, because equal
  seeds have equal samples and jitter. A resample in which one algorithm is better everywhere puts the place outside the
  axis. Fewer seeds than `enough` needs have no interval.
* The percentile interval of a bootstrap is too narrow for few values: it lacks the factor √(n/(n−1)) of the standard
  deviation and takes quantiles of the normal distribution for those of Student's t. The expanded percentile interval
  corrects both by taking quantiles farther outside.
* Up to `ALL_OF` seeds, all resamples are enumerated with their probabilities, so that nothing is random. Of more seeds,
  `DRAWN` resamples are drawn, always the same.
* Values with a unit, such as ``100 Mbit/s``, are an axis like numbers (`axis_values`), in the unit of their kind.

Source: T. Hesterberg, "What Teachers Should Know About the Bootstrap", The American Statistician 69 (2015), on the
expanded percentile interval. MEMORY high; a test measures how often the interval contains the true place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations_with_replacement, permutations
from math import factorial, prod, sqrt
from typing import Any

import numpy as np
import pandas as pd
from pydantic_core import PydanticCustomError

from paceline.records.figures import THROUGHPUT, Figure
from paceline.records.metrics import student
from paceline.reports.sweeps.sweep_table import SweepTable
from paceline.scenarios.values.units import RATE, SIZE, TIME, Kind

DIFFERENCE = 0.005
"""relative difference below which two means are equal; INFERENCE: tables show three digits"""
MOST_ALGORITHMS = 20
"""number of algorithms up to which all pairs are compared; of more, those that are best somewhere"""
PLACE = "place on the axis"
"""the column of the values of the axis as numbers"""
ALL_OF = 6
"""most seeds of which all resamples are taken: 462 of six"""
DRAWN = 20_000
"""resamples of more seeds; INFERENCE: the outer quantile of 7 seeds is then that of 80 resamples"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineCrossing:
    """A value of an axis from which on one algorithm is better than another."""

    figure: Figure
    before: str
    """the better algorithm below"""
    after: str
    """the better algorithm from the crossing on"""
    axis: str
    at: float
    low: float
    """lower end of the 95 % interval; -inf: below the smallest value; NaN: too few seeds"""
    high: float
    seeds: int
    values: Mapping[str, Any]
    """the values of the other axes"""
    leads: bool
    """whether these are the best of all algorithms on either side"""
    repeated: bool
    """whether the order changes also below"""

    def document(self) -> dict[str, Any]:
        """Returns the crossing for the JSON document; an end of the interval beyond the axis is null."""
        known = not np.isnan(self.low)
        ends = {"low": _finite(self.low), "high": _finite(self.high)}
        return {
            "figure": self.figure.key,
            "before": self.before,
            "after": self.after,
            "axis": self.axis,
            "at": self.at,
            "interval": ends if known else None,
            "seeds": self.seeds,
            "vary": dict(self.values),
        }


def crossings(table: SweepTable) -> list[LineCrossing]:
    """Returns all crossings in a sweep along the axis of its figures."""
    if (places := axis_values(table.frame[table.x])) is None:
        return []
    rows = table.frame.assign(**{PLACE: places})[table.frame["periods"].fillna(1.0) >= 1]
    groups = rows.groupby(list(table.others), sort=False, dropna=False) if table.others else [((), rows)]
    return [
        crossing
        for _, part in groups
        for figure in compared_figures(table)
        for crossing in _in_group(table, part, figure)
    ]


def compared_figures(table: SweepTable) -> list[Figure]:
    """Returns the figures in which algorithms are compared: the time to the target if there is one, and throughput."""
    return [THROUGHPUT] if table.target is None else [table.target.figure, THROUGHPUT]


def sign_of(figure: Figure) -> int:
    """Returns 1 if high values of a figure are better, else -1."""
    return 1 if figure.better == "high" else -1


def axis_values(column: pd.Series[Any]) -> pd.Series[Any] | None:
    """Returns the values of an axis as numbers, quantities in the unit of their kind; None if they are neither.

    Args:
        column: the values of a varied path, as in the table.

    >>> axis_values(pd.Series(["100 Mbit/s", "1 Gbit/s"])).tolist()
    [12500000.0, 125000000.0]
    >>> axis_values(pd.Series(["eth-10g", "ib-edr"])) is None
    True
    """
    if pd.api.types.is_bool_dtype(column):
        return None
    if pd.api.types.is_numeric_dtype(column):
        return column
    kind = kind_of(column)
    return None if kind is None else column.map(kind.parse).astype(float)


def kind_of(column: pd.Series[Any]) -> Kind | None:
    """Returns the kind of quantity of which all values of a path are; None if there is none.

    Args:
        column: the values of a varied path, as in the table.
    """
    if pd.api.types.is_numeric_dtype(column):
        return None
    for kind in (RATE, TIME, SIZE):
        try:
            column.map(kind.parse)
        except PydanticCustomError:
            continue
        return kind
    return None


def _in_group(table: SweepTable, rows: pd.DataFrame, figure: Figure) -> Iterator[LineCrossing]:
    """Yields the crossings of a figure at one combination of the values of other axes."""
    if rows.empty:
        return
    values = {path: _json(rows.iloc[0][path]) for path in table.others}
    curves = {
        str(name): part.pivot_table(index="seed", columns=PLACE, values=figure.column, aggfunc="first", dropna=False)
        for name, part in rows.groupby("algorithm", sort=False)
    }
    curves = {name: curve.dropna(axis=1).astype(float) for name, curve in curves.items()}
    sign = sign_of(figure)
    best = _best(curves, sign)
    names = (
        list(curves)
        if len(curves) <= MOST_ALGORITHMS
        else list(dict.fromkeys(name for names in best.values() for name in names))
    )
    for before, after in permutations(names, 2):
        behind, ahead = curves[before].align(curves[after], join="inner")
        if behind.shape[1] < 2 or behind.shape[0] < 1 or not ((behind > 0) & (ahead > 0)).all(axis=None):
            continue
        places = behind.columns.to_numpy(dtype=float)
        lead = _lead(behind.to_numpy(), ahead.to_numpy(), sign, np.full((1, len(behind)), 1 / len(behind)))[0]
        at, low, high = place_and_interval(behind.to_numpy(), ahead.to_numpy(), places, sign)
        if not np.isfinite(at):
            continue
        last = int(np.flatnonzero(lead <= 0)[-1])
        if -lead[: last + 1].min() < DIFFERENCE or lead[last + 1 :].max() < DIFFERENCE:
            continue
        yield LineCrossing(
            figure=figure,
            before=before,
            after=after,
            axis=table.x,
            at=at,
            low=low,
            high=high,
            seeds=len(behind),
            values=values,
            leads=before in best[places[last]] and after in best[places[last + 1]],
            repeated=bool((np.diff(lead > 0) != 0).sum() > 1),
        )


def _best(curves: Mapping[str, pd.DataFrame], sign: int) -> dict[float, list[str]]:
    """Returns the best algorithms at each value of the axis: several if they are exactly equal."""
    means = pd.DataFrame({name: curve.mean() for name, curve in curves.items()}).mul(sign).dropna(how="all")
    equal = means.eq(means.max(axis=1), axis=0)
    return {float(place): [str(name) for name in row.index[row]] for place, row in equal.iterrows()}  # type: ignore[arg-type]


def place_and_interval(curve: Any, other: Any, places: Any, sign: int) -> tuple[float, float, float]:
    """Returns from where on `other` is better than `one`, and the ends of the 95 % interval of this place.

    Args:
        curve: figures of an algorithm (seeds, values of the axis), above 0.
        other: figures of the other algorithm.
        places: the values of the axis, increasing.
        sign: 1 if more is better, else -1.

    Returns:
        The place and the ends: -inf where `other` is better everywhere, inf where it is not at the largest value; the
        ends are NaN with too few seeds.

    >>> flat, falling = np.full((1, 4), 2.0), np.array([[8.0, 4.0, 1.0, 0.5]])
    >>> round(place_and_interval(flat, falling, np.array([1.0, 2.0, 8.0, 16.0]), -1)[0], 3)
    4.0
    """
    count = len(curve)
    at = float(_last_change(_lead(curve, other, sign, np.full((1, count), 1 / count)), places)[0])
    if not enough(count) or not np.isfinite(at):
        return at, float("nan"), float("nan")
    weights, probabilities = resamples(count)
    changes = _last_change(_lead(curve, other, sign, weights), places)
    return at, *interval_ends(changes, probabilities, tail(count))


def _lead(curve: Any, other: Any, sign: int, weights: Any) -> Any:
    """Returns by how much `other` is better in each resample, at each value: the logarithm of the ratio of means."""
    return sign * (np.log(weights @ other) - np.log(weights @ curve))


def _last_change(lead: Any, places: Sequence[float] | Any) -> Any:
    """Returns where each row of `lead` becomes positive for good: -inf if it always is, inf if its end is not."""
    positions = positions_on_axis(places)
    behind = lead <= 0
    last = lead.shape[1] - 1 - np.argmax(behind[:, ::-1], axis=1)
    start = np.minimum(last, lead.shape[1] - 2)
    rows = np.arange(len(lead))
    left, right = lead[rows, start], lead[rows, start + 1]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):  # in rows without a change
        at = positions[start] - left / (right - left) * (positions[start + 1] - positions[start])
        at = np.exp(at) if geometric(places) else at
    return np.where(behind[:, -1], np.inf, np.where(behind.any(axis=1), at, -np.inf))


def geometric(places: Sequence[float] | Any) -> bool:
    """Returns whether values are spaced more evenly by factors than by differences.

    >>> geometric([1, 2, 4, 8]), geometric([1, 9, 17, 25]), geometric([0, 1, 2])
    (True, False, False)
    """
    places = np.asarray(places, dtype=float)
    if places[0] <= 0:
        return False
    steps, factors = np.diff(places), np.diff(np.log(places))
    return bool(factors.std() / factors.mean() <= steps.std() / steps.mean())


def positions_on_axis(places: Sequence[float] | Any) -> Any:
    """Returns the positions for an interpolation: logarithms of values that are spaced by factors."""
    places = np.asarray(places, dtype=float)
    return np.log(places) if geometric(places) else places


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _json(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def tail(count: int) -> float:
    """Returns the probability below the lower end of an expanded 95 % percentile interval.

    Φ(−√(n/(n−1)) · t(0.975, n−1))

    Args:
        count: n, the number of values that are resampled, at least 2.

    >>> round(tail(5), 5), round(tail(100), 4)
    (0.00095, 0.0231)
    """
    from scipy.special import ndtr

    return float(ndtr(-sqrt(count / (count - 1)) * student(count - 1)))


def enough(count: int) -> bool:
    """Returns whether resamples of so many values reach as far as the ends of an interval.

    The rarest resample, n times the same value, has the probability n^−n. DERIVED: below 5 values this is more than
    `tail`, so that the ends of the interval would be beyond all resamples.

    >>> [count for count in range(1, 8) if enough(count)]
    [5, 6, 7]
    """
    return count > 1 and count**-count <= tail(count)


@lru_cache(maxsize=8)
def resamples(count: int) -> tuple[Any, Any]:
    """Returns the weights of the values in each resample, and the probability of each resample.

    Args:
        count: number of values.

    Returns:
        An array (resamples, values), whose rows have the sum 1, and an array (resamples,) with the sum 1.
    """
    if count > ALL_OF:
        drawn = np.random.default_rng(0).multinomial(count, np.full(count, 1 / count), size=DRAWN)
        return drawn / count, np.full(DRAWN, 1 / DRAWN)
    rows = [np.bincount(chosen, minlength=count) for chosen in combinations_with_replacement(range(count), count)]
    ways = [factorial(count) / prod(factorial(int(times)) for times in row) for row in rows]
    return np.array(rows) / count, np.array(ways) / float(count) ** count


def interval_ends(values: Sequence[float] | Any, probabilities: Any, below: float) -> tuple[float, float]:
    """Returns the quantiles `below` and 1 − `below` of a discrete distribution, which may have infinite values.

    Args:
        values: the values.
        probabilities: their probabilities.
        below: probability of each end.

    >>> interval_ends([3.0, 1.0, 2.0], np.array([0.25, 0.25, 0.5]), 0.25)
    (1.0, 2.0)
    """
    order = np.argsort(values, kind="stable")
    up_to = np.cumsum(np.asarray(probabilities)[order])
    rounding = 1e-12  # of the sum of probabilities
    low, high = (int(np.searchsorted(up_to, level - rounding)) for level in (below, 1 - below))
    ordered = np.asarray(values, dtype=float)[order]
    return float(ordered[low]), float(ordered[min(high, len(ordered) - 1)])
