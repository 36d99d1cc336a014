"""Adds the records of many ranks at once to a trace, whether all or only some of them are kept.

An interpreter that computes with one array element for each rank calls these functions instead of appending spans and
updates one by one. Call `add_gradients` before the updates that use the gradients, so that the ages of these are known.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paceline.algorithms.core.values import Rank
from paceline.algorithms.runtime.update_log import Update
from paceline.records.counters import Counters
from paceline.records.sampled import SampledUpdates
from paceline.records.trace import Activity, Span, Trace
from paceline.records.value_counts import Floats, Integers, places, view


def add_spans(
    trace: Trace,
    ranks: Integers,
    lane: str,
    activity: Activity,
    step: int | Integers,
    starts_s: Floats,
    ends_s: Floats,
    *,
    layer: str | None = None,
    nbytes: int | Integers = 0,
    ready_s: Floats | None = None,
    keys: str | Sequence[str] | None = None,
) -> None:
    """Adds a span of each of several ranks.

    Gradients of workers are counted by `add_gradients`, also if their spans are added here.

    Args:
        trace: the record of the run.
        ranks: the ranks; a rank occurs once.
        lane: the lane of all.
        activity: the activity of all.
        step: the step, of all or of each.
        starts_s: the start of each.
        ends_s: the end of each.
        layer: the layer of all.
        nbytes: the bytes, of all or of each.
        ready_s: for receives, when each message was sent; for collectives, when the last member entered.
        keys: the name of the collective, of all or of each.
    """
    chosen = np.arange(len(ranks))
    counters, kept = trace.counters, trace.keeping.ranks
    if counters is not None and kept is not None:
        count_spans(counters, ranks, activity, starts_s, ends_s, nbytes, ready_s)
        chosen = kept_of(ranks, kept)
    steps, sizes = (np.broadcast_to(column, len(ranks)) for column in (step, nbytes))
    for place in chosen.tolist():
        rank, start_s, end_s = Rank(int(ranks[place])), float(starts_s[place]), float(ends_s[place])
        ready = None if ready_s is None else float(ready_s[place])
        key = keys if keys is None or isinstance(keys, str) else keys[place]
        span = Span(
            rank, lane, activity, layer, int(steps[place]), start_s, end_s, int(sizes[place]), ready_s=ready, key=key
        )
        list.append(trace.spans, span)  # it has been counted


def kept_of(ranks: Integers, kept: frozenset[Rank]) -> Integers:
    """Returns the places of the kept ranks.

    Args:
        ranks: some ranks.
        kept: all ranks whose spans are kept.
    """
    return np.flatnonzero(np.isin(ranks, np.fromiter(kept, dtype=np.int64, count=len(kept))))


def count_spans(
    counters: Counters,
    ranks: Integers,
    activity: Activity,
    starts_s: Floats,
    ends_s: Floats,
    nbytes: int | Integers,
    ready_s: Floats | None,
) -> None:
    """Does for many spans what `Counters.add_span` does for one, without the gradients; arguments as in `add_spans`."""
    counters.spans[activity] += len(ranks)
    at = places(ranks)
    if activity in ("collective", "receive"):
        turn_s = starts_s if ready_s is None else np.clip(ready_s, starts_s, ends_s)
        view(counters.seconds["communication"])[at] += ends_s - turn_s
        view(counters.seconds["wait"])[at] += turn_s - starts_s
    else:
        view(counters.seconds["communication" if activity == "send" else activity])[at] += ends_s - starts_s
    if activity not in ("receive", "copy"):
        counters.bytes_sent += nbytes * len(ranks) if isinstance(nbytes, int) else int(nbytes.sum())
    if activity != "copy" and len(ranks):
        counters.last_end_s = max(counters.last_end_s, float(ends_s.max()))
        ended_s = view(counters.ended_s)
        ended_s[at] = np.maximum(ended_s[at], ends_s)
    if counters.slowed is not None and activity in ("compute", "redo"):
        each = zip(ranks.tolist(), starts_s.tolist(), ends_s.tolist(), strict=True)
        counters.slowed_s += sum(counters.slowed(Rank(rank), start_s, end_s) for rank, start_s, end_s in each)


def add_gradients(trace: Trace, step: int | Integers, starts_s: Floats, ends_s: Floats) -> None:
    """Counts the next gradient of every worker; without effect if all records are kept.

    Args:
        trace: the record of the run.
        step: the step, of all workers or of each.
        starts_s: the start of each worker's gradient (of its first layer), by rank.
        ends_s: its end (of its last layer), by rank.
    """
    if trace.counters is not None:
        trace.counters.gradients.add_all(step, starts_s, ends_s)


def add_ended_gradients(trace: Trace, ranks: Integers, steps: Integers, starts_s: Floats, ends_s: Floats) -> None:
    """Counts gradients of any workers in the order of their ends; without effect if all records are kept.

    Call it after `add_updates` for the updates of the same time: it completes the ages of the updates that were kept.

    Args:
        trace: the record of the run.
        ranks: the worker of each.
        steps: its step.
        starts_s: its start.
        ends_s: its end.
    """
    if trace.counters is None or not len(ranks):
        return
    trace.counters.gradients.add_ended(ranks, steps, starts_s, ends_s)
    if isinstance(trace.updates, SampledUpdates) and (awaited := list(trace.updates.awaited)):
        keys = ranks * 2**32 + steps
        order = np.argsort(keys)
        wanted = np.array([rank * 2**32 + step for rank, step in awaited])
        found = order[np.minimum(np.searchsorted(keys[order], wanted), len(order) - 1)]
        for (rank, step), place, key in zip(awaited, found.tolist(), wanted.tolist(), strict=True):
            if keys[place] == key:
                trace.updates.began(rank, step, float(starts_s[place]))


def add_updates(
    trace: Trace,
    times_s: Floats,
    ranks: Integers,
    steps: Integers,
    versions_read: Integers,
    versions_applied: Integers,
    staleness: Integers,
    samples: Integers,
) -> None:
    """Adds inputs of updates.

    Args:
        trace: the record of the run.
        times_s: the time of each.
        ranks: the rank that computed it.
        steps: the step at which it was computed.
        versions_read: the version from which it was computed.
        versions_applied: the version that the update replaced.
        staleness: its staleness.
        samples: its samples.
    """
    columns = (times_s, ranks, steps, versions_read, versions_applied, staleness, samples)
    if trace.counters is None or not isinstance(trace.updates, SampledUpdates):
        trace.updates.extend(map(Update._make, zip(*(column.tolist() for column in columns), strict=True)))
        return
    total = int(samples.sum())
    trace.counters.updates.add_arrays(times_s, ranks, steps, versions_applied, staleness, total)
    if drawn := list(trace.updates.reservoir.offer_many(len(times_s))):
        numbers = np.array([number for number, _ in drawn])
        rows = zip(*(column[numbers].tolist() for column in columns), strict=True)
        for (_, place), row in zip(drawn, rows, strict=True):
            trace.updates.keep(place, Update._make(row))


def note_change(trace: Trace, time_s: float) -> None:
    """Notes that the weights being learned have changed; without effect if all records are kept.

    Args:
        trace: the record of the run.
        time_s: when they changed.
    """
    if trace.counters is not None:
        trace.counters.updates.progress.changed(time_s)


def note_evaluation(trace: Trace, time_s: float) -> None:
    """Notes an evaluation of the weights being learned; without effect if all records are kept.

    Args:
        trace: the record of the run.
        time_s: the time of the weights that are evaluated.
    """
    if trace.counters is not None:
        trace.counters.updates.progress.mark(time_s)
