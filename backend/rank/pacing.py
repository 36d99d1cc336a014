"""The device of a rank: computes true gradients, checks that they are finite, and extends them to a modelled time.

Rules of this file:

* The loss is checked in every step, which costs almost nothing: weights with a NaN give a NaN loss. The gradient is
  checked every `EVERY` steps, and when the loss is not finite, to name the first layers that are not finite.
* Each rank reports its first finding: as the failure that ends the run, or in the rank's log. The run's summary says in
  any case that the run diverged.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, Literal, Protocol

from paceline.algorithms.core.buckets import Bucket
from paceline.algorithms.core.errors import RunFailed
from paceline.algorithms.core.job import Learner
from paceline.algorithms.core.values import Batch, GradientResult, Layout, Rank, Weights, join, norm
from paceline.backend.devices.accelerator import Processor
from paceline.backend.rank.rank_context import RankStation, Thread, Turn
from paceline.backend.status.rank_logs import life
from paceline.backend.transports.messages import OperationCancelled

OnNonfinite = Literal["raise", "warn"]
EVERY = 100
"""steps between two checks of a whole gradient; provenance: ours, a check takes about as long as reading it once"""


class NotFinite(RunFailed):
    """A loss or a gradient is not finite, and this is configured to end the run."""


class NanCheck:
    """Checks the losses and gradients of one rank.

    >>> import numpy as np
    >>> from paceline.algorithms.core.values import Layer
    >>> layout = Layout((Layer("first", 0, 1), Layer("second", 1, 2)))
    >>> NanCheck("rank 1 (worker)", layout, "raise").check(7, np.array([0.5, np.nan]), math.nan)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    paceline...NotFinite: rank 1 (worker), step 7: the loss is nan; the gradient is not finite in 'second'
    """

    def __init__(self, subject: str, layout: Layout, then: OnNonfinite) -> None:
        self._subject, self._layout, self._then = subject, layout, then
        self._said = False

    def check(self, step: int, gradient: Any, loss: float) -> None:
        """Checks a whole gradient and its loss; raises `NotFinite` if that is configured to end the run."""
        if math.isfinite(loss) and (step % EVERY or math.isfinite(norm(gradient))):
            return
        wrong = [layer.name for layer in self._layout.layers if not math.isfinite(norm(gradient[layer.part]))]
        self._report(step, loss, wrong)

    def check_layers(self, step: int, loss: float) -> None:
        """Checks a gradient that was computed layer by layer, by its loss alone."""
        if not math.isfinite(loss):
            self._report(step, loss, [])

    def _report(self, step: int, loss: float, layers: list[str]) -> None:
        problems = [] if math.isfinite(loss) else [f"the loss is {loss}"]
        if layers:
            problems.append(f"the gradient is not finite in {', '.join(map(repr, layers))}")
        message = f"{self._subject}, step {step}: {'; '.join(problems)}"
        if self._then == "raise":
            raise NotFinite(message)
        if not self._said:
            self._said = True
            life.info("%s; the run continues (train.on_nonfinite: raise ends it)", message)


class Gathering:
    """Joins the gradients of layers to buckets.

    >>> from paceline.algorithms.core.values import Layer
    >>> import numpy as np
    >>> gathering = Gathering([Bucket((Layer("a", 0, 1), Layer("b", 1, 3)))])
    >>> gathering.take("b", np.ones(2))
    >>> gathering.take("a", np.zeros(1))[1]
    array([0., 1., 1.])
    """

    def __init__(self, buckets: Sequence[Bucket]) -> None:
        self._left = deque(buckets)
        self._parts: list[Any] = []
        """gradients of the first remaining bucket, last layer first"""

    @property
    def due(self) -> str | None:
        """The layer whose gradient is next; None when all have arrived."""
        return self._left[0].layers[-1 - len(self._parts)].name if self._left else None

    def take(self, name: str, gradient: Any) -> tuple[Bucket, Any] | None:
        """Takes the gradient of the next layer; returns the bucket that it completes with its gradient, or None."""
        assert name == self.due, f"backward is last layer first: {self.due} is due, {name} came"
        self._parts.append(gradient)
        if len(self._parts) < len(self._left[0].layers):
            return None
        parts, self._parts = self._parts, []
        return self._left.popleft(), join(parts[::-1])


class Answers:
    """The results of a pass through the layers so far. One condition for all is faster than a future for each."""

    def __init__(self) -> None:
        self._found: list[GradientResult] = []
        self._failure: BaseException | None = None
        self._news = threading.Condition(threading.Lock())

    def put(self, answer: GradientResult) -> None:
        """Adds the result of the next bucket."""
        with self._news:
            self._found.append(answer)
            self._news.notify_all()

    def fail(self, error: BaseException) -> None:
        """Marks the missing results as failed."""
        with self._news:
            self._failure = error
            self._news.notify_all()

    def done(self, place: int) -> bool:
        """Whether the result of this bucket is available or has failed."""
        return len(self._found) > place or self._failure is not None

    def get(self, place: int) -> GradientResult:
        """Waits for the result of this bucket; raises its failure."""
        with self._news:
            self._news.wait_for(lambda: self.done(place))
        if len(self._found) > place:
            return self._found[place]
        assert self._failure is not None
        raise self._failure


SIGN_S = 0.5
"""a rank that waits longer than this for a modelled time reports progress regularly"""


class Pace(Protocol):
    """The modelled times of a device; the simulator uses the same."""

    def compute_s(self, rank: Rank, step: int, samples: int, start_s: float = 0.0) -> float:
        """Returns the time of one gradient, in seconds."""
        ...

    def end_s(self, rank: Rank, start_s: float, work_s: float) -> float:
        """Returns when work that begins at `start_s` ends, on the run's own clock."""
        ...

    def layer_shares(self) -> tuple[Sequence[float], Sequence[float]]:
        """Returns each layer's share of that time, forward and backward, first layer first; their sum is 1."""
        ...


class RankDevice:
    """Computes one gradient at a time, for any lane."""

    def __init__(
        self, station: RankStation, learner: Learner, pace: Pace | None, on_nonfinite: OnNonfinite = "warn"
    ) -> None:
        self.station, self.learner, self.pace = station, learner, pace
        me = station.me
        self.nan_check = NanCheck(f"rank {me.rank} ({me.role})", me.layout, on_nonfinite)
        self.late_s = 0.0
        """the longest delay of a paced gradient, if the computation took longer or the machine was busy"""
        self._free = threading.Lock()
        self._counters = station.status.counters

    def _hold(self, due_s: float, unless: threading.Event | None = None) -> None:
        """Waits until the modelled time is over or `unless` is set, and reports progress during a long wait."""
        while due_s - self.station.clock.now() > SIGN_S and not (unless is not None and unless.is_set()):
            self.station.clock.wait_until(self.station.clock.now() + SIGN_S / 2, unless)
            self.station.status.note_progress()
        self.late_s = max(self.late_s, self.station.clock.wait_until(due_s, unless))

    def gradient(self, thread: Thread, weights: Weights, batch: Batch) -> GradientResult:
        """Computes the gradient and returns it when its modelled time is over.

        A `Cancel` ends this wait at once and frees the device; a computation that has begun is completed.
        """
        step, size, rank = batch.samples.index, batch.samples.count, self.station.me.rank
        with self._free, self.station.busy():
            if thread.given_up is not None and thread.given_up.is_set():
                raise OperationCancelled("a gradient that was cancelled before its turn")
            start = self.station.clock.now()
            vector, loss = self.learner.gradient(weights.vector, batch.data)
            self.station.accelerator.synchronize()  # before the time is measured
            self.nan_check.check(step, vector, loss)
            vector = batch.samples.weighted(vector)
            if self.pace is not None:
                self._hold(
                    self.pace.end_s(rank, start, self.pace.compute_s(rank, batch.samples.number, size, start)),
                    thread.given_up,
                )
            self.station.span(thread, "compute", start, step=step)
            self._counters.gradient(loss, self.station.clock.now() - start)
        return GradientResult(vector, weights.version, loss, size, rank, step, self.station.clock.now() - start)

    @property
    def works_beside(self) -> bool:
        """Whether the device works in parallel with this process's threads and is not one of them."""
        return self.pace is not None or not isinstance(self.station.accelerator, Processor)

    def layers(
        self,
        thread: Thread,
        weights: Callable[[], Weights],
        batch: Batch,
        buckets: Sequence[Bucket],
        answers: Answers,
        turn: Turn,
    ) -> None:
        """Computes backward layer by layer, and delivers each bucket's gradient when it is due, last layers first.

        Args:
            thread: the lane in which this runs.
            weights: returns the weights, once they are complete.
            batch: the samples to compute on.
            buckets: buckets of the layers, last layers first.
            answers: receives one answer for each bucket; a failure replaces those that are missing.
            turn: called after each new answer.
        """
        try:
            self._layers(thread, weights(), batch, buckets, answers, turn)
        except BaseException as error:
            answers.fail(error)

    def _layers(
        self, thread: Thread, weights: Weights, batch: Batch, buckets: Sequence[Bucket], answers: Answers, turn: Turn
    ) -> None:
        step, size, rank = batch.samples.index, batch.samples.count, self.station.me.rank
        station, clock, gathering = self.station, self.station.clock, Gathering(buckets)
        with self._free, station.busy():
            start = begun = clock.now()
            due = iter(self._due(batch.samples.number, size, buckets, start))

            def hand_out(name: str, gradient: Any) -> None:
                nonlocal begun
                if (complete := gathering.take(name, gradient)) is None:
                    return
                bucket, vector = complete[0], batch.samples.weighted(complete[1])
                station.accelerator.synchronize()
                if (due_s := next(due)) is not None:
                    assert self.pace is not None
                    self._hold(self.pace.end_s(rank, start, due_s))
                station.span(thread, "compute", begun, step=step, layer=bucket.name)
                loss = float("nan")  # known after the last layer: a loss belongs to the whole gradient
                busy_s = clock.now() - start
                answers.put(GradientResult(vector, weights.version, loss, size, rank, step, busy_s))
                turn()
                begun = clock.now()

            loss = self.learner.layer_gradients(weights.vector, batch.data, hand_out)
            assert gathering.due is None, f"the learner has handed out no gradient of {gathering.due}"
            self.nan_check.check_layers(step, loss)
            self._counters.gradient(loss, clock.now() - start)

    def _due(self, number: int, size: int, buckets: Sequence[Bucket], start_s: float) -> list[float] | list[None]:
        """Returns after how much work a paced device has each bucket's gradient, last layers first, in seconds."""
        if self.pace is None:
            return [None] * len(buckets)
        forward, backward = self.pace.layer_shares()
        whole_s = self.pace.compute_s(self.station.me.rank, number, size, start_s)
        after = list(accumulate(reversed(backward)))
        last = accumulate(len(bucket.layers) for bucket in buckets)
        return [whole_s * (sum(forward) + after[count - 1]) for count in last]
