"""A rank's own work in virtual time: loading batches, computing gradients, and the program's own arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import Any

import simpy

from paceline.algorithms.core.buckets import Bucket
from paceline.algorithms.core.job import Job, Learner
from paceline.algorithms.core.operations import Charge, Gradient, LayerGradients, Load
from paceline.algorithms.core.parts import together
from paceline.algorithms.core.values import Batch, GradientResult, Layer, Rank, Samples, Weights
from paceline.algorithms.runtime.handles import Promise
from paceline.records.recorder import Recorder
from paceline.records.trace import Activity
from paceline.simulator.interpreter.batch_staging import BatchStaging
from paceline.simulator.interpreter.loading import Loading
from paceline.simulator.kernel.crash_timeline import CrashTimeline, Life, Stretch, TimelineState, undisturbed
from paceline.simulator.kernel.lanes import SimulatedTask, Steps
from paceline.simulator.kernel.shared_processor import SharedProcessor
from paceline.simulator.kernel.timing import Timing
from paceline.simulator.network.interference import Demand, Processors

# * A gradient is needed when its step ends. Until then only references to its weights and its sample numbers are
#   stored. Weights are not copied, because vectors are never changed in place, and data are loaded when they are
#   used.
# * When a gradient is needed, all that have begun are computed, in the order in which they began. So the batches of
#   gradients depend on the run alone, and runs are repeatable bit for bit.
# * For N workers this takes N references to weights and at most N gradients that are not needed yet.


@dataclass(eq=False, slots=True)
class Pending:
    """A gradient that has begun."""

    vector: Any
    samples: Samples
    answer: tuple[Any, float] | None = None


class GradientsInFlight:
    """The gradients of a run that have begun and not ended."""

    def __init__(self, learner: Learner) -> None:
        self._learner = learner
        self._waiting: dict[Pending, None] = {}

    def begin(self, vector: Any, samples: Samples) -> Pending:
        """Registers a gradient at these weights."""
        pending = Pending(vector, samples)
        self._waiting[pending] = None
        return pending

    def end(self, pending: Pending) -> tuple[Any, float]:
        """Returns the gradient and the loss."""
        if pending.answer is None:
            waiting, self._waiting = list(self._waiting), {}
            answers = self._learner.gradients([held.vector for held in waiting], [held.samples for held in waiting])
            for held, (gradient, loss) in zip(waiting, answers, strict=True):
                held.vector, held.answer = None, (held.samples.weighted(gradient), loss)
        assert pending.answer is not None, "it was among the waiting gradients"
        return pending.answer

    def give_up(self, pending: Pending | None) -> None:
        """Cancels a gradient; has no effect if it has not begun or has been computed."""
        if pending is not None:
            self._waiting.pop(pending, None)


# A timeline knows the crashes and slowdowns of the device in advance. What else runs on the device is known only when
# it begins, so the end is computed again at every change of the processor's speed.


class DeviceWork:
    """One piece of work.

    Args:
        env: the run's clock.
        timeline: the crashes and slowdowns of the device.
        state: its state.
        work_s: the work, in seconds at full speed.
    """

    def __init__(self, env: simpy.Environment, timeline: CrashTimeline, state: TimelineState, work_s: float) -> None:
        self._env, self._timeline, self._left_s = env, timeline, work_s
        self.state, self.stretches = state, list[Stretch]()

    def run(self, processor: SharedProcessor | None) -> Steps:
        """Waits until the work is done. If it is cancelled, the stages until then are known and the state is that.

        Args:
            processor: what the device shares with other activities; None: nothing.
        """
        while True:
            begun_s, speed = self._env.now, 1.0 if processor is None else processor.speed("compute")
            whole = self._timeline.live(self.state, begun_s, self._left_s / speed)
            end = self._env.timeout(max(0.0, whole.end_s - begun_s))
            try:
                yield end if processor is None else end | processor.changed
            except simpy.Interrupt:
                self._book(self._until_now(begun_s, speed), speed)
                raise
            if self._env.now >= whole.end_s:
                return self._book(whole, speed)
            self._book(self._until_now(begun_s, speed), speed)

    def _until_now(self, begun_s: float, speed: float) -> Life:
        return self._timeline.live(self.state, begun_s, self._left_s / speed, until_s=self._env.now)

    def _book(self, life: Life, speed: float) -> None:
        self.state, self._left_s = life.state, life.left_s * speed
        self.stretches += life.stretches


@dataclass(frozen=True)
class Compute:
    """Performs the operations of devices. A device computes one gradient at a time; others wait in a queue."""

    env: simpy.Environment
    job: Job
    timing: Timing
    recorder: Recorder
    _flight: GradientsInFlight
    _loading: Loading | None = None
    """None if batches cost only their `load_s`"""
    _processors: Processors = field(default_factory=Processors)
    """what gradients share with communication"""
    _staging: BatchStaging | None = None
    """None if batches are on devices at once"""
    _timelines: dict[Rank, CrashTimeline | None] = field(default_factory=dict)
    _states: dict[Rank, TimelineState] = field(default_factory=dict)
    """the states of devices that have a timeline"""
    _completing: set[Rank] = field(default_factory=set)
    """the ranks whose device completes a cancelled gradient"""
    _ended_s: dict[Rank, float] = field(default_factory=dict)
    """when each rank's last gradient ended"""

    def load(self, task: SimulatedTask, op: Load) -> Any:
        """Returns the batch after its loading time, which follows the step's time outside all operations."""
        samples, rank = op.samples, task.me.rank
        seconds, rest_s = self.timing.load_s(rank, samples.count), self.timing.rest_s(rank)
        if self._loading is not None or rest_s > 0 or self._staged(rank):
            return self._take(task, samples, seconds, rest_s)
        # the data depend on the sample numbers alone, and are loaded when the gradient is computed
        return self._after(task, "load", seconds, samples.index, lambda: Batch(samples, None))

    def _take(self, task: SimulatedTask, samples: Samples, seconds: float, rest_s: float) -> Steps:
        """Returns the batch when it has been read and copied and its loading time has passed.

        `rest_s` is not in its span.
        """
        if rest_s > 0:
            with self._processors.own_work(task.me.rank):
                yield self.env.timeout(rest_s)
        start_s = self.env.now
        if self._staging is not None and self._staged(task.me.rank):
            yield from self._staging.take(task, samples)
        elif self._loading is not None:
            yield from self._loading.take(task, samples)
        if seconds > 0:
            with self._processors.own_work(task.me.rank):
                yield self.env.timeout(seconds)
        self.recorder.span(task.me.rank, task.name, "load", None, samples.index, start_s, self.env.now)
        return Batch(samples, None)

    def _staged(self, rank: Rank) -> bool:
        return self._staging is not None and self._staging.serves(rank)

    def work(self, task: SimulatedTask, op: Charge) -> Any:
        """Lets the time of the program's own arithmetic pass."""
        rank, seconds = task.me.rank, self.timing.work_s(task.me.rank, op)
        if seconds > 0 and (demand := self._processors.demand(rank)).charge > 0:
            return self._charged(task, seconds, demand)
        return self._after(task, "update", seconds, task.step, lambda: None)

    def _charged(self, task: SimulatedTask, seconds: float, demand: Demand) -> Steps:
        """Performs a charge that takes from other activities of a processor."""
        processor, start_s = self._processors.processor(task.me.rank), self.env.now
        assert processor is not None, "a rank with a demand has a processor"
        speed = demand.charge_beside if processor.communicates else 1.0
        with self._processors.own_work(task.me.rank):
            if task.me.role == "server":
                yield from processor.work("serve", seconds)
            else:
                yield self.env.timeout(seconds / speed)
        self.recorder.span(task.me.rank, task.name, "update", None, task.step, start_s, self.env.now)

    def gradient(self, task: SimulatedTask, op: Gradient) -> Steps:
        """Returns the gradient at the given weights after its time on the device."""
        rank, samples, device = task.me.rank, op.batch.samples, task.station.device
        if not device.take(task):
            yield from device.acquire(task, "its device")
        pending = self._flight.begin(op.weights.vector, samples)
        try:
            work_s = self._work_s(rank, samples)
            if task.name != "main":
                work_s *= self.timing.started_factor(samples.count)
            stretches, seconds = yield from self._lives(task, work_s, samples.index)
            self._note_life(task, stretches, step=samples.index)
            vector, loss = self._flight.end(pending)
        finally:
            self._flight.give_up(pending)
            self._free(task)
        return GradientResult(vector, op.weights.version, loss, samples.count, rank, samples.index, seconds)

    def layer_gradients(
        self,
        task: SimulatedTask,
        op: LayerGradients,
        weights: Sequence[Promise],
        parts: Sequence[tuple[Bucket, Promise]],
    ) -> Steps:
        """Computes a gradient layer by layer, and settles the promise of each bucket when backward has passed it.

        The gradient occupies the device from the start of forward to the end of backward, waits included, because the
        activations of an incomplete pass are not swapped out.

        Args:
            task: the task.
            op: the operation.
            weights: promises of each layer's weights, which the forward pass waits for; empty if `op` has the weights.
            parts: the buckets of the gradient with their promises, in the order of the backward pass.
        """
        rank, samples = task.me.rank, op.batch.samples
        yield from task.station.device.acquire(task, "its device")
        pending: Pending | None = None
        try:
            total = self._work_s(rank, samples)
            forward, backward = ([share * total for share in shares] for shares in self.timing.layer_shares())
            given, before = op.weights, list[Stretch]()
            if isinstance(given, Weights):
                before, busy = yield from self._lives(task, sum(forward), samples.index)
            else:
                given, busy = yield from self._forward(task, weights, forward, samples.index)
            pending = self._flight.begin(given.vector, samples)
            rest = reversed(backward)
            for bucket, part in parts:
                seconds = sum(islice(rest, len(bucket.layers)))
                stretches, spent = yield from self._lives(task, seconds, samples.index)
                vector, loss = self._flight.end(pending)
                busy += spent
                self._note_life(task, [*before, *stretches], step=samples.index, layer=bucket.name)
                before = []
                piece, version = vector[bucket.part], given.version
                part.end(GradientResult(piece, version, loss, samples.count, rank, samples.index, busy))
        finally:
            self._flight.give_up(pending)
            self._free(task)

    def _free(self, task: SimulatedTask) -> None:
        """Frees the device after a gradient, unless it completes one that was cancelled."""
        if task.me.rank not in self._completing:
            task.station.device.release()
        self._ended_s[task.me.rank] = self.env.now
        self.recorder.gradient(task.me.rank)

    def _work_s(self, rank: Rank, samples: Samples) -> float:
        """Returns the seconds of a gradient that begins now."""
        pause_s = self.env.now - self._ended_s.get(rank, self.env.now)
        work_s = self.timing.compute_s(rank, samples.number, samples.count, self.env.now)
        return work_s + self.timing.paused_s(samples.count, pause_s)

    def _forward(self, task: SimulatedTask, promises: Sequence[Promise], shares: Sequence[float], step: int) -> Steps:
        """Performs a forward pass in which each layer waits for its own weights; the oldest version counts."""
        held: list[Weights] = []
        busy = 0.0
        for layer, promise, seconds in zip(task.me.layout.layers, promises, shares, strict=True):
            if not promise.settled:
                yield from self._weights_of(task, layer, promise)
            held.append(promise.result())
            stretches, spent = yield from self._lives(task, seconds, step)
            busy += spent
            self._note_life(task, stretches, step=step, layer=layer.name)
        return together(held), busy

    def _weights_of(self, task: SimulatedTask, layer: Layer, promise: Promise) -> Steps:
        """Waits for the weights of a layer."""
        come = self.env.event()
        promise.watchers.append(come.succeed)
        task.blocked = lambda: f"waits for the weights of layer {layer.name!r}: {promise.what()}"
        yield come

    def _lives(self, task: SimulatedTask, work_s: float, step: int) -> Steps:
        """Lets a device compute for `work_s` seconds at full speed; returns its stages and the time spent computing.

        If the gradient is cancelled, the stages until then are recorded and the device remains in its present state.
        """
        rank, start_s = task.me.rank, self.env.now
        if rank not in self._timelines:
            self._timelines[rank] = self.timing.timeline(rank)
        timeline, processor = self._timelines[rank], self._processors.processor(rank)
        if timeline is None and processor is None:
            try:
                if work_s > 0:
                    yield self.env.timeout(work_s)
            except simpy.Interrupt:
                self._note_life(task, [Stretch("compute", start_s, self.env.now)], step=step)
                raise
            return [Stretch("compute", start_s, self.env.now)], work_s
        work = DeviceWork(self.env, timeline or undisturbed(), self._states.get(rank, TimelineState()), work_s)
        demand = 0.0 if processor is None else self._processors.demand(rank).compute
        try:
            with nullcontext() if processor is None else processor.activity("compute", demand):
                yield from work.run(processor)
        except simpy.Interrupt:
            self._note_life(task, work.stretches, step=step)
            if demand and self.timing.completes:
                self._completing.add(rank)
                self.env.process(self._completed(task, work, demand))
            raise
        finally:
            self._states[rank] = work.state
        spent_s = sum(stretch.end_s - stretch.start_s for stretch in work.stretches if stretch.stage == "compute")
        return work.stretches, spent_s

    def _completed(self, task: SimulatedTask, work: DeviceWork, demand: float) -> Steps:
        """Completes a cancelled gradient, whose result is not used: a thread inside torch cannot be interrupted."""
        rank, processor = task.me.rank, self._processors.processor(task.me.rank)
        assert processor is not None, "only shared processors have demands"
        with processor.activity("compute", demand):
            yield from work.run(processor)
        self._completing.discard(rank)
        task.station.device.release()

    def _note_life(
        self, task: SimulatedTask, stretches: Sequence[Stretch], *, step: int, layer: str | None = None
    ) -> None:
        """Records the stages of a device; uninterrupted computing is one span."""
        for part in stretches if len(stretches) == 1 else _joined(stretches):
            assert part.stage != "idle", "idle time is not recorded"
            self.recorder.span(task.me.rank, task.name, part.stage, layer, step, part.start_s, part.end_s)

    def _after(
        self, task: SimulatedTask, activity: Activity, seconds: float, step: int, answer: Callable[[], Any]
    ) -> Any:
        """Records a span of this length and returns the answer at its end."""
        if seconds > 0:
            return self._spend(task, activity, seconds, step, answer)
        now = self.env.now
        self.recorder.span(task.me.rank, task.name, activity, None, step, now, now)
        return answer()

    def _spend(
        self, task: SimulatedTask, activity: Activity, seconds: float, step: int, answer: Callable[[], Any]
    ) -> Steps:
        start_s = self.env.now
        yield self.env.timeout(seconds)
        self.recorder.span(task.me.rank, task.name, activity, None, step, start_s, self.env.now)
        return answer()


def _joined(stretches: Sequence[Stretch]) -> Iterator[Stretch]:
    """Merges successive stretches of computing; other stages are not changed."""
    for stage, run in groupby(stretches, key=lambda stretch: stretch.stage):
        parts = list(run)
        yield from [Stretch(stage, parts[0].start_s, parts[-1].end_s)] if stage == "compute" else parts
