"""A worker that crashes: what its device does when, and when a gradient is done therefore.

Rules of this file:

* A worker's life is a sequence of stages: computing, writing a checkpoint, being down, doing lost work again, idling. A
  crash ends a stage, whatever it is. What was computed since the last checkpoint is then lost and done again before
  anything new; a checkpoint that was being written is lost too. A crash while down begins the recovery again.
* Lost work is done again in time alone: its values would be the same, so nothing is computed twice. Other workers wait
  for it as their method's own synchronisation makes them.
* A worker without work to do still crashes; it recovers and works off what it lost while the others keep it waiting.
* Checkpoints follow on the work that fills their period, before it counts as done.
* An answer depends on the arguments alone. Crashes are a Poisson process on the run's own clock beside the given ones;
  they are drawn from the seed, as far as anybody asks.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Literal

from paceline.algorithms.core.errors import RunFailed
from paceline.topologies.faults.slowdowns import FULL_SPEED, Speed
from paceline.topologies.faults.worker_faults import FAILURES, NODE_FAILURES, Crashes, poisson

Stage = Literal["compute", "redo", "checkpoint", "crash", "recovery", "idle"]
MOST_CRASHES = 100_000
"""in one piece of work, which will then never be done; provenance: ours"""
FULL = 1 - 1e-9
"""of a checkpoint's period: what is missing is rounding"""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stage from its beginning to its end, or to the crash that ended it; a crash itself lasts no time."""

    stage: Stage
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class State:
    """Where a worker stands.

    Args:
        now_s: its life is known up to here.
        reached_s: useful work since the last checkpoint, as far as it ever got.
        kept_s: how much of that is there now; the rest is to be done again.
        up_s: from when on it is up.
        crashes: how many it has had.
        written_s: how long it has been writing the checkpoint that it is at.
    """

    now_s: float = 0.0
    reached_s: float = 0.0
    kept_s: float = 0.0
    up_s: float = 0.0
    crashes: int = 0
    written_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Life:
    """What a worker did in a while, and where it stands then."""

    state: State
    stretches: tuple[Stretch, ...]

    @property
    def end_s(self) -> float:
        return self.state.now_s


@dataclass(slots=True)
class Times:
    """Rising times, read from an iterator as far as anybody has asked; infinity beyond its end."""

    coming: Iterator[float]
    known: list[float] = field(default_factory=list)

    def __getitem__(self, index: int) -> float:
        while len(self.known) <= index:
            self.known.append(next(self.coming, math.inf))
        return self.known[index]


@dataclass(frozen=True, slots=True)
class Timeline:
    """One worker's crashes, checkpoints and slowdowns.

    >>> crashes = Crashes(recovery_s=2.0, checkpoint_every_s=4.0, checkpoint_cost_s=0.5)
    >>> once = Timeline(Times(iter([5.0])), crashes)
    >>> for stretch in once.live(State(), start_s=0.0, work_s=6.0).stretches:
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

    times: Times
    crashes: Crashes
    speed: Speed = FULL_SPEED

    def end_s(self, start_s: float, work_s: float) -> float:
        """When work is done that is the worker's first."""
        return self.live(State(), start_s, work_s).end_s

    def live(self, state: State, start_s: float, work_s: float, until_s: float = math.inf) -> Life:
        """Lives until new work is done, and the checkpoint that it fills the period of.

        Args:
            state: where the worker stands.
            start_s: when it is given the work.
            work_s: seconds at full speed.
            until_s: when it is told to leave it.

        Raises:
            RunFailed: it crashes so often that the work is never done.
        """
        living = _Living(self, **asdict(state), left_s=work_s)
        while living.now_s < until_s and (task := living.task(start_s)) is not None:
            stage, piece_s, end_s = task
            crash_s = self.times[living.crashes]
            stop_s = min(end_s, crash_s, until_s)
            living.spend(stage, piece_s if stop_s == end_s else self.speed.work_s(living.now_s, stop_s), stop_s)
            if stop_s == end_s:
                living.finish(stage)
            if stop_s == crash_s:
                living.crash()
            if living.crashes > state.crashes + MOST_CRASHES:
                raise RunFailed(
                    f"a worker crashed {MOST_CRASHES} times in one step of {work_s:g} s; give it crashes further "
                    "apart, a shorter recovery, or checkpoints nearer to each other"
                )
        return Life(living.state, tuple(living.stretches))


@dataclass(slots=True)
class _Living:
    """A worker's state while it changes."""

    timeline: Timeline
    now_s: float
    reached_s: float
    kept_s: float
    up_s: float
    crashes: int
    written_s: float
    left_s: float
    stretches: list[Stretch] = field(default_factory=list)

    @property
    def state(self) -> State:
        return State(self.now_s, self.reached_s, self.kept_s, self.up_s, self.crashes, self.written_s)

    def task(self, start_s: float) -> tuple[Stage, float, float] | None:
        """What it does next, the work of it at full speed, and when that ends if nothing comes between."""
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
        """Lets time pass in which so much work is done."""
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
        """A stage has come to its end."""
        if stage == "redo":
            self.kept_s = self.reached_s
        elif stage == "checkpoint":
            self.reached_s = self.kept_s = self.written_s = 0.0

    def crash(self) -> None:
        """All work since the last checkpoint is gone."""
        self.stretches.append(Stretch("crash", self.now_s, self.now_s))
        self.kept_s = self.written_s = 0.0
        self.up_s = self.now_s + self.timeline.crashes.recovery_s
        self.crashes += 1


def timeline_of(crashes: Crashes, speed: Speed, *, rank: int, node: int, nodes: int, seed: int) -> Timeline:
    """The timeline of a worker, drawn from the seed."""
    known = sorted(
        crash.at_s for crash in crashes.at if crash.place.holds(rank=rank, node=node, nodes=nodes, seed=seed)
    )
    coming: list[Iterable[float]] = [known]
    if crashes.mtbf_s is not None:
        coming.append(poisson(crashes.mtbf_s, seed, FAILURES, rank))
    if crashes.node_mtbf_s is not None:
        coming.append(poisson(crashes.node_mtbf_s, seed, NODE_FAILURES, node))
    return Timeline(Times(heapq.merge(*coming)), crashes, speed)
