"""Where a run stops, and the weights being learned: what `NextStep` and `RecordUpdate` mean.

Rules of this file:

* Only the keeper's role is held against the stop rule; the workers of a server hear of it from the server.
* Once a stop is decided, nobody gets a step beyond the last one that somebody has got, and everybody gets that far;
  where workers step independently, their steps are counted together, and nobody gets another one.
* Evaluation costs no virtual time. It happens afterwards, except where it may end the run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from paceline.algorithms.core.job import Job
from paceline.algorithms.core.operations import RecordUpdate, State
from paceline.algorithms.core.values import Step
from paceline.records.goals import Goal
from paceline.records.learned import Learned
from paceline.records.trace import Reason, Schedule, Snapshot, Trace
from paceline.simulator.interpreter.extra_metrics import Watch
from paceline.simulator.kernel.lanes import Station, Strand

Progress = Callable[[int, float], None]
"""told the samples so far and the virtual time, in seconds"""


class Keeper:
    """The run's stop rule, and its copy of the weights being learned."""

    def __init__(self, job: Job, schedule: Schedule, trace: Trace, progress: Progress | None) -> None:
        self.job, self.trace, self.progress = job, trace, progress
        self.learned = Learned(job, schedule)
        self._watch = Watch(job, schedule, trace)
        self.goal = Goal(job.budget)
        self.role, self.rank = job.method.weights_owner, job.weights_owner
        self._stop_at: float = math.inf if job.limit is None else job.limit
        trace.stop_reason = job.budget.usual_end
        self._granted = 0
        """steps that the keeper's role has been let into: the number of the next one, or of all workers' together"""
        self._keep(self.learned.show())

    def next(self, strand: Strand, state: State, now_s: float) -> Step | None:
        """The step, or None for a stop."""
        me, strand.step = strand.me, state.step
        if me.role == self.role:
            seconds = self.job.budget.seconds
            if seconds is not None and now_s >= seconds:
                self.stop("seconds")
            position = self._granted if self.job.method.independent else state.step
            if position >= self._stop_at:
                return None
            self._granted = max(self._granted, position + 1)
            if self.progress is not None and me.rank == self.rank:
                self.progress(self.learned.latest.samples, now_s)
        return Step(state.step, self.job.samples(me, state.step))

    def stop(self, why: Reason) -> None:
        """Ends the run after the last step that anybody has been let into, if it does not end there anyway."""
        if self._granted < self._stop_at:
            self._stop_at, self.trace.stop_reason = self._granted, why

    def applied(self, station: Station, op: RecordUpdate, now_s: float) -> int:
        """Books an update, or a layer's part of one; answers the version that the weights now have."""
        if op.layer is not None:
            self.trace.layers.extend(station.ledger.land(op, op.layer, now_s))
            return op.weights.version
        version, rows = station.ledger.enter(op, now_s)
        self.trace.updates.extend(rows)
        self._watch.stepped(station.me.rank, op, rows)
        if station.me.rank == self.rank:
            self._watch.updated(self.learned.latest.vector, op, rows)
            self._keep(self.learned.applied(op, version, rows, now_s))
        return version

    def close(self) -> None:
        """Keeps the last weights, which are always evaluated."""
        self._keep(self.learned.show())
        self.trace.weights = self.learned.latest.vector

    def _keep(self, shot: Snapshot | None) -> None:
        if shot is None:
            return
        if self.job.budget.scored:
            score = self.job.learner.evaluate(shot.vector)
            shot = replace(shot, score=score)
            if (why := self.goal.reached(score)) is not None:
                self.stop(why)
        self.trace.snapshots.append(shot)
