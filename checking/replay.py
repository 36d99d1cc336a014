"""Runs a recorded run again without a clock: every receiver hears its messages from the same sources in the same order.

What a program computes depends on the seed, on the order in which it hears the others and on the times it was told;
both are in the record, so a replay ends in the same weights, bit for bit. What the record does not hold is which of
several started operations ended first and who came first to a shared cell: a program that asks for that is refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from paceline.algorithms.errors import ProgramError
from paceline.algorithms.job import Job
from paceline.algorithms.operations import Access, Cancel, Lock, Op, Receive, WaitFor
from paceline.algorithms.values import Rank
from paceline.checking.anyorder import AnyOrder
from paceline.checking.mail import Letter
from paceline.checking.moves import Chooser, first
from paceline.checking.tasks import Task
from paceline.checking.telling import line_of
from paceline.records.trace import Trace


class ReplayError(ProgramError):
    """The program does not do what the record says it did."""


@dataclass(frozen=True, slots=True)
class Recording:
    """What a replay follows.

    `heard` holds each receiver's sources in order, None for a `Receive` that timed out; `now_s` the answers of each
    rank's `Now`.
    """

    heard: Mapping[Rank, Sequence[Rank | None]]
    now_s: Mapping[Rank, Sequence[float]] = field(default_factory=dict)

    @staticmethod
    def of(heard: Iterable[tuple[Rank, Rank | None]], now_s: Mapping[Rank, Sequence[float]] | None = None) -> Recording:
        """From `Trace.heard`, whose pairs are (receiver, source).

        >>> Recording.of([(Rank(2), Rank(0)), (Rank(0), Rank(2)), (Rank(2), Rank(1))]).heard
        {2: [0, 1], 0: [2]}
        """
        sources: dict[Rank, list[Rank | None]] = {}
        for receiver, source in heard:
            sources.setdefault(receiver, []).append(source)
        return Recording(sources, now_s or {})


class Replay(AnyOrder):
    """One recorded run again.

    Raises:
        ReplayError: the program leaves the record, or ends before it does.
    """

    def __init__(self, job: Job, recording: Recording) -> None:
        super().__init__(job)
        self._heard = {rank: deque(sources) for rank, sources in recording.heard.items()}
        self._now_s = {rank: deque(times) for rank, times in recording.now_s.items()}

    def run(self, choose: Chooser = first) -> Trace:
        """Follows the record to its end; who moves when no message decides makes no difference."""
        trace = super().run(choose)
        for what, left in (("messages", self._heard), ("times", self._now_s)):
            for rank, rest in left.items():
                if rest:
                    raise ReplayError(
                        f"rank {rank} ended before its record, {len(rest)} {what} early; is it this job's?"
                    )
        return trace

    def _perform(self, task: Task, op: Op[Any]) -> Any:
        if isinstance(op, Access | Lock | Cancel) or (isinstance(op, WaitFor) and op.least != len(op.handles)):
            raise ReplayError(f"asks for {type(op).__name__}, whose answer depends on what the record does not hold")
        return super()._perform(task, op)

    def _letter(self, task: Task, op: Receive) -> Letter | None:
        due = self._heard.get(task.me.rank)
        if not due or due[0] is None or op.source not in (None, due[0]):
            return None
        return self._mail.find(task.me.rank, due[0], op.tag)

    def _hear(self, task: Task, source: Rank | None) -> None:
        super()._hear(task, source)
        self._heard[task.me.rank].popleft()

    def _can_time_out(self, task: Task) -> bool:
        due = self._heard.get(task.me.rank)
        return bool(due is not None and due and due[0] is None) and super()._can_time_out(task)

    def _read_clock(self, task: Task) -> float:
        times = self._now_s.get(task.me.rank)
        if not times:
            raise ReplayError("asks for the time more often than its record says")
        return times.popleft()

    def _stuck(self) -> None:
        told = []
        for task in self._tasks:
            if isinstance(task.op, Receive):
                due = self._heard.get(task.me.rank)
                heard = "no more" if not due else "nobody in time" if due[0] is None else f"rank {due[0]} next"
                line = line_of(task, self._steps[task.me.rank], self._promises, self._cells)
                told.append(f"  {line}; its record hears {heard}")
        if not told:
            super()._stuck()
        raise ReplayError("the program has left its record:\n" + "\n".join(told))


def replay(job: Job, recording: Recording) -> Trace:
    """The recorded run of `job` again.

    Args:
        job: the same method, ranks, learner, budget and seed as recorded.
        recording: what each rank heard, and the times it was told.

    Returns:
        A trace whose weights are those of the recorded run, bit for bit; its times count moves.

    Raises:
        ReplayError: the job is not the recorded one.
    """
    return Replay(job, recording).run()
