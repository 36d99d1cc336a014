"""Runs the programs of all ranks in virtual time, with a SimPy process for each rank and each operation it starts.

* `_table` maps each operation to the function that performs it, given the task and the operation. The function returns
  the answer, or, if the operation takes time, a generator that the task runs.
* A started operation begins at once, before the program that starts it continues. So collectives are entered in program
  order, and an operation that takes no time has ended when `Start` returns.
* A failure is raised in the program, at the operation to which it belongs. A failure that no program receives ends the
  run.
* Events at equal times are processed in the order in which they were scheduled; nothing depends on the order of sets,
  on object identities or on the wall clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import GeneratorType
from typing import Any

import simpy

from paceline.algorithms.core import operations as ops
from paceline.algorithms.core.errors import DeadlockError, PeerFailed, ProgramError
from paceline.algorithms.core.job import Job
from paceline.algorithms.core.method import RankContext
from paceline.algorithms.core.operations import Handle, LayerGradients, Op
from paceline.algorithms.core.program import Lane, Routine
from paceline.algorithms.core.values import Rank, may_diverge, nbytes
from paceline.algorithms.runtime.collective_matching import COLLECTIVES, describe
from paceline.algorithms.runtime.handles import HandleTable, Promise, UnheardFailures, named
from paceline.algorithms.runtime.program_errors import InvalidOperation, check_start, unknown_operation
from paceline.records.recorder import Recorder
from paceline.records.trace import Schedule, Trace
from paceline.simulator.interpreter.batch_staging import BatchStaging
from paceline.simulator.interpreter.cells import TimedCells
from paceline.simulator.interpreter.collectives import SimulatedCollectives
from paceline.simulator.interpreter.compute import Compute, GradientsInFlight
from paceline.simulator.interpreter.deaths import Deaths
from paceline.simulator.interpreter.device_copies import DeviceCopies
from paceline.simulator.interpreter.host_costs import NO_COSTS, HostCosts
from paceline.simulator.interpreter.loading import Loading
from paceline.simulator.interpreter.mail import SimulatedMail
from paceline.simulator.interpreter.serving import Threads
from paceline.simulator.interpreter.weights_owner import Progress, SimulatedWeightsOwner
from paceline.simulator.kernel.clock import VirtualClock
from paceline.simulator.kernel.lanes import Mutex, SimulatedStation, SimulatedTask, Steps, wait
from paceline.simulator.kernel.simpy_events import EagerProcess
from paceline.simulator.kernel.timing import Timing
from paceline.simulator.network.interference import InterferingNetwork, Processors
from paceline.simulator.network.network import NetworkModel


def simulate_job(
    job: Job,
    timing: Timing,
    network: NetworkModel,
    schedule: Schedule,
    progress: Progress | None = None,
    hosts: HostCosts = NO_COSTS,
    recorder: Recorder | None = None,
) -> Trace:
    """Runs a job to its end in virtual time.

    Args:
        job: the method, its ranks, its learner and its budget.
        timing: the seconds of each rank's own work.
        network: the time of messages and collectives; it serves one run.
        schedule: when the weights being learned are evaluated; it serves one run.
        progress: called with the samples so far and the virtual time.
        hosts: what the hosts of the ranks cost and share.
        recorder: writes the record, see `Recorder.of`; None: all records are kept.

    Returns:
        The record of the run.

    Raises:
        DeadlockError: all remaining programs wait for something that cannot happen.
        ProgramError: a program requested an invalid operation.
    """
    return Simulation(job, timing, network, schedule, progress, hosts, recorder).run()


class Simulation:
    """One run of one job."""

    def __init__(
        self,
        job: Job,
        timing: Timing,
        network: NetworkModel,
        schedule: Schedule,
        progress: Progress | None,
        hosts: HostCosts,
        recorder: Recorder | None = None,
    ) -> None:
        self.job, self.env = job, VirtualClock()
        self._recorder = recorder = recorder or Recorder()
        self.trace = recorder.trace
        self._handling = handling = hosts.handling
        self._processors = processors = hosts.processors or Processors()
        processors.attach(self.env)
        if processors.used:
            network = InterferingNetwork(network, processors)
        self._network = network
        network.attach(self.env)
        self._weights_owner = SimulatedWeightsOwner(job, schedule, recorder, progress, hosts.snapshot_s)
        self._loading = None if hosts.supply is None else Loading(self.env, hosts.supply, recorder)
        copies, self._staging = None, None
        if hosts.staging is not None and (settings := hosts.staging.network.cluster.staging) is not None:
            copies = DeviceCopies(self.env, hosts.staging, recorder)
            self._staging = BatchStaging(self.env, settings, copies, self._loading)
        flight = GradientsInFlight(job.learner)
        self._compute = Compute(self.env, job, timing, recorder, flight, self._loading, processors, self._staging)
        vectors = copies if copies is not None and copies.of_vectors else None
        self._mail = SimulatedMail(self.env, network, recorder, tuple(me.rank for me in job.team), handling, vectors)
        self._collectives = SimulatedCollectives(self.env, network, recorder, vectors)
        self._cells = TimedCells(self.env, timing, recorder, hosts.cells)
        self._tasks: dict[SimulatedTask, None] = {}
        """the tasks that have not ended, in the order in which they began"""
        parts = self._mail, self._collectives, self._weights_owner
        self._deaths = Deaths(self.env, job, self.trace, *parts, tasks=lambda: list(self._tasks))
        self._unheard = UnheardFailures()
        self._failure: Exception | None = None
        self._operations = 0
        self._meanings = self._table()
        """performs each operation: returns the answer, or a generator that returns it"""
        self._processes: dict[Rank, simpy.Process] = {}
        """the processes of the ranks' programs"""
        self._threads: dict[SimulatedTask, Threads] = {}
        """the threads of a server's program, if it has several"""
        self._timing = timing

    def _table(self) -> dict[type[Op[Any]], Callable[[SimulatedTask, Any], Any]]:
        recorder = self._recorder
        return {
            ops.NextStep: self._next_step,
            ops.Load: self._compute.load,
            ops.Gradient: self._compute.gradient,
            ops.LayerGradients: self._layers,
            ops.Charge: self._compute.work,
            **dict.fromkeys(COLLECTIVES, self._collectives.enter),
            ops.Send: self._mail.send,
            ops.Receive: self._mail.receive,
            ops.Start: self._start,
            ops.Wait: self._wait,
            ops.WaitFor: self._wait_for,
            ops.Cancel: self._cancel,
            ops.Now: lambda task, _: recorder.looked(task.me.rank, self.env.now),
            ops.Access: self._cells.access,
            ops.Lock: self._cells.lock,
            ops.Unlock: self._cells.unlock,
            ops.RecordUpdate: lambda task, op: self._weights_owner.applied(task.me.rank, op, self.env.now),
        }

    @may_diverge
    def run(self) -> Trace:
        """Runs until all programs have ended and all operations in flight are complete."""
        for me in self.job.team:
            self._processes[me.rank] = self.env.process(self._main(me))
        events = self.env.process_all()
        self._meanings.clear()  # breaks a reference cycle, so that the run's memory is freed at once
        self._judge()
        self._weights_owner.close()
        self._recorder.close()
        self.trace.wall_s = self._recorder.last_end_s()
        if self._deaths.ended:
            self.trace.stop_reason, self.trace.wall_s = "failure", self.env.now
            self.trace.ended = self._deaths.ended
        self.trace.lost_updates = self._cells.lost_updates()
        self.trace.notes.update(events=events, operations=self._operations)
        return self.trace

    def _judge(self) -> None:
        """Raises the failure of the run; one that no program received comes before the deadlock that it may cause."""
        if self._deaths.ended:
            return
        if self._failure is not None:
            raise self._failure
        self._unheard.raise_first()
        waiting = [task for task in self._tasks if task.name == "main"]
        if waiting and self.trace.failed_ranks:
            self._deaths.end(f"{waiting[0].standing()}: {waiting[0].blocked()}")
        elif all(self._deaths.is_dead(rank) for rank in self.job.team[0].workers):
            self._deaths.end("no worker is left")
        elif waiting:
            lines = [f"{task.standing()}: {task.blocked()}" for task in self._tasks]
            lines = [f"deadlock at {self.env.now:g} s, nothing more can happen:", *lines, *self._network.standing()]
            raise DeadlockError("\n  ".join(lines))

    def _next_step(self, task: SimulatedTask, op: ops.NextStep) -> Any:
        """Returns the next step, after the rank has stored weights that will be evaluated."""
        if self.job.deaths and (fate := self._fate(task, op.state.step)) is not None:
            return fate
        if (seconds := self._weights_owner.storing_s(task.me.rank)) > 0:
            return self._stored(task, op, seconds)
        return self._weights_owner.next(task, op.state, self.env.now)

    def _fate(self, task: SimulatedTask, step: int) -> Steps | None:
        """Returns a wait without an end for a rank that dies in place of beginning this step; None if it lives."""
        task.step = step
        if (never := self._deaths.at_step(task.me.rank, step)) is not None:
            return wait(never)
        if self._deaths.ends and (self.job.method.shared or self.job.method.independent):
            task.blocked = lambda: "begins no further step"
            raise PeerFailed("a rank died")
        return None

    def _stored(self, task: SimulatedTask, op: ops.NextStep, seconds: float) -> Steps:
        yield self.env.timeout(seconds)
        return self._weights_owner.next(task, op.state, self.env.now)

    # --- tasks --------------------------------------------------------------------------------------------------

    def _main(self, me: RankContext) -> Steps:
        """Runs a rank's program from its first state to its end."""
        report = partial(self._recorder.outcome, me.rank)
        station = SimulatedStation(me, Mutex(self.env), HandleTable(me.rank, report, self._unheard))
        lane = Lane(self.job.method.enter(me, self.job.method.begin(me, self.job.learner.initial())))
        task = SimulatedTask(station, me, "main", Promise(lambda: "its program"), lane)
        if self.job.deaths:
            self._deaths.begin(task, self._processes[me.rank])
        if me.role == "server" and self._handling.threads > 1:
            self._threads[task] = Threads(
                self.env,
                self._handling.threads,
                self._timing,
                self._mail,
                self._weights_owner,
                self._recorder,
                self._perform,
            )
        yield from self._carry(task, self._drive(task, lane))
        if self._staging is not None and self._staging.end(me.rank):
            yield self.env.timeout(0.0)  # until the copies have ended, which let go of the loader
        if self._loading is not None:
            self._loading.end(me.rank)
        if self._deaths.is_dead(me.rank):
            return
        if isinstance(failure := task.promise.failure, PeerFailed):
            self._deaths.end(f"{task.standing()}: {task.blocked()}")
        elif failure is not None:
            failure.add_note(f"in rank {me.rank} ({me.role}), step {task.step}, at {self.env.now:g} s")
            self._failure = self._failure or failure
            self.env.halt()
        else:
            self.trace.states[me.rank] = task.promise.answer

    def _carry(self, task: SimulatedTask, steps: Steps) -> Steps:
        """Runs a task to its end, and stores its outcome in its promise."""
        self._tasks[task] = None
        answer: Any = None
        failure: Exception | None = None
        try:
            answer = yield from steps
        except simpy.Interrupt:
            assert task.promise.cancelled, "only `Cancel` interrupts a task"
        except Exception as error:
            failure = error.at(task.standing()) if isinstance(error, InvalidOperation) else error
            if not isinstance(error, PeerFailed):  # what failed because of a death has no effect if nobody waits for it
                self._unheard.add(failure)
            elif self._deaths.ends:
                self._deaths.end(f"{task.standing()}: {task.blocked()}")
        del self._tasks[task]
        task.promise.end(answer, failure)

    def _drive(self, task: SimulatedTask, lane: Lane) -> Steps:
        """Performs the operations of a program until it ends; returns its answer."""
        answer: Any = None
        failure: Exception | None = None
        threads = self._threads.get(task)
        while (op := lane.advance(answer, failure)) is not None:
            answer, failure = None, None
            self._operations += 1
            try:
                if threads is not None:
                    answer = threads.perform(task, op)
                elif (meaning := self._meanings.get(type(op))) is not None:
                    answer = meaning(task, op)
                else:
                    raise unknown_operation(describe(op))
                if type(answer) is GeneratorType:
                    answer = yield from answer
            except simpy.Interrupt:
                lane.steps.close()
                raise
            except Exception as error:
                if isinstance(error, PeerFailed) and self._deaths.ends:
                    self._deaths.end(f"{task.standing()}: {task.blocked()}")
                    yield self.env.event()  # the run has ended
                failure = error.at(task.standing()) if isinstance(error, InvalidOperation) else error
        if threads is not None:
            yield from threads.finish()
        return lane.answer

    def _perform(self, task: SimulatedTask, op: Op[Any]) -> Any:
        """Returns the answer of an operation, or a generator if it takes time; threads of a server call it too."""
        if (meaning := self._meanings.get(type(op))) is None:
            raise unknown_operation(describe(op))
        return meaning(task, op)

    def _steps(self, task: SimulatedTask, op: Op[Any]) -> Steps:
        """Performs one operation, and yields the events that it waits for."""
        answer = self._perform(task, op)
        return (yield from answer) if type(answer) is GeneratorType else answer

    # --- started operations ---------------------------------------------------------------------------------------

    def _start(self, task: SimulatedTask, op: ops.Start[Any]) -> Handle[Any] | Steps:
        """Starts an operation or a sub-program concurrently with the task; starting it may take processor time."""
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
            if isinstance(child.promise.failure, ProgramError):  # raises an invalid operation at the line of `Start`
                task.station.handles.result(child.promise)
        handle = task.station.handles.give(child.promise)
        seconds = self._handling.lane_s
        if isinstance(what, COLLECTIVES):
            seconds = self._handling.start_s(what.group, nbytes(getattr(what, "value", None)))
        return self._after(task, seconds, handle) if seconds > 0 else handle

    def _after(self, task: SimulatedTask, seconds: float, handle: Handle[Any]) -> Steps:
        """Returns the handle after the processor time of the start, which the span of a collective includes."""
        with self._processors.own_work(task.me.rank):
            yield self.env.timeout(seconds)
        return handle

    def _layers(self, task: SimulatedTask, op: LayerGradients) -> tuple[Handle[Any], ...]:
        """Starts a layer-wise gradient; each part of it has a promise, which the gradient's task settles."""
        handles = task.station.handles
        weights = [handles.promise(handle) for handle in op.weights] if isinstance(op.weights, tuple) else []
        buckets = op.parts(task.me.layout)
        parts = [Promise(partial("the gradient of {}".format, bucket.name)) for bucket in buckets]
        child = self._beside(task, op, task.line)

        def end_all() -> None:
            for part in parts:  # parts that have ended keep their outcome
                part.end(failure=child.promise.failure)

        child.promise.watchers.append(end_all)
        self._begin(child, self._compute.layer_gradients(child, op, weights, list(zip(buckets, parts, strict=True))))
        return tuple([handles.give(part) for part in parts])

    def _beside(
        self, task: SimulatedTask, what: Op[Any] | Routine[Any], line: str, lane: Lane | None = None
    ) -> SimulatedTask:
        """Returns a new task of the same rank; the collectives of a sub-program form a separate stream."""
        place, station, stream = task.where(), task.station, task.stream if lane is None else line
        promise = Promise(lambda: named(what, place))
        return SimulatedTask(station, task.me, station.take_name(), promise, lane, place, line, stream, task.step)

    def _begin(self, task: SimulatedTask, steps: Steps) -> None:
        """Runs a new task up to its first event, and from there on as an activity."""
        task.promise.watchers.append(lambda: task.station.give_name(task.name))
        carried = self._carry(task, steps)
        try:
            event = next(carried)
        except StopIteration:
            return
        task.promise.give_up = EagerProcess(self.env, carried, event).interrupt

    def _cancel(self, task: SimulatedTask, op: ops.Cancel) -> Steps:
        """Cancels a started operation; when the program continues, messages that the operation took are back."""
        if not (in_time := task.station.handles.cancel(task.line, op.handle)):
            return False
        yield self.env.timeout(0.0)  # SimPy delivers the interrupt first
        return in_time

    def _wait(self, task: SimulatedTask, op: ops.Wait[Any]) -> Steps:
        """Waits for a started operation and returns its answer."""
        promise = task.station.handles.promise(op.handle)
        if not promise.settled:
            yield from self._awaited(task, [promise], 1)
        return task.station.handles.result(promise)

    def _wait_for(self, task: SimulatedTask, op: ops.WaitFor[Any]) -> Steps:
        """Waits until enough operations have settled and returns the answers of all that have."""
        handles, least = task.station.handles, op.least
        promises = handles.awaited(op.handles, least)
        yield from self._awaited(task, promises, least)
        return handles.answers(task.line, promises, least)

    def _awaited(self, task: SimulatedTask, promises: Sequence[Promise], least: int) -> Steps:
        """Waits until enough operations have settled, and for the processor that wakes the program."""
        begun_s = self.env.now
        yield from task.wait_for(promises, least, self.env)
        if self._handling.wait_s > 0 and self.env.now > begun_s:
            yield self.env.timeout(self._handling.wait_s)
