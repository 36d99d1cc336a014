"""Runs a job without a clock, in the order that a chooser likes: what each operation means there.

`Driver` decides who can move; here stands, for every operation, when it can be answered and with what. There is no
network, no pace and no device: a gradient takes a move, as everything does.
"""

from __future__ import annotations

from typing import Any

from paceline.algorithms.core.errors import ProgramError
from paceline.algorithms.core.job import Job
from paceline.algorithms.core.operations import (
    Access,
    AllGather,
    AllReduce,
    Barrier,
    Broadcast,
    Cancel,
    Charge,
    Gradient,
    Handle,
    LayerGradients,
    Load,
    Lock,
    NextStep,
    Now,
    Op,
    Receive,
    RecordUpdate,
    Reduce,
    Send,
    Start,
    Unlock,
    Wait,
    WaitFor,
)
from paceline.algorithms.core.program import Branches, Lane, Routine
from paceline.algorithms.core.values import Batch, GradientResult, Message, Rank, Step
from paceline.checking.driver import Driver
from paceline.checking.lanes import (
    Checkpoint,
    LayerReady,
    Promise,
    Task,
    alone,
    backward,
)
from paceline.checking.mail import Letter
from paceline.records.learned import Learned
from paceline.records.trace import Schedule


class AnyOrder(Driver):
    """One run of one job without a clock.

    Args:
        job: what to run; its budget is in samples.
        deliver_at_once: messages arrive as they are sent, and the chooser has no say in it.
        start: enter the programs from here instead of the beginning.

    >>> from paceline.algorithms import find
    >>> from paceline.algorithms.core.job import Budget
    >>> from paceline.workloads import build
    >>> learner = build("quadratic", learning="quadratic", seed=1)
    >>> job = Job.of(find("sync-sgd")(), [[Rank(0)], [Rank(1)]], learner, batch=4, budget=Budget(samples=80))
    >>> trace = AnyOrder(job).run()
    >>> len(trace.updates), {update.staleness for update in trace.updates}
    (20, {0})
    """

    def __init__(self, job: Job, *, deliver_at_once: bool = False, start: Checkpoint | None = None) -> None:
        super().__init__(job, deliver_at_once=deliver_at_once, start=start)
        self._branches = {me.rank: Branches() for me in job.team}
        self._begun: dict[Rank, int] = {}
        """steps that each rank of the keeper's role has been let into"""
        if start is not None:
            role = job.method.weights_owner
            self._begun = {me.rank: start.states[me.rank].step for me in job.team if me.role == role}
        self._learned = Learned(job, Schedule(every=1))

    def _can_go(self, task: Task) -> bool:
        match task.op:
            case AllReduce() | Reduce() | Broadcast() | AllGather() | Barrier():
                return task.room is None
            case Receive():
                return self._letter(task, task.op) is not None
            case Wait(handle):
                return self._promise(task, handle).settled
            case WaitFor(handles):
                settled = sum(self._promise(task, handle).settled for handle in handles)
                return settled >= min(task.op.least, len(handles))  # more than there are: an error, when performed
            case Lock(cell):
                return self._cells.holder(task.me.node, cell) is None
            case _:
                return True

    def _perform(self, task: Task, op: Op[Any]) -> Any:
        match op:
            case NextStep():
                return self._next(task, op)
            case Load(samples):
                return Batch(samples, self.job.learner.load(samples))
            case Gradient():
                return self._gradient(task, op)
            case LayerGradients():
                return self._layers(task, op)
            case LayerReady(promise, result):
                return promise.keep(result)
            case Charge():
                return None
            case AllReduce() | Reduce() | Broadcast() | AllGather() | Barrier():
                return task.answer
            case Send():
                return self._send(task, op)
            case Receive():
                return self._receive(task, op)
            case Start(what):
                return self._begin_lane(task, what)
            case Wait(handle):
                return self._settle(task, handle)
            case WaitFor():
                return self._wait_for(task, op)
            case Cancel(handle):
                return self._cancel(task, handle)
            case Now():
                return self._read_clock(task)
            case Access():
                return self._cells.access(task.me.node, op)
            case Lock(cell):
                return self._cells.lock(task.me.node, cell, self._holder(task))
            case Unlock(cell):
                return self._cells.unlock(task.me.node, cell, self._holder(task))
            case RecordUpdate():
                return self._apply(task, op)
            case _:
                raise ProgramError(f"asks for {op!r}, an operation that the any-order interpreter does not know")

    # ------------------------------------------------------------------------------------------------ learning

    def _next(self, task: Task, op: NextStep) -> Step | None:
        step = op.state.step
        self._steps[task.me.rank] = step
        if task.me.role == self.job.method.weights_owner:
            if not self._is_within_budget(task.me.rank, step):
                return None
            self._begun[task.me.rank] = step + 1
        return Step(step, self.job.samples(task.me, step))

    def _is_within_budget(self, rank: Rank, step: int) -> bool:
        """Whether a rank of the keeper's role may begin this step."""
        return (sum(self._begun.values()) if self.job.method.independent else step) < self.limit

    def _gradient(self, task: Task, op: Gradient) -> GradientResult:
        samples = op.batch.samples
        vector, loss = self.job.learner.gradient(op.weights.vector, op.batch.data)
        return GradientResult(vector, op.weights.version, loss, samples.count, task.me.rank, samples.index, busy_s=1.0)

    def _layers(self, task: Task, op: LayerGradients) -> tuple[Handle[GradientResult], ...]:
        layout = task.me.layout
        made = [self._promise_of(task, f"the gradient of layer {part.name}") for part in op.parts(layout)]
        promises = [promise for _, promise in made]
        self._begin_lane(task, backward(op, layout, promises), line=task.line)
        return tuple(handle for handle, _ in made)

    def _apply(self, task: Task, op: RecordUpdate) -> int:
        if op.layer is not None:
            self.trace.layers.extend(self._ledgers[task.me.rank].land(op, op.layer, self.now_s))
            return op.weights.version
        version, rows = self._ledgers[task.me.rank].enter(op, self.now_s)
        self.trace.updates.extend(rows)
        if task.me.rank == self.job.weights_owner:
            shot = self._learned.applied(op, version, rows, self.now_s)
            if shot is not None:
                self.trace.weights = shot.vector
                self.trace.snapshots.append(shot)
        return version

    # ------------------------------------------------------------------------------------------------ messages

    def _letter(self, task: Task, op: Receive) -> Letter | None:
        """The letter that the lane would be given now."""
        return self._mail.find(task.me.rank, op.source, op.tag)

    def _send(self, task: Task, op: Send) -> None:
        if op.to not in self._steps:
            raise ProgramError(f"sends to rank {op.to}; there are ranks 0 to {len(self._steps) - 1}")
        self._mail.post(task.me.rank, op, self.now_s)
        if self.deliver_at_once:
            self._mail.deliver(task.me.rank, op.to)

    def _receive(self, task: Task, op: Receive) -> Message:
        letter = self._letter(task, op)
        assert letter is not None, "a lane that receives is ready only if there is a letter"
        task.ready_s = letter.sent_s
        self._hear(task, letter.message.source)
        return self._mail.take(task.me.rank, letter)

    def _read_clock(self, task: Task) -> float:
        self.trace.now_s.setdefault(task.me.rank, []).append(self.now_s)
        return self.now_s

    # ------------------------------------------------------------------------------------------------ lanes

    def _holder(self, task: Task) -> str:
        return f"rank {task.me.rank}, lane {task.name}"

    def _promise_of(self, task: Task, what: str) -> tuple[Handle[Any], Promise]:
        """A new handle of the task's rank, and the promise behind it."""
        self._started[task.me.rank] += 1
        handle: Handle[Any] = Handle(task.me.rank, self._started[task.me.rank])
        promise = self._promises[handle] = Promise(what)
        return handle, promise

    def _begin_lane(self, task: Task, what: Op[Any] | Routine[Any], *, line: str | None = None) -> Handle[Any]:
        """Starts it in a lane of its own; under the name `line` if it is not the program that has started it."""
        place = task.place
        if isinstance(what, Routine):
            routine, name, begun_at = what, what.name, None
        elif isinstance(what, Op):
            routine, name, begun_at = alone(what), type(what).__name__, place
        else:
            raise ProgramError(f"starts {what!r}; only an operation or a program can be started")
        line = self._branches[task.me.rank].name(task.line, what) if line is None else line
        stream = line if begun_at is None else task.stream
        handle, promise = self._promise_of(task, f"{name} started at {place}")
        promise.task = Task(task.me, f"{name} {handle.number}", Lane(routine), line, stream, begun_at, promise)
        self._drive(promise.task)
        return handle

    def _promise(self, task: Task, handle: Handle[Any]) -> Promise:
        if handle.rank != task.me.rank or handle not in self._promises:
            raise ProgramError(
                f"rank {task.me.rank} at {task.place}: {handle!r} is no handle of something that this rank has started"
            )
        return self._promises[handle]

    def _settle(self, task: Task, handle: Handle[Any]) -> Any:
        promise = self._promise(task, handle)
        if promise.cancelled:
            raise ProgramError(f"waits for {promise.what}, which was cancelled")
        if promise.failure is not None:
            promise.heard = True
            raise promise.failure
        return promise.answer

    def _wait_for(self, task: Task, op: WaitFor[Any]) -> tuple[tuple[int, Any], ...]:
        if not 0 <= op.least <= len(op.handles):
            raise ProgramError(f"waits for {op.least} of {len(op.handles)} handles; give no more")
        found = self._found(task, op)
        if op.least < len(op.handles):
            self.trace.tell(task.me.rank, task.line, found)
        return tuple((index, self._settle(task, op.handles[index])) for index in found)

    def _found(self, task: Task, op: WaitFor[Any]) -> tuple[int, ...]:
        """Which of the handles are done, as the program is told."""
        return tuple(index for index, handle in enumerate(op.handles) if self._promise(task, handle).settled)

    def _cancel(self, task: Task, handle: Handle[Any]) -> bool:
        promise = self._promise(task, handle)
        in_time = not promise.settled
        self.trace.tell(task.me.rank, task.line, in_time)
        if in_time:
            promise.cancelled = True
            if promise.task is not None:
                promise.task.lane.steps.close()
                self._tasks.remove(promise.task)
                promise.task = None
        return in_time
