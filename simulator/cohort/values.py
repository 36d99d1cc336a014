"""Values that differ between the ranks of a class: numbers, vectors, and the ranks of groups.

* A `Varying` holds one number for each rank of a class, in the order of the class. Arithmetic and comparisons are
  elementwise. If all numbers are equal, the result is a plain Python number; `vary` ensures this.
* A program may use a `Varying` only in ways that do not depend on the rank. A branch on it, its use as an index, as a
  key or in a text raises `Diverges` with the ranks that agree. So whether control flow depends on the rank is detected
  by running the program, and a method does not have to declare it.
* Integers are 64 bits wide. A product that might not fit raises `NotACohort`, because Python's would be larger.
* A `Stacked` holds one vector for each rank: the rows of a matrix. Arithmetic is elementwise, so that every row has the
  bits that the vector of a single rank would have. Vectors that are equal at all ranks, such as the answer of an
  all-reduce over all of them, are plain arrays.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Never

import numpy as np
from numpy.typing import NDArray

from paceline.algorithms.core.operations import Handle
from paceline.algorithms.core.values import Group, Rank, Special, norm

Times = NDArray[np.float64]
"""seconds, of each rank of a class or of each group of a set"""
Places = NDArray[np.int64]


class NotACohort(Exception):
    """The run cannot be vectorised; the message says why, as the end of a sentence."""


class Diverges(BaseException):
    """The ranks of a class need different control flow.

    It is no `Exception`, so that a program which catches errors does not catch it.

    Args:
        mask: for each rank of the class, to which of two new classes it belongs.
        of: the number of the class; None: the one whose program is running.
    """

    def __init__(self, mask: NDArray[np.bool_], of: int | None = None) -> None:
        super().__init__("the ranks of a class need different control flow")
        self.mask, self.of = mask, of


LARGEST = 2.0**62
"""products beyond this may not fit into 64 bits"""
MOST_CLASSES = 16
"""the largest number of classes of ranks; our choice: with more, little is gained over single ranks"""


class PerRank:
    """A value of each rank of a class: the elements of an array, or the rows of a matrix."""

    __slots__ = ("values",)
    __array_ufunc__ = None  # so that NumPy leaves operations with arrays to this class

    def __init__(self, values: NDArray[Any]) -> None:
        self.values = values

    def __neg__(self) -> Any:
        return vary(-self.values)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return vary(abs(self.values))


class Varying(PerRank):
    """One number for each rank of a class; create it with `vary`.

    >>> rank = Varying(np.arange(4))
    >>> (rank // 2 * 10 + 1).values
    array([ 1,  1, 11, 11])
    >>> 0 * rank, rank >= 0
    (0, True)
    """

    __slots__ = ()

    def __bool__(self) -> bool:
        raise Diverges(self.values.astype(bool))

    def _like_first(self, *_: object) -> Never:
        """Raises `Diverges`: a use that needs one number."""
        if len(np.unique(self.values)) > MOST_CLASSES:
            raise NotACohort("its control flow or its keys depend on a number that differs between ranks")
        raise Diverges(self.values == self.values[0])

    __index__ = __int__ = __float__ = __hash__ = __str__ = __repr__ = __format__ = _like_first


NOT_ONE_BY_ONE = "it computes with the numbers of a vector in another way than one by one"


class Stacked(PerRank, Special):
    """One vector for each rank of a class: the rows of a matrix.

    >>> vectors = Stacked(np.array([[1.0, 2.0], [3.0, 4.0]]))
    >>> (np.array([1.0, 1.0]) - 0.5 * vectors).values
    array([[ 0.5,  0. ],
           [-0.5, -1. ]])
    >>> len(vectors), vectors.nbytes, vectors[1:].values.tolist()
    (2, 16, [[2.0], [4.0]])
    """

    __slots__ = ()

    def __len__(self) -> int:
        return int(self.values.shape[1])

    @property
    def nbytes(self) -> int:
        """The bytes of the vector of one rank."""
        return len(self) * int(self.values.itemsize)

    @property
    def dtype(self) -> Any:
        """The type of its numbers."""
        return self.values.dtype

    def __getitem__(self, part: Any) -> Stacked:
        if not isinstance(part, slice):
            raise NotACohort("it takes single numbers out of a vector")
        return Stacked(self.values[:, part])

    def __pow__(self, power: float) -> Stacked:
        return Stacked(self.values**power)

    def joined(self, parts: Sequence[Any]) -> Stacked:
        count = len(self.values)
        return Stacked(np.concatenate([rows_of(part, count) for part in parts], axis=1))

    def mapped(self, function: Callable[[Any], Any]) -> Stacked:
        return Stacked(function(self.values))

    @property
    def device(self) -> Any:
        """Raises `NotACohort`: only computations with the positions of numbers ask for the device, such as sorting."""
        raise NotACohort(NOT_ONE_BY_ONE)

    def reshape(self, *shape: int) -> Any:
        """Raises `NotACohort`: the numbers of a vector are to be compared or combined with each other."""
        raise NotACohort(NOT_ONE_BY_ONE)

    def norm(self) -> Any:
        return vary(np.array([norm(row) for row in self.values]))  # of each row: a norm of a matrix sums otherwise

    def __bool__(self) -> bool:
        raise NotACohort("its control flow depends on the numbers of a vector")


def vary(values: NDArray[Any]) -> Any:
    """Returns a `Varying`, or a plain number if all are equal; for the rows of a matrix, a `Stacked`."""
    if values.ndim == 2:
        return Stacked(values)
    first = values[0]
    return first.item() if (values == first).all() else Varying(values)


def of_ranks(value: Any, count: int) -> NDArray[Any]:
    """Returns the numbers of all ranks of a class.

    Args:
        value: a `Varying`, the array of its numbers, or a number.
        count: the ranks of the class.
    """
    if isinstance(value, np.ndarray):
        return value
    return value.values if isinstance(value, Varying) else np.full(count, value)


def rows_of(vector: Any, count: int) -> Any:
    """Returns the vectors of all ranks of a class as rows.

    Args:
        vector: a `Stacked` or an array that all ranks have.
        count: the ranks of the class.
    """
    return vector.values if isinstance(vector, Stacked) else np.broadcast_to(vector, (count, len(vector)))


def of_one(value: Any, place: int) -> Any:
    """Returns the value of one rank; values that are the same for all ranks are not copied.

    Args:
        value: a value of the class, at any depth of tuples, lists, dictionaries and dataclasses.
        place: the place of the rank in the class.
    """
    match value:
        case Varying():
            return value.values[place].item()
        case Stacked():
            return value.values[place].copy()  # a part of the matrix would keep all of it
        case Group():
            ranks: Any = value.ranks
            return Group(ranks.parts[ranks.part_of[place]]) if isinstance(ranks, VaryingRanks) else value
        case Handle(rank=rank, number=number):
            return Handle(Rank(of_one(rank, place)), number)
        case tuple() | list():
            parts = [of_one(part, place) for part in value]
            if all(map(operator.is_, parts, value)):
                return value
            return type(value)(*parts) if hasattr(value, "_make") else type(value)(parts)
        case dict():
            return {key: of_one(part, place) for key, part in value.items()}
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    own = {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
    changed = {name: part for name, whole in own.items() if (part := of_one(whole, place)) is not whole}
    return dataclasses.replace(value, **changed) if changed else value


# --- arithmetic -------------------------------------------------------------------------------------------------------


def _operation(name: str, *, swapped: bool = False) -> Callable[[Any, Any], Any]:
    function = getattr(operator, f"__{name}__")

    def apply(self: PerRank, other: Any) -> Any:
        if not isinstance(other, PerRank | int | float | np.ndarray | np.generic):
            return NotImplemented
        vector = next((value for value in (self, other) if isinstance(value, Stacked | np.ndarray)), None)
        left, right = (_aligned(value, vector) for value in ((other, self) if swapped else (self, other)))
        if vector is None:
            _check(name, left, right)
        with np.errstate(all="ignore"):
            return vary(np.asarray(function(left, right)))

    return apply


def _aligned(value: Any, vector: Any) -> Any:
    """Returns the numbers of a value: as a column that is as precise as the vector with which they are combined."""
    if not isinstance(value, Varying):
        return value.values if isinstance(value, Stacked) else value
    numbers = value.values
    if vector is not None:
        return numbers[:, np.newaxis].astype(np.result_type(vector.dtype, 0.0))
    return numbers.astype(np.int64) if numbers.dtype == np.bool_ else numbers  # Python calculates so with truth values


def _check(name: str, left: Any, right: Any) -> None:
    """Raises an error where Python would have another result than NumPy."""
    if any(isinstance(part, int) and abs(part) >= LARGEST for part in (left, right)):
        raise NotACohort("it computes with integers of more than 64 bits")
    if name in ("truediv", "floordiv", "mod") and not np.all(right):
        if np.any(right):
            raise Diverges(np.asarray(right).astype(bool))
        raise ZeroDivisionError("division by zero")
    integers = all(np.asarray(part).dtype.kind in "ib" for part in (left, right))
    if name == "mul" and integers and float(np.abs(left).max()) * float(np.abs(right).max()) >= LARGEST:
        raise NotACohort("it computes with integers of more than 64 bits")


for _kind, _names in ((PerRank, "add sub mul truediv"), (Varying, "floordiv mod and or xor")):
    for _name in _names.split():
        setattr(_kind, f"__{_name}__", _operation(_name))
        setattr(_kind, f"__r{_name}__", _operation(_name, swapped=True))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Varying, f"__{_name}__", _operation(_name))


# --- groups -----------------------------------------------------------------------------------------------------------


class VaryingRanks(Sequence[Any]):
    """The ranks of a group that differs between the ranks of a class, such as the ranks of one's own node.

    Args:
        parts: the ranks of each different group.
        part_of: for each rank of the class, the number of its group in `parts`.
    """

    __slots__ = ("part_of", "parts")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, parts: tuple[tuple[int, ...], ...], part_of: Places) -> None:
        self.parts, self.part_of = parts, part_of

    def for_group(self) -> tuple[Any, Any]:
        """Returns what `Group` stores instead of a set and a hash: it cannot be a key, which would differ by rank."""
        return self, None

    def _of_parts(self, of: Callable[[Any], Any]) -> Any:
        return vary(np.array([of(part) for part in self.parts])[self.part_of])

    def __len__(self) -> int:
        return operator.index(self._of_parts(len))

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return self._sliced([at.start, at.stop, at.step])
        if isinstance(at, Varying):
            pairs = zip(self.part_of.tolist(), at.values.tolist(), strict=True)
            return vary(np.array([self.parts[part][index] for part, index in pairs]))
        return self._of_parts(operator.itemgetter(at))

    def _sliced(self, limits: list[Any]) -> Any:
        """Returns a slice of each rank's group, with limits that may differ between ranks."""
        columns = [of_ranks(0 if limit is None else limit, len(self.part_of)) for limit in limits]
        different, which = np.unique(np.stack([self.part_of, *columns]), axis=1, return_inverse=True)
        slices = [
            tuple(self.parts[part])[
                slice(*(None if limit is None else end for limit, end in zip(limits, ends, strict=True)))
            ]
            for part, *ends in different.T.tolist()
        ]
        return ranks_of(slices, which.reshape(-1))

    def _places(self, value: Any) -> list[int | None]:
        """Returns the place of a rank in each rank's group; None where it is no member."""
        known = {(part, rank): place for part, ranks in enumerate(self.parts) for place, rank in enumerate(ranks)}
        wanted = of_ranks(value, len(self.part_of)).tolist()
        return [known.get(key) for key in zip(self.part_of.tolist(), wanted, strict=True)]

    def index(self, value: Any, start: int = 0, stop: int | None = None) -> Any:
        """Returns the place of a rank in each rank's group."""
        if start or stop is not None:
            raise NotACohort("it searches in a part of a group")
        places = self._places(value)
        if None in places:
            raise ValueError("a rank is not in the group of every rank")
        return vary(np.array(places))

    def __contains__(self, value: object) -> bool:
        return bool(vary(np.array([place is not None for place in self._places(value)])))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, VaryingRanks):
            pairs = zip(self.part_of.tolist(), other.part_of.tolist(), strict=True)
            return bool(vary(np.array([self.parts[own] == other.parts[part] for own, part in pairs])))
        return bool(self._of_parts(other.__eq__)) if isinstance(other, tuple) else NotImplemented

    def __repr__(self) -> str:
        return repr(self.parts[operator.index(vary(self.part_of))])


class Ranks(tuple[Any, ...]):  # noqa: SLOT001  # it keeps an array of its numbers
    """The ranks of a group that is the same for all ranks of a class; a `Varying` may be its index."""

    @cached_property
    def _numbers(self) -> NDArray[Any]:
        return np.array(self)

    def _of_each(self, count: int) -> VaryingRanks:
        return VaryingRanks((self,), np.zeros(count, dtype=np.int64))

    def index(self, value: Any, *limits: Any) -> Any:
        """Returns the place of a rank; of each rank's own, if the value is a `Varying`."""
        if not isinstance(value, Varying):
            return super().index(value, *limits)
        return self._of_each(len(value.values)).index(value)

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, Varying):
            return vary(self._numbers[at.values])
        if not isinstance(at, slice):
            return super().__getitem__(at)
        ends = [end for end in (at.start, at.stop, at.step) if isinstance(end, Varying)]
        return self._of_each(len(ends[0].values))[at] if ends else Ranks(super().__getitem__(at))


def ranks_of(groups: Sequence[tuple[int, ...]], group_of: Places) -> Any:
    """Returns the ranks of a group: a plain tuple if the class has only one, else `VaryingRanks`.

    Args:
        groups: the groups; equal ones are joined.
        group_of: the number of each rank's group.
    """
    numbers: dict[tuple[int, ...], int] = {}
    joined = np.array([numbers.setdefault(group, len(numbers)) for group in groups])
    used, part_of = np.unique(joined[group_of], return_inverse=True)
    every = list(numbers)
    parts = tuple(every[number] for number in used.tolist())
    return Ranks(parts[0]) if len(parts) == 1 else VaryingRanks(parts, part_of.reshape(-1))
