"""A rank's device: true gradients, held to a modelled time where the run is paced."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from itertools import accumulate
from typing import Any, Protocol

from paceline.algorithms.job import Learner
from paceline.algorithms.values import Batch, GradientResult, Rank, Weights
from paceline.backend.finite import Finite, Nonfinite
from paceline.backend.inbox import Cancelled
from paceline.backend.station import Station, Thread

SIGN_S = 0.5
"""a rank that waits out more than this says now and then that it is at work"""


class Pace(Protocol):
    """How long a device is to take; the simulator asks the same."""

    def compute_s(self, rank: Rank, step: int, samples: int) -> float:
        """Seconds of one gradient."""
        ...

    def end_s(self, rank: Rank, start_s: float, work_s: float) -> float:
        """When such work ends that begins at `start_s`, on the run's own clock."""
        ...

    def layer_shares(self) -> tuple[Sequence[float], Sequence[float]]:
        """Each layer's share of that time, forward and backward, first layer first; together they are 1."""
        ...


class Device:
    """Computes one gradient at a time, whichever lane asks."""

    def __init__(self, station: Station, learner: Learner, pace: Pace | None, nonfinite: Nonfinite = "ignore") -> None:
        self.station, self.learner, self.pace = station, learner, pace
        me = station.me
        self.finite = Finite(f"rank {me.rank} ({me.role})", me.layout, nonfinite)
        self.late_s = 0.0
        """by how much a paced gradient was ever late: the true one took longer, or the machine was busy"""
        self._free = threading.Lock()
        self._tally = station.board.tally(station.me.rank)

    def _hold(self, due_s: float, unless: threading.Event | None = None) -> None:
        """Waits out the rest of the modelled time, unless that is given up; a long one with signs of life."""
        while due_s - self.station.clock.now() > SIGN_S and not (unless is not None and unless.is_set()):
            self.station.clock.wait_until(self.station.clock.now() + SIGN_S / 2, unless)
            self.station.board.move(self.station.me.rank)
        self.late_s = max(self.late_s, self.station.clock.wait_until(due_s, unless))

    def gradient(self, thread: Thread, weights: Weights, batch: Batch) -> GradientResult:
        """The gradient, when its device would have it.

        A `Cancel` ends the waiting for that moment at once and frees the device; arithmetic that has begun is ended.
        """
        step, size, rank = batch.samples.index, batch.samples.count, self.station.me.rank
        with self._free, self.station.busy():
            if thread.given_up is not None and thread.given_up.is_set():
                raise Cancelled("a gradient that was given up before its turn")
            start = self.station.clock.now()
            vector, loss = self.learner.gradient(weights.vector, batch.data)
            self.station.accelerator.synchronize()  # before its time is taken
            self.finite.check(step, vector, loss)
            if self.pace is not None:
                self._hold(self.pace.end_s(rank, start, self.pace.compute_s(rank, step, size)), thread.given_up)
            self.station.span(thread, "compute", start, step=step)
            self._tally.gradient(loss)
        return GradientResult(vector, weights.version, loss, size, rank, step, self.station.clock.now() - start)

    def layers(
        self, thread: Thread, weights: Callable[[], Weights], batch: Batch, ready: Sequence[Future[GradientResult]]
    ) -> None:
        """Backward, layer by layer: each layer's gradient is handed out at its moment, last layer first.

        Args:
            thread: the lane in which this runs.
            weights: answers the weights, once they are all there.
            batch: what to compute on.
            ready: one future per layer, last layer first; a failure is handed out in place of what is missing.
        """
        try:
            self._layers(thread, weights(), batch, ready)
        except BaseException as error:
            for future in ready:
                if not future.done():
                    future.set_exception(error)

    def _layers(self, thread: Thread, weights: Weights, batch: Batch, ready: Sequence[Future[GradientResult]]) -> None:
        step, size, rank = batch.samples.index, batch.samples.count, self.station.me.rank
        waiting = iter(zip(self.station.me.layout.layers[::-1], self._due(step, size), ready, strict=True))
        with self._free, self.station.busy():
            start = begun = self.station.clock.now()

            def hand_out(name: str, gradient: Any) -> None:
                nonlocal begun
                self.station.accelerator.synchronize()
                layer, due_s, future = next(waiting)
                assert name == layer.name, f"backward is last layer first: {layer.name} is due, {name} came"
                if due_s is not None:
                    assert self.pace is not None
                    self._hold(self.pace.end_s(rank, start, due_s))
                self.station.span(thread, "compute", begun, step=step, layer=name)
                begun = self.station.clock.now()
                loss = float("nan")  # known when the last layer is: a loss belongs to the whole gradient
                future.set_result(GradientResult(gradient, weights.version, loss, size, rank, step, begun - start))

            loss = self.learner.layer_gradients(weights.vector, batch.data, hand_out)
            self.finite.check_layers(step, loss)
            self._tally.gradient(loss)

    def _due(self, step: int, size: int) -> list[float] | list[None]:
        """After how much work a paced device has each layer's gradient, last layer first, in seconds."""
        if self.pace is None:
            return [None] * len(self.station.me.layout.layers)
        forward, backward = self.pace.layer_shares()
        whole_s = self.pace.compute_s(self.station.me.rank, step, size)
        return [whole_s * (sum(forward) + share) for share in accumulate(reversed(backward))]
