"""Vectors with the numbers of one problem and the size of another, for example to price messages of a larger model.

The size is a count of numbers of so many bytes, as in `Null`. Simulated time depends only on bytes and positions, so it
is the same with `Sized` vectors as with a `Null` of that size. A slice of the size is the corresponding slice of the
numbers: position x of n corresponds to ⌊x m / n⌋ of m. So slices that cover the whole contain every number once, and a
slice that is too small contains none. A vector knows which positions of the whole it has, as runs of consecutive ones.
So parts that are not adjacent, such as every second layer, can be joined and sliced again.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from paceline.algorithms.core.compression import OfTwoSizes
from paceline.algorithms.core.values import Layer, Null, join, norm

Run = tuple[int, int]
"""consecutive positions of a whole vector: the first, and the one after the last"""


@dataclass(frozen=True, slots=True)
class RepresentedSize:
    """The count of actual numbers, and the size that they represent."""

    numbers: int
    count: int
    item_bytes: int = 4

    def at(self, position: int) -> int:
        """Converts a position of the size to a position in the numbers.

        >>> [RepresentedSize(numbers=3, count=12).at(position) for position in (0, 3, 4, 11, 12)]
        [0, 0, 1, 2, 3]
        """
        return position * self.numbers // self.count

    def dress(self, numbers: Any) -> Sized:
        """Returns a whole vector of numbers with the size that they represent."""
        return Sized(numbers, self, ((0, self.count),))

    def held(self, run: Run) -> int:
        """Returns how many numbers correspond to a run of positions."""
        return self.at(run[1]) - self.at(run[0])


class Sized(OfTwoSizes):
    """A vector that computes with its numbers but has another size.

    Args:
        numbers: an array or a tensor.
        fit: the sizes of the whole vector.
        runs: its positions in the whole vector, in elements of the size.

    >>> import numpy as np
    >>> whole = RepresentedSize(numbers=2, count=1000).dress(np.array([1.0, 2.0]))
    >>> (whole - 0.5 * whole).numbers.tolist(), whole.nbytes, whole[:500].numbers.tolist(), whole[:500].nbytes
    ([0.5, 1.0], 4000, [1.0], 2000)
    """

    __slots__ = ("fit", "numbers", "runs")
    __array_ufunc__ = None  # NumPy scalars then use the operators of this class

    def __init__(self, numbers: Any, fit: RepresentedSize, runs: tuple[Run, ...]) -> None:
        self.numbers, self.fit, self.runs = numbers, fit, runs

    @property
    def nbytes(self) -> int:
        return len(self) * self.fit.item_bytes

    def __len__(self) -> int:
        return sum(stop - start for start, stop in self.runs)

    def _with(self, numbers: Any) -> Self:
        return type(self)(numbers, self.fit, self.runs)

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
        pieces, runs, passed, held = [self.numbers[:0]], [], 0, 0
        for run in self.runs:
            start, size = run[0], run[1] - run[0]
            low, high = max(first - passed, 0), min(last - passed, size)
            if low < high:
                cut = (start + low, start + high)
                before = held + self.fit.held((start, cut[0]))
                pieces.append(self.numbers[before : before + self.fit.held(cut)])
                runs.append(cut)
            passed, held = passed + size, held + self.fit.held(run)
        return type(self)(pieces[1] if len(pieces) == 2 else join(pieces), self.fit, tuple(runs))

    def joined(self, parts: Sequence[Self]) -> Self:
        """Concatenates parts of one vector, adjacent or not; this one is the first."""
        runs: list[Run] = []
        for start, stop in (run for part in parts for run in part.runs):
            if runs and runs[-1][1] == start:
                runs[-1] = (runs[-1][0], stop)
            else:
                runs.append((start, stop))
        return type(self)(join([part.numbers for part in parts]), self.fit, tuple(runs))

    def mapped(self, function: Callable[[Any], Any]) -> Self:
        """Applies a function to the numbers that computes each one by itself."""
        return self._with(function(self.numbers))

    def apart(self) -> tuple[Any, Null]:
        """Returns the numbers, and a vector of the size without numbers."""
        return self.numbers, Null(len(self), self.fit.item_bytes)

    def resized(self, numbers: Any, size: Null) -> Sized:
        """Returns other numbers with another size."""
        return RepresentedSize(len(numbers), size.count, size.item_bytes).dress(numbers)

    def with_numbers(self, numbers: Any) -> Self:
        """Returns as many other numbers with the same size."""
        return self._with(numbers)

    def layers_of_numbers(self, layers: Sequence[Layer]) -> list[Layer]:
        """Returns the layers that have numbers, at the positions that they have among the numbers."""
        at = self.fit.at
        placed = [replace(layer, start=at(layer.start), stop=at(layer.stop)) for layer in layers]
        return [layer for layer in placed if layer.start < layer.stop]

    def norm(self) -> float:
        """Returns the norm of the numbers."""
        return norm(self.numbers)
