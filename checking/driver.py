"""Drives the lanes of all ranks, one move at a time; subclasses define what operations mean.

Rules of this file:

* Everything that may happen next is a `Move`. The choices among moves alone determine a run, so the same choices give
  the same run.
* Time is the number of moves made.
* A collective is entered when it is asked for or started, in program order. A message travels until it is delivered.
* A run is over when every program has ended and everything in flight is completed. A lane that waits for something
  that cannot happen any more is then abandoned.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from paceline.algorithms.core.errors import (
    DeadlockError,
    InputError,
    ProgramError,
)
from paceline.algorithms.core.fast_values import fast_constructor
from paceline.algorithms.core.job import Job
from paceline.algorithms.core.method import RankContext
from paceline.algorithms.core.operations import (
    Cancel,
    Charge,
    Gradient,
    Handle,
    LayerGradients,
    Load,
    Lock,
    Op,
    Receive,
    Send,
    Start,
    Unlock,
    Wait,
    WaitFor,
)
from paceline.algorithms.core.parts import together
from paceline.algorithms.core.program import Lane, Program, Routine, program
from paceline.algorithms.core.values import GradientResult, Layout, Rank, Weights, may_diverge, nbytes
from paceline.algorithms.runtime.cells import CellStore
from paceline.algorithms.runtime.collective_matching import (
    COLLECTIVES,
    Collective,
    Meetings,
    Room,
    describe,
    outcome,
    sent_bytes,
)
from paceline.algorithms.runtime.handles import HandleTable, Promise, UnheardFailures, answered
from paceline.algorithms.runtime.mail import Envelope, Mailroom
from paceline.algorithms.runtime.program_errors import InvalidOperation, message_wanted, place_of, timed_out
from paceline.algorithms.runtime.weights_owner import WeightsOwner
from paceline.checking.moves import Chooser, Move, delivery, first
from paceline.records.learned import Learned
from paceline.records.recorder import Recorder
from paceline.records.trace import Activity, Schedule, Snapshot, Span, Trace


@dataclass(slots=True, eq=False)
class LaneTask:
    """One running lane.

    `stream` names the sequence that its collectives belong to: operations that a program starts directly belong to the
    program's own sequence, and a sub-program has its own.
    """

    me: RankContext
    name: str
    lane: Lane
    line: str = ""
    """its name by `Branches`"""
    stream: str = ""
    begun_at: str | None = None
    """where a single operation was started, as it has no program line"""
    promise: Promise | None = None
    op: Op[Any] | None = None
    asked_s: float = 0.0
    ready_s: float | None = None
    """when the message that it received was sent"""
    room: Room | None = None
    """the collective that it takes part in"""
    answer: Any = None
    """the result of the collective"""
    _going: Move | None = None

    @property
    def going(self) -> Move:
        """The move that answers its operation; the same object as long as this does not happen."""
        if self._going is None or self._going.op is not self.op:
            self._going = Move(act="go", rank=self.me.rank, lane=self.name, op=self.op)
        return self._going

    @property
    def place(self) -> str:
        return self.begun_at or self.lane.where()

    def standing(self, step: int) -> str:
        """Returns the rank, its lane, its program line and the step, for messages."""
        return place_of(self.me, self.name, self.place, step)


@dataclass(frozen=True, slots=True)
class LayerReady(Op[None]):
    """Tells the interpreter that `backward` has completed the gradient of a bucket."""

    promise: Promise
    answer: GradientResult


@program
def alone(op: Op[Any]) -> Program[Any]:
    """Runs a single operation as a lane."""
    return (yield from op)


@program
def backward(op: LayerGradients, layout: Layout, promises: list[Promise]) -> Program[None]:
    """Yields the gradient bucket by bucket, last layers first. Its version is the oldest version of the layers."""
    if isinstance(op.weights, Weights):
        weights = op.weights
    else:
        weights = together([part for _, part in (yield from WaitFor(op.weights))])
    whole = yield from Gradient(weights, op.batch)
    for bucket, promise in zip(op.parts(layout), promises, strict=True):
        vector, busy_s = whole.vector[bucket.part], whole.busy_s * len(bucket.layers) / len(layout.layers)
        part = GradientResult(vector, whole.version, whole.loss, whole.samples, whole.rank, whole.step, busy_s)
        yield from LayerReady(promise, part)


@dataclass(frozen=True)
class StoppedRun:
    """The state of a stopped run, from which all programs can be entered again."""

    states: dict[Any, Any]
    answers: dict[Handle[Any], Any]
    weights: Any
    """the weights being learned"""
    ages: dict[Any, int]
    """local steps of each rank since its version last moved"""


@fast_constructor
@dataclass(frozen=True, slots=True)
class LoggedMove:
    """One line of the log: the move and, if a lane moved, its operation and answer and the step of its rank."""

    move: Move
    step: int
    op: Op[Any] | None = None
    answer: Any = None


class Driver(ABC):
    """One run of one job. A subclass defines the answers of operations."""

    EVALUATED_EVERY: ClassVar[float] = 1
    """the number of updates between two evaluations of the weights being learned"""

    def __init__(self, job: Job, *, deliver_at_once: bool = False, start: StoppedRun | None = None) -> None:
        if job.limit is None:
            raise InputError("budget: found no number of samples; a run without a clock ends after samples only")
        self.job, self.limit = job, job.limit
        self.deliver_at_once, self.start = deliver_at_once, start
        self.recorder = Recorder(Trace(in_seconds=False))
        self.trace = self.recorder.trace
        self.log: list[LoggedMove] = []
        self._moves = 0
        self._lanes: dict[Rank, list[LaneTask]] = {rank: [] for rank in sorted(me.rank for me in job.team)}
        """the running lanes of each rank, in the order of their starts"""
        self._possible: dict[Rank, tuple[list[Move], list[Move]]] = {}
        """of each rank, as long as nothing changes them: the lanes that can go, and the timeouts"""
        self._deliveries: list[Move] | None = None
        """of the messages in flight, as long as these are the same"""
        self._mail = Mailroom[Envelope](me.rank for me in job.team)
        self._meetings, self._cells = Meetings(), CellStore()
        self._unheard = UnheardFailures()
        self._handles = {
            me.rank: HandleTable[Promise](me.rank, partial(self.recorder.outcome, me.rank), self._unheard)
            for me in job.team
        }
        learned = {job.weights_owner: Learned(job, Schedule(every=self.EVALUATED_EVERY))}
        self._owner = WeightsOwner(job, learned, self.recorder.update, self._evaluated)
        self._steps: dict[Rank, int] = {me.rank: 0 for me in job.team}

    @abstractmethod
    def _can_go(self, task: LaneTask) -> bool:
        """Whether the lane's operation can be answered now."""

    @abstractmethod
    def _perform(self, task: LaneTask, op: Op[Any]) -> Any:
        """Performs the operation and returns its answer."""

    @property
    def _tasks(self) -> list[LaneTask]:
        """All running lanes, by rank and age."""
        return [task for lanes in self._lanes.values() for task in lanes]

    def _touch(self, ranks: Iterable[Rank]) -> None:
        """Notes that the possible moves of these ranks may have changed."""
        for rank in ranks:
            self._possible.pop(rank, None)

    def _hear(self, task: LaneTask, source: Rank | None) -> None:
        """Records the source of a received message; None for a timeout."""
        self.recorder.heard(task.me.rank, source, task.line)

    @property
    def now_s(self) -> float:
        """The logical clock: the number of moves so far."""
        return float(self._moves)

    def _evaluated(self, shot: Snapshot) -> None:
        """Records weights that are evaluated."""
        self.trace.weights = shot.vector
        self.recorder.evaluation(shot)

    def _note(self, entry: LoggedMove) -> None:
        """Records a move that has been made."""
        self._moves += 1
        self.log.append(entry)

    @may_diverge
    def run(self, choose: Chooser = first) -> Trace:
        """Makes moves until the run is over; raises `DeadlockError` if no move is possible before that."""
        self._begin()
        try:
            while ready := self._ready():
                self._make(choose(ready))
        except BaseException:
            self._abandon(self._tasks)
            raise
        if any(task.promise is None for task in self._tasks):
            self._stuck()
        self._unheard.raise_first()
        self.trace.wall_s = self.now_s
        return self.trace

    def checkpoint(self) -> StoppedRun:
        """Returns the checkpoint from which the programs can be entered again, once the run is over."""
        items = [item for table in self._handles.values() for item in table.items()]
        answers = {handle: promise.answer for handle, promise in items if promise.settled and not promise.cancelled}
        ages = {rank: log.age for rank, log in self._owner.logs.items()}
        return StoppedRun(dict(self.trace.states), answers, self.trace.weights, ages)

    def _begin(self) -> None:
        vector, start = self.job.learner.initial(), self.start
        if start is not None:
            for rank, table in self._handles.items():
                table.restore(
                    answered({handle: answer for handle, answer in start.answers.items() if handle.rank == rank})
                )
            for rank, age in start.ages.items():
                self._owner.logs[rank].age = age
        else:
            self.trace.snapshots.append(Snapshot(self.now_s, 0, 0, vector))
        self.trace.weights = vector if start is None else start.weights
        for me in self.job.team:
            self._enter(me, vector)

    def _enter(self, me: RankContext, vector: Any) -> None:
        """Begins the program of a rank, from the initial weights or from the checkpoint."""
        method, start = self.job.method, self.start
        state = method.begin(me, vector) if start is None else start.states[me.rank]
        self._drive(LaneTask(me, "main", Lane(method.enter(me, state))))

    def _drive(self, task: LaneTask) -> None:
        self._lanes[task.me.rank].append(task)
        self._advance(task)

    def _advance(self, task: LaneTask, answer: Any = None, failure: BaseException | None = None) -> None:
        """Resumes the program up to its next operation, and enters the collective if it is one."""
        try:
            task.op = task.lane.advance(answer, failure)
        except Exception as error:
            if task.promise is None or isinstance(error, ProgramError):
                error.add_note(f"in rank {task.me.rank} ({task.me.role}), step {self._steps[task.me.rank]}")
                raise
            self._lane_failed(error)
            self._end(task, failure=error)
            return
        task.asked_s, task.ready_s = self.now_s, None
        if task.lane.done:
            self._end(task, task.lane.answer)
        elif isinstance(task.op, COLLECTIVES):
            self._meet(task, task.op)

    def _lane_failed(self, error: Exception) -> None:
        """Notes the failure of a lane that a program has started; it ends the run if no program receives it."""
        self._unheard.add(error)

    def _end(self, task: LaneTask, answer: Any = None, failure: Exception | None = None) -> None:
        self._lanes[task.me.rank].remove(task)
        if task.promise is not None:
            task.promise.end(answer, failure)
        else:
            self.trace.states[task.me.rank] = answer

    def _meet(self, task: LaneTask, op: Collective) -> None:
        try:
            task.room = room = self._meetings.enter(task.me.rank, op, lambda: task.place, task.stream)
        except InvalidOperation as error:
            raise error.at(task.standing(self._steps[task.me.rank])) from None
        if room.full:
            answers = outcome(room)
            self._touch(room.group)
            for other in self._tasks:
                if other.room is room:
                    other.room, other.answer = None, answers[other.me.rank]

    def _ready(self) -> list[Move]:
        """Lists the possible moves: lanes by rank and age, deliveries, and last timeouts, which `first` so avoids.

        A move changes what its own rank can do, and in a few cases what others can (see `_touch`).
        """
        lanes, late = list[Move](), list[Move]()
        for rank, tasks in self._lanes.items():
            if (possible := self._possible.get(rank)) is None:
                possible = self._possible[rank] = self._possible_moves(tasks)
            lanes += possible[0]
            late += possible[1]
        if self._deliveries is None:
            self._deliveries = [delivery(source, to) for source, to in self._mail.channels()]
        return lanes + self._deliveries + late

    def _possible_moves(self, tasks: list[LaneTask]) -> tuple[list[Move], list[Move]]:
        """Returns the moves of the lanes of a rank: those that can go, and the timeouts."""
        going, late = list[Move](), list[Move]()
        for task in tasks:
            if self._can_go(task):
                going.append(task.going)
            elif self._can_time_out(task):
                late.append(Move(act="time out", rank=task.me.rank, lane=task.name, op=task.op))
        return going, late

    def _can_time_out(self, task: LaneTask) -> bool:
        """Whether the lane's operation, which cannot be answered now, has a timeout."""
        return isinstance(task.op, Receive) and task.op.timeout_s is not None

    def _make(self, move: Move) -> None:
        self._touch((move.rank,))
        if move.act == "deliver":
            assert move.source is not None, "a delivery has a source"
            self._mail.deliver(move.source, move.rank)
            self._deliveries = None
            self._note(LoggedMove(move, self._steps[move.rank]))
            return
        task = next(task for task in self._lanes[move.rank] if task.name == move.lane)
        op, answer, failure = task.op, None, None
        assert op is not None, "a lane that has not ended asks for something"
        if isinstance(op, Send):
            self._deliveries = None
            self._touch((op.to,) if self.deliver_at_once else ())
        elif isinstance(op, Lock | Unlock):
            self._touch(task.me.node)
        try:
            if move.act == "time out":
                self._hear(task, None)
                assert isinstance(op, Receive), "nothing else times out"
                raise timed_out(op, task.standing(self._steps[move.rank]))
            answer = self._perform(task, op)
        except InvalidOperation as error:
            raise error.at(task.standing(self._steps[move.rank])) from None
        except Exception as error:
            failure = error
        self._note(LoggedMove(move, self._steps[move.rank], op, answer))
        if span := span_of(task, answer, self._steps[move.rank], self.now_s):
            self.recorder.span(*span)
        self._advance(task, answer, failure)

    def _abandon(self, tasks: Iterable[LaneTask]) -> None:
        """Closes programs that were never started, so that Python does not warn about them."""
        for task in tasks:
            if isinstance(task.op, Start) and isinstance(task.op.what, Routine):
                iter(task.op.what).close()

    def _stuck(self) -> None:
        lines = [self._line_of(task) for task in self._tasks]
        raise DeadlockError("deadlock: no rank can proceed:\n" + "\n".join(f"  {line}" for line in lines))

    def _line_of(self, task: LaneTask) -> str:
        """Describes the position of a lane and what it waits for."""
        rank = task.me.rank
        return line_of(task, self._steps[rank], self._handles[rank], self._cells)


ACTIVITIES: dict[type[Op[Any]], Activity] = {
    Gradient: "compute",
    Load: "load",
    Charge: "update",
    Receive: "receive",
    Send: "send",
}


def span_of(task: LaneTask, answer: Any, step: int, now_s: float) -> Span | None:
    """Returns the span of the operation that the lane has just completed; None for operations without a span."""
    op = task.op
    assert op is not None, "it was answered just now"
    key = None
    activity: Activity
    if isinstance(op, COLLECTIVES):
        activity, size, key = "collective", sent_bytes(op, task.me.rank), f"{op.group}{task.stream} {op.key}"
    elif type(op) in ACTIVITIES:
        activity, size = (
            ACTIVITIES[type(op)],
            nbytes(op.value) if isinstance(op, Send) else nbytes(answer) if isinstance(op, Receive) else 0,
        )
    else:
        return None
    start_s = now_s if isinstance(op, Send) else task.asked_s
    return Span(task.me.rank, task.name, activity, None, step, start_s, now_s, size, task.ready_s, key)


def line_of(task: LaneTask, step: int, handles: HandleTable[Promise], cells: CellStore) -> str:
    """Describes a blocked lane: rank, role, program line, step and what it waits for."""
    return f"{task.standing(step)}: waits for {need_of(task, handles, cells)}"


def need_of(task: LaneTask, handles: HandleTable[Promise], cells: CellStore) -> str:
    """Describes what would let the lane continue."""
    match task.op:
        case Receive():
            return f"a message from {message_wanted(task.op)}"
        case Wait(handle) | Cancel(handle):
            return f"the end of {handles.promise(handle).what()}"
        case WaitFor(waited, need):
            unsettled = [promise.what() for promise in map(handles.promise, waited) if not promise.settled]
            return f"{need} of {len(waited)} handles; open are {', '.join(unsettled)}"
        case Lock(cell):
            rank, lane = cells.holder(task.me.node, cell) or (task.me.rank, task.name)
            return f"the lock of cell {cell.name!r}, held by rank {rank}, lane {lane}"
        case _:
            assert task.room is not None and task.op is not None, "nothing else blocks a lane"
            return f"{describe(task.op)}, where {', '.join(f'rank {rank}' for rank in task.room.missing)} did not come"
