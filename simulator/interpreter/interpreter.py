"""Runs the programs of all ranks in virtual time: a SimPy process for each rank, and for all that its program starts.

Rules of this file:

* `_meanings` has a line for each operation; what an operation means is in the module that it names. What takes no time
  is answered at once; what does take time is answered by steps, which a task goes through.
* What is started begins at once, before its starter goes on. So collectives are entered in program order, and an
  operation that takes no time has ended when `Start` answers.
* A failure is raised in the program, at the operation that it belongs to. One that nobody hears of ends the run.
* Equal times are served in the order in which they were asked for; nothing depends on sets, identities or wall clocks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import GeneratorType
from typing import Any

import simpy
from simpy.core import EmptySchedule

from paceline.algorithms.core import operations as ops
from paceline.algorithms.core.errors import DeadlockError, ProgramError
from paceline.algorithms.core.job import Job
from paceline.algorithms.core.method import RankContext
from paceline.algorithms.core.operations import Handle, LayerGradients, Op
from paceline.algorithms.core.program import Lane, Routine
from paceline.algorithms.core.values import may_diverge, nbytes
from paceline.algorithms.runtime.collective_matching import COLLECTIVES, describe
from paceline.algorithms.runtime.handles import HandleTable, Promise, UnheardFailures, named
from paceline.algorithms.runtime.program_errors import InvalidOperation, check_start, unknown_operation
from paceline.algorithms.runtime.update_log import UpdateLog
from paceline.records.trace import Schedule, Trace
from paceline.simulator.interpreter.cells import Cells
from paceline.simulator.interpreter.collectives import Gatherings
from paceline.simulator.interpreter.compute import Compute
from paceline.simulator.interpreter.cpu_overheads import NO_HANDLING, Handling
from paceline.simulator.interpreter.in_flight import Flight
from paceline.simulator.interpreter.loading import Loading, Supply
from paceline.simulator.interpreter.mail import Mail
from paceline.simulator.interpreter.weights_owner import Progress, WeightsOwner
from paceline.simulator.kernel.clock import Clock
from paceline.simulator.kernel.lanes import Mutex, Station, Steps, Task, continued
from paceline.simulator.kernel.timing import Timing
from paceline.simulator.network.network import Network


def simulate_job(
    job: Job,
    timing: Timing,
    network: Network,
    schedule: Schedule,
    progress: Progress | None = None,
    supply: Supply | None = None,
    handling: Handling = NO_HANDLING,
) -> Trace:
    """Runs a job to its end in virtual time.

    Args:
        job: the method, its ranks, its learner and its end.
        timing: what each rank's own work takes.
        network: what messages and collectives take; it serves one run.
        schedule: when the weights being learned are kept for evaluation; it serves one run.
        progress: told the samples so far and the virtual time.
        supply: where batches are read from; None: reading costs nothing.
        handling: what messages and starts cost the ranks' own processors.

    Raises:
        DeadlockError: every program that is left waits for something that nobody will do.
        ProgramError: a program asked for something that makes no sense.
    """
    return Simulation(job, timing, network, schedule, progress, supply, handling).run()


class Simulation:
    """One run of one job."""

    def __init__(
        self,
        job: Job,
        timing: Timing,
        network: Network,
        schedule: Schedule,
        progress: Progress | None,
        supply: Supply | None = None,
        handling: Handling = NO_HANDLING,
    ) -> None:
        self.job, self.trace, self.env, self._network = job, Trace(), Clock(), network
        self._handling = handling
        network.attach(self.env)
        self._weights_owner = WeightsOwner(job, schedule, self.trace, progress)
        self._loading = None if supply is None else Loading(self.env, supply, self.trace)
        self._compute = Compute(self.env, job, timing, self.trace, Flight(job.learner), self._loading)
        self._mail = Mail(self.env, network, self.trace, tuple(me.rank for me in job.team), handling)
        self._gatherings = Gatherings(self.env, network, self.trace)
        self._cells = Cells(self.env, timing, self.trace)
        self._tasks: dict[Task, None] = {}
        """those that have not ended, in the order of their beginnings"""
        self._unheard = UnheardFailures()
        self._failure: Exception | None = None
        self._operations = 0
        self._meanings = self._table()
        """what each operation does; it answers, or answers with steps"""

    def _table(self) -> dict[type[Op[Any]], Callable[[Task, Any], Any]]:
        return {
            ops.NextStep: lambda task, op: self._weights_owner.next(task, op.state, self.env.now),
            ops.Load: self._compute.load,
            ops.Gradient: self._compute.gradient,
            ops.LayerGradients: self._layers,
            ops.Charge: self._compute.work,
            **dict.fromkeys(COLLECTIVES, self._gatherings.attend),
            ops.Send: self._mail.send,
            ops.Receive: self._mail.receive,
            ops.Start: self._start,
            ops.Wait: self._wait,
            ops.WaitFor: self._wait_for,
            ops.Cancel: lambda task, op: task.station.handles.cancel(task.line, op.handle),
            ops.Now: lambda task, _: self.trace.look(task.me.rank, self.env.now),
            ops.Access: self._cells.access,
            ops.Lock: self._cells.lock,
            ops.Unlock: self._cells.unlock,
            ops.RecordUpdate: lambda task, op: self._weights_owner.applied(task.station, op, self.env.now),
        }

    @may_diverge
    def run(self) -> Trace:
        """Runs until all programs have ended and what is in flight is completed."""
        for me in self.job.team:
            self.env.process(self._main(me))
        events = 0
        while self._failure is None:
            try:
                self.env.step()
            except EmptySchedule:
                break
            events += 1
        self._meanings.clear()  # they refer back to this object: all of the run would wait for the garbage collector
        self._judge()
        self._weights_owner.close()
        self.trace.wall_s = max((span.end_s for span in self.trace.spans), default=0.0)
        self.trace.lost_updates = self._cells.lost_updates()
        self.trace.notes.update(events=events, operations=self._operations)
        return self.trace

    def _judge(self) -> None:
        """Raises what went wrong. A failure that nobody heard of comes before the deadlock that it may have caused."""
        if self._failure is not None:
            raise self._failure
        self._unheard.raise_first()
        if any(task.name == "main" for task in self._tasks):
            lines = [f"{task.standing()}: {task.blocked()}" for task in self._tasks]
            lines = [f"deadlock at {self.env.now:g} s, nothing more can happen:", *lines, *self._network.standing()]
            raise DeadlockError("\n  ".join(lines))

    # --- tasks --------------------------------------------------------------------------------------------------

    def _main(self, me: RankContext) -> Steps:
        """A rank's program, from its first state to its end."""
        log, report = UpdateLog(self.job.method.staleness_kind, self.job.workers), partial(self.trace.tell, me.rank)
        station = Station(me, Mutex(self.env), log, HandleTable(me.rank, report, self._unheard))
        lane = Lane(self.job.method.enter(me, self.job.method.begin(me, self.job.learner.initial())))
        task = Task(station, "main", Promise(lambda: "its program"), lane)
        yield from self._carry(task, self._drive(task, lane))
        if self._loading is not None:
            self._loading.end(me.rank)
        if (failure := task.promise.failure) is not None:
            failure.add_note(f"in rank {me.rank} ({me.role}), step {task.step}, at {self.env.now:g} s")
            self._failure = self._failure or failure
        else:
            self.trace.states[me.rank] = task.promise.answer

    def _carry(self, task: Task, steps: Steps) -> Steps:
        """Carries a task to its end, and keeps its outcome as a value."""
        self._tasks[task] = None
        answer: Any = None
        failure: Exception | None = None
        try:
            answer = yield from steps
        except simpy.Interrupt:
            assert task.promise.cancelled, "a task is interrupted by `Cancel` alone"
        except Exception as error:
            failure = error.at(task.standing()) if isinstance(error, InvalidOperation) else error
            self._unheard.add(failure)
        del self._tasks[task]
        task.promise.end(answer, failure)

    def _drive(self, task: Task, lane: Lane) -> Steps:
        """Performs a program's operations until it ends."""
        answer: Any = None
        failure: Exception | None = None
        while (op := lane.advance(answer, failure)) is not None:
            answer, failure = None, None
            self._operations += 1
            try:
                answer = self._perform(task, op)
                if isinstance(answer, GeneratorType):
                    answer = yield from answer
            except simpy.Interrupt:
                lane.steps.close()
                raise
            except Exception as error:
                failure = error.at(task.standing()) if isinstance(error, InvalidOperation) else error
        return lane.answer

    def _perform(self, task: Task, op: Op[Any]) -> Any:
        """Answers one operation; where that takes time, with the steps that do."""
        if (meaning := self._meanings.get(type(op))) is None:
            raise unknown_operation(describe(op))
        return meaning(task, op)

    def _steps(self, task: Task, op: Op[Any]) -> Steps:
        """Performs one operation by way of the events that it waits for, if any."""
        answer = self._perform(task, op)
        return (yield from answer) if isinstance(answer, GeneratorType) else answer

    # --- what is started ------------------------------------------------------------------------------------------

    def _start(self, task: Task, op: ops.Start[Any]) -> Handle[Any] | Steps:
        """Begins an operation or a sub-program beside the task; to start it may take time."""
        what: Op[Any] | Routine[Any] = op.what
        check_start(what)
        line = task.station.branches.name(task.line, what)
        if isinstance(what, Routine):
            lane = Lane(what)
            child = self._beside(task, what, line, lane)
            self._begin(child, self._drive(child, lane))
        else:
            self._operations += 1
            child = self._beside(task, what, line)
            self._begin(child, self._steps(child, what))
            if isinstance(child.promise.failure, ProgramError):  # a mistake is told where the program made it
                task.station.handles.result(child.promise)
        handle = task.station.handles.give(child.promise)
        seconds = self._handling.lane_s
        if isinstance(what, COLLECTIVES):
            seconds = self._handling.start_s(what.group, nbytes(getattr(what, "value", None)))
        return self._after(seconds, handle) if seconds > 0 else handle

    def _after(self, seconds: float, handle: Handle[Any]) -> Steps:
        """The handle, once the starter's processor is done; the span of a collective covers this time."""
        yield self.env.timeout(seconds)
        return handle

    def _layers(self, task: Task, op: LayerGradients) -> tuple[Handle[Any], ...]:
        """Begins the pass through the layers; each part of the gradient is a task of its own, ended by that pass."""
        handles = task.station.handles
        weights = [handles.entry(handle) for handle in op.weights] if isinstance(op.weights, tuple) else []
        buckets = op.parts(task.me.layout)
        parts = [Promise(partial("the gradient of {}".format, bucket.name)) for bucket in buckets]
        child = self._beside(task, op, task.line)

        def end_all() -> None:
            for part in parts:  # those that have ended keep their outcome
                part.end(failure=child.promise.failure)

        child.promise.watchers.append(end_all)
        self._begin(child, self._compute.layer_gradients(child, op, weights, list(zip(buckets, parts, strict=True))))
        return tuple([handles.give(part) for part in parts])

    def _beside(self, task: Task, what: Op[Any] | Routine[Any], line: str, lane: Lane | None = None) -> Task:
        """A new task on the same rank; the collectives of a sub-program are a stream of their own."""
        place, station, stream = task.where(), task.station, task.stream if lane is None else line
        promise = Promise(lambda: named(what, place))
        return Task(station, station.take_name(), promise, lane, place, line, stream, task.step)

    def _begin(self, task: Task, steps: Steps) -> None:
        """Runs a new task up to its first event, and from there on as a process of its own."""
        task.promise.watchers.append(lambda: task.station.give_name(task.name))
        carried = self._carry(task, steps)
        try:
            event = next(carried)
        except StopIteration:
            return
        task.promise.give_up = self.env.process(continued(carried, event)).interrupt

    def _wait(self, task: Task, op: ops.Wait[Any]) -> Steps:
        """The answer of what the handle stands for."""
        promise = task.station.handles.entry(op.handle)
        if not promise.settled:
            yield from task.wait_for([promise], 1, self.env)
        return task.station.handles.result(promise)

    def _wait_for(self, task: Task, op: ops.WaitFor[Any]) -> Steps:
        """The answers of all that have settled, once enough have."""
        handles, least = task.station.handles, op.least
        promises = handles.awaited(op.handles, least)
        yield from task.wait_for(promises, least, self.env)
        return handles.answers(task.line, promises, least)
