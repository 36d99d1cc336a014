"""Runs the program of each class of ranks once, with arrays of times and values over its ranks.

* `_table` maps each operation to the function that performs it, as in the event-by-event interpreter. An operation that
  is not in the table ends the run with `NotACohort`.
* There are no events. A task computes when its operations end, and waits only for what other classes or tasks have to
  do first, such as entering a collective. So the order of computation is not the order of time. Where the order of time
  matters, between tasks of a rank, it is checked.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from types import GeneratorType
from typing import Any, Protocol, runtime_checkable

import numpy as np

from paceline.algorithms.core import operations as ops
from paceline.algorithms.core.job import Job, Learner, OneByOne
from paceline.algorithms.core.operations import Handle, Op
from paceline.algorithms.core.parts import together
from paceline.algorithms.core.program import Lane, Routine
from paceline.algorithms.core.values import Batch, GradientResult, Group, Null, Rank, Samples, Weights, may_diverge
from paceline.algorithms.runtime.collective_matching import COLLECTIVES, Collective, sent_bytes
from paceline.algorithms.runtime.handles import HandleTable, UnheardFailures
from paceline.algorithms.runtime.program_errors import check_start
from paceline.algorithms.runtime.stop_rule import next_step
from paceline.algorithms.runtime.update_log import Update, UpdateLog
from paceline.records.recorder import Recorder
from paceline.simulator.cohort.batch_copies import BatchCopies, CopyPaths
from paceline.simulator.cohort.classes import Contexts, OneOfClass, Places, RankClass, TimedPromise, Times
from paceline.simulator.cohort.group_sets import GroupSets, Membership
from paceline.simulator.cohort.prices import Prices
from paceline.simulator.cohort.recorder import ClassRecorder
from paceline.simulator.cohort.rooms import Rooms
from paceline.simulator.cohort.stacked import Stacked
from paceline.simulator.cohort.tasks import CohortTask, OwnWork, Scheduler, Steps
from paceline.simulator.cohort.varying import NotACohort, Varying, VaryingRanks, of_ranks, vary
from paceline.simulator.interpreter.weights_owner import SimulatedWeightsOwner
from paceline.simulator.kernel.timing import Timing
from paceline.topologies.catalogue.staging import Staging

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
        overlaps: whether communication may take place while a rank computes.
        copying: the links of the copies of batches, and what is copied; None: batches are on the devices.
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
        *,
        overlaps: bool = True,
        copying: tuple[CopyPaths, Staging] | None = None,
    ) -> None:
        self.job, self._timing, self._owner, self._overlaps = job, timing, owner, overlaps
        self._classes = [self._class(number, ranks, contexts, recorder) for number, ranks in enumerate(classes)]
        self._works = [OwnWork(timing, one.ranks) for one in self._classes]
        self._recorder, self._records = recorder, ClassRecorder(recorder, self._classes, job.workers)
        self._gradients = Gradients(job.learner)
        self._copies: BatchCopies | None = None
        if copying is not None:
            workers = [one for one in self._classes if one.me.role == "worker"]
            use, traffic = getattr(prices, "use", None), getattr(prices, "traffic", None)
            self._copies = BatchCopies(*copying, workers, self._records, use, traffic)
        self._rooms = Rooms(GroupSets(), prices, lasts=not recorder.trace.keeping.whole)
        self._scheduler = Scheduler()
        self._states: dict[int, Any] = {}
        self._operations = 0
        self._sent: dict[tuple[Any, ...], Any] = {}
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

    def _class(self, number: int, ranks: Places, contexts: Contexts, recorder: Recorder) -> RankClass:
        rank: Any = Rank(int(ranks[0])) if len(ranks) == 1 else OneOfClass(ranks)

        def report(lane: str, outcome: Any) -> None:
            for one in ranks.tolist():
                recorder.outcome(Rank(one), lane, outcome)

        log = UpdateLog(self.job.method.staleness_kind, self.job.workers)
        return RankClass(number, ranks, contexts.of(ranks), log, HandleTable(rank, report, UnheardFailures()))

    @may_diverge
    def run(self) -> None:
        """Runs until all programs have ended; raises `Diverges` or `NotACohort` if that is impossible."""
        method, initial = self.job.method, self.job.learner.initial()
        for own in self._classes:
            lane = Lane(method.enter(own.me, method.begin(own.me, initial)))
            task = CohortTask(own, "main", TimedPromise(lambda: "its program"), np.zeros(own.count), lane)
            self._scheduler.add(task, self._main(task, lane))
        self._scheduler.run()
        if self._scheduler.waiting or self._rooms.waiting:
            raise NotACohort("some of its ranks wait for ever, or for the first of several operations")
        self._owner.close()
        states: dict[Rank, Any] = {}
        for own in self._classes:
            state, same = self._states[own.number], None
            for place, rank in enumerate(own.ranks.tolist()):
                mine = state if same else of_one(state, place)
                same = mine is state
                states[Rank(rank)] = mine
        self._records.close()
        self._recorder.close()
        trace = self._recorder.trace
        trace.wall_s, trace.states = self._records.wall_s, dict(sorted(states.items()))
        trace.notes.update(events=0, operations=self._operations, classes=len(self._classes))

    # --- tasks --------------------------------------------------------------------------------------------------

    def _main(self, task: CohortTask, lane: Lane) -> Steps:
        self._states[task.own.number] = yield from self._drive(task, lane)
        if self._copies is not None:
            self._copies.close(task.own, task.now_s)

    def _drive(self, task: CohortTask, lane: Lane) -> Steps:
        """Performs the operations of a program until it ends; returns its answer."""
        answer: Any = None
        while (op := lane.advance(answer)) is not None:
            self._operations += task.own.count
            answer = self._perform(task, op)
            if isinstance(answer, GeneratorType):
                answer = yield from answer
        return lane.answer

    def _perform(self, task: CohortTask, op: Op[Any]) -> Any:
        if (meaning := self._meanings.get(type(op))) is None:
            raise NotACohort(WHY.get(type(op), f"it requests {type(op).__name__}"))
        return meaning(task, op)

    def _carried(self, task: CohortTask, steps: Steps) -> Steps:
        """Runs a started task to its end, and settles its promise."""
        answer = yield from steps
        task.promise.end_at(task.now_s, answer)

    def _steps(self, task: CohortTask, op: Op[Any]) -> Steps:
        answer = self._perform(task, op)
        return (yield from answer) if isinstance(answer, GeneratorType) else answer

    def _start(self, task: CohortTask, op: ops.Start[Any]) -> ops.Handle[Any]:
        what: Op[Any] | Routine[Any] = op.what
        check_start(what)
        line = task.own.branches.name(task.line, what)
        if isinstance(what, Routine):
            lane = Lane(what)
            child = self._beside(task, line, lane)
            self._scheduler.begin(child, self._carried(child, self._drive(child, lane)))
        else:
            self._operations += task.own.count
            child = self._beside(task, line)
            self._scheduler.begin(child, self._carried(child, self._steps(child, what)))
        return task.own.handles.give(child.promise)

    def _beside(self, task: CohortTask, line: str, lane: Lane | None = None) -> CohortTask:
        """Returns a new task of the same class; the collectives of a sub-program form a separate stream."""
        if not self._overlaps:
            raise NotACohort("communication slows down gradients that are computed at the same time")
        promise = TimedPromise(lambda: "something that was started")
        name = task.own.names.take(task.now_s, promise, task)
        stream = task.stream if lane is None else line
        return CohortTask(task.own, name, promise, task.now_s, lane, line, stream, task.step)

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
        if layers:
            self._records.layers(own, layers)
        if rows:
            self._records.updates(own, rows)
        if op.layer is not None:
            return version
        if own.advanced_s is not None and (task.now_s < own.advanced_s).any():
            raise NotACohort("its updates are not recorded in the order of time")
        own.advanced_s = task.now_s
        if own.first == self._owner.rank:
            mine = [Update._make(map(_first, row)) for row in rows]
            self._owner.learn(own.first, of_one(op, 0), version, mine, float(task.now_s[0]))
            if self._owner.stopped:
                raise NotACohort("an evaluation ends it, which depends on how far each rank has come")
        return version

    # --- own work -----------------------------------------------------------------------------------------------

    def _load(self, task: CohortTask, op: ops.Load) -> Steps:
        work = self._works[task.own.number]
        task.pass_s(work.rest_s())
        begun_s = task.now_s
        if self._copies is not None:
            yield from self._copies.take(task, op.samples)
        task.pass_s(work.load_s(op.samples.count))
        self._records.span(task.own, task.name, "load", op.samples.index, begun_s, task.now_s)
        return Batch(op.samples, None)

    def _charge(self, task: CohortTask, op: ops.Charge) -> None:
        begun_s, seconds = task.now_s, self._works[task.own.number].charge_s(op)
        if seconds is not None:
            task.pass_s(seconds)
        self._records.span(task.own, task.name, "update", task.step, begun_s, task.now_s)

    def _device(self, task: CohortTask, done: TimedPromise) -> Steps:
        """Waits for the device, which computes one gradient at a time."""
        own, before = task.own, task.own.device
        if own.requested_s is not None and (task.now_s < own.requested_s).any():
            raise NotACohort("its gradients are not requested in the order of time")
        own.device, own.requested_s = done, task.now_s
        if before is not None:
            if not before.settled:
                yield before
            task.until(before)

    def _work_s(self, task: CohortTask, samples: Any, index: int) -> Times:
        own = task.own
        pauses_s = None if own.ended_s is None else task.now_s - own.ended_s
        return self._works[own.number].compute_s(index, samples, pauses_s)

    def _gradient(self, task: CohortTask, op: ops.Gradient) -> Steps:
        own, samples = task.own, op.batch.samples
        done = TimedPromise(lambda: "its device")
        yield from self._device(task, done)
        work_s = self._work_s(task, samples.count, samples.number)
        if task.name != "main":
            work_s = work_s * self._works[own.number].started_factor(samples.count)
        begun_s = task.now_s
        task.pass_s(work_s)
        self._records.span(own, task.name, "compute", samples.index, begun_s, task.now_s)
        self._records.gradient(own, samples.index, begun_s, task.now_s)
        own.ended_s = task.now_s
        done.end_at(task.now_s)
        vector, loss = self._gradients.of(op.weights.vector, samples, own.count)
        version, rank = op.weights.version, own.me.rank
        return GradientResult(vector, version, loss, samples.count, rank, samples.index, vary(work_s))

    def _layers(self, task: CohortTask, op: ops.LayerGradients) -> tuple[ops.Handle[Any], ...]:
        handles = task.own.handles
        weights = [handles.promise(handle) for handle in op.weights] if isinstance(op.weights, tuple) else []
        buckets = op.parts(task.own.me.layout)
        parts = [TimedPromise(partial("the gradient of {}".format, bucket.name)) for bucket in buckets]
        child = self._beside(task, task.line)
        child.promise.waiter = task  # it waits for its parts
        steps = self._layer_gradients(child, op, weights, list(zip(buckets, parts, strict=True)))
        self._scheduler.begin(child, self._carried(child, steps))
        return tuple([handles.give(part) for part in parts])

    def _layer_gradients(
        self, task: CohortTask, op: ops.LayerGradients, weights: Sequence[TimedPromise], parts: Sequence[Any]
    ) -> Steps:
        """Computes a gradient layer by layer, and settles the promise of each bucket when backward has passed it."""
        own, samples = task.own, op.batch.samples
        done = TimedPromise(lambda: "its device")
        yield from self._device(task, done)
        total_s = self._work_s(task, samples.count, samples.number)
        forward, backward = ([share * total_s for share in shares] for shares in self._timing.layer_shares())
        given, begun_s = op.weights, task.now_s
        if isinstance(given, Weights):
            busy_s, before_s = sum(forward, np.zeros(task.own.count)), begun_s
            task.pass_s(busy_s)
        else:
            given, busy_s, begun_s = yield from self._forward(task, weights, forward, samples.index)
            before_s = task.now_s
        vector, loss = self._gradients.of(given.vector, samples, own.count)
        rest = reversed(backward)
        for number, (bucket, part) in enumerate(parts):
            seconds: Any = sum(islice(rest, len(bucket.layers)))
            span_s = before_s if number == 0 else task.now_s  # forward and the first bucket are one span
            task.pass_s(seconds)
            busy_s = busy_s + seconds
            self._records.span(own, task.name, "compute", samples.index, span_s, task.now_s, layer=bucket.name)
            if number == len(parts) - 1:
                self._records.gradient(own, samples.index, begun_s, task.now_s)
                own.ended_s = task.now_s
                done.end_at(task.now_s)
            piece = vector[bucket.part]
            result = GradientResult(piece, given.version, loss, samples.count, own.me.rank, samples.index, vary(busy_s))
            part.end_at(task.now_s, result)

    def _forward(self, task: CohortTask, promises: Sequence[TimedPromise], shares: Sequence[Times], step: int) -> Steps:
        """Performs a forward pass in which each layer waits for its own weights; the oldest version counts."""
        held: list[Weights] = []
        busy_s: Any = 0.0
        begun_s: Times | None = None
        for layer, promise, seconds in zip(task.own.me.layout.layers, promises, shares, strict=True):
            if not promise.settled:
                yield promise
            promise.waiter = task
            task.until(promise)
            held.append(promise.result())
            span_s = task.now_s
            begun_s = span_s if begun_s is None else begun_s
            task.pass_s(seconds)
            busy_s = busy_s + seconds
            self._records.span(task.own, task.name, "compute", step, span_s, task.now_s, layer=layer.name)
        return together(held), busy_s, begun_s

    # --- communication ------------------------------------------------------------------------------------------

    def _collective(self, task: CohortTask, op: Collective) -> Steps:
        own, begun_s = task.own, task.now_s
        met = TimedPromise(lambda: "a collective")
        here = self._rooms.enter(own, op, task.stream, begun_s, met)
        if not met.settled:
            yield met
        assert met.ends_s is not None, "it has settled"
        task.now_s = met.ends_s
        self._records.span(
            own,
            task.name,
            "collective",
            task.step,
            begun_s,
            task.now_s,
            nbytes=self._sent_bytes(here, op),
            last_s=met.last_s,
            key=_key(here, op, task.stream),
        )
        return met.answer

    def _sent_bytes(self, here: Membership, op: Collective) -> Any:
        """Returns the bytes that each rank sends: a number if it is the same for all."""
        value, is_root = getattr(op, "value", None), np.zeros(len(here.group_of), dtype=bool)
        if isinstance(op, ops.Reduce | ops.Broadcast):
            is_root = of_ranks(op.root, len(is_root)) == here.of.ranks
        key = id(here), type(op), None if value is None else value.nbytes, is_root.tobytes()
        if key not in self._sent:
            alike, which = np.unique(2 * here.groups.sizes[here.group_of] + is_root, return_inverse=True)
            found = np.zeros(len(alike), dtype=np.int64)
            for place in range(len(alike)):
                at = int(np.flatnonzero(which == place)[0])
                found[place] = sent_bytes(_at(here, op, at), Rank(int(here.of.ranks[at])))
            self._sent[key] = here, int(found[0]) if len(found) == 1 else found[which]
        return self._sent[key][1]

    # --- waiting ------------------------------------------------------------------------------------------------

    def _wait(self, task: CohortTask, op: ops.Wait[Any]) -> Any:
        promise = task.own.handles.promise(op.handle)
        promise.waiter = task
        return self._awaited(task, promise)

    def _awaited(self, task: CohortTask, promise: TimedPromise) -> Steps:
        if not promise.settled:
            yield promise
        task.until(promise)
        return task.own.handles.result(promise)

    def _wait_for(self, task: CohortTask, op: ops.WaitFor[Any]) -> Steps:
        handles, least = task.own.handles, op.least
        promises = handles.awaited(op.handles, least)
        for promise in promises:
            if not promise.settled:
                yield promise
        if least == len(promises):
            for promise in promises:
                promise.waiter = task
                task.until(promise)
            return handles.answers(task.line, promises, least)
        return handles.answers(task.line, promises, least, self._found(task, promises, least))

    def _found(self, task: CohortTask, promises: Sequence[TimedPromise], least: int) -> tuple[int, ...]:
        """Returns which operations have ended when enough have; they have to be the same at all ranks."""
        ends_s = np.array([promise.ends_s for promise in promises])
        enough_s = np.sort(ends_s, axis=0)[least - 1] if least else task.now_s
        later_s = np.maximum(task.now_s, enough_s)
        done = ends_s <= later_s
        if (done != done[:, :1]).any():
            raise NotACohort("it goes on with the first of several operations, which differ between ranks")
        at_once = (ends_s == later_s).sum(axis=0)
        if (at_once > (enough_s > task.now_s)).any():
            raise NotACohort("it goes on with the first of several operations, and some end at the same instant")
        task.now_s = later_s
        found = np.flatnonzero(done[:, 0]).tolist()
        for place in found:
            promises[place].waiter = task
        return tuple(found)


def _first(value: Any) -> Any:
    return value[0].item() if isinstance(value, np.ndarray) else of_one(value, 0)


def _at(here: Membership, op: Collective, place: int) -> Collective:
    """Returns the operation of one rank of a class."""
    group = here.groups.groups[int(here.group_of[place])]
    if isinstance(op, ops.Reduce | ops.Broadcast):
        return replace(op, group=group, root=of_one(op.root, place))
    return replace(op, group=group)


def _key(here: Membership, op: Collective, stream: str) -> Any:
    """Returns the name of the collective in the record."""
    kind = type(op).__name__
    if here.one is not None:
        return f"{kind} {op.key} over {here.groups.name(here.one)}{stream}"

    def names(places: Any) -> list[str]:
        return [f"{kind} {op.key} over {here.groups.name(group)}{stream}" for group in here.group_of[places].tolist()]

    return names


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


class Gradients:
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
        if self._sizes_only:
            return self._learner.gradient(vector, self._learner.load(samples))
        vectors = vector.rows if isinstance(vector, Stacked) else vector
        if isinstance(self._learner, StackedLearner) and isinstance(samples.count, int):
            found = self._learner.stacked_gradients(vectors, of_ranks(_start(samples), count), samples.count)
            if found is not None:
                return Stacked(found[0]), vary(found[1])
        rows, losses = [], []
        for place in range(count):
            mine = of_one(samples, place)
            gradient, loss = self._learner.gradient(of_one(vector, place), self._learner.load(mine))
            rows.append(gradient)
            losses.append(loss)
        return (Stacked(np.stack(rows)), vary(np.array(losses))) if count > 1 else (rows[0], losses[0])


def _start(samples: Samples) -> Any:
    """Returns the number of the first sample of each rank, see `workloads.sampling.stream_start`."""
    from paceline.workloads.sampling import stream_start

    return stream_start(samples)


def of_one(value: Any, place: int) -> Any:
    """Returns the value of one rank; values that are the same for all ranks are not copied.

    Args:
        value: a value of the class, at any depth of tuples, lists, dictionaries and dataclasses.
        place: the place of the rank in the class.
    """
    if isinstance(value, Varying):
        return value.values[place].item()
    if isinstance(value, Stacked):
        return value.rows[place].copy()  # a part of the matrix would keep all of it
    if isinstance(value, Group):
        ranks: Any = value.ranks
        return Group(ranks.parts[ranks.part_of[place]]) if isinstance(ranks, VaryingRanks) else value
    if isinstance(value, Handle):
        rank: Any = value.rank
        return Handle(Rank(of_one(rank, place)), value.number)
    if isinstance(value, tuple | list):
        parts = [of_one(part, place) for part in value]
        if all(part is own for part, own in zip(parts, value, strict=True)):
            return value
        return type(value)(*parts) if hasattr(value, "_make") else type(value)(parts)
    if isinstance(value, dict):
        return {key: of_one(part, place) for key, part in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value) if field.init]
        found = {name: of_one(getattr(value, name), place) for name in names}
        changed = {name: part for name, part in found.items() if part is not getattr(value, name)}
        return dataclasses.replace(value, **changed) if changed else value
    return value
