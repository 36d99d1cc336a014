"""Numbers of one problem with the size of another's: what is sent, shared and cut is priced as the other's.

Rules of this file:

* The size is a count of numbers of so many bytes, as in `Null`. Bytes and positions are all that a clock may depend on,
  so a program's time is the same with `Sized` vectors as with a `Null` of that size.
* A part of the size is the like part of the numbers: position x of n stands for ⌊x m / n⌋ of m. So parts that make a
  whole hold every number once, and a part that is too small for a number has none.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from paceline.algorithms.core.values import Special, join, norm


@dataclass(frozen=True, slots=True)
class Fit:
    """How many numbers there are, and for how many they stand."""

    numbers: int
    count: int
    item_bytes: int = 4

    def at(self, position: int) -> int:
        """Where in the numbers a position of the size lies.

        >>> [Fit(numbers=3, count=12).at(position) for position in (0, 3, 4, 11, 12)]
        [0, 0, 1, 2, 3]
        """
        return position * self.numbers // self.count

    def dress(self, numbers: Any) -> Sized:
        """A whole vector of numbers, in the size that they stand for."""
        return Sized(numbers, self, 0, self.count)


class Sized(Special):
    """A vector whose arithmetic is that of its numbers and whose size is another.

    Args:
        numbers: an array or a tensor.
        fit: of the whole vector.
        start: where it begins in the whole, in elements of the size.
        stop: where it ends.

    >>> import numpy as np
    >>> whole = Fit(numbers=2, count=1000).dress(np.array([1.0, 2.0]))
    >>> (whole - 0.5 * whole).numbers.tolist(), whole.nbytes, whole[:500].numbers.tolist(), whole[:500].nbytes
    ([0.5, 1.0], 4000, [1.0], 2000)
    """

    __slots__ = ("fit", "numbers", "start", "stop")
    __array_ufunc__ = None  # NumPy's numbers leave arithmetic to this class

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
        """Parts that lie end to end, the first of which is this one."""
        return type(self)(join([part.numbers for part in parts]), self.fit, self.start, parts[-1].stop)

    def norm(self) -> float:
        """That of the numbers."""
        return norm(self.numbers)
