"""Moves the records of a compiled run from its arrays to the trace."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from paceline.algorithms.core.job import Job
from paceline.records.trace import Activity as Name
from paceline.records.trace import Schedule, Snapshot, Span, Trace
from paceline.records.value_counts import view
from paceline.records.whole_cohorts import add_ended_gradients, add_updates, note_change, note_evaluation
from paceline.simulator.servers.machine_state import Activity, Count, Second, State

NAMES: dict[Activity, Name] = {
    Activity.LOAD: "load",
    Activity.COMPUTE: "compute",
    Activity.UPDATE: "update",
    Activity.SEND: "send",
    Activity.RECEIVE: "receive",
}


class Evaluations:
    """The weights that are evaluated: those that `records.learned.Learned` chooses, found without a call per update.

    Args:
        job: the run's job.
        schedule: when weights are evaluated.
        trace: the run's record.
    """

    def __init__(self, job: Job, schedule: Schedule, trace: Trace) -> None:
        self._schedule, self._trace = schedule, trace
        self._vector = job.learner.initial()
        self._latest = Snapshot(0.0, 0, 0, self._vector)
        self._next: float = schedule.every
        self._score = job.learner.evaluate(self._vector) if job.budget.scored else None
        self._keep(self._latest)

    @property
    def samples(self) -> int:
        """Samples so far."""
        return self._latest.samples

    def add(self, times_s: np.ndarray, held: np.ndarray, samples: np.ndarray) -> None:
        """Adds inputs of updates, in order.

        Args:
            times_s: the time of each.
            held: the version that the update replaced.
            samples: its samples.
        """
        if not len(held):
            return
        last = np.flatnonzero(np.append(held[1:] != held[:-1], True))  # the last input of each update
        totals = self._latest.samples + np.cumsum(samples)[last]
        times_s, versions = times_s[last], held[last] + 1
        if self._schedule.unit == "seconds":
            self._add_by_seconds(times_s, versions, totals)
        else:
            self._add_by_count(times_s, versions, totals)
        self._latest = Snapshot(float(times_s[-1]), int(versions[-1]), int(totals[-1]), self._vector)
        note_change(self._trace, self._latest.time_s)

    def _add_by_count(self, times_s: np.ndarray, versions: np.ndarray, totals: np.ndarray) -> None:
        counts, every = versions if self._schedule.unit == "updates" else totals, self._schedule.every
        while (place := int(np.searchsorted(counts, self._next))) < len(counts):
            self._keep(Snapshot(float(times_s[place]), int(versions[place]), int(totals[place]), self._vector))
            self._next = (int(counts[place]) // every + 1) * every

    def _add_by_seconds(self, times_s: np.ndarray, versions: np.ndarray, totals: np.ndarray) -> None:
        before_s = np.append(self._latest.time_s, times_s[:-1])
        every = self._schedule.every
        near = np.floor(before_s / every * (1 - 1e-9)) != np.floor(times_s / every * (1 + 1e-9))
        for place in np.flatnonzero(near).tolist():
            tick_s = self._schedule.tick(float(before_s[place]), float(times_s[place]))
            if tick_s is None:
                continue
            one = self._latest
            if place:
                one = Snapshot(tick_s, int(versions[place - 1]), int(totals[place - 1]), self._vector)
            elif one.version == 0 and self._shown_version == 0:
                continue
            self._keep(Snapshot(tick_s, one.version, one.samples, self._vector))

    def close(self) -> None:
        """Keeps the last weights, unless they have been kept."""
        if self._latest.version != self._shown_version:
            self._keep(self._latest)
        self._trace.weights = self._vector

    def _keep(self, shot: Snapshot) -> None:
        self._shown_version = shot.version
        self._trace.snapshots.append(replace(shot, score=self._score))
        note_evaluation(self._trace, shot.time_s)


class Records:
    """The records of a run.

    Args:
        job: the run's job.
        schedule: when weights are evaluated.
        trace: the empty record.
    """

    def __init__(self, job: Job, schedule: Schedule, trace: Trace) -> None:
        self.trace = trace
        self.evaluations = Evaluations(job, schedule, trace)

    def flush(self, state: State) -> None:
        """Moves all records to the trace."""
        self._flush_updates(state, int(state.counts[Count.UPDATES]))
        self._flush_gradients(state, int(state.counts[Count.GRADIENTS]))
        self._flush_spans(state, int(state.counts[Count.SPANS]))
        state.counts[[Count.SPANS, Count.UPDATES, Count.GRADIENTS]] = 0

    def _flush_spans(self, state: State, count: int) -> None:
        names, trace = [NAMES[one] for one in Activity], self.trace
        rows = zip(state.spans[:count].tolist(), state.spans_s[:count].tolist(), strict=True)
        spans = []
        for (rank, activity, step, nbytes, source), (start_s, end_s, ready_s) in rows:
            if activity == Activity.RECEIVE:
                spans.append(Span(rank, "main", "receive", None, step, start_s, end_s, nbytes, ready_s))
                trace.hear(rank, source, "")
            else:
                spans.append(Span(rank, "main", names[activity], None, step, start_s, end_s, nbytes))
        list.extend(trace.spans, spans)  # they have been counted

    def _flush_updates(self, state: State, count: int) -> None:
        rows, times_s = state.updates[:count], state.updates_s[:count]
        ranks, steps, read, held, samples = (rows[:, column].copy() for column in range(5))
        add_updates(self.trace, times_s.copy(), ranks, steps, read, held, held - read, samples)
        self.evaluations.add(times_s, held, samples)

    def _flush_gradients(self, state: State, count: int) -> None:
        if self.trace.counters is not None:
            rows, times_s = state.gradients[:count], state.gradients_s[:count]
            add_ended_gradients(self.trace, rows[:, 0], rows[:, 1], times_s[:, 0], times_s[:, 1])

    def close(self, state: State) -> None:
        """Writes the sums over all ranks, and evaluates the last weights."""
        self.evaluations.close()
        if (counters := self.trace.counters) is None:
            return
        counters.gradients.gaps.flush()
        counters.bytes_sent += int(state.counts[Count.BYTES_SENT])
        counters.last_end_s = max(counters.last_end_s, float(state.seconds[Second.END]))
        view(counters.ended_s)[:] = np.maximum(view(counters.ended_s), state.ended_s)
        for activity, number in zip(Activity, state.span_counts.tolist(), strict=True):
            if number:
                counters.spans[NAMES[activity]] += number
        for column, name in enumerate(("load", "compute", "update", "communication", "wait")):
            seconds = state.activity_s[:, column]
            seen = seconds.any() if name == "wait" else state.span_counts[column] > 0
            if seen:  # as for `Counters.add_span`, activities without spans have no entry
                view(counters.seconds[name])[:] += seconds
