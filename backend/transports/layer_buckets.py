"""A gradient that comes layer by layer, last layer first: joined to buckets, and waited for bucket by bucket."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

from paceline.algorithms.core.buckets import Bucket
from paceline.algorithms.core.values import GradientResult, join


class Gathering:
    """Layers' gradients on their way to buckets.

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
        """of the first one that is left, last layer first"""

    @property
    def due(self) -> str | None:
        """The layer whose gradient comes next; None when all have come."""
        return self._left[0].layers[-1 - len(self._parts)].name if self._left else None

    def take(self, name: str, gradient: Any) -> tuple[Bucket, Any] | None:
        """Takes the next layer's; answers the bucket that it completes, and that one's gradient."""
        assert name == self.due, f"backward is last layer first: {self.due} is due, {name} came"
        self._parts.append(gradient)
        if len(self._parts) < len(self._left[0].layers):
            return None
        parts, self._parts = self._parts, []
        return self._left.popleft(), join(parts[::-1])


class Answers:
    """What a pass through the layers has answered so far: with one condition for all, as futures take their time."""

    def __init__(self) -> None:
        self._found: list[GradientResult] = []
        self._failure: BaseException | None = None
        self._news = threading.Condition(threading.Lock())

    def put(self, answer: GradientResult) -> None:
        """The next bucket's."""
        with self._news:
            self._found.append(answer)
            self._news.notify_all()

    def fail(self, error: BaseException) -> None:
        """There will be no more; those that are missing have failed."""
        with self._news:
            self._failure = error
            self._news.notify_all()

    def done(self, place: int) -> bool:
        """Whether this bucket's is there, or has failed."""
        return len(self._found) > place or self._failure is not None

    def get(self, place: int) -> GradientResult:
        """Waits for this bucket's; raises what it has failed by."""
        with self._news:
            self._news.wait_for(lambda: self.done(place))
        if len(self._found) > place:
            return self._found[place]
        assert self._failure is not None
        raise self._failure
