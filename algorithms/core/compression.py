"""Gradient compression: with error feedback, or by shorter numbers.

A compressed message contains smaller vectors, so every interpreter counts fewer bytes without special treatment. Error
feedback: the part of a gradient that was not sent is the residual, and is added to the next gradient. Message and
residual together are equal to the input. `Cast` has none: what rounding leaves out is lost, as in torch's hooks. All
members of an average get the same vector, bit for bit: they compute it from the same messages in the same order.

A method that averages calls ``mean, kept = yield from average_compressed(gradient, group, key, compression, kept)``.
One that sends calls ``message, kept = yield from compressed(vector, compression, kept)``, and its receiver calls
``decompressed(message)``. Without compression the first is `average_gradient`, and the second sends the vector itself.

Compressed averages of vectors whose numbers are those of one problem, and whose size is that of another.

Such a vector is compressed twice: its numbers as the small problem that they belong to, and its size as a `Null`. The
programs of both are advanced together, operation by operation. What is sent has the numbers of the first and the size
of the second, so that times and bytes are those of the size.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, ClassVar, Literal, Self, TypeVar

from paceline.algorithms.core import arrays
from paceline.algorithms.core.chunk_top_k import ChunkTopK
from paceline.algorithms.core.dct_top_k import DctTopK, Sparse, Spectrum
from paceline.algorithms.core.method import Method, changed
from paceline.algorithms.core.operations import AllGather, AllReduce, Charge, Handle, Start, Wait
from paceline.algorithms.core.option_groups import COUNT, COUNT_OR_NONE, SHARE, Options, Range
from paceline.algorithms.core.program import Lane, Program, Routine, program
from paceline.algorithms.core.steps import average_gradient, start_average
from paceline.algorithms.core.traffic import COMBINE, NOTHING, READ, SCALE, ZEROS, Traffic
from paceline.algorithms.core.values import GradientResult, Group, Layer, Null, Special, join, length, nbytes


class OfTwoSizes(Special):
    """A vector that computes with its numbers but has another size."""

    __slots__ = ()

    @abstractmethod
    def apart(self) -> tuple[Any, Null]:
        """Returns the numbers, and a vector of the size without numbers."""

    @abstractmethod
    def resized(self, numbers: Any, size: Null) -> OfTwoSizes:
        """Returns other numbers with another size.

        Args:
            numbers: an array or a tensor.
            size: a vector of the size.
        """

    @abstractmethod
    def with_numbers(self, numbers: Any) -> Self:
        """Returns as many other numbers with the same size."""

    @abstractmethod
    def layers_of_numbers(self, layers: Sequence[Layer]) -> list[Layer]:
        """Returns the layers that have numbers, at the positions that they have among the numbers."""


class Memories:
    """What a compression remembers of the numbers, and of the size; its bytes are those of the size.

    Args:
        of_numbers: the memory of the numbers.
        of_size: the memory of the `Null`.
    """

    __slots__ = ("of_numbers", "of_size")

    def __init__(self, of_numbers: Any, of_size: Any) -> None:
        self.of_numbers, self.of_size = of_numbers, of_size

    @property
    def nbytes(self) -> int:
        return nbytes(self.of_size)


@program
def advanced_together(vector: OfTwoSizes, of_numbers: Routine[Any], of_size: Routine[Any]) -> Program[tuple[Any, Any]]:
    """Runs the same program for the numbers and for the size of a vector; each returns a vector and a memory.

    Args:
        vector: the vector that is averaged.
        of_numbers: the program for its numbers.
        of_size: the program for its size. It asks for the same operations in the same order.

    Returns:
        The vector of the first with the size of the given one, and both memories.
    """
    small, large = Lane(of_numbers), Lane(of_size)
    asked, asked_large = small.advance(), large.advance()
    while asked is not None and asked_large is not None:
        if isinstance(asked_large, Charge):
            yield from asked_large
            asked, asked_large = small.advance(), large.advance()
        else:
            value = vector.resized(asked.value, asked_large.value)  # type: ignore[attr-defined]  # a collective
            both: Any = replace(asked_large, value=value)  # type: ignore[type-var]  # operations are dataclasses
            numbers, size = _apart((yield from both))
            asked, asked_large = small.advance(numbers), large.advance(size)
    mean, memory = small.answer
    return vector.with_numbers(mean), Memories(memory, large.answer[1])


def _apart(answer: Any) -> tuple[Any, Any]:
    """Returns the numbers and the sizes of the answer of a collective."""
    if isinstance(answer, OfTwoSizes):
        return answer.apart()
    numbers, sizes = zip(*(member.apart() for member in answer), strict=True)
    return numbers, sizes


@dataclass(frozen=True, kw_only=True)
class TopK(Options):
    """Sends only the k numbers of largest magnitude of the whole vector, with their positions.

    k is `ratio` times the length, rounded, and at least 1; a message has 2 k numbers. In an average every member
    gathers the messages of all P members, which is P · ratio times what a ring all-reduce sends.

    Source: Stich, Cordonnier, Jaggi, NeurIPS'18 (arXiv 1809.07599).
    """

    ranges: ClassVar[Mapping[str, Range]] = {"ratio": SHARE}

    kind: Literal["top-k"] = "top-k"
    opening: ClassVar[Traffic] = ZEROS
    """memory traffic of `Sparse.dense`"""
    ratio: float = 0.01
    """k relative to the length; provenance: Lin et al., ICLR'18 (Deep Gradient Compression) drop 99 % to 99.9 %"""

    def linear_form(self) -> Self:
        """Returns the compression itself: what is not sent is sent later."""
        return self

    def begin(self, vector: Any, layers: Sequence[Layer]) -> Any:
        """Returns a residual of 0."""
        return 0 * vector

    def charge(self, vector: Any, *, also: Traffic = NOTHING) -> Charge:
        """Returns the cost of compressing: the sum, the magnitudes, the selection and the new residual.

        Args:
            vector: the vector to compress.
            also: further memory traffic on vectors of this size.
        """
        traffic = COMBINE + SCALE + READ + self.opening + COMBINE + also
        return Charge("compress", vector.nbytes, length(vector), traffic=traffic)

    def compress(self, vector: Any, kept: Any) -> tuple[Sparse, Any]:
        """Returns the message and the new residual.

        >>> import numpy as np
        >>> message, kept = TopK(ratio=0.5).compress(np.array([1.0, 4.0]), np.array([0.5, 0.0]))
        >>> message.dense(), kept
        (array([0., 4.]), array([1.5, 0. ]))
        """
        total = vector + kept
        count = length(total)
        k = max(1, round(self.ratio * count))
        if isinstance(total, Null):
            return Sparse(replace(total, count=k), replace(total, count=k), count), total
        positions = arrays.largest(total, k)
        message = Sparse(positions, arrays.taken(total, positions), count)
        return message, total - message.dense()

    @program
    def averaged(self, group: Group, vector: Any, key: str, kept: Any) -> Program[tuple[Any, Any]]:
        """Returns the mean of all members' messages, summed in the order of the group, and the new residual."""
        members = len(group)
        yield from self.charge(vector, also=members * self.opening + (members - 1) * COMBINE + SCALE)
        message, kept = self.compress(vector, kept)
        everyone = yield from AllGather(value=message.packed(), group=group, key=key)
        total = reduce(add, (Sparse.unpacked(part, message.count).dense() for part in everyone))
        return total / len(group), kept


@dataclass(frozen=True, slots=True)
class Grid:
    """The shape of a layer's numbers as a nearly square matrix, padded with zeros, and of its factors."""

    count: int
    rank: int

    @property
    def rows(self) -> int:
        return math.isqrt(self.count - 1) + 1

    @property
    def columns(self) -> int:
        return -(-self.count // self.rows)

    @property
    def left(self) -> tuple[int, int]:
        return self.rows, min(self.rank, self.columns)

    @property
    def right(self) -> tuple[int, int]:
        return self.columns, min(self.rank, self.columns)


@dataclass(frozen=True, slots=True)
class LowRankFactors:
    """A vector in which each layer is the product of a left factor and a transposed right factor."""

    grids: tuple[Grid, ...]
    lefts: Any
    """the left factors, concatenated"""
    rights: Any

    def dense(self) -> Any:
        """Returns the products, concatenated."""
        if isinstance(self.lefts, Null):
            return replace(self.lefts, count=sum(grid.count for grid in self.grids))
        lefts = arrays.matrices(self.lefts, [grid.left for grid in self.grids])
        rights = arrays.matrices(self.rights, [grid.right for grid in self.grids])
        return join(
            [
                (left @ right.T).reshape(-1)[: grid.count]
                for grid, left, right in zip(self.grids, lefts, rights, strict=True)
            ]
        )


@dataclass(frozen=True, slots=True)
class Warm:
    """The memory of PowerSGD: the residual, and the right factors from which the next step starts."""

    kept: Any
    grids: tuple[Grid, ...]
    rights: Any

    def lefts(self, total: Any) -> Any:
        """Computes M Q of every layer, concatenated."""
        if isinstance(total, Null):
            return replace(total, count=sum(math.prod(grid.left) for grid in self.grids))
        rights = arrays.matrices(self.rights, [grid.right for grid in self.grids])
        return arrays.flat(matrix @ right for matrix, right in zip(self._matrices(total), rights, strict=True))

    def bases(self, lefts: Any) -> Any:
        """Makes the columns of the left factors orthonormal."""
        if isinstance(lefts, Null):
            return lefts
        return arrays.flat(map(arrays.basis, arrays.matrices(lefts, [grid.left for grid in self.grids])))

    def against(self, total: Any, bases: Any) -> Any:
        """Computes Mᵀ P of every layer, concatenated: the right factors that fit M best with these left factors."""
        if isinstance(total, Null):
            return replace(total, count=sum(math.prod(grid.right) for grid in self.grids))
        lefts = arrays.matrices(bases, [grid.left for grid in self.grids])
        return arrays.flat(matrix.T @ left for matrix, left in zip(self._matrices(total), lefts, strict=True))

    def _matrices(self, total: Any) -> Iterator[Any]:
        at = 0
        for grid in self.grids:
            missing = grid.rows * grid.columns - grid.count
            layer = join([total[at : at + grid.count], arrays.zeros(missing, total)])
            yield layer.reshape(grid.rows, grid.columns)
            at += grid.count


@dataclass(frozen=True, kw_only=True)
class PowerSgd(Options):
    """Sends every layer as the product of two thin matrices, found by one step of power iteration.

    M is the layer's gradient plus the residual, as a nearly square matrix, since the shape of the layer is not known
    here. P ← mean M Q, with orthonormal columns; Q ← mean Mᵀ P; the mean is P Qᵀ, and the next step starts from Q.
    For a layer of n numbers, about 2 r √n numbers are sent.

    The residual of each member is what its own message leaves out, M − P (Mᵀ P)ᵀ, as in the paper's algorithm 2; in the
    authors' code it is M − P Qᵀ, whose mean is the same.

    Source: Vogels, Karimireddy, Jaggi, NeurIPS'19 (arXiv 1905.13727).
    """

    ranges: ClassVar[Mapping[str, Range]] = {"rank": COUNT, "seed": COUNT_OR_NONE}

    kind: Literal["power-sgd"] = "power-sgd"
    opening: ClassVar[Traffic] = ZEROS + SCALE
    """memory traffic of `LowRankFactors.dense`: the products, and joining them"""
    rank: int = 2
    """r; provenance: the paper, whose image classifiers lose nothing with 2"""
    seed: int = 0
    """seed of the first right factors, the same at all ranks; provenance: ours"""

    def linear_form(self) -> None:
        """There is none: after a gradient of 0 the power iteration has no factors to start from."""
        return

    def begin(self, vector: Any, layers: Sequence[Layer]) -> Warm:
        """Returns a residual of 0 and right factors of standard normal numbers."""
        grids = tuple(Grid(layer.stop - layer.start, self.rank) for layer in layers)
        count = sum(math.prod(grid.right) for grid in grids)
        if isinstance(vector, Null):
            return Warm(vector, grids, replace(vector, count=count))
        return Warm(0 * vector, grids, arrays.normal(count, vector, self.seed))

    def charge(self, vector: Any, *, also: Traffic = NOTHING) -> Charge:
        """Returns the cost of compressing: three products of a matrix of n numbers with a thin one.

        Two of them read a padded copy of the numbers.

        Args:
            vector: the vector to compress.
            also: further memory traffic on vectors of this size.
        """
        traffic = COMBINE + 2 * (SCALE + READ) + self.opening + COMBINE + also
        return Charge("compress", vector.nbytes, 6 * self.rank * length(vector), traffic=traffic)

    def compress(self, vector: Any, memory: Warm) -> tuple[LowRankFactors, Warm]:
        """Returns the message and the new memory."""
        total = vector + memory.kept
        bases = memory.bases(memory.lefts(total))
        message = LowRankFactors(memory.grids, bases, memory.against(total, bases))
        return message, Warm(total - message.dense(), memory.grids, message.rights)

    @program
    def averaged(self, group: Group, vector: Any, key: str, memory: Warm) -> Program[tuple[Any, Warm]]:
        """Returns the product of the averaged factors, which takes two all-reduces, and the new memory."""
        yield from self.charge(vector, also=self.opening)
        total = vector + memory.kept
        lefts = yield from AllReduce(value=memory.lefts(total), group=group, key=f"{key} left")
        bases = memory.bases(lefts)
        own = memory.against(total, bases)
        rights = yield from AllReduce(value=own, group=group, key=f"{key} right")
        kept = total - LowRankFactors(memory.grids, bases, own).dense()
        return LowRankFactors(memory.grids, bases, rights).dense(), Warm(kept, memory.grids, rights)


@dataclass(frozen=True, slots=True)
class Short:
    """A vector in a shorter type of numbers, and an empty vector of its own type."""

    numbers: Any
    empty: Any

    def dense(self) -> Any:
        """Returns the vector in its own type."""
        return lengthened(self.numbers, self.empty)


def lengthened(short: Any, like: Any) -> Any:
    """Returns a short vector in the type of another one, of any length."""
    if isinstance(short, Null):
        return replace(short, item_bytes=like.item_bytes)
    if isinstance(short, OfTwoSizes):
        return short.resized(*map(lengthened, short.apart(), like.apart()))
    return arrays.lengthened(short, like)


@dataclass(frozen=True, kw_only=True)
class Cast(Options):
    """Sends gradients in bfloat16 or float16: 2 bytes for each number.

    mean = long(Σ_i short(g_i) / P), with the division and the sum in the short type

    Source: FOUND, `bf16_compress_hook` and `fp16_compress_hook` of torch (distributed/algorithms/ddp_comm_hooks/
    default_hooks.py), which cast, divide by the number of workers, sum, and cast back.

    >>> import numpy as np
    >>> message, _ = Cast(dtype="bf16").compress(np.array([1.0, 1.001953125]), None)
    >>> message.numbers.nbytes, message.dense()
    (4, array([1., 1.]))
    """

    kind: Literal["cast"] = "cast"
    opening: ClassVar[Traffic] = SCALE
    """memory traffic of `Short.dense`, with the short vector counted as a whole one"""
    dtype: Literal["bf16", "fp16"] = "bf16"
    """the type of numbers that are sent: bf16 has the range of fp32 and 8 bits of precision; fp16 has 11 bits and no
    number above 65504; provenance: torch has hooks for both; the default is ours, since no gradient overflows it"""

    def linear_form(self) -> None:
        """There is none: rounding is not linear."""
        return

    def begin(self, vector: Any, layers: Sequence[Layer]) -> None:
        """Returns None: nothing is kept."""
        return

    def charge(self, vector: Any, *, also: Traffic = NOTHING) -> Charge:
        """Returns the cost of casting a vector, in units of the short vector.

        Args:
            vector: the vector to cast.
            also: further memory traffic on short vectors.
        """
        short = 2 * length(vector)
        return Charge("compress", short, traffic=Traffic(vector.nbytes // max(short, 1), 1, allocated=1) + also)

    def compress(self, vector: Any, kept: None) -> tuple[Short, None]:
        """Returns the message; nothing is kept."""
        return Short(self._short(vector), vector[:0] if isinstance(vector, Null) else _empty(vector)), None

    def _short(self, vector: Any) -> Any:
        if isinstance(vector, Null):
            return replace(vector, item_bytes=2)
        if isinstance(vector, OfTwoSizes):
            return vector.resized(*map(self._short, vector.apart()))
        return arrays.shortened(vector, self.dtype)

    @program
    def averaged(self, group: Group, vector: Any, key: str, kept: None) -> Program[tuple[Any, None]]:
        """Returns the mean of all members' vectors, summed in the short type."""
        op = yield from self._share(group, vector, key)
        return (yield from self.opened((yield from op), vector)), None

    @program
    def start(self, group: Group, vector: Any, key: str) -> Program[Handle[Any]]:
        """Starts to average a vector, as `averaged`; `opened` converts the answer.

        Args:
            group: the ranks that take part.
            vector: this rank's own.
            key: the name of the all-reduce, the same on all members.
        """
        return (yield from Start((yield from self._share(group, vector, key))))

    @program
    def _share(self, group: Group, vector: Any, key: str) -> Program[AllReduce]:
        """Casts a vector, and returns the all-reduce of it."""
        yield from self.charge(vector, also=SCALE)
        message, _ = self.compress(vector, None)
        return AllReduce(value=message.numbers / len(group), group=group, key=key, op="sum", donate=True)

    @program
    def opened(self, mean: Any, like: Any) -> Program[Any]:
        """Casts a mean back.

        Args:
            mean: the answer of the all-reduce.
            like: a vector of the type that was cast, and of the same length.
        """
        short = 2 * length(like)
        size = like.nbytes // max(short, 1)
        yield from Charge("decompress", short, traffic=Traffic(1, size, allocated=size))
        return lengthened(mean, like)


def _empty(vector: Any) -> Any:
    """Returns an empty vector of the same type, which holds no part of the memory of the vector."""
    if isinstance(vector, OfTwoSizes):
        numbers, size = vector.apart()
        return vector.resized(_empty(numbers), size[:0])
    return arrays.zeros(0, vector)


@program
def start_average_of(gradient: GradientResult, group: Group, key: str, cast: Cast | None) -> Program[Handle[Any]]:
    """Starts to average a gradient, in a short type if the method casts it; arguments and answer as `start_average`."""
    if cast is None:
        return (yield from start_average(gradient, group, key))
    return (yield from cast.start(group, gradient.take_vector(), key))


@program
def started_mean(vector: Any, group: Group, key: str, cast: Cast | None) -> Program[Handle[Any]]:
    """Starts to average a vector that stays as it is, in a short type if the method casts it.

    Args:
        vector: this rank's own.
        group: the ranks that take part.
        key: the name of the all-reduce, the same on all members.
        cast: the short type; None: that of the vector.
    """
    if cast is None:
        return (yield from Start(AllReduce(value=vector, group=group, key=key)))
    return (yield from cast.start(group, vector, key))


@program
def landed_mean(mean: Handle[Any], like: Any, cast: Cast | None) -> Program[Any]:
    """Waits for a mean that `started_mean` has started, and casts it back.

    Args:
        mean: the handle.
        like: a vector of the type that was averaged, and of the same length.
        cast: the short type; None: that of the vector.
    """
    answer = yield from Wait(mean)
    return answer if cast is None else (yield from cast.opened(answer, like))


Compression = TopK | PowerSgd | DctTopK | Cast
"""the compressions that a scenario may give to a method"""
Averaged = Compression | ChunkTopK
"""all with which a vector can be averaged"""
M = TypeVar("M", bound=Method)


def with_linear_compression(method: M, compression: Compression | None) -> M:
    """Returns the linear form of a method that compresses, given the form without regard to that.

    The learning rate is constant, because a residual is applied at the rate of the step in which it is sent. A method
    that drops a message drops the residuals of earlier gradients in it too, so its form has no compression.

    Args:
        method: the form.
        compression: of the method; None: the form stays as it is.
    """
    if compression is None:
        return method
    return changed(method, schedule=None, compression=None if method.drops_gradients else compression.linear_form())


def beginning(compression: Averaged | None, vector: Any, layers: Sequence[Layer]) -> Any:
    """Returns the memory before the first gradient; None without compression.

    Args:
        compression: the compression of the method.
        vector: the initial weights.
        layers: the positions of the layers in the vector.
    """
    if compression is None:
        return None
    if isinstance(vector, OfTwoSizes):
        numbers, size = vector.apart()
        return Memories(compression.begin(numbers, vector.layers_of_numbers(layers)), compression.begin(size, layers))
    return compression.begin(vector, layers)


@program
def average_compressed(
    gradient: GradientResult, group: Group, key: str, compression: Compression | None = None, memory: Any = None
) -> Program[tuple[GradientResult, Any]]:
    """Averages a gradient over a group, compressed, and consumes it.

    Args:
        gradient: this rank's own, as `Gradient` answered it. Its vector cannot be used afterwards.
        group: the ranks that take part.
        key: the name of the collective, the same on all members; a second one has a suffix.
        compression: None: `average_gradient`.
        memory: the result of `beginning` or of the last call.

    Returns:
        The gradient with the mean, as close as the compression comes to it, as its vector; and the new memory.
    """
    if compression is None:
        return (yield from average_gradient(gradient, group, key)), None
    mean, memory = yield from average_of_messages(gradient.take_vector(), group, key, compression, memory)
    return replace(gradient, vector=mean), memory


@program
def average_of_messages(
    vector: Any, group: Group, key: str, compression: Averaged, memory: Any
) -> Program[tuple[Any, Any]]:
    """Averages a vector over a group by the compressed messages of its members.

    Args:
        vector: this rank's own; it is not modified.
        group: the ranks that take part.
        key: the name of the collective, the same on all members; a second one has a suffix.
        compression: what makes the messages.
        memory: the result of `beginning` or of the last call.

    Returns:
        The mean, as close as the compression comes to it, and the new memory.
    """
    if isinstance(vector, OfTwoSizes):
        numbers, size = vector.apart()
        small = compression.averaged(group, numbers, key, memory.of_numbers)
        large = compression.averaged(group, size, key, memory.of_size)
        return (yield from advanced_together(vector, small, large))
    return (yield from compression.averaged(group, vector, key, memory))


@program
def compressed(vector: Any, compression: Compression | None, memory: Any) -> Program[tuple[Any, Any]]:
    """Compresses a vector.

    Args:
        vector: a gradient; it is not modified.
        compression: None: the message is the vector itself.
        memory: the result of `beginning` or of the last call.

    Returns:
        The message, for `decompressed`, and the new memory.
    """
    if compression is None:
        return vector, None
    yield from compression.charge(vector)
    return compression.compress(vector, memory)


def opening_traffic(compression: Compression | None) -> Traffic:
    """Returns the memory traffic of `decompressed`, relative to the whole vector."""
    return NOTHING if compression is None else compression.opening


def decompressed(message: Any) -> Any:
    """Returns the whole vector of a message that `compressed` returned."""
    return message.dense() if isinstance(message, Sparse | LowRankFactors | Spectrum | Short) else message
