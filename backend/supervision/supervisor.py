"""Looking after the ranks of a run until all have ended: who has died, who is stopped, who keeps the others waiting.

Rules of this file:

* A rank that dies is either one that the run can do without, which is noted, or it ends the run, which is said in one
  sentence that names it. A program that raises ends the run: that is a mistake, and no accident.
* Before the common start nobody can be done without: not everybody is connected yet.
* A rank that is stopped, or shows no sign of life while others wait for it, is killed after the time-out, and is then
  one that has died. Whoever uses its processor, or waits out a modelled time, is at work however long that takes.
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
from paceline.backend.status.recorder import EXIT_FAILED
from paceline.backend.status.status_board import Board, Doing
from paceline.backend.supervision import failure_messages
from paceline.backend.supervision.gather import Failure
from paceline.backend.supervision.liveness import Signs, silent
from paceline.backend.supervision.monitors import Scores, Stillness
from paceline.records.trace import LostRank

GRACE_S = 5.0
"""how long survivors have to write their records after a rank has ended the run"""
STACKS_S = 0.5
"""how long ranks have to write down where their threads stand, before a silent one is killed"""


class Watch:
    """Looks after the ranks.

    Args:
        job: what they run.
        board: what they say.
        children: their processes; those that have ended are taken out.
        folder: where they write.
        patience_s: all are blocked and nothing has moved for so long: a deadlock.
        timeout_s: how long a rank may be stopped, or keep others waiting without a sign of life.
    """

    def __init__(
        self, job: Job, board: Board, children: dict[int, Rank], folder: Path, *, patience_s: float, timeout_s: float
    ) -> None:
        self.job, self.board, self.children, self.folder = job, board, children, folder
        self.timeout_s = timeout_s
        self.failure: PacelineError | None = None
        self.failed_ranks: list[LostRank] = []
        self.deadline = float("inf")
        self.stopped: dict[int, tuple[float, str]] = {}
        """since when a process is, and by which signal"""
        self.sentences: dict[Rank, str] = {}
        """why those are killed whom the watch kills"""
        self.condemned: dict[int, float] = {}
        """when"""
        self.signs = Signs(board, children)
        self.stillness, self.scores = Stillness(board, patience_s), Scores(job, board, folder)

    def look(self) -> bool:
        """Looks once at everything; whether there is anything left to look after."""
        self.reap()
        self.look_for_stopped()
        self.look_for_silent()
        deadlock = self.stillness.look(self.children.values(), excused=bool(self.stopped))
        if deadlock is not None and self.failure is None:
            self.failure, self.deadline = deadlock, 0.0
        self.scores.look()
        return bool(self.children) and time.monotonic() <= self.deadline

    # --- who has ended --------------------------------------------------------------------------------------------

    def reap(self) -> None:
        """Takes note of the ranks that have ended, been stopped, or been let go on."""
        for pid, rank in list(self.children.items()):
            ended, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            if not ended:
                continue
            if os.WIFSTOPPED(status):
                self.stopped[pid] = time.monotonic(), signal.Signals(os.WSTOPSIG(status)).name
                continue
            self.stopped.pop(pid, None)
            self.signs.forget()  # who waited for it has a new chance
            if os.WIFCONTINUED(status):
                continue
            del self.children[pid]
            done = self.board.doing(rank) is Doing.DRAINED  # however it ended after that, it has left nothing undone
            if (code := os.waitstatus_to_exitcode(status)) != 0 and self.failure is None and not done:
                self.lose(rank, code)

    def lose(self, rank: Rank, code: int) -> None:
        """Goes on without the rank if that can be; otherwise the others are told, and the run ends."""
        said = Failure.first(self.folder, self.job.team) if code == EXIT_FAILED else None
        role, how = self.job.team[rank].role, self.sentences.get(rank) or self.died(rank, code)
        if said is None and code != EXIT_FAILED and self.can_lose(rank):
            self.go_on_without(rank)
            time_s = time.monotonic() - self.board.start_s
            self.failed_ranks.append(LostRank(rank=rank, role=role, step=self.step(rank), time_s=time_s, how=how))
            return
        if said is None:
            words = self.board.failure(rank) if code == EXIT_FAILED else ""
            self.failure = RunFailed(words or f"rank {rank} ({role}) {how}{self.too_many()}")
            self.failure.rank = rank
        else:
            self.failure = said.error()
        self.board.lose(rank)
        self.deadline = time.monotonic() + GRACE_S

    def go_on_without(self, rank: Rank) -> None:
        """Lets the others know; where the weights were this one's to keep, the next keeper's are looked at."""
        before = self.board.weights_owner
        self.scores.look()
        self.board.lose(rank, ends=False)
        if self.board.weights_owner != before:
            self.scores.follow(self.board.weights_owner)

    def can_lose(self, rank: Rank) -> bool:
        """Whether the run goes on without one more."""
        worker = self.job.team[rank].role == "worker"
        return worker and bool(self.board.start_s) and len(self.failed_ranks) < self.board.spare

    def died(self, rank: Rank, code: int) -> str:
        """When and how."""
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        return f"died {failure_messages.when(self.board, rank)}: {how}"

    def too_many(self) -> str:
        """What is to be added where ranks were lost before."""
        if not self.failed_ranks:
            return ""
        before = ", ".join(f"rank {one['rank']} {one['how']}" for one in self.failed_ranks)
        most = f"{self.job.method.name} can lose {self.board.spare} of {self.job.workers} workers"
        return f"; before that, {before}; {most}"

    def step(self, rank: Rank) -> int:
        return int(self.board.rows["step"][rank])

    # --- who does not move ----------------------------------------------------------------------------------------

    def look_for_stopped(self) -> None:
        """Kills who has been stopped for too long."""
        for pid, (since_s, name) in self.stopped.items():
            if time.monotonic() - since_s > self.timeout_s:
                self.condemn(pid, failure_messages.stopped(self.timeout_s, name), within_s=0.0)

    def look_for_silent(self) -> None:
        """Kills who keeps others waiting and has shown no sign of life for too long; the logs say where all stood."""
        if self.stopped:
            self.signs.forget()
        if self.signs.due(self.timeout_s):
            doing = {pid: self.board.doing(rank) for pid, rank in self.children.items()}
            for pid in silent(doing, self.signs.quiet_s(), self.timeout_s)[:1]:
                self.condemn(pid, failure_messages.kept_waiting(self.timeout_s), within_s=STACKS_S)
        for pid in [pid for pid, at_s in self.condemned.items() if pid in self.children and time.monotonic() >= at_s]:
            os.kill(pid, signal.SIGKILL)

    def condemn(self, pid: int, what: str, *, within_s: float) -> None:
        """Notes why a rank is to be killed, once the ranks had so long to write their threads' stacks into their logs.

        A rank that hangs before it has a log is killed by the request.
        """
        rank = self.children[pid]
        if rank not in self.sentences:
            others = self.children.values()
            what += f" {failure_messages.when(self.board, rank)}"
            self.sentences[rank] = failure_messages.sentence(self.board, self.job.team, rank, others, what)
            self.condemned[pid] = time.monotonic() + within_s
            for child in self.children if within_s else ():
                os.kill(child, STACKS)
