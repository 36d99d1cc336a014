"""Gradients in flight: begun in virtual time and computed when the first of them is needed, all together.

Rules of this file:

* A gradient is needed when its step ends. Until then only its weights and the names of its samples are kept: weights
  are never copied, since nobody changes a vector in place, and data are loaded when they are used.
* When one is needed, all that have begun are computed, in the order of their beginnings. So what is computed together
  follows from the run alone, and runs repeat bit for bit.
* For N workers that are N references to weights and at most N gradients that nobody has asked for yet.
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
        """Takes note of a gradient at these weights."""
        pending = Pending(vector, samples)
        self._waiting[pending] = None
        return pending

    def end(self, pending: Pending) -> tuple[Any, float]:
        """The gradient and the loss."""
        if pending.answer is None:
            waiting, self._waiting = list(self._waiting), {}
            found = self._learner.gradients([one.vector for one in waiting], [one.samples for one in waiting])
            for one, answer in zip(waiting, found, strict=True):
                one.vector, one.answer = None, answer
        assert pending.answer is not None, "it was among those that were waiting"
        return pending.answer

    def give_up(self, pending: Pending | None) -> None:
        """Nobody will ask for it any more; nothing happens where it has not begun, or has been computed."""
        if pending is not None:
            self._waiting.pop(pending, None)
