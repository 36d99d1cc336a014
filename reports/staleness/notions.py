"""One kind of staleness of a run: exact figures from complete tables, or, if records were sampled, from the counters.

The course over time needs a row for each update. Of sampled records it is estimated from the updates that were kept;
clock gaps have no such rows, because they depend on the ends of all workers' steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from paceline.algorithms.core.method import StalenessKind
from paceline.records import Run
from paceline.records.metrics import Histogram, histogram
from paceline.records.record_figures import RecordFigures
from paceline.records.staleness import (
    CLOCK_GAP,
    NAMES,
    LayerFigures,
    NotionFigures,
    RankFigures,
    Series,
    WindowFigures,
    by_layer,
    by_rank,
    figures,
    measured,
    over_time,
    workers_of,
)
from paceline.records.summary import steps_of


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


def notions_of(run: Run) -> dict[str, Notion]:
    """Returns each kind of staleness that applies to a run's method, the method's own kind first."""
    staleness_kind = StalenessKind(run.summary["staleness"]["notion"])
    if (records := records_of(run)) is not None:
        return _counted(run, records, NAMES[staleness_kind])
    return {
        name: Notion(figures(series), histogram(series["value"].tolist()), by_rank(series), series)
        for name, series in measured(run.tables, staleness_kind).items()
    }


def _counted(run: Run, records: RecordFigures, own: str) -> dict[str, Notion]:
    """Returns the kinds of a run whose records were sampled."""
    ranks, updates = run.tables.ranks, run.tables.updates
    notions = run.summary["staleness"]["notions"]
    found = {}
    if own in notions:
        columns = ("rank", "updates", "staleness_sum", "staleness_max")
        series = updates[["time_s", "rank", "staleness"]].set_axis(["time_s", "rank", "value"], axis="columns")
        found[own] = Notion(
            notions[own],
            records["histograms"][own],
            _ranks(ranks, columns),
            series if len(series) else None,
            update_weight(run),
        )
    if CLOCK_GAP in notions:
        each = _ranks(ranks, ("rank", "gradients", "gap_sum", "gap_max"))
        found[CLOCK_GAP] = Notion(notions[CLOCK_GAP], records["histograms"][CLOCK_GAP], each, None)
    return found


def _ranks(table: pd.DataFrame, columns: tuple[str, str, str, str]) -> list[RankFigures]:
    rows = zip(*(table[column].tolist() for column in columns), strict=True)
    return [
        RankFigures(rank=rank, count=count, mean=total / count, max=most) for rank, count, total, most in rows if count
    ]


def update_weight(run: Run) -> float:
    """Returns the number of updates for which a row of the table of updates stands; 1 if all were kept."""
    records = records_of(run)
    return 1.0 if records is None or not records["updates_kept"] else records["updates"] / records["updates_kept"]


def step_seconds(run: Run) -> dict[int, float]:
    """Returns the mean time of each worker's steps."""
    if records_of(run) is not None:
        means = zip(run.tables.ranks["rank"].tolist(), run.tables.ranks["step_s"].tolist(), strict=True)
        return {rank: seconds for rank, seconds in means if np.isfinite(seconds)}
    steps = steps_of(run.tables.spans, workers_of(run.tables.spans), run.summary["wall_s"])
    means_s = (steps["end_s"] - steps["start_s"]).groupby(steps["rank"]).mean()
    return {int(str(rank)): seconds for rank, seconds in means_s.items()}


def layers_of(run: Run) -> list[LayerFigures]:
    """Returns the figures of each layer; empty if whole gradients are applied."""
    kept = by_layer(run.tables.layers)
    if (records := records_of(run)) is None:
        return kept
    ages_s = {one["layer"]: one["age_s"] for one in kept}
    return [LayerFigures(**one, age_s=ages_s.get(one["layer"])) for one in records["layers"]]


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
