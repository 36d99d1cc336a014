"""Copies messages when they are sent, so that later changes of their vectors have no effect.

A message consists of vectors, numbers, text, and frozen dataclasses, tuples, lists and dicts of these. Immutable values
are not copied, nor is a vector that is unchanged since its last copy: a server that sends the same weights to all
workers makes one copy.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from typing import Any
from weakref import ref

import numpy as np

from paceline.algorithms.core.values import Group, Null, parts_of

CONSTANT = frozenset({int, float, complex, bool, str, bytes, type(None), Null, Group})
"""immutable types without vectors"""


class Snapshots:
    """Copies of the messages of one rank.

    >>> from paceline.algorithms.core.values import Weights
    >>> mine, snapshots = Weights(np.zeros(2), version=3), Snapshots()
    >>> sent, again = snapshots.of(mine), snapshots.of(mine)
    >>> mine.vector[:] = 1.0
    >>> sent, sent.vector is again.vector, snapshots.of(mine)
    (Weights(vector=array([0., 0.]), version=3), True, Weights(vector=array([1., 1.]), version=3))
    """

    __slots__ = ("_copy", "_vector")

    def __init__(self) -> None:
        self._vector: Callable[[], Any] = lambda: None
        """weak reference to the last vector that was copied"""
        self._copy: Callable[[], Any] = lambda: None

    def of(self, value: Any) -> Any:
        """Returns a value that later changes do not affect."""
        kind: Any = type(value)
        if kind in CONSTANT:
            return value
        if (copied_and_same := _of_vectors(kind)) is not None:
            return self._of_vector(value, *copied_and_same)
        if (names := parts_of(kind)) is not None and kind.__dataclass_params__.frozen:
            return self._of_fields(value, kind, names)
        if kind is tuple:
            return tuple([self.of(part) for part in value])
        return copy.deepcopy(value)

    def _of_fields(self, value: Any, kind: type, names: tuple[str, ...]) -> Any:
        made: Any = object.__new__(kind)
        changed = False
        for name in names:
            part = now = getattr(value, name)
            if type(part) not in CONSTANT:
                now = self.of(part)
                changed = changed or now is not part
            object.__setattr__(made, name, now)
        return made if changed else value

    def _of_vector(self, vector: Any, copied: Callable[[Any], Any], same: Callable[[Any, Any], bool]) -> Any:
        if self._vector() is vector and (before := self._copy()) is not None and same(vector, before):
            return before
        now = copied(vector)
        self._vector, self._copy = ref(vector), ref(now)
        return now


@cache
def _of_vectors(kind: type) -> tuple[Callable[[Any], Any], Callable[[Any, Any], bool]] | None:
    """Returns the functions that copy and compare this type of vector; None if it is not a mutable vector."""
    if kind is np.ndarray:
        return np.ndarray.copy, np.array_equal
    if (kind.__module__, kind.__name__) != ("torch", "Tensor"):
        return None
    import torch  # already imported, since the vector is a tensor

    return lambda tensor: tensor.detach().clone(), torch.equal
