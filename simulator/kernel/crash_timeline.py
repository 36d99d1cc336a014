"""The timeline of a worker that crashes: the stages of its device, and when a gradient is done.

* A timeline is a sequence of stages: computing, writing a checkpoint, recovery, redoing lost work, idling. A crash ends
  any stage. The work since the last checkpoint is then lost and done again before new work; a checkpoint that was being
  written is lost, too. A crash during recovery starts the recovery again.
* Redoing lost work takes time, but nothing is computed twice, because the values would be the same. Other workers wait
  for it as far as their method synchronises them.
* An idle worker can crash, too; it recovers and redoes lost work while it waits for the others.
* A checkpoint is written after the work that completes its period, before this work counts as done.
* Results depend on the arguments only. Crashes are the given ones and a Poisson process on the run's own clock, which
  is drawn from the seed as far as it is needed.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from paceline.algorithms.core.errors import RunFailed
from paceline.algorithms.core.fast_values import fast_constructor
from paceline.topologies.faults.worker_faults import FAILURES, FULL_SPEED, NODE_FAILURES, CrashModel, Speed, poisson

Stage = Literal["compute", "redo", "checkpoint", "crash", "recovery", "idle"]
MOST_CRASHES = 100_000
"""in one piece of work, before it counts as never done; provenance: ours"""
FULL = 1 - 1e-9
"""fraction of a checkpoint's period that counts as complete, because sums are rounded"""


@fast_constructor
@dataclass(frozen=True, slots=True)
class Stretch:
    """A stage, from its beginning to its end or to the crash that ended it; a crash itself takes no time."""

    stage: Stage
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class TimelineState:
    """The state of a worker.

    Args:
        now_s: the time of this state.
        reached_s: the most work, in seconds, that has been done since the last checkpoint.
        kept_s: the part of it that is not lost; the rest has to be redone.
        up_s: when the worker has recovered from its last crash.
        crashes: number of crashes so far.
        written_s: seconds spent so far on the checkpoint that is being written.
    """

    now_s: float = 0.0
    reached_s: float = 0.0
    kept_s: float = 0.0
    up_s: float = 0.0
    crashes: int = 0
    written_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Life:
    """The stages of a worker in an interval, its state at the end, and the new work that is left then, in seconds."""

    state: TimelineState
    stretches: tuple[Stretch, ...]
    left_s: float = 0.0

    @property
    def end_s(self) -> float:
        return self.state.now_s


@dataclass(slots=True)
class AscendingTimes:
    """Ascending times that are read from an iterator on demand; infinity beyond its end."""

    coming: Iterator[float]
    known: list[float] = field(default_factory=list)

    def __getitem__(self, index: int) -> float:
        while len(self.known) <= index:
            self.known.append(next(self.coming, math.inf))
        return self.known[index]


@dataclass(frozen=True, slots=True)
class CrashTimeline:
    """One worker's crashes, checkpoints and slowdowns.

    >>> crashes = CrashModel(recovery_s=2.0, checkpoint_every_s=4.0, checkpoint_cost_s=0.5)
    >>> once = CrashTimeline(AscendingTimes(iter([5.0])), crashes)
    >>> for stretch in once.live(TimelineState(), start_s=0.0, work_s=6.0).stretches:
    ...     print(stretch.stage, stretch.start_s, stretch.end_s)
    compute 0.0 4.0
    checkpoint 4.0 4.5
    compute 4.5 5.0
    crash 5.0 5.0
    recovery 5.0 7.0
    redo 7.0 7.5
    compute 7.5 9.0
    >>> once.end_s(start_s=0.0, work_s=6.0)
    9.0
    """

    times: AscendingTimes
    crashes: CrashModel
    speed: Speed = FULL_SPEED

    def end_s(self, start_s: float, work_s: float) -> float:
        """Returns when the worker's first work is done.

        Args:
            start_s: when the work begins.
            work_s: seconds at full speed.
        """
        return self.live(TimelineState(), start_s, work_s).end_s

    def live(self, state: TimelineState, start_s: float, work_s: float, until_s: float = math.inf) -> Life:
        """Continues until new work is done, and the checkpoint whose period it completes.

        Args:
            state: the worker's state.
            start_s: when the work begins.
            work_s: seconds at full speed.
            until_s: when the work is cancelled.

        Returns:
            The stages, and the state at the end.

        Raises:
            RunFailed: the worker crashes so often that the work is never done.
        """
        builder = _Builder(
            self,
            state.now_s,
            state.reached_s,
            state.kept_s,
            state.up_s,
            state.crashes,
            state.written_s,
            work_s,
        )
        while builder.now_s < until_s and (task := builder.task(start_s)) is not None:
            stage, piece_s, end_s = task
            crash_s = self.times[builder.crashes]
            stop_s = min(end_s, crash_s, until_s)
            builder.spend(stage, piece_s if stop_s == end_s else self.speed.work_s(builder.now_s, stop_s), stop_s)
            if stop_s == end_s:
                builder.finish(stage)
            if stop_s == crash_s:
                builder.crash()
            if builder.crashes > state.crashes + MOST_CRASHES:
                raise RunFailed(
                    f"a worker crashed {MOST_CRASHES} times in one step of {work_s:g} s; use a larger time between "
                    "crashes, a shorter recovery, or more frequent checkpoints"
                )
        return Life(builder.state, tuple(builder.stretches), max(0.0, builder.left_s))


@dataclass(slots=True)
class _Builder:
    """The changing state of a worker."""

    timeline: CrashTimeline
    now_s: float
    reached_s: float
    kept_s: float
    up_s: float
    crashes: int
    written_s: float
    left_s: float
    stretches: list[Stretch] = field(default_factory=list)

    @property
    def state(self) -> TimelineState:
        return TimelineState(self.now_s, self.reached_s, self.kept_s, self.up_s, self.crashes, self.written_s)

    def task(self, start_s: float) -> tuple[Stage, float, float] | None:
        """Returns the next stage, its work in seconds at full speed, and when it ends without a crash."""
        costs, speed = self.timeline.crashes, self.timeline.speed
        period_s = math.inf if costs.checkpoint_every_s is None else costs.checkpoint_every_s
        if self.now_s < self.up_s:
            return "recovery", 0.0, self.up_s
        if self.kept_s < self.reached_s:
            lost_s = self.reached_s - self.kept_s
            return "redo", lost_s, speed.end_s(self.now_s, lost_s)
        if self.reached_s >= FULL * period_s:
            return "checkpoint", 0.0, self.now_s + max(0.0, costs.checkpoint_cost_s - self.written_s)
        if self.now_s < start_s:
            return "idle", 0.0, start_s
        if self.left_s > 0:
            piece_s = min(self.left_s, period_s - self.reached_s)
            return "compute", piece_s, speed.end_s(self.now_s, piece_s)
        return None

    def spend(self, stage: Stage, work_s: float, stop_s: float) -> None:
        """Advances the time to `stop_s` and books the work that was done."""
        if stage == "compute":
            self.left_s -= work_s
            self.reached_s += work_s
            self.kept_s = self.reached_s
        elif stage == "redo":
            self.kept_s = min(self.kept_s + work_s, self.reached_s)
        elif stage == "checkpoint":
            self.written_s += stop_s - self.now_s
        if stage != "idle":
            self.stretches.append(Stretch(stage, self.now_s, stop_s))
        self.now_s = stop_s

    def finish(self, stage: Stage) -> None:
        """Books the end of a stage that was completed."""
        if stage == "redo":
            self.kept_s = self.reached_s
        elif stage == "checkpoint":
            self.reached_s = self.kept_s = self.written_s = 0.0

    def crash(self) -> None:
        """Books a crash: all work since the last checkpoint is lost."""
        self.stretches.append(Stretch("crash", self.now_s, self.now_s))
        self.kept_s = self.written_s = 0.0
        self.up_s = self.now_s + self.timeline.crashes.recovery_s
        self.crashes += 1


def timeline_of(crashes: CrashModel, speed: Speed, *, rank: int, node: int, nodes: int, seed: int) -> CrashTimeline:
    """Returns the timeline of a worker.

    Args:
        crashes: the faults of the cluster.
        speed: the worker's slowdowns.
        rank: the worker.
        node: the index of its node.
        nodes: number of nodes.
        seed: the seed of random crashes.
    """
    known = sorted(
        crash.at_s for crash in crashes.at if crash.place.holds(rank=rank, node=node, nodes=nodes, seed=seed)
    )
    coming: list[Iterable[float]] = [known]
    if crashes.mtbf_s is not None:
        coming.append(poisson(crashes.mtbf_s, seed, FAILURES, rank))
    if crashes.node_mtbf_s is not None:
        coming.append(poisson(crashes.node_mtbf_s, seed, NODE_FAILURES, node))
    return CrashTimeline(AscendingTimes(heapq.merge(*coming)), crashes, speed)


def undisturbed() -> CrashTimeline:
    """Returns the timeline of a worker that never crashes and is never slowed down.

    >>> undisturbed().end_s(start_s=1.0, work_s=2.0)
    3.0
    """
    return CrashTimeline(AscendingTimes(iter(())), CrashModel())
