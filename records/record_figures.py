"""What a run's summary says about spans and updates that were not kept."""

from __future__ import annotations

from typing import TypedDict

from paceline.records.keeping import Kind
from paceline.records.metrics import Histogram


class LayerCount(TypedDict):
    """The staleness of all updates of one layer."""

    layer: str
    count: int
    mean: float
    max: int


class RecordFigures(TypedDict):
    """Which records were kept, the errors of estimates from them, and exact counts that the tables do not have."""

    kind: Kind
    kept_ranks: list[int]
    """workers whose spans are in the tables, or, of a summary, from which shares of time were estimated"""
    spans: int
    """number of activities of all ranks that were recorded or counted"""
    updates: int
    """number of inputs of updates"""
    updates_kept: int
    time_fraction_error: dict[str, float]
    """standard error of each estimated fraction of time; 0 for computing, which is exact"""
    histograms: dict[str, Histogram]
    """of every kind of staleness, exact"""
    layers: list[LayerCount]
    """in the order of their first updates; empty if whole gradients are applied"""


def says(records: RecordFigures, workers: int) -> str:
    """Describes in a sentence which figures are exact and which are estimated.

    Args:
        records: the summary's entry.
        workers: number of workers of the run.

    >>> figures = RecordFigures(kind="sampled", kept_ranks=[0, 3], spans=90, updates=20, updates_kept=10,
    ...     time_fraction_error={}, histograms={}, layers=[])
    >>> says(figures, 8)
    'Records are sampled: spans of 2 of 8 workers and 10 of 20 updates were kept. The fractions of time other than \
computing are estimated from them; counts, times, bytes and staleness are exact.'
    """
    ranks = f"{len(records['kept_ranks']):,} of {workers:,} workers"
    if records["kind"] == "summary":
        first = f"Only a summary was kept. Fractions of time other than computing are estimated from {ranks};"
    else:
        kept = f"{records['updates_kept']:,} of {records['updates']:,} updates"
        first = f"Records are sampled: spans of {ranks} and {kept} were kept. The fractions of time other than"
        first += " computing are estimated from them;"
    return f"{first} counts, times, bytes and staleness are exact."
