"""A rank's own work in virtual time: batches, gradients at exactly the weights given, arithmetic of the program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import simpy

from paceline.algorithms.job import Job
from paceline.algorithms.operations import Gradient, LayerGradients, Load, Work
from paceline.algorithms.values import Batch, GradientResult, Layer, Weights, join
from paceline.records.trace import Activity, Span, Trace
from paceline.simulator.strands import Steps, Strand, Task
from paceline.simulator.timing import Timing


@dataclass(frozen=True)
class Compute:
    """Performs what happens on a device: it computes one gradient at a time, others queue."""

    env: simpy.Environment
    job: Job
    timing: Timing
    trace: Trace

    def load(self, strand: Strand, op: Load) -> Steps:
        """The batch, after its loading time."""
        samples = op.samples
        yield from self._spend(strand, "load", self.timing.load_s(strand.me.rank, samples.count), step=samples.index)
        return Batch(samples, self.job.learner.load(samples))

    def work(self, strand: Strand, op: Work) -> Steps:
        """Charges the program's own arithmetic."""
        yield from self._spend(strand, "update", self.timing.work_s(strand.me.rank, op), step=strand.step)

    def gradient(self, strand: Strand, op: Gradient) -> Steps:
        """The gradient at exactly the weights given, once the device has had its time for it."""
        rank, samples, device = strand.me.rank, op.batch.samples, strand.station.device
        yield from device.acquire(strand, "its device")
        try:
            seconds = self.timing.compute_s(rank, samples.index, samples.count)
            yield from self._spend(strand, "compute", seconds, step=samples.index)
            vector, loss = self.job.learner.gradient(op.weights.vector, op.batch.data)
        finally:
            device.release()
        return GradientResult(vector, op.weights.version, loss, samples.count, rank, samples.index, seconds)

    def layer_gradients(
        self, strand: Strand, op: LayerGradients, weights: Sequence[Task], parts: Sequence[Task]
    ) -> Steps:
        """Ends `parts` one by one as backward passes their layers; forward waits for the layers' `weights`, if tasks.

        The device is this gradient's from the start of forward to the end of backward, waiting included: nobody swaps
        the activations of a half-done pass.
        """
        rank, samples, layers = strand.me.rank, op.batch.samples, strand.me.layout.layers
        yield from strand.station.device.acquire(strand, "its device")
        try:
            total = self.timing.compute_s(rank, samples.index, samples.count)
            forward, backward = ([share * total for share in shares] for shares in self.timing.layer_shares())
            given, busy, begun = op.weights, 0.0, self.env.now
            if isinstance(given, Weights):
                busy = sum(forward)
                yield self.env.timeout(busy)
            else:
                given = yield from self._forward(strand, weights, forward, samples.index)
                busy, begun = sum(forward), self.env.now
            vector, loss = self.job.learner.gradient(given.vector, op.batch.data)
            for layer, seconds, part in zip(reversed(layers), reversed(backward), parts, strict=True):
                yield self.env.timeout(seconds)
                busy += seconds
                self._note(strand, "compute", begun, step=samples.index, layer=layer.name)
                begun = self.env.now
                piece, version = vector[layer.part], given.version
                part.end(GradientResult(piece, version, loss, samples.count, rank, samples.index, busy))
        finally:
            strand.station.device.release()

    def _forward(self, strand: Strand, tasks: Sequence[Task], shares: Sequence[float], step: int) -> Steps:
        """A forward pass in which each layer waits for its own weights; the version is the oldest among them."""
        held: list[Weights] = []
        for layer, task, seconds in zip(strand.me.layout.layers, tasks, shares, strict=True):
            if not task.ended:
                yield from self._weights_of(strand, layer, task)
            if task.failure is not None:
                raise task.failure
            held.append(task.answer)
            yield from self._spend(strand, "compute", seconds, step=step, layer=layer.name)
        return Weights(join([weights.vector for weights in held]), min(weights.version for weights in held))

    def _weights_of(self, strand: Strand, layer: Layer, task: Task) -> Steps:
        """Waits until the layer's weights have come."""
        come = self.env.event()
        task.watchers.append(come.succeed)
        strand.blocked = lambda: f"waits for the weights of layer {layer.name!r}: {task.what()}"
        yield come

    def _spend(
        self, strand: Strand, activity: Activity, seconds: float, *, step: int, layer: str | None = None
    ) -> Steps:
        """Lets the time pass and records what it was for."""
        start = self.env.now
        if seconds > 0:
            yield self.env.timeout(seconds)
        self._note(strand, activity, start, step=step, layer=layer)

    def _note(self, strand: Strand, activity: Activity, start_s: float, *, step: int, layer: str | None) -> None:
        self.trace.spans.append(Span(strand.me.rank, strand.name, activity, layer, step, start_s, self.env.now))
