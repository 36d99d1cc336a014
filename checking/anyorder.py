"""The any-order interpreter: runs a job without a clock, in an order that a chooser selects.

`Driver` finds the possible moves. This file defines, for every operation, when it can be answered and what the answer
is. There are no networks, paces or devices: a gradient takes one move, like every operation.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from paceline.algorithms.core.job import Job
from paceline.algorithms.core.operations import (
    Access,
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
    Send,
    Start,
    Unlock,
    Wait,
    WaitFor,
)
from paceline.algorithms.core.program import Branches, Lane, Routine
from paceline.algorithms.core.values import Batch, GradientResult, Message, Rank, Step
from paceline.algorithms.runtime.collective_matching import COLLECTIVES, describe
from paceline.algorithms.runtime.handles import Promise, named
from paceline.algorithms.runtime.mail import Envelope
from paceline.algorithms.runtime.program_errors import check_peer, check_start, unknown_operation
from paceline.algorithms.runtime.stop_rule import OwnGrants, StopRule, next_step
from paceline.checking.driver import Driver, LaneTask, LayerReady, StoppedRun, alone, backward

BLOCKING = (*COLLECTIVES, Receive, Wait, WaitFor, Lock)
"""operations that may have to wait"""


class AnyOrder(Driver):
    """One run of one job without a clock.

    Args:
        job: the job to run; its budget is in samples.
        deliver_at_once: messages arrive when they are sent, instead of when the chooser selects their delivery.
        start: the checkpoint from which the programs are entered, instead of from the beginning.

    >>> from paceline.algorithms import find
    >>> from paceline.algorithms.core.job import Budget
    >>> from paceline.workloads import build
    >>> learner = build("quadratic", learning="quadratic", seed=1)
    >>> job = Job.of(find("sync-sgd")(), [[Rank(0)], [Rank(1)]], learner, batch=4, budget=Budget(samples=80))
    >>> trace = AnyOrder(job).run()
    >>> len(trace.updates), {update.staleness for update in trace.updates}
    (20, {0})
    """

    def __init__(self, job: Job, *, deliver_at_once: bool = False, start: StoppedRun | None = None) -> None:
        super().__init__(job, deliver_at_once=deliver_at_once, start=start)
        self._branches = {me.rank: Branches() for me in job.team}
        together = job.method.independent
        self._grants = OwnGrants(together=together)
        self._rule = StopRule(self.limit, together=together, grants=self._grants)
        if start is not None:
            for rank in job.owners:
                self._grants.note(rank, start.states[rank].step)

    def _can_go(self, task: LaneTask) -> bool:
        if not isinstance(task.op, BLOCKING):
            return True
        match task.op:
            case Receive(source):
                stranger = source is not None and source not in task.me.world  # answered with an error
                return stranger or self._letter(task, task.op) is not None
            case Wait(handle):
                return self._handles[task.me.rank].is_over([handle], 1)
            case WaitFor(handles):
                return self._handles[task.me.rank].is_over(handles, task.op.least)
            case Lock(cell):
                return self._cells.holder(task.me.node, cell) is None
            case _:
                return task.room is None

    def _perform(self, task: LaneTask, op: Op[Any]) -> Any:
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
                return promise.end(result)
            case Charge():
                return None
            case _ if isinstance(op, COLLECTIVES):
                return task.answer
            case Send():
                return self._send(task, op)
            case Receive():
                return self._receive(task, op)
            case Start(what):
                return self._begin_lane(task, what)
            case Wait(handle):
                handles = self._handles[task.me.rank]
                return handles.result(handles.promise(handle))
            case WaitFor():
                return self._wait_for(task, op)
            case Cancel(handle):
                return self._cancel(task, handle)
            case Now():
                return self._read_clock(task)
            case Access():
                return self._cells.access(task.me.node, op)
            case Lock(cell):
                return self._cells.lock(task.me.node, cell, (task.me.rank, task.name))
            case Unlock(cell):
                return self._cells.unlock(task.me.node, cell, task.me.rank)
            case RecordUpdate():
                return self._owner.applied(task.me.rank, op, self.now_s)
            case _:
                raise unknown_operation(describe(op))

    # ------------------------------------------------------------------------------------------------ learning

    def _next(self, task: LaneTask, op: NextStep) -> Step | None:
        self._steps[task.me.rank] = step = op.state.step
        return next_step(self.job, task.me, step, None, self._grant, self._rule.stop)

    def _grant(self, rank: Rank, step: int) -> bool:
        """Whether a rank that owns the weights may begin this step."""
        return self._rule.grant(rank, step)

    def _gradient(self, task: LaneTask, op: Gradient) -> GradientResult:
        samples = op.batch.samples
        vector, loss = self.job.learner.gradient(op.weights.vector, op.batch.data)
        weighted = samples.weighted(vector)
        return GradientResult(
            weighted, op.weights.version, loss, samples.count, task.me.rank, samples.index, busy_s=1.0
        )

    def _layers(self, task: LaneTask, op: LayerGradients) -> tuple[Handle[GradientResult], ...]:
        layout = task.me.layout
        promises = [Promise(partial("the gradient of {}".format, part.name)) for part in op.parts(layout)]
        made = tuple(map(self._handles[task.me.rank].give, promises))
        self._begin_lane(task, backward(op, layout, promises), line=task.line)
        return made

    # ------------------------------------------------------------------------------------------------ messages

    def _letter(self, task: LaneTask, op: Receive) -> Envelope | None:
        """Returns the message that the lane would receive now."""
        return self._mail.inboxes[task.me.rank].find(op.source, op.tag)

    def _send(self, task: LaneTask, op: Send) -> None:
        check_peer(op, task.me.world)
        rank = task.me.rank
        self._mail.post(Envelope(rank, op.to, op.tag, self._mail.snapshot(rank, op.value), self.now_s))
        if self.deliver_at_once:
            self._mail.deliver(rank, op.to)

    def _receive(self, task: LaneTask, op: Receive) -> Message:
        check_peer(op, task.me.world)
        letter = self._letter(task, op)
        assert letter is not None, "a lane that receives is ready only if there is a message"
        task.ready_s = letter.sent_s
        self._hear(task, letter.source)
        self._mail.inboxes[task.me.rank].remove(letter)
        return letter.message

    def _read_clock(self, task: LaneTask) -> float:
        return self.recorder.looked(task.me.rank, self.now_s)

    # ------------------------------------------------------------------------------------------------ lanes

    def _begin_lane(self, task: LaneTask, what: Op[Any] | Routine[Any], *, line: str | None = None) -> Handle[Any]:
        """Starts an operation or routine in its own lane; `line` is its name if the interpreter itself starts it."""
        check_start(what)
        place = task.place
        if isinstance(what, Routine):
            routine, name, begun_at = what, what.name, None
        else:
            routine, name, begun_at = alone(what), type(what).__name__, place
        line = self._branches[task.me.rank].name(task.line, what) if line is None else line
        stream = line if begun_at is None else task.stream
        promise = Promise(lambda: named(what, place))
        handle = self._handles[task.me.rank].give(promise)
        lane = LaneTask(task.me, f"{name} {handle.number}", Lane(routine), line, stream, begun_at, promise)
        promise.give_up = partial(self._give_up, lane)
        self._drive(lane)
        return handle

    def _give_up(self, task: LaneTask) -> None:
        """Closes a lane that has been cancelled."""
        task.lane.steps.close()
        self._lanes[task.me.rank].remove(task)

    def _wait_for(self, task: LaneTask, op: WaitFor[Any]) -> tuple[tuple[int, Any], ...]:
        handles = self._handles[task.me.rank]
        promises = handles.awaited(op.handles, op.least)
        return handles.answers(task.line, promises, op.least, self._found(task, op))

    def _found(self, task: LaneTask, op: WaitFor[Any]) -> tuple[int, ...] | None:
        """Returns the indices of the handles to report as done; None for all that are done."""
        return None

    def _cancel(self, task: LaneTask, handle: Handle[Any]) -> bool:
        return self._handles[task.me.rank].cancel(task.line, handle)
