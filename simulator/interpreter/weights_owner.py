"""Performs `NextStep` and `RecordUpdate`: the stop rule, and the weights being learned.

Evaluation takes no virtual time; storing the weights for it takes the time that was measured on a real machine, if one
is predicted. The weights are evaluated after the run, unless an evaluation may end the run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from paceline.algorithms.core.job import Job
from paceline.algorithms.core.method import Method, StalenessKind
from paceline.algorithms.core.operations import RecordUpdate, State
from paceline.algorithms.core.values import Rank, Step, may_diverge, norm
from paceline.algorithms.runtime.stop_rule import OwnGrants, StopRule, next_step
from paceline.algorithms.runtime.weights_owner import Update, WeightsOwner, followed
from paceline.records.learned import Learned
from paceline.records.recorder import Recorder
from paceline.records.targets import Goal
from paceline.records.trace import Drift, LossProbe, Schedule, Snapshot, Trace
from paceline.simulator.kernel.lanes import SimulatedTask

# * Measurements do not change the simulation: vectors are read and never written, and the clock does not advance.
# * A probe evaluates the weights being learned just before and just after one update by their owner. There are no
#   probes for methods whose owner does not make every update (shared memory), or whose updates are averages of
#   weights.
# * Drift is the distance between the workers' weights after the same step, measured when the last worker has made it.
#   It is available for methods whose workers report their weights after each step and synchronise regularly.


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
        self._trace.probes.append(LossProbe(rows[0].time_s, op.weights.version, staleness, *losses))

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
            self._measure([held[member] for member in sorted(held)])
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


Progress = Callable[[int, float], None]
"""called with the samples so far and the virtual time, in seconds"""


class SimulatedWeightsOwner(WeightsOwner[Learned]):
    """The stop rule of a simulated run, and the weights being learned.

    Args:
        job: the run's job.
        schedule: when the weights are evaluated.
        recorder: writes the run's record.
        progress: called at the steps of the rank that owns the weights.
        snapshot_s: the seconds in which the owner stores weights that will be evaluated.
    """

    def __init__(
        self, job: Job, schedule: Schedule, recorder: Recorder, progress: Progress | None, snapshot_s: float = 0.0
    ) -> None:
        learned = {rank: Learned(job, replace(schedule)) for rank in followed(job, job.spare if job.deaths else 0)}
        super().__init__(job, learned, recorder.update, self._evaluate)
        self.recorder, self.progress = recorder, progress
        self._watch = Watch(job, schedule, recorder.trace)
        self.goal = Goal(job.budget)
        together = job.method.independent
        self._grants = OwnGrants(together=together)
        self.rule = StopRule(job.limit, together=together, grants=self._grants)
        self._snapshot_s = self._storing_s = 0.0
        self.show()
        self._snapshot_s = snapshot_s

    def lose_at(self, rank: Rank, completed: int) -> None:
        """Continues without a dead rank.

        Args:
            rank: the dead rank.
            completed: the number of steps that it completed.
        """
        self._grants.lose(rank, completed)
        self.lose(rank)

    def storing_s(self, rank: Rank) -> float:
        """Returns the seconds in which a rank stores weights before its next step; they count once.

        Args:
            rank: the rank.
        """
        if rank != self.rank or not self._storing_s:
            return 0.0
        seconds, self._storing_s = self._storing_s, 0.0
        return seconds

    def next(self, task: SimulatedTask, state: State, now_s: float) -> Step | None:
        """Returns the next step of a rank; None if it stops.

        Args:
            task: the rank's program.
            state: its state.
            now_s: the present time.
        """
        me, task.step = task.me, state.step
        step = next_step(self.job, me, state.step, now_s, self.rule.grant, self.rule.stop)
        if step is not None and self.progress is not None and me.rank == self.rank:
            self.progress(self.learned.latest.samples, now_s)
        return step

    def learn(self, rank: Rank, op: RecordUpdate, version: int, rows: Sequence[Update], now_s: float) -> None:
        self._watch.stepped(rank, op, rows)
        if rank == self.rank:
            before = self.learned.latest
            if op.advance:
                self.recorder.changed(before.time_s)
            self._watch.updated(before.vector, op, rows)
        if rank in self._learned:
            super().learn(rank, op, version, rows, now_s)

    @property
    def stopped(self) -> bool:
        """Whether the run has been stopped before its usual end."""
        return self._grants.why is not None

    def close(self) -> None:
        """Stores the last weights, which are always evaluated."""
        self.show()
        trace = self.recorder.trace
        trace.stop_reason = self._grants.why or self.job.budget.usual_end
        trace.weights = self.learned.latest.vector

    def _evaluate(self, shot: Snapshot) -> None:
        self._storing_s += self._snapshot_s
        if self.job.budget.scored:
            score = self.job.learner.evaluate(shot.vector)
            shot = replace(shot, score=score)
            if (why := self.goal.reached(score)) is not None:
                self.rule.stop(why)
        self.recorder.evaluation(shot)
