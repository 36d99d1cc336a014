"""Supervises the ranks until all have ended, and detects dead, stopped and hung processes.

Rules of this file:

* If the run can continue without a rank that dies, the death is recorded. Otherwise it ends the run with one message
  that names the rank. A program that raises always ends the run: this is a mistake in the program.
* Before the common start no rank can be lost, because not all ranks are connected yet.
* A rank that is stopped, or hangs while others wait for it, is killed after the timeout and then counts as dead. A rank
  that uses its processor, or waits for the end of a modelled time, counts as working.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from paceline.algorithms.core.errors import PacelineError, RunFailed
from paceline.algorithms.core.job import Job
from paceline.algorithms.core.values import Rank
from paceline.backend.status.rank_logs import STACKS
from paceline.backend.status.rank_status import RankState
from paceline.backend.status.recorder import EXIT_FAILED
from paceline.backend.status.status_board import StatusBoard
from paceline.backend.supervision import failure_messages
from paceline.backend.supervision.gather import Failure
from paceline.backend.supervision.monitors import DeadlockMonitor, GoalMonitor, Liveness, hung
from paceline.records.faults import died_words, ended_words
from paceline.records.trace import LostRank

GRACE_S = 5.0
"""how long survivors have to write their records after a rank has ended the run"""
STACKS_S = 0.5
"""how long ranks have to write their threads' stacks before a hung one is killed"""


class Supervisor:
    """Supervises the processes of all ranks.

    Args:
        job: the job of the run.
        board: the ranks' states.
        children: the ranks' processes; those that have ended are removed.
        folder: contains the ranks' records.
        deadlock_timeout_s: how long all ranks may wait without progress, in seconds.
        timeout_s: how long a rank may be stopped, or make no progress while others wait for it, in seconds.
    """

    def __init__(
        self,
        job: Job,
        board: StatusBoard,
        children: dict[int, Rank],
        folder: Path,
        *,
        deadlock_timeout_s: float,
        timeout_s: float,
    ) -> None:
        self.job, self.board, self.children, self.folder = job, board, children, folder
        self.timeout_s = timeout_s
        self.failure: PacelineError | None = None
        self.failed_ranks: list[LostRank] = []
        self.ended_s: float | None = None
        """when a death that the job has planned ended the run"""
        self.deadline = float("inf")
        self.stopped: dict[int, tuple[float, str]] = {}
        """since when a process has been stopped, and by which signal"""
        self.kill_reasons: dict[Rank, str] = {}
        """why the supervisor kills ranks"""
        self.kill_at_s: dict[int, float] = {}
        """when it kills their processes"""
        self.liveness = Liveness(board, children)
        self.deadlocks = DeadlockMonitor(board, deadlock_timeout_s)
        self.goal = GoalMonitor(job, board, folder)

    def check(self) -> bool:
        """Checks everything once.

        Returns:
            Whether there are processes left to supervise.
        """
        self.reap()
        self.check_stopped()
        self.check_hung()
        deadlock = self.deadlocks.check(self.children.values(), excused=bool(self.stopped))
        if deadlock is not None and self.failure is None:
            self.failure, self.deadline = deadlock, 0.0
        self.goal.check()
        return bool(self.children) and time.monotonic() <= self.deadline

    # --- dead ranks -----------------------------------------------------------------------------------------------

    def reap(self) -> None:
        """Records which processes have ended, been stopped, or been continued."""
        for pid, rank in list(self.children.items()):
            ended, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            if not ended:
                continue
            if os.WIFSTOPPED(status):
                self.stopped[pid] = time.monotonic(), signal.Signals(os.WSTOPSIG(status)).name
                continue
            self.stopped.pop(pid, None)
            self.liveness.restart()  # the timeout of ranks that waited for it starts anew
            if os.WIFCONTINUED(status):
                continue
            del self.children[pid]
            done = self.board.ranks[rank].state is RankState.DRAINED  # its record is complete, however it ended
            if (code := os.waitstatus_to_exitcode(status)) != 0 and self.failure is None and not done:
                self.lose(rank, code)

    def lose(self, rank: Rank, code: int) -> None:
        """Continues without the rank if possible; otherwise notifies the other ranks and ends the run."""
        said = Failure.first(self.folder, self.job.team) if code == EXIT_FAILED else None
        role, how = self.job.team[rank].role, self.kill_reasons.get(rank) or self.died(rank, code)
        if said is None and code != EXIT_FAILED and self.can_lose(rank):
            self.continue_without(rank)
            self.note_death(rank, how)
            return
        if self.is_planned(rank) and code == -signal.SIGKILL:
            self.note_death(rank, how)
            self.ended_s = self.failed_ranks[-1]["time_s"]
        if said is None:
            message = self.board.ranks[rank].failure if code == EXIT_FAILED else ""
            self.failure = RunFailed(message or f"rank {rank} ({role}) {how}{self.earlier_losses()}")
            self.failure.rank = rank
        else:
            self.failure = said.error()
        self.board.lose(rank)
        self.deadline = time.monotonic() + GRACE_S

    def note_death(self, rank: Rank, how: str) -> None:
        """Adds a rank to those that the record names as dead."""
        time_s, step = time.monotonic() - self.board.start_s, self.board.ranks[rank].step
        role = self.job.team[rank].role
        self.failed_ranks.append(LostRank(rank=rank, role=role, step=step, time_s=time_s, how=how))

    def is_planned(self, rank: Rank) -> bool:
        """Whether the job lets this rank die."""
        return bool(self.board.start_s) and any(death.rank == rank for death in self.job.deaths)

    def ended(self) -> str | None:
        """Returns why the run has ended, once all ranks have, if a death that the job has planned ended it."""
        if self.ended_s is None:
            return None
        waits = Failure.consequence(self.folder, self.job.team)
        return ended_words(self.job, self.failed_ranks, self.ended_s, "" if waits is None else waits.message)

    def continue_without(self, rank: Rank) -> None:
        """Notifies the other ranks; if the rank owned the weights, the next owner's snapshots are checked."""
        before = self.board.weights_owner
        self.goal.check()
        self.board.lose(rank, ends=False)
        if self.board.weights_owner != before:
            self.goal.follow(self.board.weights_owner)

    def can_lose(self, rank: Rank) -> bool:
        """Whether the run can continue without this rank too."""
        worker = self.job.team[rank].role == "worker"
        return worker and bool(self.board.start_s) and len(self.failed_ranks) < self.board.spare

    def died(self, rank: Rank, code: int) -> str:
        """Describes when and how a rank died."""
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        if self.is_planned(rank) and code == -signal.SIGKILL:
            return died_words(self.board.ranks[rank].step, how)
        return f"died {failure_messages.when(self.board, rank)}: {how}"

    def earlier_losses(self) -> str:
        """Returns an addition to a message if ranks were lost before."""
        if not self.failed_ranks:
            return ""
        before = ", ".join(f"rank {failed['rank']} {failed['how']}" for failed in self.failed_ranks)
        most = f"{self.job.method.name} can lose {self.board.spare} of {self.job.workers} workers"
        return f"; before that, {before}; {most}"

    # --- stopped and hung ranks -----------------------------------------------------------------------------------

    def check_stopped(self) -> None:
        """Kills processes that have been stopped for too long."""
        for pid, (since_s, name) in self.stopped.items():
            if time.monotonic() - since_s > self.timeout_s:
                self.schedule_kill(pid, failure_messages.stopped(self.timeout_s, name), within_s=0.0)

    def check_hung(self) -> None:
        """Kills a rank that hangs while others wait for it, after the stacks of all threads are in the logs."""
        if self.stopped:
            self.liveness.restart()
        if self.liveness.due(self.timeout_s):
            states = {pid: self.board.ranks[rank].state for pid, rank in self.children.items()}
            for pid in hung(states, self.liveness.quiet_s(), self.timeout_s)[:1]:
                self.schedule_kill(pid, failure_messages.hung(self.timeout_s), within_s=STACKS_S)
        for pid in [pid for pid, at_s in self.kill_at_s.items() if pid in self.children and time.monotonic() >= at_s]:
            os.kill(pid, signal.SIGKILL)

    def schedule_kill(self, pid: int, what: str, *, within_s: float) -> None:
        """Schedules the kill of a process, after its threads' stacks had time to be written to its log.

        The request for the stacks kills a rank that has no log yet.

        Args:
            pid: the process.
            what: what the rank did, for the message.
            within_s: seconds for the stacks; 0 asks for none.
        """
        rank = self.children[pid]
        if rank not in self.kill_reasons:
            others = self.children.values()
            what += f" {failure_messages.when(self.board, rank)}"
            self.kill_reasons[rank] = failure_messages.describe(self.board, self.job.team, rank, others, what)
            self.kill_at_s[pid] = time.monotonic() + within_s
            for child in self.children if within_s else ():
                os.kill(child, STACKS)
