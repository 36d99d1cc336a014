"""Detailed staleness figures from a run's tables: for each kind of staleness, per rank, per layer, over time, and
against the change of the loss.

* Papers use the word staleness for six quantities. A method's `staleness` column holds one of five, which
  `algorithms.core.method.StalenessKind` defines and `algorithms.runtime.weights_owner` computes while a run goes on;
  the sixth, the clock gap, is computed here from the spans of every run with several workers. `measured` returns those
  that a run has.
* The data of each kind are a `Series` with one row per input of an update, or per finished step. All figures are
  functions of a series, so that all kinds are shown alike.
* A missing figure is None: an empty window has a count of 0 and no mean.
* `between_evaluations` is available for every run. It shows correlation, not causation: early in a run the loss falls
  fast regardless of staleness. `by_staleness` shows the effect of single updates on the loss of held-out data, measured
  just before and after them; it is available for simulations with probes.
* Early updates change the loss most, regardless of staleness. So `slope` compares a probe only with its neighbours in
  time, those of the same block of `BLOCK` successive probes. Intervals are 95 % intervals by Student's t.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
import pandas as pd

from paceline.algorithms.core.method import StalenessKind
from paceline.algorithms.core.values import may_diverge
from paceline.records.keeping import RecordFigures
from paceline.records.metrics import Histogram, finite, histogram, interval, student
from paceline.records.tables import Tables

if TYPE_CHECKING:
    from paceline.records.run import Run


CLOCK_GAP = "clock gap"
NAMES: Mapping[StalenessKind, str] = {
    StalenessKind.STEPS: "iteration delay",
    StalenessKind.VERSION_LAG: "version lag",
    StalenessKind.EXCHANGE_LAG: "exchange lag",
    StalenessKind.LOCAL_AGE: "local-step age",
    StalenessKind.PEER_AGE: "peer age",
}
"""the name of each kind of staleness"""
COUNTS: Mapping[str, str] = {
    **{name: staleness_kind.value for staleness_kind, name in NAMES.items()},
    CLOCK_GAP: "steps that a worker has finished more than the slowest, when it finishes one",
}
"""what each kind of staleness counts, by name"""
WINDOWS = 20
"""number of windows of a run; provenance: ours"""

Series = pd.DataFrame
"""columns `time_s`, `rank`, `value`"""


class NotionFigures(TypedDict):
    """One kind of staleness in a summary."""

    mean: float | None
    max: int | None
    mean_of_ranks: float | None


class RankFigures(TypedDict):
    """One kind of staleness, or the age of gradients in seconds, at one rank."""

    rank: int
    count: int
    mean: float
    max: int


class WindowFigures(TypedDict):
    """One kind of staleness in one window of a run, without `from_s` and with `to_s`."""

    from_s: float
    to_s: float
    count: int
    mean: float | None
    p50: float | None
    p95: float | None
    max: int | None
    histogram: Histogram


class Staleness(TypedDict):
    """Staleness of the inputs of updates; `notion` says which kind it is."""

    notion: str
    mean: float | None
    mean_of_ranks: float | None
    max: int | None
    histogram: Histogram
    by_rank: list[list[float]]
    """``[[rank, mean], …]``"""
    notions: dict[str, NotionFigures]
    """every kind of staleness that applies to the method, by name, its own included"""


def measured(tables: Tables, staleness_kind: StalenessKind, workers: int | None = None) -> dict[str, Series]:
    """Returns the series of each kind of staleness that applies to a run's method, the method's own kind first.

    Args:
        tables: the tables of the run.
        staleness_kind: the kind in the staleness column.
        workers: number of workers, ranks 0 … workers − 1; by default up to the last rank that computed gradients.
    """
    own = tables.updates[["time_s", "rank", "staleness"]].set_axis(["time_s", "rank", "value"], axis="columns")
    gaps = clock_gaps(tables.spans, workers_of(tables.spans) if workers is None else workers)
    return {NAMES[staleness_kind]: own} | ({CLOCK_GAP: gaps} if len(gaps) else {})


def workers_of(spans: pd.DataFrame) -> int:
    """Returns the number of workers: only workers compute gradients, and they are the first ranks."""
    ranks = spans.loc[spans["activity"] == "compute", "rank"]
    return int(ranks.max()) + 1 if len(ranks) else 0


def clock_gaps(spans: pd.DataFrame, workers: int) -> Series:
    """Returns how many steps each worker is ahead of the slowest when it ends a step; empty for a single worker.

    gap = own finished steps − min_j finished steps of j

    Steps that end at the same time count together, so workers in lockstep have no gap. Cancelled steps count, too. The
    slowest worker has finished k steps when the k-th step of every worker has ended; the minimum is computed from this.

    Args:
        spans: the table.
        workers: number of workers, ranks 0 … workers − 1.
    """
    gradients = spans[(spans["activity"] == "compute") & (spans["rank"] < workers)]
    ends = (
        gradients.groupby(["rank", "step"])["end_s"].max().reset_index().sort_values(["end_s", "rank"], kind="stable")
    )
    if workers < 2 or not len(ends):
        return pd.DataFrame({"time_s": [], "rank": [], "value": []})
    own = ends.groupby("rank").cumcount() + 1
    all_workers = ends["end_s"].groupby(own).agg(["max", "count"])
    slowest_s = all_workers.loc[all_workers["count"] == workers, "max"].to_numpy()
    slowest = np.searchsorted(slowest_s, ends["end_s"].to_numpy(), side="right")
    gaps = {"time_s": ends["end_s"], "rank": ends["rank"], "value": own - slowest}
    return pd.DataFrame(gaps).reset_index(drop=True)


def figures(series: Series) -> NotionFigures:
    """Returns the mean, the maximum, and the mean of the ranks' means.

    >>> figures(pd.DataFrame({"time_s": [1.0, 2.0, 3.0], "rank": [0, 0, 1], "value": [0, 2, 4]}))
    {'mean': 2.0, 'max': 4, 'mean_of_ranks': 2.5}
    """
    values = series["value"]
    return NotionFigures(
        mean=finite(values.mean()),
        max=int(values.max()) if len(values) else None,
        mean_of_ranks=finite(values.groupby(series["rank"]).mean().mean()),
    )


def by_rank(series: Series) -> list[RankFigures]:
    """Returns count, mean and maximum of each rank."""
    rows = series.groupby("rank")["value"].agg(["count", "mean", "max"])
    return [
        RankFigures(rank=int(str(rank)), count=int(row["count"]), mean=float(row["mean"]), max=int(row["max"]))
        for rank, row in rows.iterrows()
    ]


def over_time(series: Series, wall_s: float, windows: int = WINDOWS) -> list[WindowFigures]:
    """Returns the distribution in each of several windows of equal length.

    A time on a border belongs to the earlier window; times after `wall_s` belong to the last one.

    Args:
        series: the series.
        wall_s: the length of the run.
        windows: number of windows.

    >>> series = pd.DataFrame({"time_s": [1.0, 2.0, 3.0], "rank": [0, 0, 1], "value": [0, 2, 4]})
    >>> [(one["count"], one["mean"]) for one in over_time(series, wall_s=4.0, windows=2)]
    [(2, 1.0), (1, 4.0)]
    """
    edges = np.linspace(0.0, wall_s, windows + 1)
    place = np.searchsorted(edges, series["time_s"].to_numpy(), side="left").clip(1, windows) - 1
    return [
        _window(float(edges[number]), float(edges[number + 1]), series.loc[place == number, "value"])
        for number in range(windows)
    ]


def _window(from_s: float, to_s: float, values: pd.Series[Any]) -> WindowFigures:
    p50, p95 = np.percentile(values, [50, 95]) if len(values) else (None, None)
    return WindowFigures(
        from_s=from_s,
        to_s=to_s,
        count=len(values),
        mean=finite(values.mean()),
        p50=finite(p50),
        p95=finite(p95),
        max=int(values.max()) if len(values) else None,
        histogram=histogram(values.tolist()),
    )


class LayerFigures(TypedDict):
    """The staleness of the updates of one layer, and the mean age of their gradients in seconds."""

    layer: str
    count: int
    mean: float
    max: int
    age_s: float | None


def by_layer(layers: pd.DataFrame) -> list[LayerFigures]:
    """Returns the figures of each layer, in the order of their first updates; empty if whole gradients are applied."""
    rows = layers.groupby("layer", sort=False).agg(
        count=("staleness", "count"), mean=("staleness", "mean"), most=("staleness", "max"), age_s=("age_s", "mean")
    )
    return [
        LayerFigures(
            layer=str(layer),
            count=int(row["count"]),
            mean=float(row["mean"]),
            max=int(row["most"]),
            age_s=finite(row["age_s"]),
        )
        for layer, row in rows.iterrows()
    ]


class AgeFigures(TypedDict):
    """Seconds between the start of a gradient and its application."""

    mean_s: float | None
    p50_s: float | None
    p95_s: float | None
    max_s: float | None
    by_rank: list[list[float]]
    """``[[rank, mean in seconds], …]``"""


def ages(updates: pd.DataFrame) -> AgeFigures:
    """Returns the age of gradients in seconds; None if the run did not record when gradients began."""
    known = updates.dropna(subset="age_s")
    column = known["age_s"]
    p50, p95 = np.percentile(column, [50, 95]) if len(column) else (None, None)
    means = column.groupby(known["rank"]).mean()
    return AgeFigures(
        mean_s=finite(column.mean()),
        p50_s=finite(p50),
        p95_s=finite(p95),
        max_s=finite(column.max()),
        by_rank=[[int(str(rank)), float(mean)] for rank, mean in means.items()],
    )


class DriftFigures(TypedDict):
    """‖x_i − mean x‖ after steps of the same staleness, over workers and rounds."""

    staleness: int
    count: int
    mean: float | None
    max: float | None


def by_age(drift: pd.DataFrame) -> list[DriftFigures]:
    """Returns the drift of workers, by the staleness of the step before the measurement."""
    return [
        DriftFigures(
            staleness=int(str(age)), count=len(part), mean=finite(part["drift"].mean()), max=finite(part["drift"].max())
        )
        for age, part in drift.groupby("staleness")
    ]


@dataclass(frozen=True, slots=True)
class Notion:
    """One kind of staleness of one run."""

    figures: NotionFigures
    histogram: Histogram
    by_rank: list[RankFigures]
    series: Series | None
    """one row for each value or for each that was kept; None if there are only counts"""
    weight: float = 1.0
    """the number of values for which a row of the series stands"""

    def over_time(self, wall_s: float) -> list[WindowFigures] | None:
        """Returns the distribution in each window of the run; None if there are only counts.

        Args:
            wall_s: the length of the run.
        """
        if self.series is None:
            return None
        windows = over_time(self.series, wall_s)
        for window in windows:
            window["count"] = round(window["count"] * self.weight)
        return windows


def records_of(run: Run) -> RecordFigures | None:
    """Returns what the summary says about records that were not kept; None if all were."""
    return run.summary.get("records")


def staleness_of(staleness_kind: StalenessKind, notions: Mapping[str, Notion]) -> Staleness:
    """Returns what a summary says of staleness.

    Args:
        staleness_kind: the method's own kind.
        notions: every kind that applies, the method's own first.
    """
    own = next(iter(notions.values()))
    return Staleness(
        notion=staleness_kind.value,
        mean=own.figures["mean"],
        mean_of_ranks=own.figures["mean_of_ranks"],
        max=own.figures["max"],
        histogram=own.histogram,
        by_rank=[[row["rank"], row["mean"]] for row in own.by_rank],
        notions={name: notion.figures for name, notion in notions.items()},
    )


def notions_of_tables(tables: Tables, staleness_kind: StalenessKind, workers: int | None = None) -> dict[str, Notion]:
    """Returns each kind of staleness of complete tables, by name; the arguments are those of `measured`."""
    return {
        name: Notion(figures(series), histogram(series["value"].tolist()), by_rank(series), series)
        for name, series in measured(tables, staleness_kind, workers).items()
    }


def notions_of(run: Run) -> dict[str, Notion]:
    """Returns each kind of staleness that applies to a run's method, the method's own kind first."""
    staleness_kind = StalenessKind(run.summary["staleness"]["notion"])
    if (records := records_of(run)) is not None:
        return _counted(run, records, NAMES[staleness_kind])
    return notions_of_tables(run.tables, staleness_kind)


def _counted(run: Run, records: RecordFigures, own: str) -> dict[str, Notion]:
    """Returns the kinds of a run whose records were sampled."""
    ranks, updates = run.tables.ranks, run.tables.updates
    notions = run.summary["staleness"]["notions"]
    notions_of = {}
    if own in notions:
        columns = ("rank", "updates", "staleness_sum", "staleness_max")
        series = updates[["time_s", "rank", "staleness"]].set_axis(["time_s", "rank", "value"], axis="columns")
        notions_of[own] = Notion(
            notions[own],
            records["histograms"][own],
            _ranks(ranks, columns),
            series if len(series) else None,
            update_weight(run),
        )
    if CLOCK_GAP in notions:
        each = _ranks(ranks, ("rank", "gradients", "gap_sum", "gap_max"))
        notions_of[CLOCK_GAP] = Notion(notions[CLOCK_GAP], records["histograms"][CLOCK_GAP], each, None)
    return notions_of


def _ranks(table: pd.DataFrame, columns: tuple[str, str, str, str]) -> list[RankFigures]:
    return rank_figures(*(table[column].tolist() for column in columns))


def rank_figures(
    ranks: Iterable[int], counts: Iterable[int], totals: Iterable[int], largest: Iterable[int]
) -> list[RankFigures]:
    """Returns the figures of ranks from the number, the sum and the maximum of their values."""
    rows = zip(ranks, counts, totals, largest, strict=True)
    return [
        RankFigures(rank=rank, count=count, mean=total / count, max=most) for rank, count, total, most in rows if count
    ]


def update_weight(run: Run) -> float:
    """Returns the number of updates for which a row of the table of updates stands; 1 if all were kept."""
    records = records_of(run)
    return 1.0 if records is None or not records["updates_kept"] else records["updates"] / records["updates_kept"]


def layers_of(run: Run) -> list[LayerFigures]:
    """Returns the figures of each layer; empty if whole gradients are applied."""
    kept = by_layer(run.tables.layers)
    if (records := records_of(run)) is None:
        return kept
    ages_s = {row["layer"]: row["age_s"] for row in kept}
    return [LayerFigures(**row, age_s=ages_s.get(row["layer"])) for row in records["layers"]]


def at_least(values: Histogram, share: float) -> int:
    """Returns the largest value that this fraction of the values reaches or exceeds.

    Args:
        values: how often each value occurs.
        share: the fraction of values, from 0 to 1.

    >>> at_least([[0, 1], [1, 1], [2, 1], [9, 1]], 0.5)
    2
    """
    needed, reached = int(np.ceil(share * sum(count for _, count in values))), 0
    for value, count in sorted(values, reverse=True):
        reached += count
        if reached >= needed:
            return value
    raise ValueError("there are no values")


BLOCK = 10
"""number of successive probes that are compared with each other; provenance: ours"""
LEAST = 5
"""smallest number of probes of a staleness in a slope, so that one outlier cannot determine it; provenance: ours"""


class StalenessStretch(TypedDict):
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


def between_evaluations(
    updates: pd.DataFrame, evaluations: pd.DataFrame, weight: float = 1.0
) -> list[StalenessStretch]:
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
            StalenessStretch(
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


class EvaluationInterval(TypedDict):
    """A mean, with its 95 % interval if there are at least two values."""

    mean: float
    low: float | None
    high: float | None


class AtStaleness(TypedDict):
    """The effect of the probed updates of one staleness on the loss."""

    staleness: int
    """mean staleness of an update's inputs, rounded; the smallest one if several values are merged"""
    count: int
    loss_change: EvaluationInterval


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
    changes = _changes(probes)
    values = changes["staleness"].round().astype(int) // width * width
    return [
        AtStaleness(staleness=int(str(lag)), count=len(part), loss_change=_interval(part.to_numpy()))
        for lag, part in changes["change"].groupby(values)
    ]


@may_diverge
def slope(probes: pd.DataFrame) -> EvaluationInterval | None:
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
    changes = _changes(probes)
    rounded = changes["staleness"].round()
    changes = changes[rounded.map(rounded.value_counts()) >= LEAST]
    block = np.arange(len(changes)) // BLOCK
    within = changes[["staleness", "change"]] - changes[["staleness", "change"]].groupby(block).transform("mean")
    spread, free = float((within["staleness"] ** 2).sum()), len(changes) - len(set(block)) - 1
    if spread == 0 or free < 1:
        return None
    mean = float((within["staleness"] * within["change"]).sum() / spread)
    left = within["change"] - mean * within["staleness"]
    error = float(np.sqrt(len(changes) / free * ((within["staleness"] * left) ** 2).sum())) / spread
    half = float(student(free)) * error
    return (
        EvaluationInterval(mean=mean, low=finite(mean - half), high=finite(mean + half)) if np.isfinite(mean) else None
    )


@may_diverge
def _changes(probes: pd.DataFrame) -> pd.DataFrame:
    change = probes["loss_after"] - probes["loss_before"]
    changes: pd.DataFrame = probes.assign(change=change)[np.isfinite(change.to_numpy())]
    return changes


@may_diverge
def _interval(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> EvaluationInterval:
    if len(values) < 2:
        return EvaluationInterval(mean=float(values.mean()), low=None, high=None)
    bounds = interval(values.tolist())
    return EvaluationInterval(mean=bounds["mean"], low=finite(bounds["low"]), high=finite(bounds["high"]))
