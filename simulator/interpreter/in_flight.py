"""Gradients in flight, which have begun in virtual time; all are computed together when the first one is needed.

* A gradient is needed when its step ends. Until then only references to its weights and its sample numbers are stored.
  Weights are not copied, because vectors are never changed in place, and data are loaded when they are used.
* When a gradient is needed, all that have begun are computed, in the order in which they began. So the batches of
  gradients depend on the run alone, and runs are repeatable bit for bit.
* For N workers this takes N references to weights and at most N gradients that are not needed yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paceline.algorithms.core.job import Learner
from paceline.algorithms.core.values import Samples


@dataclass(eq=False, slots=True)
class Pending:
    """A gradient that has begun."""

    vector: Any
    samples: Samples
    answer: tuple[Any, float] | None = None


class Flight:
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
            found = self._learner.gradients([one.vector for one in waiting], [one.samples for one in waiting])
            for one, (gradient, loss) in zip(waiting, found, strict=True):
                one.vector, one.answer = None, (one.samples.weighted(gradient), loss)
        assert pending.answer is not None, "it was among the waiting gradients"
        return pending.answer

    def give_up(self, pending: Pending | None) -> None:
        """Cancels a gradient; has no effect if it has not begun or has been computed."""
        if pending is not None:
            self._waiting.pop(pending, None)
