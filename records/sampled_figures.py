"""The figures of a run whose spans and updates are not all kept: exact from its counters, or estimated and marked so.

* Shares of time need whole timelines, because a time belongs to one activity. They are means over the kept ranks, which
  were drawn at random. Computing is exact, since a device computes one gradient at a time, and the other shares are
  scaled so that all add up to 1.
* Median and 95th percentile of the step time come from a histogram with a relative error of at most 0.025 %.
* All other figures are equal to those of complete tables.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from paceline.algorithms.core.job import Job
from paceline.records.counters import Counters
from paceline.records.faults import FaultFigures
from paceline.records.figures import ACTIVITIES
from paceline.records.keeping import LayerCount, RecordFigures
from paceline.records.staleness import CLOCK_GAP, NAMES, Notion, NotionFigures, rank_figures, staleness_of
from paceline.records.summary import Reduced, StepTime, rank_seconds
from paceline.records.tables import Tables, frame
from paceline.records.targets import Axes, Targets
from paceline.records.trace import Trace
from paceline.records.value_counts import Floats, RankedCounts, view


def reduce_counters(trace: Trace, tables: Tables, job: Job, targets: Targets) -> Reduced:
    """Reduces the counters of a run whose records were sampled.

    Args:
        trace: the record of the run.
        tables: its tables, with the kept records.
        job: the run's job.
        targets: what the run aims at.
    """
    counters, keeping = trace.counters, trace.keeping
    assert counters is not None and keeping.ranks is not None, "records are sampled"
    kept = sorted(int(rank) for rank in keeping.ranks)
    notions = _notions(counters, NAMES[job.method.staleness_kind])
    fraction, error = _fractions(counters, tables.spans, kept, trace.wall_s)
    updates, evaluations = counters.updates, tables.evaluations
    times_s = evaluations["time_s"].tolist()
    return Reduced(
        wall_s=trace.wall_s,
        workers=job.workers,
        longest_period=job.method.longest_period(job.workers),
        steps=sum(counters.gradients.number),
        updates=updates.progress.number,
        samples=updates.samples,
        axes=Axes(times_s, evaluations["samples"].tolist(), updates.progress.at(times_s)),
        losses=evaluations["loss"].tolist(),
        accuracies=evaluations["accuracy"].tolist(),
        targets=targets,
        stop_reason=trace.stop_reason,
        step_s=_step_times(counters, trace.wall_s),
        time_fraction=fraction,
        bytes_sent=counters.bytes_sent,
        staleness=staleness_of(job.method.staleness_kind, notions),
        faults=None if counters.slowed is None else _faults(counters),
        records=RecordFigures(
            kind=keeping.kind,
            kept_ranks=kept,
            spans=sum(counters.spans.values()),
            updates=updates.inputs,
            updates_kept=len(trace.updates),
            time_fraction_error=error,
            histograms={name: notion.histogram for name, notion in notions.items()},
            layers=[
                LayerCount(layer=layer, count=count.number, mean=count.total / count.number, max=count.most)
                for layer, count in updates.layers.items()
            ],
        ),
    )


def rank_table(counters: Counters, wall_s: float) -> pd.DataFrame:
    """Returns the table `ranks`, with a row for each rank.

    Args:
        counters: the counts of a run.
        wall_s: the end of the run.
    """
    gradients, own, gaps = counters.gradients, counters.updates.staleness, counters.gradients.gaps.counts
    rest = counters.ranks - counters.workers
    lasted_s, number = _ends_s(counters, wall_s) - view(gradients.first_s), view(gradients.number)
    step_s = np.divide(lasted_s, number, out=np.full(len(number), np.nan), where=number > 0)
    columns = [
        np.arange(counters.ranks),
        np.concatenate([number, np.zeros(rest, dtype=np.int64)]),
        np.concatenate([step_s, np.full(rest, np.nan)]),
        *(view(column) for column in (own.number, own.total, own.most)),
        np.concatenate([view(gaps.total), np.zeros(rest, dtype=np.int64)]),
        np.concatenate([view(gaps.most), np.full(rest, -1)]),
        *(_seconds(counters, activity) for activity in ACTIVITIES),
    ]
    return frame("ranks", list(zip(*(column.tolist() for column in columns), strict=True)))


def _seconds(counters: Counters, activity: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    seconds = view(counters.seconds[activity]).copy()
    return seconds + view(counters.seconds["redo"]) if activity == "compute" else seconds


def _notions(counters: Counters, own: str) -> dict[str, Notion]:
    """Returns each kind of staleness that applies, the method's own first."""
    gaps = counters.gradients.gaps.counts
    kinds = {own: counters.updates.staleness} | ({CLOCK_GAP: gaps} if counters.workers > 1 and gaps.histogram else {})
    return {name: _notion(counts) for name, counts in kinds.items()}


def _notion(counts: RankedCounts) -> Notion:
    each = rank_figures(range(len(counts.number)), counts.number, counts.total, counts.most)
    number, histogram = sum(counts.number), [[value, count] for value, count in sorted(counts.histogram.items())]
    figures = NotionFigures(
        mean=sum(counts.total) / number if number else None,
        max=max(counts.histogram, default=None),
        mean_of_ranks=math.fsum(row["mean"] for row in each) / len(each) if each else None,
    )
    return Notion(figures, histogram, each, None)


def _ends_s(counters: Counters, wall_s: float) -> Floats:
    """Returns when the last step of each worker ended, see `summary.steps_of`."""
    last_s: Floats = view(counters.gradients.last_s)
    ends_s: Floats = np.maximum(last_s, np.minimum(view(counters.ended_s)[: counters.workers], wall_s))
    return ends_s


def _step_times(counters: Counters, wall_s: float) -> StepTime:
    gradients = counters.gradients
    computed, ends_s = view(gradients.number) > 0, _ends_s(counters, wall_s)
    if not computed.any():
        return StepTime(mean=None, p50=None, p95=None)
    every = copy.deepcopy(gradients.between)
    every.add_array((ends_s - view(gradients.last_s))[computed])
    p50, p95 = every.quantiles([0.5, 0.95])
    lasted_s = (ends_s - view(gradients.first_s))[computed]
    return StepTime(mean=math.fsum(lasted_s.tolist()) / every.number, p50=p50, p95=p95)


def _faults(counters: Counters) -> FaultFigures:
    return FaultFigures(
        crashes=counters.spans["crash"],
        lost_s=math.fsum(counters.seconds["redo"]),
        recovery_s=math.fsum(counters.seconds["recovery"]),
        checkpoint_s=math.fsum(counters.seconds["checkpoint"]),
        slowed_s=counters.slowed_s,
    )


def _fractions(
    counters: Counters, spans: pd.DataFrame, kept: Sequence[int], wall_s: float
) -> tuple[dict[str, float], dict[str, float]]:
    """Returns the fraction of the workers' time of each activity, and its standard error.

    error = s / √k · √(1 − k/n), for k of n workers, with the standard deviation s between workers

    Source: FOUND Cochran, "Sampling Techniques", 3rd edition, 1977, theorem 2.2 (sampling without replacement).
    """
    if wall_s <= 0:
        return {activity: float(activity == "wait") for activity in ACTIVITIES}, dict.fromkeys(ACTIVITIES, 0.0)
    rows = [list(each.values()) for each in rank_seconds(spans, wall_s=wall_s, ranks=kept)]
    each = np.array(rows) / wall_s
    computing = math.fsum(_seconds(counters, "compute")[: counters.workers].tolist()) / (wall_s * counters.workers)
    means, share = each.mean(axis=0), len(kept) / counters.workers
    factor = (1 - computing) / (1 - means[0]) if means[0] < 1 else 0.0
    spread = each.std(axis=0, ddof=1) if len(kept) > 1 else np.zeros(len(ACTIVITIES))
    errors = factor * spread * math.sqrt(max(0.0, 1 - share) / len(kept))
    fraction = {activity: float(factor * mean) for activity, mean in zip(ACTIVITIES, means, strict=True)}
    fraction["compute"] = computing
    fraction["wait"] = max(0.0, 1.0 - math.fsum(value for name, value in fraction.items() if name != "wait"))
    return fraction, {**dict(zip(ACTIVITIES, errors.tolist(), strict=True)), "compute": 0.0}
