"""Values that programs use and operations carry. All are frozen; vectors are never changed in place.

The one exception is donation, see `GradientResult.take_vector`.
"""

from __future__ import annotations

import dataclasses
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NewType, Protocol, Self, TypeVar, runtime_checkable

import numpy as np

from paceline.algorithms.core.errors import ProgramError
from paceline.algorithms.core.fast_values import fast_constructor, replace

Rank = NewType("Rank", int)
may_diverge = np.errstate(over="ignore", invalid="ignore")
"""used around runs, and around arithmetic on vectors outside of runs: divergence is reported in the summary of a run,
not by NumPy's warnings"""


@runtime_checkable
class Vector(Protocol):
    """A flat vector: a NumPy array, a torch tensor or `Null`. Programs use only arithmetic and slices."""

    @property
    def nbytes(self) -> int: ...
    def __add__(self, other: Any, /) -> Self: ...
    def __sub__(self, other: Any, /) -> Self: ...
    def __mul__(self, other: Any, /) -> Self: ...
    def __rmul__(self, other: Any, /) -> Self: ...
    def __truediv__(self, other: Any, /) -> Self: ...
    def __getitem__(self, part: slice, /) -> Self: ...


class Special(ABC):
    """Base of vectors that are neither arrays nor tensors; they implement joining and the norm themselves."""

    __slots__ = ()

    @abstractmethod
    def joined(self, parts: Sequence[Self]) -> Self:
        """Concatenates parts of one vector; this one is the first."""

    @abstractmethod
    def mapped(self, function: Callable[[Any], Any]) -> Self:
        """Applies a function to the numbers that computes each one by itself."""

    @abstractmethod
    def norm(self) -> float:
        """Returns the Euclidean norm."""


@fast_constructor
@dataclass(frozen=True, slots=True)
class Null(Special):
    """A vector with a size but no numbers, for runs that only simulate time.

    >>> weights = Null(count=1000)
    >>> (weights - 0.1 * weights).nbytes
    4000
    >>> weights[10:30].nbytes
    80
    """

    count: int
    item_bytes: int = 4

    @property
    def nbytes(self) -> int:
        return self.count * self.item_bytes

    def _same(self, _: Any) -> Self:
        return self

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = _same

    def __getitem__(self, part: slice) -> Self:
        return replace(self, count=len(range(*part.indices(self.count))))

    def joined(self, parts: Sequence[Self]) -> Self:
        """Returns a vector with the size of all parts together."""
        return replace(self, count=sum(part.count for part in parts))

    def mapped(self, function: Callable[[Any], Any]) -> Self:
        """Returns the vector itself, since there are no numbers."""
        return self

    def norm(self) -> float:
        """Returns 0, since there are no numbers."""
        return 0.0


V = TypeVar("V", bound=Vector)


def join(parts: Sequence[V]) -> V:
    """Concatenates slices of one vector. Tensors that are adjacent in memory are not copied.

    >>> join([np.zeros(2), np.ones(1)])
    array([0., 0., 1.])
    """
    first: Any = parts[0]
    if len(parts) == 1:
        return first  # type: ignore[no-any-return]
    if isinstance(first, Special):
        return first.joined(parts)  # type: ignore[return-value, arg-type]
    if isinstance(first, np.ndarray):
        return np.concatenate(parts)  # type: ignore[return-value, arg-type]
    from paceline.algorithms.core.parts import joined_tensors  # imports torch, so only for tensors

    return joined_tensors(parts)  # type: ignore[no-any-return]


def length(vector: Any) -> int:
    """Returns the number of elements of a vector.

    >>> length(np.zeros(3)), length(Null(count=5))
    (3, 5)
    """
    return vector.count if isinstance(vector, Null) else len(vector)


def root(squares: Any, epsilon: float = 0.0) -> Any:
    """Computes √(squares + ε), element by element.

    Args:
        squares: a vector of numbers of 0 or more.
        epsilon: ε, 0 or more.

    >>> root(np.array([4.0, 9.0]))
    array([2., 3.])
    """
    return squares if isinstance(squares, Null) else (squares + epsilon if epsilon else squares) ** 0.5


def norm(vector: Any) -> float:
    """Returns the Euclidean norm of a vector, summed in float64; 0 for a `Null`.

    >>> norm(np.array([3.0, 4.0], dtype=np.float32)), norm(Null(count=5))
    (5.0, 0.0)
    """
    if isinstance(vector, Special):
        return vector.norm()
    if isinstance(vector, np.ndarray):
        return float(np.linalg.norm(vector.astype(np.float64)))
    import torch

    return float(torch.linalg.vector_norm(vector.to(torch.float64)))


@dataclass(frozen=True, slots=True)
class Group:
    """A set of ranks that take part in collectives, in a fixed order.

    >>> pair = Group((Rank(0), Rank(1)))
    >>> len(pair), Rank(1) in pair
    (2, True)
    """

    ranks: tuple[Rank, ...]
    _members: frozenset[Rank] = dataclasses.field(init=False, repr=False, compare=False)
    _hash: int = dataclasses.field(init=False, repr=False, compare=False)
    """computed once: each collective needs it several times, and a group may be large"""

    def __post_init__(self) -> None:
        # the ranks of a vectorised run may differ between the ranks that it runs at once
        own = getattr(self.ranks, "for_group", None)
        members, hashed = (frozenset(self.ranks), hash(self.ranks)) if own is None else own()
        object.__setattr__(self, "_members", members)
        object.__setattr__(self, "_hash", hashed)

    def __hash__(self) -> int:
        return self._hash

    def __len__(self) -> int:
        return len(self.ranks)

    def __contains__(self, rank: Rank) -> bool:
        return rank in self._members

    def __iter__(self) -> Any:
        return iter(self.ranks)

    def __str__(self) -> str:
        return "ranks " + ",".join(map(str, self.ranks))


@dataclass(frozen=True, slots=True)
class Layer:
    """The position of one layer in the flat vector, in elements."""

    name: str
    start: int
    stop: int

    @property
    def part(self) -> slice:
        return slice(self.start, self.stop)


@dataclass(frozen=True, slots=True)
class Layout:
    """The positions of all layers in the flat vector, first layer first."""

    layers: tuple[Layer, ...]

    @property
    def size(self) -> int:
        return self.layers[-1].stop


@fast_constructor
@dataclass(frozen=True, slots=True)
class Samples:
    """Identifies the samples of one step of one worker: batch `index` of `worker` out of `workers`, `count` samples.

    This and the seed determine the samples, so every interpreter uses the same ones. If the workers' batches differ,
    `before` and `together` define how the global batch is divided.
    """

    worker: int
    workers: int
    index: int
    count: int
    before: int | None = None
    """samples of the same global batch that belong to the workers before this one; None: `worker` times `count`"""
    together: int | None = None
    """samples of the global batch; None: `workers` times `count` times `parts`"""
    part: int = 0
    """which of the micro-batches of the worker's step, from 0"""
    parts: int = 1
    """micro-batches of `count` samples in a worker's step, one after the other"""

    weight: float = 1.0
    """what `Gradient` multiplies the mean gradient of the batch by, see `share`"""

    @property
    def number(self) -> int:
        """The number of this gradient among those of its worker, from 0."""
        return self.index * self.parts + self.part

    def micro_batches(self, parts: int) -> list[Samples]:
        """Divides the samples of a step into micro-batches of equal size.

        Args:
            parts: a divisor of `count`.

        >>> [(one.count, one.part, one.number) for one in Samples(0, 2, index=3, count=8).micro_batches(2)]
        [(4, 0, 6), (4, 1, 7)]
        """
        if parts == 1:
            return [self]
        count, first = self.count // parts, self.before
        firsts = [None if first is None else first + part * count for part in range(parts)]
        return [replace(self, count=count, before=before, part=part, parts=parts) for part, before in enumerate(firsts)]

    def share(self, count: int, before: int, together: int) -> Samples:
        """Returns the samples of this share of a global batch with the weight b_i P / B.

        The mean of all workers' gradients is then the gradient of the global batch: every sample counts as much.

        Args:
            count: b_i, the samples of this worker.
            before: the samples of the workers before it.
            together: B, the samples of all workers.

        >>> Samples(worker=1, workers=2, index=0, count=2).share(3, before=1, together=4).weight
        1.5
        """
        weight = count * self.workers / together
        return replace(self, count=count, before=before, together=together, weight=weight)

    def weighted(self, gradient: V) -> V:
        """Returns the mean gradient of the batch times its weight; the same vector if the weight is 1."""
        return gradient if self.weight == 1 else self.weight * gradient


@fast_constructor
@dataclass(frozen=True, slots=True)
class Step:
    """The answer of `NextStep`: the number of the step, from 0, and its samples (none for a server)."""

    number: int
    samples: Samples


@fast_constructor
@dataclass(frozen=True, slots=True)
class Batch:
    """Loaded samples; `data` belongs to the learner."""

    samples: Samples
    data: Any


@fast_constructor
@dataclass(frozen=True, slots=True)
class Weights:
    """A weight vector and its version."""

    vector: Any  # a Vector; with Any, rules need no type variable
    version: int


@fast_constructor
@dataclass(frozen=True, slots=True)
class Contribution:
    """The rank, step and version from which an input of an update was computed; used by `RecordUpdate`."""

    rank: Rank
    step: int
    version: int
    samples: int


@fast_constructor
@dataclass(frozen=True, slots=True)
class GradientResult:
    """The answer of `Gradient`. Its vector belongs to the program that receives it.

    >>> gradient = GradientResult(np.ones(2), version=0, loss=0.5, samples=8, rank=Rank(0), step=0, busy_s=0.01)
    >>> gradient.take_vector()
    array([1., 1.])
    >>> gradient.vector  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    paceline.algorithms.core.errors.ProgramError: the gradient of step 0 on rank 0 has been consumed: ...
    """

    vector: Any  # a Vector
    version: int
    loss: float
    samples: int
    rank: Rank
    step: int
    busy_s: float
    """seconds that its device worked, without waiting"""

    def take_vector(self) -> Any:
        """Returns the vector and removes it from this value, so that its buffer can be reused.

        A later use of `vector` raises a `ProgramError`, in every interpreter, as JAX does for a donated array.
        """
        vector = self.vector
        object.__delattr__(self, "vector")
        return vector

    if not TYPE_CHECKING:  # for a type checker it would make every attribute valid

        def __getattr__(self, name: str) -> Any:
            if name != "vector":
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            raise ProgramError(
                f"the gradient of step {self.step} on rank {self.rank} has been consumed: its buffer holds other "
                "numbers now; use the vector before, or `descend`, which leaves it unchanged"
            )

    def contribution(self, version: int | None = None) -> Contribution:
        """Returns the origin; `version` replaces the gradient's if the method counts staleness in other versions."""
        return Contribution(self.rank, self.step, self.version if version is None else version, self.samples)


@fast_constructor
@dataclass(frozen=True, slots=True)
class Message:
    """The answer of `Receive`."""

    source: Rank
    value: Any
    tag: str = ""


def nbytes(value: Any) -> int:
    """Returns the bytes of all vectors in a message, at any depth. Single numbers and text are not counted.

    >>> nbytes(Weights(np.zeros(10), version=3))
    80
    """
    kind: type = type(value)
    if (names := parts_of(kind)) is not None:
        size = 0
        for name in names:
            if type(part := getattr(value, name)) is not int:
                size += nbytes(part)
        return size
    if isinstance(value, tuple | list):
        return sum(map(nbytes, value))
    if isinstance(value, dict):
        return sum(map(nbytes, value.values()))
    return int(getattr(value, "nbytes", 0))


@functools.cache
def parts_of(kind: type) -> tuple[str, ...] | None:
    """Returns the field names of a dataclass; None for anything else, and for a vector that is a dataclass."""
    if issubclass(kind, Special) or not dataclasses.is_dataclass(kind):
        return None
    return tuple(field.name for field in dataclasses.fields(kind))
