"""Starting local ranks, watching them, and gathering what they leave.

Rules of this file:

* The launcher forks one process per rank (torch is imported once: eight ranks start in 0.4 s), or spawns it where it
  computes on a GPU. It computes nothing of the run, except scores of snapshots, on the processor, where an accuracy, a
  loss or divergence is to end it.
* It runs no thread of its own, and ranks meet through a file: a TCP store's thread may hold the resolver's lock at the
  moment of a fork, and the child then waits for it for ever (met, once in some ten launches).
* Whatever happens (a rank dies or fails, a deadlock, Ctrl-C, the launcher itself is killed), no process is left behind,
  and what had been recorded until then is kept.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from paceline.algorithms.errors import DeadlockError, PacelineError, RunFailed
from paceline.algorithms.job import Job
from paceline.algorithms.values import Rank
from paceline.backend.board import Board, Doing
from paceline.backend.device import Pace
from paceline.backend.gather import Failure, gather, stream_of
from paceline.backend.gpus import Asked, Devices, Start, devices
from paceline.backend.guard import guard
from paceline.backend.hosts import Hosts
from paceline.backend.interrupts import uninterrupted
from paceline.backend.placement import Pin, placement
from paceline.backend.recorder import Tail
from paceline.backend.spawning import spawn, tell
from paceline.backend.worker import EXIT_FAILED, Place, maps, work
from paceline.records.goals import Goal
from paceline.records.trace import Schedule, Trace

WATCH_S = 0.02
"""how often the launcher looks at its ranks"""
GRACE_S = 5.0
"""how long survivors have to write their records after a rank has died"""
PATIENCE_S = 10.0
"""all ranks blocked and nothing moved for so long: a deadlock"""
STILL = (Doing.BLOCKED, Doing.ENDED, Doing.DRAINED)
SHARED = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path(tempfile.gettempdir())


class RankFailed(RunFailed):
    """A rank died or failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A job, and how it is run for real."""

    job: Job
    schedule: Callable[[], Schedule]
    pace: Pace | None = None
    """None: as fast as this machine goes"""
    prefetch: int | None = None
    """batches that each rank reads ahead; None: they are in memory"""
    threads: int = 1
    """torch threads of each rank"""
    device: Asked = "cpu"
    """what ranks compute on; see `gpus.devices`"""
    share_gpus: bool = False
    """whether ranks may share a GPU"""
    pin: Pin = "auto"
    """where ranks run; see `placement`"""
    shared_memory: bool = True
    """whether ranks of one node do their collectives in memory that they share"""
    patience_s: float = PATIENCE_S
    hosts: Hosts | None = None
    """the host of each node, between which messages cross a shaped network; None: all of them are this machine"""
    start: Start = "auto"
    """how the processes of ranks are started; see `Devices.start`"""
    scenario: Mapping[str, Any] | None = None
    """of this run alone, resolved: what a spawned rank builds its job from"""
    progress: Callable[[int, float], None] | None = None
    """called now and then with the keeper's completed steps and the seconds since the start"""

    def devices(self) -> Devices:
        """What the ranks of this launch compute on; raises `InputError` where that cannot be had."""
        ranks = [me.rank for me in self.job.team]
        return devices(
            self.device, [ranks], learner=self.job.learner, share=self.share_gpus, apart=self.hosts is not None
        )


def run_job(launch: Launch) -> Trace:
    """Runs a job with one process per rank and answers its record.

    Raises:
        RankFailed: a rank died or failed; it names the rank.
        DeadlockError, ProgramError: the programs are wrong; named by rank, program line and step.
            All carry the record up to then as their `trace`.
    """
    # before the fork: a child must not inherit a pool of threads that is not there
    torch.set_num_threads(launch.threads)
    team = launch.job.team
    if launch.hosts is not None:
        launch.hosts.check(team)
    places = placement(launch.pin, team, launch.threads)
    placed = launch.devices()
    spawned = placed.start(launch.start) == "spawn"
    folder = Path(tempfile.mkdtemp(prefix="paceline-", dir=SHARED))
    children: dict[int, Rank] = {}
    guards: list[int] = []
    try:
        board, segments = maps(launch, folder, spawned=spawned)
        place = Place(os.getpid(), launch, board, folder, segments, places, devices=placed)
        if spawned:
            tell(place)
        sys.stdout.flush()
        sys.stderr.flush()
        with uninterrupted():  # no rank takes a Ctrl-C for the launcher's, and none goes unnoted
            guards.append(guard(folder))
            for me in team:
                if (pid := spawn(folder, me.rank) if spawned else os.fork()) == 0:
                    work(place, me)
                children[pid] = me.rank
        failure = Watch(launch, board, children, folder).run()
        trace = gather(launch.job, folder, start_s=board.start_s)
        trace.ended = "failure" if failure is not None else board.why or launch.job.budget.usual_end
        trace.notes["placement"] = places.record()
        trace.notes["devices"] = placed.record(trace.notes.pop("devices", []))
        for warning in trace.notes.pop("warnings", []):
            warnings.warn_explicit(*warning)
    finally:
        with uninterrupted():  # a second Ctrl-C does not end the cleaning up
            for pid in children:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            shutil.rmtree(folder, ignore_errors=True)
            for pid in guards:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
    if failure is None:
        return trace
    failure = RankFailed(str(failure)) if isinstance(failure, RunFailed) else failure
    failure.trace = trace
    raise failure


class Watch:
    """Looks after the ranks until all have ended."""

    def __init__(self, launch: Launch, board: Board, children: dict[int, Rank], folder: Path) -> None:
        self.launch, self.board, self.children, self.folder = launch, board, children, folder
        self.keeper = launch.job.keeper
        self.failure: PacelineError | None = None
        self.deadline = float("inf")
        self.moves, self.moved_s = -1, time.monotonic()
        self.goal = Goal(launch.job.budget)
        self.tail = Tail(stream_of(folder, self.keeper))

    def run(self) -> PacelineError | None:
        """Answers what went wrong, if anything did."""
        while self.children:
            self.reap()
            self.look_for_deadlock()
            self.look_at_scores()
            if time.monotonic() > self.deadline:
                break
            if self.launch.progress is not None and self.board.start_s:
                self.launch.progress(int(self.board.rows["step"][self.keeper]), time.monotonic() - self.board.start_s)
            time.sleep(WATCH_S)
        return self.failure

    def reap(self) -> None:
        """Takes note of the ranks that have ended, and tells the others of the first that should not have."""
        for pid, rank in list(self.children.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if not ended:
                continue
            del self.children[pid]
            code = os.waitstatus_to_exitcode(status)
            if code != 0 and self.failure is None:
                self.failure = self.reason(rank, code)
                self.board.lose(rank)
                self.deadline = time.monotonic() + GRACE_S

    def reason(self, rank: Rank, code: int) -> PacelineError:
        """Why a rank ended, from its own last words or from its exit status."""
        role = self.launch.job.team[rank].role
        if code == EXIT_FAILED and (said := Failure.first(self.folder, self.launch.job.team)) is not None:
            return said.error()
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        return RunFailed(f"rank {rank} ({role}) died at step {int(self.board.rows['step'][rank])}: {how}")

    def look_for_deadlock(self) -> None:
        """A deadlock: every rank is blocked or at its end, none computes, and nothing has moved for a while."""
        moves = int(self.board.rows["moves"].sum())
        ranks = [int(rank) for rank in self.children.values()]
        blocked = [rank for rank in ranks if self.board.doing(rank) is Doing.BLOCKED]
        idle = all(self.board.doing(rank) in STILL for rank in ranks) and not self.board.rows["busy"].any()
        if moves != self.moves or not blocked or not idle:
            self.moves, self.moved_s = moves, time.monotonic()
        elif time.monotonic() - self.moved_s > self.launch.patience_s and self.failure is None:
            lines = "\n".join(f"  {self.board.waits(rank)}" for rank in blocked)
            self.failure = DeadlockError(f"deadlock: nobody has moved for {self.launch.patience_s:g} s\n{lines}")
            self.deadline = 0.0

    def look_at_scores(self) -> None:
        """Ends the run when a snapshot has reached what the budget asks for, or has diverged."""
        if not self.launch.job.budget.scored or self.board.stopping:
            return
        for kind, value in self.tail.read():
            if kind == "snapshot" and (why := self.goal.reached(self.launch.job.learner.evaluate(value.vector))):
                self.board.stop(why)
