"""What a simulation measures on request beside the run itself. It costs wall time and no virtual time.

Rules of this file:

* Nothing here changes what is simulated: vectors are read, never written, and no clock passes.
* A probe evaluates the weights being learned just before and just after one update of the keeper's. Methods whose
  keeper does not make every change of them (shared memory), or whose updates take in averages instead of gradients,
  have no such moments and leave no probes.
* Drift is measured between the workers' weights after the same step, once the last of them has made it. It is asked of
  methods whose workers tell what they hold after each step and are never further apart than their next meeting.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paceline.algorithms.core.job import Job
from paceline.algorithms.core.method import Method, StalenessKind
from paceline.algorithms.core.operations import RecordUpdate
from paceline.algorithms.core.values import Rank, may_diverge, norm
from paceline.algorithms.runtime.update_log import Update
from paceline.records.trace import Drift, Probe, Schedule, Trace


class Watch:
    """The probes and the drift of one run, as its schedule asks for them."""

    def __init__(self, job: Job, schedule: Schedule, trace: Trace) -> None:
        self._job, self._trace = job, trace
        self._probes = schedule.probes if has_probes(job.method) else None
        self._drift = schedule.drift if has_drift(job.method) else None
        self._held: dict[int, dict[Rank, tuple[Update, Any]]] = {}
        """the workers' weights after steps that some have still to make"""

    def updated(self, before: Any, op: RecordUpdate, rows: Sequence[Update]) -> None:
        """The keeper's update of the weights being learned, from `before`."""
        if self._probes is None or not rows or not op.advance or op.weights.version % self._probes:
            return
        losses = [self._job.learner.evaluate(vector).loss for vector in (before, op.weights.vector)]
        staleness = sum(row.staleness for row in rows) / len(rows)
        self._trace.probes.append(Probe(rows[0].time_s, op.weights.version, staleness, *losses))

    def stepped(self, rank: Rank, op: RecordUpdate, rows: Sequence[Update]) -> None:
        """A worker's step; the first is number 0."""
        if self._drift is None or not rows or (rows[0].step + 1) % self._drift:
            return
        held = self._held.setdefault(rows[0].step, {})
        held[rank] = rows[0], op.weights.vector
        if len(held) == self._job.workers:
            self._measure([held[one] for one in sorted(held)])
            del self._held[rows[0].step]

    @may_diverge
    def _measure(self, steps: Sequence[tuple[Update, Any]]) -> None:
        _, total = steps[0]
        for _, vector in steps[1:]:
            total = total + vector
        mean = total / len(steps)
        for row, vector in steps:
            self._trace.drifts.append(Drift(row.time_s, row.rank, row.step, row.staleness, norm(vector - mean)))


def has_probes(method: Method) -> bool:
    """Whether the keeper's updates are all that changes the weights being learned, and take in gradients."""
    return not method.shared and method.staleness_kind is not StalenessKind.LOCAL_AGE


def has_drift(method: Method) -> bool:
    """Whether workers hold weights of their own, tell them at each step, and step together."""
    return method.staleness_kind in (StalenessKind.LOCAL_AGE, StalenessKind.PEER_AGE) and not method.independent
