"""Keeps the results of the last reference runs, because many schedules are compared with the same one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class KeptResults(Generic[K, V]):
    """The results of a function for its last arguments.

    `functools.lru_cache` would raise a `TypeError` for an argument without a hash, such as a method with a list as a
    hyper-parameter. Here the function is called again for it.

    Args:
        compute: the function, which always returns the same for the same argument.
        most: number of results that are kept; the oldest is dropped first.

    >>> squares = KeptResults(lambda number: number * number, most=2)
    >>> [squares(number) for number in (2, 3, 2, 4)], len(squares)
    ([4, 9, 4, 16], 2)
    """

    def __init__(self, compute: Callable[[K], V], most: int) -> None:
        self._compute, self._most = compute, most
        self._results: OrderedDict[K, V] = OrderedDict()

    def __call__(self, argument: K) -> V:
        """Returns the result for this argument."""
        try:
            if argument in self._results:
                return self._results[argument]
        except TypeError:  # no hash
            return self._compute(argument)
        result = self._results[argument] = self._compute(argument)
        if len(self._results) > self._most:
            self._results.popitem(last=False)
        return result

    def __len__(self) -> int:
        return len(self._results)
