"""Operations on vectors beyond arithmetic: sorting, indexing and matrices, for NumPy and torch.

NumPy and torch use nearly the same names, so each function is written once for both, with `library`. Callers treat a
`Null` themselves; these functions do not accept it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from paceline.algorithms.core.values import Special, join


def library(vector: Any) -> Any:
    """Returns the module whose functions work on the vector: NumPy or torch."""
    if isinstance(vector, np.ndarray):
        return np
    import torch

    return torch


def bits(vector: Any) -> Any:
    """Returns a value that is equal for two vectors if and only if they have the same numbers, bit for bit.

    >>> bits(np.array([0.0])) == bits(np.array([-0.0]))
    False
    """
    if isinstance(vector, Special):
        return vector
    vector = vector.cpu().numpy() if hasattr(vector, "cpu") else vector
    return vector.tolist() if vector.dtype == object else vector.tobytes()


def zeros(count: int, like: Any) -> Any:
    """Returns a vector of zeros.

    Args:
        count: its length.
        like: a vector with the same dtype and device; of a vector of fractions, the zeros are fractions.
    """
    if like.dtype == object:
        return np.full(count, Fraction(0))
    return library(like).zeros(count, dtype=like.dtype, device=like.device)


def less(vector: Any, factor: float | None, change: Any, out: Any = None) -> Any:
    """Computes vector − factor · change; for tensors in one pass with one rounding, as in torch's optimizers.

    Args:
        vector: the vector to subtract from.
        factor: a number; None: 1.
        change: a vector of the same shape and type.
        out: a tensor that is not used afterwards, whose buffer the result may use; None: a new tensor. NumPy ignores
            it.

    >>> less(np.array([1.0]), 0.5, np.array([4.0]))
    array([-1.])
    """
    if not isinstance(vector, np.ndarray | Special):
        import torch

        if isinstance(vector, torch.Tensor) and isinstance(change, torch.Tensor):
            return _tensor_less(vector, 1 if factor is None else factor, change, out)
    return vector - (change if factor is None else factor * change)


def _tensor_less(vector: Any, factor: float, change: Any, out: Any) -> Any:
    import torch

    from paceline.algorithms.core.lazy_concat import Unjoined

    if isinstance(change, Unjoined) and change.apart:
        return change.taken_from(vector, factor)
    return torch.sub(vector, change, alpha=factor, out=out)


def between(start: Any, end: Any, weight: float) -> Any:
    """Computes (1 − weight) · start + weight · end; for tensors in one pass, as in torch's optimizers.

    >>> between(np.array([1.0]), np.array([3.0]), 0.25)
    array([1.5])
    """
    if _are_tensors(start, end):
        return library(start).lerp(start, end, weight)
    return (1 - weight) * start + weight * end


def plus_square(base: Any, factor: float, vector: Any) -> Any:
    """Computes base + factor · vector²; for tensors in one pass, as in torch's optimizers.

    >>> plus_square(np.array([1.0]), 0.5, np.array([4.0]))
    array([9.])
    """
    if _are_tensors(base, vector):
        return library(base).addcmul(base, vector, vector, value=factor)
    return base + factor * (vector * vector)


def _are_tensors(*vectors: Any) -> bool:
    if any(isinstance(vector, np.ndarray | Special) for vector in vectors):
        return False
    import torch

    return all(isinstance(vector, torch.Tensor) for vector in vectors)


def normal(count: int, like: Any, seed: int) -> Any:
    """Returns standard normal numbers, which depend only on the seed and not on the dtype or the device.

    Args:
        count: how many.
        like: a vector with the same dtype and device.
        seed: of the generator.
    """
    numbers = np.random.default_rng(seed).standard_normal(count)
    return library(like).asarray(numbers, dtype=like.dtype, device=like.device)


def largest(vector: Any, count: int) -> Any:
    """Returns the positions of the numbers of largest magnitude, in ascending order.

    Args:
        vector: the numbers.
        count: how many positions.

    Returns:
        A vector of integers as wide as the numbers.

    >>> largest(np.array([1.0, -5.0, 0.0, 3.0]), 2)
    array([1, 3])
    """
    size = abs(vector)
    if isinstance(vector, np.ndarray):
        places = np.sort(np.argpartition(-size, count - 1)[:count])
        return places.astype(object if vector.dtype == object else f"i{vector.itemsize}")
    import torch

    indices = torch.topk(size, count, sorted=False).indices.sort().values
    return indices.to({4: torch.int32, 8: torch.int64}[vector.itemsize])


def largest_of_rows(matrix: Any, count: int) -> Any:
    """Returns the positions of the numbers of largest magnitude in each row, row by row, in ascending order.

    Args:
        matrix: the numbers.
        count: how many positions of each row.

    Returns:
        A vector of positions in the matrix, counted row by row: integers as wide as the numbers.

    >>> largest_of_rows(np.array([[1.0, -5.0, 0.0, 3.0], [0.0, 0.0, 2.0, 1.0]]), 2)
    array([1, 3, 6, 7])
    """
    rows, width = matrix.shape
    if isinstance(matrix, np.ndarray):
        places = np.sort(np.argpartition(-abs(matrix), count - 1, axis=1)[:, :count], axis=1)
        places += width * np.arange(rows)[:, None]
        return places.reshape(-1).astype(object if matrix.dtype == object else f"i{matrix.itemsize}")
    import torch

    indices = torch.topk(abs(matrix), count, dim=1, sorted=False).indices.sort(dim=1).values
    indices += width * torch.arange(rows, device=matrix.device)[:, None]
    return indices.reshape(-1).to({4: torch.int32, 8: torch.int64}[matrix.itemsize])


def sign(vector: Any) -> Any:
    """Returns −1, 0 or 1 for each number; a vector without numbers itself."""
    return vector.mapped(sign) if isinstance(vector, Special) else library(vector).sign(vector)


def clipped(vector: Any, limit: float) -> Any:
    """Returns each number, at least −limit and at most limit; a vector without numbers itself.

    >>> clipped(np.array([-3.0, 0.5]), 1.0)
    array([-1. ,  0.5])
    """
    if isinstance(vector, Special):
        return vector.mapped(lambda numbers: clipped(numbers, limit))
    return library(vector).clip(vector, -limit, limit)


def like(numbers: np.ndarray, vector: Any) -> Any:
    """Returns numbers as an array or a tensor with the dtype and the device of a vector."""
    return library(vector).asarray(numbers, dtype=vector.dtype, device=vector.device)


def taken(vector: Any, positions: Any) -> Any:
    """Returns the numbers at these positions."""
    return vector[_index(positions)]


def scattered(positions: Any, values: Any, count: int) -> Any:
    """Returns a vector of zeros with these values at these positions.

    Args:
        positions: a vector of integers.
        values: a vector of the same length.
        count: the length of the result.
    """
    whole = zeros(count, values)
    whole[_index(positions)] = values
    return whole


def _index(positions: Any) -> Any:
    return positions.astype(np.intp) if isinstance(positions, np.ndarray) else positions.long()


def disguised(positions: Any, like: Any) -> Any:
    """Reinterprets integers as a vector with the dtype of `like`, so that they can be sent in one with such numbers."""
    return positions if positions.dtype == like.dtype else positions.view(like.dtype)


def unmasked(disguise: Any) -> Any:
    """Reverses `disguised`.

    >>> numbers = np.array([7, 2**31 - 1], dtype=np.int32)
    >>> unmasked(disguised(numbers, np.zeros(1, dtype=np.float32)))
    array([         7, 2147483647], dtype=int32)
    """
    if disguise.dtype == object:
        return disguise
    module = library(disguise)
    return disguise.view({4: module.int32, 8: module.int64}[disguise.itemsize])


def shortened(vector: Any, dtype: Literal["bf16", "fp16"]) -> Any:
    """Returns the numbers in bfloat16 or float16; bfloat16 is always a tensor, since NumPy has no such type.

    >>> shortened(np.array([1.0, 1.001953125]), "bf16").float().tolist(), shortened(np.array([0.1]), "fp16").dtype
    ([1.0, 1.0], dtype('float16'))
    """
    if isinstance(vector, np.ndarray):
        numbers = vector.astype(float) if vector.dtype == object else vector
        if dtype == "fp16":
            with np.errstate(over="ignore"):  # to infinity, as in torch
                return numbers.astype(np.float16)
        return library(None).as_tensor(numbers).to(library(None).bfloat16)
    return vector.to(library(vector).bfloat16 if dtype == "bf16" else library(vector).float16)


def lengthened(short: Any, like: Any) -> Any:
    """Returns short numbers in the library and the type of `like`.

    >>> lengthened(shortened(np.array([0.5, 3.0]), "bf16"), np.zeros(1))
    array([0.5, 3. ])
    """
    if isinstance(like, np.ndarray):
        return (short if isinstance(short, np.ndarray) else short.float().numpy()).astype(like.dtype)
    return short.to(like.dtype)


def matrices(vector: Any, shapes: Iterable[tuple[int, int]]) -> Iterator[Any]:
    """Yields the matrices that are concatenated in a vector, each row by row."""
    at = 0
    for rows, columns in shapes:
        yield vector[at : at + rows * columns].reshape(rows, columns)
        at += rows * columns


def flat(blocks: Iterable[Any]) -> Any:
    """Concatenates matrices into one vector, each row by row."""
    return join([block.reshape(-1) for block in blocks])


def basis(matrix: Any) -> Any:
    """Returns orthonormal columns that span the columns of the matrix."""
    return library(matrix).linalg.qr(matrix)[0]


def nearest(vector: Any, table: list[float]) -> Any:
    """Returns the position of the nearest number of a table for each number; halfway between two, that of the larger.

    Args:
        vector: the numbers, an array or a tensor of any shape.
        table: ascending numbers, at most 256.

    Returns:
        Bytes, with the shape of the vector.

    >>> nearest(np.array([0.4, 0.5, 9.0]), [0.0, 1.0, 2.0])
    array([0, 1, 2], dtype=uint8)
    """
    middles = [(low + high) / 2 for low, high in pairwise(table)]
    if isinstance(vector, np.ndarray):
        return np.searchsorted(np.array(middles, dtype=vector.dtype), vector, side="right").astype(np.uint8)
    import torch

    bounds = torch.tensor(middles, dtype=vector.dtype, device=vector.device)
    return torch.bucketize(vector, bounds, out_int32=True, right=True).to(torch.uint8)


def looked_up(positions: Any, table: list[float], like: Any) -> Any:
    """Returns the numbers of a table at these positions.

    Args:
        positions: bytes.
        table: numbers.
        like: a vector with the dtype and device of the result.
    """
    return library(like).asarray(table, dtype=like.dtype, device=like.device)[_index(positions)]


def repeated(numbers: Any, times: int, count: int) -> Any:
    """Repeats each number and returns the first ones of the result.

    Args:
        numbers: a vector.
        times: how often each is repeated.
        count: the length of the result.
    """
    return library(numbers).broadcast_to(numbers[:, None], (len(numbers), times)).reshape(-1)[:count]


def as_type(vector: Any, dtype: Any) -> Any:
    """Converts an array or a tensor to another type of numbers."""
    return vector.astype(dtype) if hasattr(vector, "astype") else vector.to(dtype)


def packed(numbers: Any, bits: int) -> Any:
    """Packs several small numbers into each byte, the first one into its lowest bits.

    Args:
        numbers: bytes, each below 2 to the power of `bits`.
        bits: of a number: 1, 2 or 4.

    >>> packed(np.array([1, 2, 3], dtype=np.uint8), 4), packed(np.array([1, 2, 3], dtype=np.uint8), 2)
    (array([33,  3], dtype=uint8), array([57], dtype=uint8))
    """
    each = 8 // bits
    padded = join([numbers, zeros(-len(numbers) % each, numbers)])
    result = padded[0::each]
    for place in range(1, each):
        result = result | (padded[place::each] << (place * bits))
    return result


def unpacked(packed: Any, count: int, bits: int) -> Any:
    """Reverses `packed`.

    Args:
        packed: bytes.
        count: how many numbers there are.
        bits: of a number.
    """
    parts = [(packed >> shift) & ((1 << bits) - 1) for shift in range(0, 8, bits)]
    return library(packed).stack(parts, 1).reshape(-1)[:count]
