"""Runs the programs of all ranks in virtual time: a SimPy process for each rank, and for all that its program starts.

Rules of this file:

* `_meanings` has a line for each operation; what an operation means is in the module that it names. What takes no time
  is answered at once; what does take time is answered by steps, which a strand goes through.
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
from paceline.simulator.interpreter.weights_owner import Keeper, Progress
from paceline.simulator.kernel.clock import Clock
from paceline.simulator.kernel.lanes import Mutex, Station, Steps, Strand, continued
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
        self._keeper = Keeper(job, schedule, self.trace, progress)
        self._loading = None if supply is None else Loading(self.env, supply, self.trace)
        self._compute = Compute(self.env, job, timing, self.trace, Flight(job.learner), self._loading)
        self._mail = Mail(self.env, network, self.trace, tuple(me.rank for me in job.team), handling)
        self._gatherings = Gatherings(self.env, network, self.trace)
        self._cells = Cells(self.env, timing, self.trace)
        self._strands: dict[Strand, None] = {}
        """those that have not ended, in the order of their beginnings"""
        self._unheard = UnheardFailures()
        self._failure: Exception | None = None
        self._operations = 0
        self._meanings = self._table()
        """what each operation does; it answers, or answers with steps"""

    def _table(self) -> dict[type[Op[Any]], Callable[[Strand, Any], Any]]:
        return {
            ops.NextStep: lambda strand, op: self._keeper.next(strand, op.state, self.env.now),
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
            ops.Cancel: self._cancel,
            ops.Now: lambda strand, _: self.trace.look(strand.me.rank, self.env.now),
            ops.Access: self._cells.access,
            ops.Lock: self._cells.lock,
            ops.Unlock: self._cells.unlock,
            ops.RecordUpdate: lambda strand, op: self._keeper.applied(strand.station, op, self.env.now),
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
        self._keeper.close()
        self.trace.wall_s = max((span.end_s for span in self.trace.spans), default=0.0)
        self.trace.lost_updates = self._cells.lost_updates()
        self.trace.notes.update(events=events, operations=self._operations)
        return self.trace

    def _judge(self) -> None:
        """Raises what went wrong. A failure that nobody heard of comes before the deadlock that it may have caused."""
        if self._failure is not None:
            raise self._failure
        self._unheard.raise_first()
        if any(strand.name == "main" for strand in self._strands):
            lines = [f"{strand.standing()}: {strand.blocked()}" for strand in self._strands]
            lines = [f"deadlock at {self.env.now:g} s, nothing more can happen:", *lines, *self._network.standing()]
            raise DeadlockError("\n  ".join(lines))

    # --- strands --------------------------------------------------------------------------------------------------

    def _main(self, me: RankContext) -> Steps:
        """A rank's program, from its first state to its end."""
        log, report = UpdateLog(self.job.method.staleness_kind, self.job.workers), partial(self.trace.tell, me.rank)
        station = Station(me, Mutex(self.env), log, HandleTable(me.rank, report, self._unheard))
        lane = Lane(self.job.method.enter(me, self.job.method.begin(me, self.job.learner.initial())))
        strand = Strand(station, "main", Promise(lambda: "its program"), lane)
        yield from self._carry(strand, self._drive(strand, lane))
        if self._loading is not None:
            self._loading.end(me.rank)
        if (failure := strand.promise.failure) is not None:
            failure.add_note(f"in rank {me.rank} ({me.role}), step {strand.step}, at {self.env.now:g} s")
            self._failure = self._failure or failure
        else:
            self.trace.states[me.rank] = strand.promise.answer

    def _carry(self, strand: Strand, steps: Steps) -> Steps:
        """Carries a strand to its end, and keeps its outcome as a value."""
        self._strands[strand] = None
        answer: Any = None
        failure: Exception | None = None
        try:
            answer = yield from steps
        except simpy.Interrupt:
            assert strand.promise.cancelled, "a strand is interrupted by `Cancel` alone"
        except Exception as error:
            failure = error.at(strand.standing()) if isinstance(error, InvalidOperation) else error
            self._unheard.add(failure)
        del self._strands[strand]
        strand.promise.end(answer, failure)

    def _drive(self, strand: Strand, lane: Lane) -> Steps:
        """Performs a program's operations until it ends."""
        answer: Any = None
        failure: Exception | None = None
        while (op := lane.advance(answer, failure)) is not None:
            answer, failure = None, None
            self._operations += 1
            try:
                answer = self._perform(strand, op)
                if isinstance(answer, GeneratorType):
                    answer = yield from answer
            except simpy.Interrupt:
                lane.steps.close()
                raise
            except Exception as error:
                failure = error.at(strand.standing()) if isinstance(error, InvalidOperation) else error
        return lane.answer

    def _perform(self, strand: Strand, op: Op[Any]) -> Any:
        """Answers one operation; where that takes time, with the steps that do."""
        if (meaning := self._meanings.get(type(op))) is None:
            raise unknown_operation(describe(op))
        return meaning(strand, op)

    def _steps(self, strand: Strand, op: Op[Any]) -> Steps:
        """Performs one operation by way of the events that it waits for, if any."""
        answer = self._perform(strand, op)
        return (yield from answer) if isinstance(answer, GeneratorType) else answer

    # --- what is started ------------------------------------------------------------------------------------------

    def _start(self, strand: Strand, op: ops.Start[Any]) -> Handle[Any] | Steps:
        """Begins an operation or a sub-program beside the strand; to start it may take time."""
        what: Op[Any] | Routine[Any] = op.what
        check_start(what)
        line = strand.station.branches.name(strand.line, what)
        if isinstance(what, Routine):
            lane = Lane(what)
            child = self._beside(strand, what, line, lane)
            self._begin(child, self._drive(child, lane))
        else:
            self._operations += 1
            child = self._beside(strand, what, line)
            self._begin(child, self._steps(child, what))
            if isinstance(child.promise.failure, ProgramError):  # a mistake is told where the program made it
                strand.station.handles.result(child.promise)
        handle = strand.station.handles.give(child.promise)
        seconds = self._handling.lane_s
        if isinstance(what, COLLECTIVES):
            seconds = self._handling.start_s(what.group, nbytes(getattr(what, "value", None)))
        return self._after(seconds, handle) if seconds > 0 else handle

    def _after(self, seconds: float, handle: Handle[Any]) -> Steps:
        """The handle, once the starter's processor is done; the span of a collective covers this time."""
        yield self.env.timeout(seconds)
        return handle

    def _layers(self, strand: Strand, op: LayerGradients) -> tuple[Handle[Any], ...]:
        """Begins the pass through the layers; each part of the gradient is a task of its own, ended by that pass."""
        handles = strand.station.handles
        weights = [handles.entry(handle) for handle in op.weights] if isinstance(op.weights, tuple) else []
        buckets = op.parts(strand.me.layout)
        parts = [Promise(partial("the gradient of {}".format, bucket.name)) for bucket in buckets]
        child = self._beside(strand, op, strand.line)

        def end_all() -> None:
            for part in parts:  # those that have ended keep their outcome
                part.end(failure=child.promise.failure)

        child.promise.watchers.append(end_all)
        self._begin(child, self._compute.layer_gradients(child, op, weights, list(zip(buckets, parts, strict=True))))
        return tuple([handles.give(part) for part in parts])

    def _beside(self, strand: Strand, what: Op[Any] | Routine[Any], line: str, lane: Lane | None = None) -> Strand:
        """A new strand on the same rank; the collectives of a sub-program are a stream of their own."""
        place, station, stream = strand.where(), strand.station, strand.stream if lane is None else line
        promise = Promise(lambda: named(what, place))
        return Strand(station, station.take_name(), promise, lane, place, line, stream, strand.step)

    def _begin(self, strand: Strand, steps: Steps) -> None:
        """Runs a new strand up to its first event, and from there on as a process of its own."""
        strand.promise.watchers.append(lambda: strand.station.give_name(strand.name))
        carried = self._carry(strand, steps)
        try:
            event = next(carried)
        except StopIteration:
            return
        strand.promise.give_up = self.env.process(continued(carried, event)).interrupt

    def _cancel(self, strand: Strand, op: ops.Cancel) -> Steps:
        """Cancels what the handle stands for. It has ended when the program continues: messages it took are back."""
        if not (in_time := strand.station.handles.cancel(strand.line, op.handle)):
            return False
        yield self.env.timeout(0.0)  # SimPy delivers the interrupt first
        return in_time

    def _wait(self, strand: Strand, op: ops.Wait[Any]) -> Steps:
        """The answer of what the handle stands for."""
        promise = strand.station.handles.entry(op.handle)
        if not promise.settled:
            yield from strand.wait_for([promise], 1, self.env)
        return strand.station.handles.result(promise)

    def _wait_for(self, strand: Strand, op: ops.WaitFor[Any]) -> Steps:
        """The answers of all that have settled, once enough have."""
        handles, least = strand.station.handles, op.least
        promises = handles.awaited(op.handles, least)
        yield from strand.wait_for(promises, least, self.env)
        return handles.answers(strand.line, promises, least)
