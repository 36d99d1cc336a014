"""Repeats a recorded run without a clock: every rank receives its messages from the same sources in the same order.

What a program computes depends on the seed, on the order in which it receives messages, on the answers of `Now`, and on
which of several started operations completed first. All of that is in the record, so a replay ends with the same
weights, bit for bit. Two things are not in the record: the order of accesses to shared cells, and how far a sub-program
was when it was cancelled. A program that depends on them cannot be replayed.

The memory of a replay does not grow with the length of the run: there is no log, answers are dropped when they can no
longer be requested, and only the last version of the learned weights is kept.

`replay_run` repeats a stored run from its scenario and its record. It compares bits, not numbers: a difference is
reported with its size, and with every fact about this machine that has changed since the run. Runs whose order is not
recorded are rejected before anything is run.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, ClassVar, TypeVar
from weakref import WeakSet

import numpy as np

from paceline.algorithms.core.checksums import reading
from paceline.algorithms.core.errors import InputError, ProgramError
from paceline.algorithms.core.job import Budget, Job
from paceline.algorithms.core.operations import Access, Cancel, Handle, Lock, NextStep, Op, Receive, WaitFor
from paceline.algorithms.core.program import Routine
from paceline.algorithms.core.values import Rank, Step
from paceline.algorithms.runtime.handles import Outcome, is_partial
from paceline.algorithms.runtime.mail import Envelope
from paceline.algorithms.runtime.program_errors import InvalidOperation
from paceline.checking.anyorder import AnyOrder
from paceline.checking.driver import LaneTask, LoggedMove
from paceline.checking.moves import Chooser, first
from paceline.records import Run
from paceline.records.figures import significant
from paceline.records.machine import machine_facts, package_versions
from paceline.records.store import as_array
from paceline.records.tables import NO_SOURCE, Tables
from paceline.records.trace import Trace
from paceline.scenarios.resolution.load_scenario import load
from paceline.scenarios.resolution.plan import Plan
from paceline.workloads.models.threads import torch_threads

Kind = TypeVar("Kind", bound=Outcome)


Progress = Callable[[float], None]
"""called with the completed fraction of a replay, 0 … 1"""


class ReplayError(ProgramError):
    """The program does something else than the record says."""


class LeftRecord(InvalidOperation):
    """An operation that is not in the record."""

    kind: ClassVar[type[ProgramError]] = ReplayError


@dataclass(frozen=True, slots=True)
class Recording:
    """The parts of a record that a replay follows.

    `heard` holds the sources of each rank's received messages in order, with None for a `Receive` that timed out, and
    `hearers` the lanes that received them, if known; `now_s` holds the answers of each rank's `Now`, and `outcomes`
    those of each lane's `WaitFor` and `Cancel`. `steps` is the number of steps of each rank, which is needed if ranks
    step independently.
    """

    heard: Mapping[Rank, Sequence[Rank | None]]
    now_s: Mapping[Rank, Sequence[float]] = field(default_factory=dict)
    hearers: Mapping[Rank, Sequence[str]] = field(default_factory=dict)
    outcomes: Mapping[tuple[Rank, str], Sequence[Outcome]] = field(default_factory=dict)
    steps: Mapping[Rank, int] = field(default_factory=dict)

    @staticmethod
    def of(heard: Iterable[tuple[Rank, Rank | None]], now_s: Mapping[Rank, Sequence[float]] | None = None) -> Recording:
        """Builds a recording from the (receiver, source) pairs of `Trace.heard`.

        This is enough if only main programs receive messages, not their other lanes.

        >>> Recording.of([(Rank(2), Rank(0)), (Rank(0), Rank(2)), (Rank(2), Rank(1))]).heard
        {2: [0, 1], 0: [2]}
        """
        return Recording(_by_receiver(heard), now_s or {})

    @staticmethod
    def of_run(trace: Trace) -> Recording:
        """Builds a recording from the trace of a run."""
        hearers = _by_receiver((receiver, lane) for (receiver, _), lane in zip(trace.heard, trace.hearers, strict=True))
        steps = {rank: state.step for rank, state in trace.states.items()}
        return Recording(_by_receiver(trace.heard), trace.now_s, hearers, trace.outcomes, steps)

    @staticmethod
    def of_tables(tables: Tables) -> Recording:
        """Builds a recording from the stored tables of a run."""
        heard, hearers, now_s = {}, {}, {}
        for rank, rows in tables.heard.groupby("rank"):
            heard[_rank(rank)] = [None if source == NO_SOURCE else Rank(source) for source in rows["source"].tolist()]
            hearers[_rank(rank)] = rows["lane"].tolist()
        for rank, rows in tables.told.groupby("rank"):
            now_s[_rank(rank)] = rows["now_s"].tolist()
        outcomes: dict[tuple[Rank, str], list[Outcome]] = {}
        for rank, lane, outcome in tables.outcomes.itertuples(index=False):
            answer = json.loads(outcome)
            outcomes.setdefault((Rank(rank), lane), []).append(tuple(answer) if isinstance(answer, list) else answer)
        steps = {Rank(rank): int(step) for rank, step in tables.steps.itertuples(index=False)}
        return Recording(heard, now_s, hearers, outcomes, steps)


def _rank(key: Any) -> Rank:
    """Converts the label of a group to a rank."""
    return Rank(int(key))


def _by_receiver(pairs: Iterable[tuple[Rank, Any]]) -> dict[Rank, list[Any]]:
    answers: dict[Rank, list[Any]] = {}
    for receiver, what in pairs:
        answers.setdefault(receiver, []).append(what)
    return answers


class Replay(AnyOrder):
    """The replay of one recorded run.

    Raises:
        ReplayError: the program leaves the record, or ends before it does.
    """

    EVALUATED_EVERY: ClassVar[float] = math.inf

    def __init__(self, job: Job, recording: Recording, progress: Progress = lambda _: None) -> None:
        super().__init__(job)
        self._progress = progress
        self._heard = {
            rank: deque(zip_longest(sources, recording.hearers.get(rank, ())))
            for rank, sources in recording.heard.items()
        }
        self._now_s = {rank: deque(times) for rank, times in recording.now_s.items()}
        self._outcomes = {lane: deque(outcomes) for lane, outcomes in recording.outcomes.items()}
        self._taken = recording.steps if job.method.independent else {}
        self._routines: WeakSet[Handle[Any]] = WeakSet()

    def run(self, choose: Chooser = first) -> Trace:
        """Follows the record to its end; the order of moves that the record leaves open makes no difference."""
        trace = super().run(choose)
        trace.weights = self._owner.learned.latest.vector
        outcomes = {rank: rest for (rank, _), rest in self._outcomes.items() if rest}
        for what, left in (("messages", self._heard), ("times", self._now_s), ("outcomes", outcomes)):
            for rank, rest in left.items():
                if rest:
                    raise ReplayError(
                        f"rank {rank} ended before its record, {len(rest)} {what} early; is it this job's?"
                    )
        return trace

    def _note(self, entry: LoggedMove) -> None:
        self._moves += 1  # a log would hold every gradient of the run

    def _can_go(self, task: LaneTask) -> bool:
        """Waits for an operation only if the record says that it was done."""
        due = self._outcomes.get((task.me.rank, task.line))
        match task.op:
            case WaitFor(handles) if due and is_partial(task.op) and isinstance(due[0], tuple):
                due_handles = [handles[i] for i in due[0] if i < len(handles)]
                return self._handles[task.me.rank].is_over(due_handles, len(due_handles))
            case Cancel(handle) if due and due[0] is False:
                return self._handles[task.me.rank].is_over([handle], 1)
            case WaitFor() if is_partial(task.op):
                return True  # answered with the error that this is not in the record
            case _:
                return super()._can_go(task)

    def _next(self, task: LaneTask, op: NextStep) -> Step | None:
        step = super()._next(task, op)
        if task.me.role == self.job.method.weights_owner:
            self._progress(min(1.0, self._grants.begun / max(1, self.limit)))
        return step

    def _grant(self, rank: Rank, step: int) -> bool:
        """Lets ranks that step independently take as many steps as in the record."""
        if rank not in self._taken:
            return super()._grant(rank, step)
        self._grants.note(rank, step + 1)
        return step < self._taken[rank]

    def _perform(self, task: LaneTask, op: Op[Any]) -> Any:
        if isinstance(op, Access | Lock):
            raise LeftRecord(f"asks for {type(op).__name__}, whose answer is not in the record")
        return super()._perform(task, op)

    def _outcome(self, task: LaneTask, op: Op[Any], kind: type[Kind]) -> Kind:
        """Returns the recorded answer of the lane's operation."""
        due = self._outcomes.get((task.me.rank, task.line))
        if not due or not isinstance(due[0], kind):
            recorded = f"its record has the answer {due[0]!r} next" if due else "its record has no more answers"
            raise LeftRecord(f"asks for {type(op).__name__}; {recorded}")
        outcome = due.popleft()
        assert isinstance(outcome, kind), "checked above"
        return outcome

    # ------------------------------------------------------------------------------------------------ messages

    def _is_next(self, task: LaneTask) -> bool:
        """Whether this lane receives the rank's next message, according to the record."""
        due = self._heard.get(task.me.rank)
        return due is not None and len(due) > 0 and due[0][1] in (None, task.line)

    def _letter(self, task: LaneTask, op: Receive) -> Envelope | None:
        if not self._is_next(task):
            return None
        source = self._heard[task.me.rank][0][0]
        if source is None or op.source not in (None, source):
            return None
        return self._mail.inboxes[task.me.rank].find(source, op.tag)

    def _hear(self, task: LaneTask, source: Rank | None) -> None:
        super()._hear(task, source)
        self._heard[task.me.rank].popleft()

    def _can_time_out(self, task: LaneTask) -> bool:
        return self._is_next(task) and self._heard[task.me.rank][0][0] is None and super()._can_time_out(task)

    def _read_clock(self, task: LaneTask) -> float:
        times = self._now_s.get(task.me.rank)
        if not times:
            raise LeftRecord("asks for the time more often than its record says")
        return times.popleft()

    # ------------------------------------------------------------------------------------------------ lanes

    def _begin_lane(self, task: LaneTask, what: Op[Any] | Routine[Any], *, line: str | None = None) -> Handle[Any]:
        handle = super()._begin_lane(task, what, line=line)
        if isinstance(what, Routine):
            self._routines.add(handle)
        return handle

    def _found(self, task: LaneTask, op: WaitFor[Any]) -> tuple[int, ...] | None:
        if not is_partial(op):
            return super()._found(task, op)
        outcome = self._outcome(task, op, tuple)
        if outcome and max(outcome) >= len(op.handles):
            raise LeftRecord(f"waits for some of {len(op.handles)} handles; its record found {outcome} done")
        return outcome

    def _cancel(self, task: LaneTask, handle: Handle[Any]) -> bool:
        if self._outcome(task, Cancel(handle), bool):
            if handle in self._routines:
                raise LeftRecord("cancels a sub-program; its progress at that time is not in the record")
            promise = self._handles[task.me.rank].promise(handle)
            promise.settled, promise.failure = False, None  # the replay may have completed it already
        return super()._cancel(task, handle)

    def _stuck(self) -> None:
        lines = []
        for task in self._tasks:
            rank = task.me.rank
            line = f"  {self._line_of(task)}"
            if isinstance(task.op, Receive):
                due = self._heard.get(rank)
                source = due[0][0] if due else None
                heard = "no message" if not due else "a timeout" if source is None else f"a message of rank {source}"
                lines.append(f"{line}; next in its record is {heard}")
            elif isinstance(task.op, Cancel) or (isinstance(task.op, WaitFor) and is_partial(task.op)):
                lines.append(f"{line}; its record has the answer {self._outcomes[rank, task.line][0]}")
        if not lines:
            super()._stuck()
        raise ReplayError("the program differs from its record:\n" + "\n".join(lines))


def replay(job: Job, recording: Recording, progress: Progress = lambda _: None) -> Trace:
    """Repeats the recorded run of `job`.

    Args:
        job: the same method, ranks, learner, budget and seed as recorded.
        recording: the messages and answers that each rank received.
        progress: called with the completed fraction.

    Returns:
        A trace whose weights are those of the recorded run, bit for bit; its times count moves.

    Raises:
        ReplayError: the job is not the recorded one.
    """
    return Replay(job, recording, progress).run()


PACKAGES = ("paceline", "python", "torch", "numpy")
"""packages whose versions may affect the bits of a gradient"""


SUMS = (
    "No difference of the machine or the packages is known. If more than two ranks sum over sockets, gloo adds in its "
    "own order and a replay in the order of ranks, so sums differ in their last bits"
)
"""why bits may differ on the same machine"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The result of a replay."""

    run: Run
    """the recorded run"""
    weights: Any
    """the weights at the end of the replay"""
    steps: int
    """steps of the rank that owns the weights, or of all such ranks if they step independently"""
    heard: int
    """number of messages and timeouts in the record"""
    unlike: tuple[str, ...]
    """sentences about what has changed since the run was recorded"""

    @property
    def bit_identical(self) -> bool:
        """Whether the weights have the same bits as the stored ones."""
        stored, again = self._vectors
        return stored.dtype == again.dtype and stored.tobytes() == again.tobytes()

    @property
    def largest_difference(self) -> float | None:
        """max |replayed − stored| over all weights; None if a weight is NaN."""
        stored, again = (vector.astype(np.float64) for vector in self._vectors)
        if stored.shape != again.shape:
            return None
        if self.bit_identical:
            return 0.0
        largest = float(np.max(np.abs(again - stored)))
        return largest if np.isfinite(largest) else None

    @property
    def _vectors(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        stored, again = self.run.weights, as_array(self.weights)
        assert again is not None, "a learner whose stored weights have numbers has numbers"
        return stored, again

    def answer(self) -> dict[str, Any]:
        """Returns the JSON answer."""
        return {
            "path": str(self.run.path),
            "algorithm": self.run.algorithm,
            "seed": self.run.seed,
            "steps": self.steps,
            "heard": self.heard,
            "bit_identical": self.bit_identical,
            "largest_difference": self.largest_difference,
            "unlike": list(self.unlike),
        }

    @property
    def words(self) -> str:
        """The result in sentences."""
        done = f"{self.run.algorithm}, seed {self.run.seed}: {self.steps} steps and {self.heard} messages replayed"
        if self.bit_identical:
            return f"{done}; the weights are those of the run, bit for bit."
        size = self.largest_difference
        by = "" if size is None else f", by up to {significant(size)}"
        why = "; ".join(self.unlike) or SUMS
        return f"{done}; the weights differ from the run's{by}. {why}."


def replay_run(run: Run, progress: Progress = lambda _: None) -> Replayed:
    """Repeats a stored run as it was recorded, without a clock, in this process.

    Args:
        run: the stored run.
        progress: called with the completed fraction.

    Raises:
        InputError: the run is not a complete measured run with weights, or its order is not recorded.
        ReplayError: the program does something else than the record says.
    """
    with reading(Path(run.path or run.name), "a whole measured run"):
        plan = plan_of(run)
        recording = Recording.of_tables(run.tables)
    job = _as_long(plan.measured_job, recording)
    with torch_threads(plan.real.torch_threads):
        trace = replay(job, recording, progress)
    return Replayed(
        run=run,
        weights=trace.weights,
        steps=job.limit or 0,
        heard=len(run.tables.heard),
        unlike=tuple(unlike(run)),
    )


def plan_of(run: Run) -> Plan:
    """Returns the plan of the run, from its own scenario; raises `InputError` if it cannot be replayed."""
    where = run.path or run.name
    if run.kind != "measured":
        raise InputError(f"{where}: a {run.kind} run; expected a measured one (a simulation is repeated by simulate)")
    if run.summary["stop_reason"] == "failure":
        raise InputError(f"{where}: the run failed, so its record has no end to compare with; expected a whole run")
    if run.weights is None:
        raise InputError(f"{where}: the run has no weights to compare with; expected one that learned something")
    if not len(run.tables.steps):
        raise InputError(f"{where}: holds no steps.parquet; it was recorded before runs could be replayed")
    (plan,) = load(run.scenario).plans(paced=run.summary["paced"])
    if plan.job.method.shared:
        raise InputError(
            f"{where}: {run.algorithm} has no order to replay: its ranks add to shared memory concurrently, and the "
            "order of their additions is in no record, since recording it would take a lock"
        )
    if run.summary.get("failed_ranks"):
        raise InputError(f"{where}: ranks died in the run, and when the other ranks noticed is in no record")
    for note, what in (("resumed_from", "was resumed from a checkpoint"), ("checkpoints", "paused for checkpoints")):
        if run.machine.get(note) is not None and not plan.job.method.deterministic:
            raise InputError(
                f"{where}: the run {what}; servers then drop gradients that they have not applied, which is not "
                "recorded; expected a run without checkpoints"
            )
    return plan


def _as_long(job: Job, recording: Recording) -> Job:
    """Returns the job with the recorded number of steps as its budget, whatever ended the run."""
    taken = [recording.steps[rank] for rank in job.owners]
    steps = sum(taken) if job.method.independent else taken[0]
    return replace(job, budget=Budget(samples=job.samples_in(steps)))


def unlike(run: Run) -> Iterator[str]:
    """Yields the facts about this machine that may affect the bits of a gradient and differ from the run's record."""
    now, then = package_versions(), run.versions
    for package in PACKAGES:
        if now.get(package) != then.get(package):
            yield f"the run had {package} {then.get(package)}, this is {now.get(package)}"
    here = machine_facts()
    for fact in ("processor", "architecture"):
        if here[fact] != run.machine.get(fact):
            yield f"the run's {fact} was {run.machine.get(fact)}, this is {here[fact]}"
