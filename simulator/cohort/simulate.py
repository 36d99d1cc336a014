"""The vectorised interpreter: runs one program for a whole class of ranks, with arrays of times and values over them.

* At first all workers are one class. If the program of a class needs different control flow at some of its ranks, the
  class is divided and the run begins again, which costs little, because ranks usually part in their first steps.
* What cannot be vectorised raises `NotACohort`, most of it before virtual time advances. An error of a program does so
  as well: the event-by-event interpreter then reports it with its place.
* `_meanings` maps each operation to the function that performs it, as in the event-by-event interpreter. An operation
  that is not in the table ends the run with `NotACohort`.
* There are no events. A task computes when its operations end, and waits only for what other classes or tasks have to
  do first, such as entering a collective. So the order of computation is not the order of time. Where the order of time
  matters, between tasks of a rank, it is checked.

Read on in `values` (what a program computes with), `classes`, `collectives` and `prices`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from itertools import islice
from types import GeneratorType
from typing import Any, Protocol, runtime_checkable

import numpy as np

from paceline.algorithms.core import operations as ops
from paceline.algorithms.core.errors import PacelineError
from paceline.algorithms.core.job import Job, Learner, OneByOne
from paceline.algorithms.core.operations import Op
from paceline.algorithms.core.parts import together
from paceline.algorithms.core.program import Lane, Routine
from paceline.algorithms.core.values import Batch, GradientResult, Null, Rank, Samples, Weights, may_diverge
from paceline.algorithms.runtime.collective_matching import COLLECTIVES, Collective
from paceline.algorithms.runtime.handles import HandleTable, UnheardFailures
from paceline.algorithms.runtime.program_errors import check_start
from paceline.algorithms.runtime.stop_rule import next_step
from paceline.algorithms.runtime.weights_owner import Update, UpdateLog
from paceline.records.recorder import Recorder
from paceline.records.trace import Activity, Schedule, Trace
from paceline.simulator.cohort.batch_copies import BatchCopies
from paceline.simulator.cohort.classes import (
    ClassRecorder,
    CohortTask,
    Contexts,
    OneOfClass,
    OwnWork,
    RankClass,
    Steps,
    TimedPromise,
    divided,
)
from paceline.simulator.cohort.collectives import CohortCollectives
from paceline.simulator.cohort.prices import Prices
from paceline.simulator.cohort.values import (
    MOST_CLASSES,
    Diverges,
    NotACohort,
    Places,
    Stacked,
    Times,
    of_one,
    of_ranks,
    vary,
)
from paceline.simulator.interpreter.host_costs import NO_COSTS, HostCosts
from paceline.simulator.interpreter.weights_owner import Progress, SimulatedWeightsOwner, has_drift
from paceline.simulator.kernel.timing import Timing
from paceline.simulator.network.interference import WHOLE, Processors
from paceline.simulator.network.network import NetworkModel, PricesAhead
from paceline.workloads.sampling import stream_start

WHY = {
    ops.Send: "it sends messages",
    ops.Receive: "it receives messages",
    ops.Cancel: "it cancels operations",
    ops.Now: "it reads the clock",
    ops.Access: "it uses shared memory",
    ops.Lock: "it uses shared memory",
    ops.Unlock: "it uses shared memory",
}
"""why an operation cannot be performed for many ranks at once"""


def simulate_cohort(
    job: Job,
    timing: Timing,
    network: NetworkModel,
    schedule: Schedule,
    progress: Progress | None = None,
    hosts: HostCosts = NO_COSTS,
    record: Callable[[], Recorder] = Recorder,
) -> Trace:
    """Runs a job to its end in virtual time, one program for many ranks.

    Args:
        job: the method, its ranks, its learner and its budget.
        timing: the seconds of each rank's own work.
        network: the time of messages and collectives.
        schedule: when the weights being learned are evaluated; it is not changed.
        progress: called with the samples so far and the virtual time.
        hosts: what the hosts of the ranks cost and share.
        record: returns what writes the record.

    Returns:
        The record of the run, with the rows of the event-by-event interpreter.

    Raises:
        NotACohort: the run cannot be vectorised.
    """
    if (reason := why_not(job, timing, schedule, hosts)) is not None:
        raise NotACohort(reason)
    if not isinstance(network, PricesAhead):
        raise NotACohort(
            f"its network is a {type(network).__name__}, whose members enter and leave one by one or which "
            "observes each message"
        )
    contexts = Contexts(job.team)
    classes = contexts.roles()
    while True:
        recorder = record()
        owner = SimulatedWeightsOwner(job, copy(schedule), recorder, progress)
        try:
            CohortRun(job, timing, Prices(network), owner, recorder, classes, contexts, hosts).run()
        except Diverges as diverges:
            if len(classes) >= MOST_CLASSES:
                raise NotACohort(f"its ranks need more than {MOST_CLASSES} different control flows") from None
            classes = divided(classes, diverges)
        except (
            PacelineError, ArithmeticError, AssertionError, LookupError, TypeError, ValueError, AttributeError
        ) as error:  # fmt: skip
            reason = f"a program does what it cannot do for many ranks ({type(error).__name__}: {error})"
            raise NotACohort(reason) from error
        else:
            return recorder.trace


def why_not(job: Job, timing: Timing, schedule: Schedule, hosts: HostCosts) -> str | None:
    """Returns why a run cannot be vectorised, as far as that is known before it begins; None if nothing is known.

    Args:
        job: the job.
        timing: the seconds of each rank's own work.
        schedule: what is measured.
        hosts: what the hosts of the ranks cost and share.
    """
    if job.method.independent or job.method.shared:
        return "its workers do not step together"
    if job.team[0].shards:
        return "each of its servers has other layers"
    if job.deaths:
        return "workers die"
    if schedule.drift is not None and has_drift(job.method):
        return "the distances between workers are measured"
    if hosts.supply is not None:
        return "its batches are read from storage"
    handling = hosts.handling
    if handling.lane_s or handling.wait_s or handling.start_s is not NO_COSTS.handling.start_s or hosts.snapshot_s:
        return "starts and stored weights cost processor time on the measured machine"
    if hosts.processors is not None and not _own_devices(job, hosts.processors):
        return "ranks share the processors of their hosts"
    if any(timing.timeline(me.rank) is not None for me in job.team):
        return "workers crash or are slower for some time"
    return None


def _own_devices(job: Job, processors: Processors) -> bool:
    """Returns whether no rank shares a processor with another one, so that only what it does itself slows it down."""

    def alone(rank: Rank) -> bool:
        demand = processors.demand(rank)
        own = demand.processor is None or demand.processor == rank
        return own and demand.law is WHOLE and demand.messages_on is None and not demand.charge

    return not processors.used or all(alone(me.rank) for me in job.team)


class CohortRun:
    """One attempt to run a job with given classes of ranks.

    Args:
        job: the job.
        timing: the seconds of each rank's own work.
        prices: the times of collectives.
        owner: the stop rule, and the weights being learned.
        recorder: writes the record.
        classes: the ranks of each class.
        contexts: creates the contexts of classes.
        hosts: what the hosts of the ranks cost and share.
    """

    def __init__(
        self,
        job: Job,
        timing: Timing,
        prices: Prices,
        owner: SimulatedWeightsOwner,
        recorder: Recorder,
        classes: Sequence[Places],
        contexts: Contexts,
        hosts: HostCosts,
    ) -> None:
        self.job, self._timing, self._owner, self._recorder = job, timing, owner, recorder
        self._overlaps = hosts.processors is None or not hosts.processors.used
        """whether communication may take place while a rank computes"""
        self._classes = [self._class(number, ranks, contexts) for number, ranks in enumerate(classes)]
        self._records = ClassRecorder(recorder, self._classes, job.workers)
        self._gradients = CohortGradients(job.learner)
        self._copies = BatchCopies.of(job, hosts, recorder, prices)
        self._collectives = CohortCollectives(prices)
        self._ready: deque[tuple[CohortTask, Steps]] = deque()
        self._waiting = 0
        """tasks that need a promise"""
        self._states: dict[Rank, Any] = {}
        self._operations = 0
        self._meanings: dict[type[Op[Any]], Callable[[CohortTask, Any], Any]] = {
            ops.NextStep: self._next_step,
            ops.Load: self._load,
            ops.Gradient: self._gradient,
            ops.LayerGradients: self._layers,
            ops.Charge: self._charge,
            **dict.fromkeys(COLLECTIVES, self._collective),
            ops.Start: self._start,
            ops.Wait: self._wait,
            ops.WaitFor: self._wait_for,
            ops.RecordUpdate: self._update,
        }

    def _class(self, number: int, ranks: Places, contexts: Contexts) -> RankClass:
        rank: Any = Rank(int(ranks[0])) if len(ranks) == 1 else OneOfClass(ranks)

        def report(lane: str, outcome: Any) -> None:
            for member in ranks.tolist():
                self._recorder.outcome(Rank(member), lane, outcome)

        log = UpdateLog(self.job.method.staleness_kind, self.job.workers)
        handles = HandleTable[TimedPromise](rank, report, UnheardFailures())
        return RankClass(number, ranks, contexts.of(ranks), OwnWork(self._timing, ranks), log, handles)

    @may_diverge
    def run(self) -> None:
        """Runs until all programs have ended; raises `Diverges` or `NotACohort` if that is impossible."""
        method, initial = self.job.method, self.job.learner.initial()
        for own in self._classes:
            try:
                lane = Lane(method.enter(own.me, method.begin(own.me, initial)))
            except Diverges as diverges:
                diverges.of = own.number
                raise
            task = CohortTask(own, "main", TimedPromise(), np.zeros(own.count), lane)
            self._ready.append((task, self._main(task)))
        while self._ready:
            self._go_on(*self._ready.popleft())
        if self._waiting or self._collectives.waiting:
            raise NotACohort("some of its ranks wait for ever, or for the first of several operations")
        self._owner.close()
        self._records.close()
        self._recorder.close()
        trace = self._recorder.trace
        trace.wall_s, trace.states = self._recorder.last_end_s(), dict(sorted(self._states.items()))
        trace.notes.update(events=0, operations=self._operations, classes=len(self._classes))

    # --- tasks --------------------------------------------------------------------------------------------------

    def _go_on(self, task: CohortTask, steps: Steps) -> None:
        """Runs a task until it needs a promise that has not settled; it goes on after those that are ready then."""
        try:
            needed = next(steps)
        except StopIteration:
            return
        except Diverges as diverges:
            if diverges.of is None:
                diverges.of = task.own.number
            raise

        def settled() -> None:
            self._waiting -= 1
            self._ready.append((task, steps))

        self._waiting += 1
        needed.watchers.append(settled)

    def _main(self, task: CohortTask) -> Steps:
        state, same = (yield from self._drive(task)), False
        if self._copies is not None:
            self._copies.close(task)
        for place, rank in enumerate(task.own.ranks.tolist()):
            own = state if same else of_one(state, place)
            same = own is state
            self._states[Rank(rank)] = own

    def _drive(self, task: CohortTask) -> Steps:
        """Performs the operations of a program until it ends; returns its answer."""
        lane, answer = task.lane, None
        assert lane is not None, "only programs are driven"
        while (op := lane.advance(answer)) is not None:
            answer = self._perform(task, op)
            if isinstance(answer, GeneratorType):
                answer = yield from answer
        return lane.answer

    def _perform(self, task: CohortTask, op: Op[Any]) -> Any:
        """Performs an operation: returns its answer, or the steps that lead to it."""
        self._operations += task.own.count
        if (meaning := self._meanings.get(type(op))) is None:
            raise NotACohort(WHY.get(type(op), f"it requests {type(op).__name__}"))
        return meaning(task, op)

    def _start(self, task: CohortTask, op: ops.Start[Any]) -> ops.Handle[Any]:
        what: Op[Any] | Routine[Any] = op.what
        check_start(what)
        lane = Lane(what) if isinstance(what, Routine) else None
        child = self._beside(task, task.own.branches.name(task.line, what), lane)
        begin = partial(self._perform, child, what) if isinstance(what, Op) else partial(self._drive, child)
        self._go_on(child, self._carried(child, begin))
        return task.own.handles.give(child.promise)

    def _beside(self, task: CohortTask, line: str, lane: Lane | None = None) -> CohortTask:
        """Returns a new task of the same class; the collectives of a sub-program form a separate stream."""
        if not self._overlaps:
            raise NotACohort("communication slows down gradients that are computed at the same time")
        promise = TimedPromise()
        name = task.own.names.take(task.now_s, promise, task)
        stream = task.stream if lane is None else line
        return CohortTask(task.own, name, promise, task.now_s, lane, line, stream, task.step)

    def _carried(self, task: CohortTask, begin: Callable[[], Any]) -> Steps:
        """Runs a started task to its end, and settles its promise; `begin` returns its answer or its steps."""
        answer = begin()
        if isinstance(answer, GeneratorType):
            answer = yield from answer
        task.promise.end_at(task.now_s, answer)

    def _span(self, task: CohortTask, activity: Activity, step: int, begun_s: Times, **more: Any) -> None:
        """Records what all ranks of a class have done until now; `more` is what `Recorder.spans` takes."""
        self._recorder.spans(task.own.ranks, task.name, activity, step, begun_s, task.now_s, **more)

    # --- steps and updates --------------------------------------------------------------------------------------

    def _next_step(self, task: CohortTask, op: ops.NextStep) -> Any:
        own, owner = task.own, self._owner
        task.step = op.state.step
        if self.job.budget.seconds is not None and len(self._classes) > 1:
            raise NotACohort("its time is limited, and its ranks are not all alike")
        now_s = float(task.now_s.min())
        step = next_step(
            self.job, own.me, task.step, now_s, lambda _, number: owner.rule.grant(own.first, number), owner.rule.stop
        )
        if step is not None and owner.progress is not None and own.first == owner.rank:
            owner.progress(owner.learned.latest.samples, float(task.now_s[0]))
        return step

    def _update(self, task: CohortTask, op: ops.RecordUpdate) -> int:
        own = task.own
        version, rows, layers = own.log.book(op, task.now_s)  # type: ignore[arg-type]  # times instead of a time
        self._records.update(own, rows, layers)
        if op.layer is not None:
            return version
        if own.advanced_s is not None and (task.now_s < own.advanced_s).any():
            raise NotACohort("its updates are not recorded in the order of time")
        own.advanced_s = task.now_s
        if own.first == self._owner.rank:
            firsts = [Update._make(of_ranks(value, own.count)[0].item() for value in row) for row in rows]
            self._owner.learn(own.first, of_one(op, 0), version, firsts, float(task.now_s[0]))
            if self._owner.stopped:
                raise NotACohort("an evaluation ends it, which depends on how far each rank has come")
        return version

    # --- own work -----------------------------------------------------------------------------------------------

    def _load(self, task: CohortTask, op: ops.Load) -> Steps:
        work = task.own.work
        task.pass_s(work.each(self._timing.rest_s))
        begun_s = task.now_s
        if self._copies is not None:
            yield from self._copies.take(task, op.samples)
        task.pass_s(work.each(self._timing.load_s, op.samples.count))
        self._span(task, "load", op.samples.index, begun_s)
        return Batch(op.samples, None)

    def _charge(self, task: CohortTask, op: ops.Charge) -> None:
        begun_s = task.now_s
        task.pass_s(task.own.work.each(self._timing.work_s, op))
        self._span(task, "update", task.step, begun_s)

    def _device(self, task: CohortTask) -> Steps:
        """Waits for the device, which computes one gradient at a time; returns the promise to free it, and pauses."""
        own, before = task.own, task.own.device
        if own.requested_s is not None and (task.now_s < own.requested_s).any():
            raise NotACohort("its gradients are not requested in the order of time")
        done = own.device = TimedPromise()
        own.requested_s = task.now_s
        if before is not None:
            yield from task.wait(before)
        pauses_s = np.zeros(own.count) if own.ended_s is None else task.now_s - own.ended_s
        return done, pauses_s

    def _computed(self, task: CohortTask, done: TimedPromise, samples: Samples, begun_s: Times) -> None:
        """Notes a gradient that has ended, and frees the device."""
        self._records.gradient(task.own, samples.index, begun_s, task.now_s)
        task.own.ended_s = task.now_s
        done.end_at(task.now_s)

    def _gradient(self, task: CohortTask, op: ops.Gradient) -> Steps:
        own, samples = task.own, op.batch.samples
        done, pauses_s = yield from self._device(task)
        started = bool(task.line)  # the main program has no name
        begun_s = task.now_s
        work_s = own.work.compute_s(samples.number, samples.count, pauses_s, begun_s, started=started)
        task.pass_s(work_s)
        self._span(task, "compute", samples.index, begun_s)
        self._computed(task, done, samples, begun_s)
        vector, loss = self._gradients.of(op.weights.vector, samples, own.count)
        version, rank = op.weights.version, own.me.rank
        return GradientResult(vector, version, loss, samples.count, rank, samples.index, vary(work_s))

    def _layers(self, task: CohortTask, op: ops.LayerGradients) -> tuple[ops.Handle[Any], ...]:
        handles = task.own.handles
        weights = [handles.promise(handle) for handle in op.weights] if isinstance(op.weights, tuple) else []
        buckets = op.parts(task.own.me.layout)
        parts = [TimedPromise() for _ in buckets]
        child = self._beside(task, task.line)
        child.promise.waiter = task  # it waits for its parts
        begin = partial(self._layer_gradients, child, op, weights, list(zip(buckets, parts, strict=True)))
        self._go_on(child, self._carried(child, begin))
        return tuple([handles.give(part) for part in parts])

    def _layer_gradients(
        self, task: CohortTask, op: ops.LayerGradients, weights: Sequence[TimedPromise], parts: Sequence[Any]
    ) -> Steps:
        """Computes a gradient layer by layer, and settles the promise of each bucket when backward has passed it."""
        own, samples = task.own, op.batch.samples
        done, pauses_s = yield from self._device(task)
        total_s = own.work.compute_s(samples.number, samples.count, pauses_s, task.now_s)
        forward, backward = ([share * total_s for share in shares] for shares in self._timing.layer_shares())
        begun_s = before_s = task.now_s
        if isinstance(op.weights, Weights):
            given, busy_s = op.weights, sum(forward, np.zeros(own.count))
            task.pass_s(busy_s)  # forward and the first bucket are one span
        else:
            given, busy_s, begun_s = yield from self._forward(task, weights, forward, samples.index)
            before_s = task.now_s
        vector, loss = self._gradients.of(given.vector, samples, own.count)
        rest = reversed(backward)
        for bucket, part in parts:
            seconds: Any = sum(islice(rest, len(bucket.layers)))
            task.pass_s(seconds)
            busy_s = busy_s + seconds
            self._span(task, "compute", samples.index, before_s, layer=bucket.name)
            before_s = task.now_s
            if part is parts[-1][1]:
                self._computed(task, done, samples, begun_s)
            piece = vector[bucket.part]
            result = GradientResult(piece, given.version, loss, samples.count, own.me.rank, samples.index, vary(busy_s))
            part.end_at(task.now_s, result)

    def _forward(self, task: CohortTask, promises: Sequence[TimedPromise], shares: Sequence[Times], step: int) -> Steps:
        """Performs a forward pass in which each layer waits for its own weights; the oldest version counts."""
        held: list[Weights] = []
        begins_s: list[Times] = []
        busy_s: Any = 0.0
        for layer, promise, seconds in zip(task.own.me.layout.layers, promises, shares, strict=True):
            held.append((yield from task.wait(promise)))
            begins_s.append(task.now_s)
            task.pass_s(seconds)
            busy_s = busy_s + seconds
            self._span(task, "compute", step, begins_s[-1], layer=layer.name)
        return together(held), busy_s, begins_s[0]

    # --- communication and waiting --------------------------------------------------------------------------------

    def _collective(self, task: CohortTask, op: Collective) -> Steps:
        begun_s, entry = task.now_s, self._collectives.enter(task, op)
        answer = yield from task.wait(entry.promise)
        nbytes, key = entry.sent_bytes(), entry.key(task.stream)
        self._span(task, "collective", task.step, begun_s, nbytes=nbytes, ready_s=entry.last_s, key=key)
        return answer

    def _wait(self, task: CohortTask, op: ops.Wait[Any]) -> Steps:
        return task.wait(task.own.handles.promise(op.handle))

    def _wait_for(self, task: CohortTask, op: ops.WaitFor[Any]) -> Steps:
        handles, least = task.own.handles, op.least
        promises = handles.awaited(op.handles, least)
        partial_wait = least < len(promises)
        for promise in promises:
            if not partial_wait:
                yield from task.wait(promise)
            elif not promise.settled:
                yield promise
        return handles.answers(task.line, promises, least, self._over(task, promises, least) if partial_wait else None)

    def _over(self, task: CohortTask, promises: Sequence[TimedPromise], least: int) -> tuple[int, ...]:
        """Returns which operations have ended when enough have; they have to be the same at all ranks."""
        ends_s = np.array([promise.ends_s for promise in promises])
        enough_s = np.sort(ends_s, axis=0)[least - 1] if least else task.now_s
        later_s = np.maximum(task.now_s, enough_s)
        over = ends_s <= later_s
        if (over != over[:, :1]).any():
            raise NotACohort("it goes on with the first of several operations, which differ between ranks")
        at_once = (ends_s == later_s).sum(axis=0)
        if (at_once > (enough_s > task.now_s)).any():
            raise NotACohort("it goes on with the first of several operations, and some end at the same instant")
        task.now_s, places = later_s, np.flatnonzero(over[:, 0]).tolist()
        for place in places:
            promises[place].waiter = task
        return tuple(places)


@runtime_checkable
class StackedLearner(Protocol):
    """A learner that computes the gradients of many ranks together, with the bits of `gradient`."""

    def stacked_gradients(self, vectors: Any, starts: Any, count: int) -> tuple[Any, Any] | None:
        """Computes gradients.

        Args:
            vectors: the weights: one vector for all, or the rows of a matrix.
            starts: the number of the first sample of each.
            count: samples of each.

        Returns:
            The gradients as rows, and the losses; None if they have to be computed one by one.
        """
        ...


class CohortGradients:
    """The gradients of a run.

    Args:
        learner: its learner.

    Raises:
        NotACohort: the learner computes gradients of several ranks in one computation, which changes their bits.
    """

    def __init__(self, learner: Learner) -> None:
        initial = learner.initial()
        self._sizes_only = isinstance(initial, Null)
        if not self._sizes_only and not isinstance(initial, np.ndarray):
            raise NotACohort("its vectors are tensors of torch")
        if getattr(type(learner), "gradients", None) is not OneByOne.gradients:  # pyright: ignore[reportAttributeAccessIssue]  # its self is a learner
            raise NotACohort("its problem computes several gradients at once, in an order that the run determines")
        self._learner = learner

    def of(self, vector: Any, samples: Samples, count: int) -> tuple[Any, Any]:
        """Returns the gradients of the ranks of a class, with the weights of their batches, and their losses.

        Args:
            vector: the weights.
            samples: the samples of each rank.
            count: the ranks.
        """
        gradient, loss = self._means(vector, samples, count)
        return samples.weighted(gradient), loss

    def _means(self, vector: Any, samples: Samples, count: int) -> tuple[Any, Any]:
        learner = self._learner
        if self._sizes_only:
            return learner.gradient(vector, learner.load(samples))
        if isinstance(learner, StackedLearner) and isinstance(samples.count, int):
            vectors = vector.values if isinstance(vector, Stacked) else vector
            starts = of_ranks(stream_start(samples), count)
            if (computed := learner.stacked_gradients(vectors, starts, samples.count)) is not None:
                return Stacked(computed[0]), vary(computed[1])
        each = [learner.gradient(of_one(vector, place), learner.load(of_one(samples, place))) for place in range(count)]
        if count == 1:
            return each[0]
        rows, losses = zip(*each, strict=True)
        return Stacked(np.stack(rows)), vary(np.array(losses))
