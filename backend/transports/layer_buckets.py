"""A gradient that arrives layer by layer, last layer first: layers are joined to buckets, which can be waited for."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

from paceline.algorithms.core.buckets import Bucket
from paceline.algorithms.core.values import GradientResult, join


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
