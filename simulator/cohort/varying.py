"""Numbers that differ between the ranks of a class.

* A `Varying` holds one number for each rank of a class, in the order of the class. Arithmetic and comparisons are
  elementwise. If all numbers are equal, the result is a plain Python number; `vary` ensures this.
* A program may use a `Varying` only in ways that do not depend on the rank. A branch on it, its use as an index, as a
  key or in a text raises `Diverges` with the ranks that agree. So whether control flow depends on the rank is detected
  by running the program, and a method does not have to declare it.
* Integers are 64 bits wide. A product that might not fit raises `NotACohort`, because Python's would be larger.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Never

import numpy as np
from numpy.typing import NDArray


class NotACohort(Exception):
    """The run cannot be vectorised; the message says why, as the end of a sentence."""


class Diverges(BaseException):
    """The ranks of a class need different control flow.

    It is no `Exception`, so that a program which catches errors does not catch it.

    Args:
        mask: for each rank of the class, to which of two new classes it belongs.
    """

    def __init__(self, mask: NDArray[np.bool_]) -> None:
        super().__init__("the ranks of a class need different control flow")
        self.mask = mask
        self.of: int | None = None
        """the number of the class; None: the one whose program was running"""


LARGEST = 2.0**62
"""products beyond this may not fit into 64 bits"""
MOST_CLASSES = 16
"""the largest number of classes of ranks; our choice: with more, little is gained over single ranks"""
Number = int | float | bool


class Varying:
    """One number for each rank of a class; create it with `vary`.

    >>> rank = Varying(np.arange(4))
    >>> (rank // 2 * 10 + 1).values
    array([ 1,  1, 11, 11])
    >>> 0 * rank, rank >= 0
    (0, True)
    """

    __slots__ = ("values",)
    __array_ufunc__ = None  # so that NumPy leaves operations with arrays to this class

    def __init__(self, values: NDArray[Any]) -> None:
        self.values = values

    def __bool__(self) -> bool:
        raise Diverges(self.values.astype(bool))

    def _like_first(self, *_: object) -> Never:
        """Raises `Diverges`: a use that needs one number."""
        if len(np.unique(self.values)) > MOST_CLASSES:
            raise NotACohort("its control flow or its keys depend on a number that differs between ranks")
        raise Diverges(self.values == self.values[0])

    __index__ = __int__ = __float__ = __hash__ = __str__ = __repr__ = __format__ = _like_first

    def __neg__(self) -> Any:
        return vary(-self.values)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return vary(abs(self.values))


def vary(values: NDArray[Any]) -> Any:
    """Returns a `Varying`, or a plain number if all are equal."""
    first = values[0]
    return first.item() if (values == first).all() else Varying(values)


def of_ranks(value: Any, count: int) -> NDArray[Any]:
    """Returns the numbers of all ranks of a class.

    Args:
        value: a `Varying` or a number.
        count: the ranks of the class.
    """
    return value.values if isinstance(value, Varying) else np.full(count, value)


def by_rank(value: Any, of: Callable[[Any], float], count: int) -> NDArray[np.float64]:
    """Returns a function of each rank's number, which is called once for each different number.

    Args:
        value: a `Varying` or a number.
        of: the function.
        count: the ranks of the class.
    """
    if not isinstance(value, Varying):
        return np.full(count, of(value))
    different, which = np.unique(value.values, return_inverse=True)
    return np.array([of(one) for one in different.tolist()], dtype=np.float64)[which]


def _checked(name: str, one: NDArray[Any], other: NDArray[Any]) -> None:
    """Raises an error where Python would have another result than NumPy."""
    integers = all(np.asarray(part).dtype.kind in "ib" for part in (one, other))
    if name in ("truediv", "floordiv", "mod") and not np.all(other):
        if np.any(other):
            raise Diverges(np.asarray(other).astype(bool))
        raise ZeroDivisionError("division by zero")
    if name == "mul" and integers and float(np.abs(one).max()) * float(np.abs(other).max()) >= LARGEST:
        raise NotACohort("it computes with integers of more than 64 bits")


def _operation(name: str, *, swapped: bool = False) -> Callable[[Varying, Any], Any]:
    function = getattr(operator, f"__{name}__")

    def apply(self: Varying, other: Any) -> Any:
        if isinstance(other, Varying):
            theirs: Any = other.values
        elif isinstance(other, int | float):
            theirs = other
            if isinstance(other, int) and abs(other) >= LARGEST:
                raise NotACohort("it computes with integers of more than 64 bits")
        else:
            return NotImplemented
        left, right = (theirs, self.values) if swapped else (self.values, theirs)
        _checked(name, left, right)
        with np.errstate(all="ignore"):
            return vary(np.asarray(function(_plain(left), _plain(right))))

    return apply


def _plain(values: Any) -> Any:
    """Returns integers for truth values, with which Python calculates as with integers."""
    if isinstance(values, np.ndarray) and values.dtype == np.bool_:
        return values.astype(np.int64)
    return int(values) if isinstance(values, bool) else values


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "and", "or", "xor"):
    setattr(Varying, f"__{_name}__", _operation(_name))
    setattr(Varying, f"__r{_name}__", _operation(_name, swapped=True))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Varying, f"__{_name}__", _operation(_name))


class VaryingRanks(Sequence[Any]):
    """The ranks of a group that differs between the ranks of a class, such as the ranks of one's own node.

    Args:
        parts: the ranks of each different group.
        part_of: for each rank of the class, the number of its group in `parts`.
    """

    __slots__ = ("part_of", "parts")

    def __init__(self, parts: tuple[tuple[int, ...], ...], part_of: NDArray[np.int64]) -> None:
        self.parts, self.part_of = parts, part_of

    def for_group(self) -> tuple[Any, Any]:
        """Returns what `Group` stores instead of a set and a hash: it cannot be a key, which would differ by rank."""
        return self, None

    def __len__(self) -> int:
        return operator.index(self._of_parts([len(part) for part in self.parts]))

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return sliced(self.parts, self.part_of, at)
        if isinstance(at, Varying):
            pairs = zip(self.part_of.tolist(), at.values.tolist(), strict=True)
            return vary(np.array([self.parts[part][index] for part, index in pairs]))
        return self._of_parts([part[at] for part in self.parts])

    def index(self, value: Any, start: int = 0, stop: int | None = None) -> Any:
        """Returns the place of a rank in each rank's group."""
        if start or stop is not None:
            raise NotACohort("it searches in a part of a group")
        wanted = of_ranks(value, len(self.part_of)).tolist()
        places = [{rank: place for place, rank in enumerate(part)} for part in self.parts]
        try:
            found = [places[part][rank] for part, rank in zip(self.part_of.tolist(), wanted, strict=True)]
        except KeyError as error:
            raise ValueError(f"{error} is not in the group of every rank") from error
        return vary(np.array(found))

    def __contains__(self, value: object) -> bool:
        members = [frozenset(part) for part in self.parts]
        wanted = of_ranks(value, len(self.part_of)).tolist()
        found = [rank in members[part] for part, rank in zip(self.part_of.tolist(), wanted, strict=True)]
        return bool(vary(np.array(found)))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, VaryingRanks):
            pairs = np.unique(np.stack([self.part_of, other.part_of]), axis=1).T.tolist()
            same = {(one, two): self.parts[one] == other.parts[two] for one, two in pairs}
            both = zip(self.part_of.tolist(), other.part_of.tolist(), strict=True)
            return bool(vary(np.array([same[pair] for pair in both])))
        if isinstance(other, tuple):
            return bool(self._of_parts([part == other for part in self.parts]))
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        operator.index(self._of_parts(range(len(self.parts))))
        return repr(self.parts[0])

    def _of_parts(self, numbers: Sequence[Any]) -> Any:
        return vary(np.array(numbers)[self.part_of])


class Ranks(tuple[Any, ...]):
    """The ranks of a group that is the same for all ranks of a class; it can be searched for a `Varying`."""

    __slots__ = ()

    def index(self, value: Any, *limits: Any) -> Any:
        """Returns the place of a rank; of each rank's own, if the value is a `Varying`."""
        if not isinstance(value, Varying):
            return super().index(value, *limits)
        places = {rank: place for place, rank in enumerate(self)}
        return vary(np.array([places[rank] for rank in value.values.tolist()]))

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, Varying):
            return vary(np.array(self)[at.values])
        if isinstance(at, slice):
            ends = [end for end in (at.start, at.stop, at.step) if isinstance(end, Varying)]
            if ends:
                return sliced((self,), np.zeros(len(ends[0].values), dtype=np.int64), at)
            return Ranks(super().__getitem__(at))
        return super().__getitem__(at)


def sliced(parts: Sequence[Sequence[int]], part_of: NDArray[np.int64], at: slice) -> Any:
    """Returns a slice of each rank's group, with limits that may differ between ranks.

    Args:
        parts: the different groups.
        part_of: the number of each rank's group.
        at: the slice.
    """
    limits = [np.zeros(len(part_of), dtype=np.int64) if end is None else end for end in (at.start, at.stop, at.step)]
    columns = np.stack([part_of, *(of_ranks(end, len(part_of)) for end in limits)])
    different, which = np.unique(columns, axis=1, return_inverse=True)
    given = [end is not None for end in (at.start, at.stop, at.step)]
    found = []
    for part, *ends in different.T.tolist():
        limit = slice(*(end if known else None for end, known in zip(ends, given, strict=True)))
        found.append(tuple(tuple(parts[part])[limit]))
    return ranks_of(found, which.reshape(-1))


def ranks_of(groups: Sequence[tuple[int, ...]], group_of: NDArray[np.int64]) -> Any:
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
