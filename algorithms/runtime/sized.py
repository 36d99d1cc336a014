"""Vectors with the numbers of one problem and the size of another, for example to price messages of a larger model.

Rules of this file:

* The size is a count of numbers of so many bytes, as in `Null`. Simulated time depends only on bytes and positions,
  so it is the same with `Sized` vectors as with a `Null` of that size.
* A slice of the size is the corresponding slice of the numbers: position x of n corresponds to ⌊x m / n⌋ of m. So
  slices that cover the whole contain every number once, and a slice that is too small contains none.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from paceline.algorithms.core.values import Special, join, norm


@dataclass(frozen=True, slots=True)
class Fit:
    """The count of actual numbers, and the size that they represent."""

    numbers: int
    count: int
    item_bytes: int = 4

    def at(self, position: int) -> int:
        """Converts a position of the size to a position in the numbers.

        >>> [Fit(numbers=3, count=12).at(position) for position in (0, 3, 4, 11, 12)]
        [0, 0, 1, 2, 3]
        """
        return position * self.numbers // self.count

    def dress(self, numbers: Any) -> Sized:
        """Returns a whole vector of numbers with the size that they represent."""
        return Sized(numbers, self, 0, self.count)


class Sized(Special):
    """A vector that computes with its numbers but has another size.

    Args:
        numbers: an array or a tensor.
        fit: the sizes of the whole vector.
        start: its first position in the whole vector, in elements of the size.
        stop: the position after its last one.

    >>> import numpy as np
    >>> whole = Fit(numbers=2, count=1000).dress(np.array([1.0, 2.0]))
    >>> (whole - 0.5 * whole).numbers.tolist(), whole.nbytes, whole[:500].numbers.tolist(), whole[:500].nbytes
    ([0.5, 1.0], 4000, [1.0], 2000)
    """

    __slots__ = ("fit", "numbers", "start", "stop")
    __array_ufunc__ = None  # NumPy scalars then use the operators of this class

    def __init__(self, numbers: Any, fit: Fit, start: int, stop: int) -> None:
        self.numbers, self.fit, self.start, self.stop = numbers, fit, start, stop

    @property
    def nbytes(self) -> int:
        return len(self) * self.fit.item_bytes

    def __len__(self) -> int:
        return self.stop - self.start

    def _with(self, numbers: Any) -> Self:
        return type(self)(numbers, self.fit, self.start, self.stop)

    def _by(self, operate: Callable[[Any, Any], Any], other: Any) -> Self:
        return self._with(operate(self.numbers, other.numbers if isinstance(other, Sized) else other))

    def __add__(self, other: Any) -> Self:
        return self._by(operator.add, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Self:
        return self._by(operator.sub, other)

    def __rsub__(self, other: Any) -> Self:
        return self._with(other - self.numbers)

    def __mul__(self, other: Any) -> Self:
        return self._by(operator.mul, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Self:
        return self._by(operator.truediv, other)

    def __pow__(self, other: float) -> Self:
        return self._with(self.numbers**other)

    def __getitem__(self, part: slice) -> Self:
        first, last, _ = part.indices(len(self))
        start, stop = self.start + first, self.start + max(first, last)
        origin, at = self.fit.at(self.start), self.fit.at
        return type(self)(self.numbers[at(start) - origin : at(stop) - origin], self.fit, start, stop)

    def joined(self, parts: Sequence[Self]) -> Self:
        """Concatenates adjacent parts; this one is the first."""
        return type(self)(join([part.numbers for part in parts]), self.fit, self.start, parts[-1].stop)

    def norm(self) -> float:
        """Returns the norm of the numbers."""
        return norm(self.numbers)
