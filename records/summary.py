"""The figures of a run, worked out from its tables alone, so that a stored run gives the same summary again.

Rules of this file:

* The keys are those that docs/guide.md lists; a figure that cannot be said is None.
* A rank's second belongs to exactly one activity. Where several lanes are busy at once, the first of `ACTIVITIES`
  counts: communication hidden behind a gradient costs nothing. A second in which nothing was recorded is waiting.
  Doing lost work again is computing; being down and writing checkpoints are waiting.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, Literal, NotRequired, TypedDict

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from paceline.algorithms.method import Notion
from paceline.records.faults import FaultFigures, Slowed, fault_figures
from paceline.records.metrics import Histogram, finite, histogram, smoothed, time_to
from paceline.records.tables import ACTIVITIES, Tables
from paceline.records.trace import LostUpdates

Kind = Literal["simulated", "measured"]

SMOOTHING = 3
"""evaluations in the trailing mean that time to accuracy is read from; provenance: ours"""

DIVERGED = 10.0
"""a final loss of more than so many times the first one counts as diverged; provenance: ours"""


KINDS = {activity: kind for kind, activity in enumerate(ACTIVITIES)} | {"redo": ACTIVITIES.index("compute")}
"""of each activity in the table of spans, its place among those that time is given to, if any"""
Seconds = NDArray[np.float64]
Numbers = NDArray[np.integer[Any]]


class StepTime(TypedDict):
    """Seconds between the starts of a rank's successive gradients, over all worker ranks."""

    mean: float | None
    p50: float | None
    p95: float | None


class Staleness(TypedDict):
    """Staleness of the inputs of updates; `notion` says which of the things called so it is."""

    notion: str
    mean: float | None
    mean_of_ranks: float | None
    max: int | None
    histogram: Histogram
    by_rank: list[list[float]]
    """``[[rank, mean], …]``"""


class Summary(TypedDict):
    """The figures of one run. Times in seconds of the run's own clock, shares without unit."""

    kind: Kind
    paced: bool
    """measured with steps held to the scenario's device time"""
    emulated_network: bool
    wall_s: float
    steps: int
    """gradients of all ranks"""
    updates: int
    """times that the weights being learned took in somebody's work"""
    samples: int
    samples_per_s: float | None
    step_s: StepTime
    share: dict[str, float]
    bytes_sent: int
    staleness: Staleness
    lost_updates: LostUpdates | None
    """null where nothing was added to shared memory"""
    target_accuracy: float | None
    smoothing: int
    """evaluations in the trailing mean that `time_to_accuracy_s` is read from"""
    time_to_accuracy_s: float | None
    final_loss: float | None
    final_accuracy: float | None
    diverged: bool
    faults: NotRequired[FaultFigures]
    """only where the scenario has slowdowns or crashes"""


def summarise(
    tables: Tables,
    *,
    kind: Kind,
    wall_s: float,
    workers: int,
    notion: Notion,
    target: float | None = None,
    smoothing: int = SMOOTHING,
    paced: bool = False,
    emulated_network: bool = False,
    slowed: Slowed | None = None,
    lost_updates: LostUpdates | None = None,
    each_counts: bool = False,
) -> Summary:
    """The summary of a run.

    Args:
        tables: what happened.
        kind: never one for the other.
        wall_s: the run's own clock at its end.
        workers: ranks 0 … workers − 1 are workers.
        notion: what the staleness column counts.
        target: the accuracy that time to accuracy is measured against.
        smoothing: evaluations in the trailing mean.
        paced: whether a measured run held its steps to device times.
        emulated_network: whether a measured run's messages crossed an emulated network.
        slowed: of a run with slowdowns or crashes: by how much they made a stretch of work longer.
        lost_updates: what came of additions to shared cells.
        each_counts: whether each input is an update of its own, though two may have replaced the same version.
    """
    spans, updates, evaluations = tables.spans, tables.updates, tables.evaluations
    starts = step_starts(spans, workers)
    samples = int(updates["samples"].sum())
    accuracies = smoothed(evaluations["accuracy"].tolist(), smoothing)
    summary = Summary(
        kind=kind,
        paced=paced,
        emulated_network=emulated_network,
        wall_s=wall_s,
        steps=len(starts),
        updates=len(updates) if each_counts else count_updates(updates, notion),
        samples=samples,
        samples_per_s=samples / wall_s if wall_s > 0 else None,
        step_s=step_times(starts),
        share=shares(spans, wall_s=wall_s, workers=workers),
        bytes_sent=int(spans["bytes"].sum()),
        staleness=staleness(updates, notion),
        lost_updates=lost_updates,
        target_accuracy=target,
        smoothing=smoothing,
        time_to_accuracy_s=None
        if target is None
        else time_to(target, evaluations["time_s"].tolist(), accuracies.tolist()),
        final_loss=_last(evaluations["loss"]),
        final_accuracy=_last(evaluations["accuracy"]),
        diverged=has_diverged(evaluations["loss"].tolist()),
    )
    if slowed is not None:
        summary["faults"] = fault_figures(spans, slowed)
    return summary


def step_starts(spans: pd.DataFrame, workers: int) -> pd.DataFrame:
    """One row per gradient of a worker, (rank, step, start_s): a layer-wise gradient has many spans and one start."""
    gradients = spans[(spans["activity"] == "compute") & (spans["rank"] < workers)]
    return gradients.groupby(["rank", "step"])["start_s"].min().reset_index()


def step_times(starts: pd.DataFrame) -> StepTime:
    """Mean, median and 95th percentile of the times between successive gradients of the same rank."""
    between = starts.sort_values(["rank", "start_s"]).groupby("rank")["start_s"].diff().dropna().to_numpy()
    if not len(between):
        return StepTime(mean=None, p50=None, p95=None)
    p50, p95 = np.percentile(between, [50, 95])
    return StepTime(mean=float(between.mean()), p50=float(p50), p95=float(p95))


def count_updates(updates: pd.DataFrame, notion: Notion) -> int:
    """Times that the weights being learned took something in; replicas that do so together count once.

    Where versions count averages of everyone, each local step between them is an update of its own.
    """
    columns = ["version_applied", "step"] if notion is Notion.LOCAL_AGE else ["version_applied"]
    return len(updates[columns].drop_duplicates())


def staleness(updates: pd.DataFrame, notion: Notion) -> Staleness:
    """Mean per update row, mean of the ranks' means, largest, and the whole distribution."""
    column = updates["staleness"]
    by_rank = updates.groupby("rank")["staleness"].mean()
    return Staleness(
        notion=notion.value,
        mean=finite(column.mean()),
        mean_of_ranks=finite(by_rank.mean()),
        max=int(column.max()) if len(column) else None,
        histogram=histogram(column.tolist()),
        by_rank=[[int(str(rank)), float(mean)] for rank, mean in by_rank.items()],
    )


def shares(spans: pd.DataFrame, *, wall_s: float, workers: int) -> dict[str, float]:
    """What the worker ranks spent their time on; sums to 1.

    Args:
        spans: the table.
        wall_s: length of every rank's timeline; what lies beyond does not count.
        workers: ranks 0 … workers − 1; one without any span waited all the time.
    """
    total_s = dict.fromkeys(ACTIVITIES, 0.0)
    ranks, kinds = spans["rank"].to_numpy(), spans["activity"].map(KINDS).fillna(-1).to_numpy(dtype=np.int64)
    start, end = (spans[name].to_numpy().clip(0.0, wall_s) for name in ("start_s", "end_s"))
    by_rank = np.argsort(ranks, kind="stable")
    bounds = np.searchsorted(ranks[by_rank], np.arange(workers + 1))
    for first, last in pairwise(bounds.tolist()):
        mine = by_rank[first:last]
        for activity, seconds in _sweep(kinds[mine], start[mine], end[mine], wall_s).items():
            total_s[activity] += seconds
    whole_s = math.fsum(total_s.values())
    if whole_s <= 0:
        return {activity: float(activity == "wait") for activity in ACTIVITIES}
    return {activity: seconds / whole_s for activity, seconds in total_s.items()}


def _sweep(kinds: Numbers, start: Seconds, end: Seconds, wall_s: float) -> dict[str, float]:
    """One rank's seconds per activity, each second given to the first activity that covers it."""
    edges = np.unique(np.concatenate([start, end, [0.0, wall_s]]))
    lengths = np.diff(edges)
    free = np.ones(len(lengths), dtype=bool)
    seconds = dict.fromkeys(ACTIVITIES, 0.0)
    from_edge, to_edge = np.searchsorted(edges, start), np.searchsorted(edges, end)
    for kind in np.unique(kinds[kinds >= 0]):
        chosen = kinds == kind
        begun, ended = (np.bincount(at[chosen], minlength=len(edges)) for at in (from_edge, to_edge))
        covered = ((begun - ended).cumsum()[:-1] > 0) & free
        seconds[ACTIVITIES[kind]] = float(lengths[covered].sum())
        free &= ~covered
    seconds["wait"] += float(lengths[free].sum())
    return seconds


def has_diverged(losses: list[float]) -> bool:
    """Whether a loss that was a number is none any more, or has grown tenfold.

    >>> has_diverged([2.3, 0.1]), has_diverged([2.3, float("nan")]), has_diverged([float("nan")] * 2)
    (False, True, False)
    """
    if not losses or not math.isfinite(losses[0]):
        return False
    return not math.isfinite(losses[-1]) or 0 < DIVERGED * losses[0] < losses[-1]


def _last(column: Any) -> float | None:
    return finite(column.iloc[-1]) if len(column) else None
