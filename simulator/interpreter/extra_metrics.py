"""Optional measurements of a simulation, which take wall time but no virtual time.

* Measurements do not change the simulation: vectors are read and never written, and the clock does not advance.
* A probe evaluates the weights being learned just before and just after one update by their owner. There are no probes
  for methods whose owner does not make every update (shared memory), or whose updates are averages of weights.
* Drift is the distance between the workers' weights after the same step, measured when the last worker has made it. It
  is available for methods whose workers report their weights after each step and synchronise regularly.
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
    """Records the probes and the drift of one run, as its schedule demands.

    Args:
        job: the run's job.
        schedule: how often to measure.
        trace: the run's record.
    """

    def __init__(self, job: Job, schedule: Schedule, trace: Trace) -> None:
        self._job, self._trace = job, trace
        self._probes = schedule.probes if has_probes(job.method) else None
        self._drift = schedule.drift if has_drift(job.method) else None
        self._held: dict[int, dict[Rank, tuple[Update, Any]]] = {}
        """the workers' weights after each step that some workers have not made yet"""

    def updated(self, before: Any, op: RecordUpdate, rows: Sequence[Update]) -> None:
        """Probes an update of the weights being learned, if a probe is due.

        Args:
            before: the weights before the update.
            op: the update by the weights' owner.
            rows: the update's rows in the log.
        """
        if self._probes is None or not rows or not op.advance or op.weights.version % self._probes:
            return
        losses = [self._job.learner.evaluate(vector).loss for vector in (before, op.weights.vector)]
        staleness = sum(row.staleness for row in rows) / len(rows)
        self._trace.probes.append(Probe(rows[0].time_s, op.weights.version, staleness, *losses))

    def stepped(self, rank: Rank, op: RecordUpdate, rows: Sequence[Update]) -> None:
        """Notes a worker's step, and measures drift when all workers have made it.

        Args:
            rank: the worker.
            op: its update.
            rows: the update's rows in the log; steps are numbered from 0.
        """
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
    """Returns whether only the weights' owner changes the weights being learned, and its updates use gradients."""
    return not method.shared and method.staleness_kind is not StalenessKind.LOCAL_AGE


def has_drift(method: Method) -> bool:
    """Returns whether workers have weights of their own, report them at each step, and step together."""
    return method.staleness_kind in (StalenessKind.LOCAL_AGE, StalenessKind.PEER_AGE) and not method.independent
