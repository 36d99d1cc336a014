"""Vectors that differ between the ranks of a class, stacked as the rows of a matrix.

Arithmetic is elementwise, so that every row has the bits that the vector of a single rank would have. Values that are
equal at all ranks, such as the answer of an all-reduce over all of them, are plain arrays.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from paceline.algorithms.core.values import Special, norm
from paceline.simulator.cohort.varying import NotACohort, Varying, vary


class Stacked(Special):
    """One vector for each rank of a class: the rows of a matrix.

    >>> rows = Stacked(np.array([[1.0, 2.0], [3.0, 4.0]]))
    >>> (np.array([1.0, 1.0]) - 0.5 * rows).rows
    array([[ 0.5,  0. ],
           [-0.5, -1. ]])
    >>> len(rows), rows.nbytes, rows[1:].rows.tolist()
    (2, 16, [[2.0], [4.0]])
    """

    __slots__ = ("rows",)
    __array_ufunc__ = None  # so that NumPy leaves operations with arrays to this class

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return int(self.rows.shape[1])

    @property
    def nbytes(self) -> int:
        """The bytes of the vector of one rank."""
        return int(self.rows.shape[1]) * int(self.rows.itemsize)

    @property
    def dtype(self) -> Any:
        """The type of its numbers."""
        return self.rows.dtype

    def __getitem__(self, part: Any) -> Stacked:
        if not isinstance(part, slice):
            raise NotACohort("it takes single numbers out of a vector")
        return Stacked(self.rows[:, part])

    def __neg__(self) -> Stacked:
        return Stacked(-self.rows)

    def __abs__(self) -> Stacked:
        return Stacked(abs(self.rows))

    def __pow__(self, power: float) -> Stacked:
        return Stacked(self.rows**power)

    def joined(self, parts: Sequence[Any]) -> Stacked:
        count = len(self.rows)
        return Stacked(np.concatenate([rows_of(part, count) for part in parts], axis=1))

    def mapped(self, function: Callable[[Any], Any]) -> Stacked:
        return Stacked(function(self.rows))

    @property
    def device(self) -> Any:
        """Raises `NotACohort`: only computations with the positions of numbers ask for the device, such as sorting."""
        raise NotACohort("it computes with the numbers of a vector in another way than one by one")

    def norm(self) -> Any:
        return vary(np.array([norm(row) for row in self.rows]))  # of each row: a norm of a matrix sums in another order

    def __bool__(self) -> bool:
        raise NotACohort("its control flow depends on the numbers of a vector")


def rows_of(vector: Any, count: int) -> Any:
    """Returns the vectors of all ranks of a class as rows.

    Args:
        vector: a `Stacked` or an array that all ranks have.
        count: the ranks of the class.
    """
    return vector.rows if isinstance(vector, Stacked) else np.broadcast_to(vector, (count, len(vector)))


def _operation(name: str, *, swapped: bool = False) -> Callable[[Stacked, Any], Any]:
    function = getattr(operator, name)

    def apply(self: Stacked, other: Any) -> Any:
        if isinstance(other, Stacked):
            theirs = other.rows
        elif isinstance(other, Varying):
            theirs = other.values[:, np.newaxis]
        elif isinstance(other, int | float | np.ndarray | np.generic):
            theirs = other
        else:
            return NotImplemented
        return Stacked(function(theirs, self.rows) if swapped else function(self.rows, theirs))

    return apply


for _name in ("add", "sub", "mul", "truediv"):
    setattr(Stacked, f"__{_name}__", _operation(_name))
    setattr(Stacked, f"__r{_name}__", _operation(_name, swapped=True))
