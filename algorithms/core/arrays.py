"""What rules and compression need of vectors beyond arithmetic: order, indices and matrices, for NumPy and torch.

Rules of this file: NumPy and torch name nearly everything alike, so a function is written once for both, with
`library`. A `Null` is no business of these functions; whoever calls them has asked before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from paceline.algorithms.core.values import Special, join


def library(vector: Any) -> Any:
    """The module whose functions work on it: NumPy or torch."""
    if isinstance(vector, np.ndarray):
        return np
    import torch

    return torch


def zeros(count: int, like: Any) -> Any:
    """So many zeros, of the type and on the device of another vector; exact ones for an exact vector."""
    if like.dtype == object:
        return np.full(count, Fraction(0))
    return library(like).zeros(count, dtype=like.dtype, device=like.device)


def less(vector: Any, factor: float | None, change: Any, out: Any = None) -> Any:
    """vector − factor · change: of torch's tensors in one pass, with one rounding, as its optimizers do it.

    Args:
        vector: what is subtracted from.
        factor: None: 1.
        change: what is subtracted.
        room: a vector that nobody looks at again, whose memory a tensor may take; None: new memory.

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


def normal(count: int, like: Any, seed: int) -> Any:
    """Standard normal numbers: the same for a seed, whatever the type and the device."""
    numbers = np.random.default_rng(seed).standard_normal(count)
    return library(like).asarray(numbers, dtype=like.dtype, device=like.device)


def largest(vector: Any, count: int) -> Any:
    """Where the numbers of largest magnitude stand, in ascending order, as whole numbers as wide as the vector's.

    >>> largest(np.array([1.0, -5.0, 0.0, 3.0]), 2)
    array([1, 3])
    """
    size = abs(vector)
    if isinstance(vector, np.ndarray):
        places = np.sort(np.argpartition(-size, count - 1)[:count])
        return places.astype(object if vector.dtype == object else f"i{vector.itemsize}")
    import torch

    found = torch.topk(size, count, sorted=False).indices.sort().values
    return found.to({4: torch.int32, 8: torch.int64}[vector.itemsize])


def taken(vector: Any, positions: Any) -> Any:
    """The numbers at these positions."""
    return vector[_index(positions)]


def scattered(positions: Any, values: Any, count: int) -> Any:
    """Zeros, but for these values at these positions."""
    whole = zeros(count, values)
    whole[_index(positions)] = values
    return whole


def _index(positions: Any) -> Any:
    return positions.astype(np.intp) if isinstance(positions, np.ndarray) else positions.long()


def disguised(positions: Any, like: Any) -> Any:
    """Whole numbers as a vector of another's type, bit by bit, so that they travel where only that type does."""
    return positions if positions.dtype == like.dtype else positions.view(like.dtype)


def unmasked(disguise: Any) -> Any:
    """The whole numbers again.

    >>> numbers = np.array([7, 2**31 - 1], dtype=np.int32)
    >>> unmasked(disguised(numbers, np.zeros(1, dtype=np.float32)))
    array([         7, 2147483647], dtype=int32)
    """
    if disguise.dtype == object:
        return disguise
    module = library(disguise)
    return disguise.view({4: module.int32, 8: module.int64}[disguise.itemsize])


def matrices(vector: Any, shapes: Iterable[tuple[int, int]]) -> Iterator[Any]:
    """The matrices that lie end to end in a vector, each row by row."""
    at = 0
    for rows, columns in shapes:
        yield vector[at : at + rows * columns].reshape(rows, columns)
        at += rows * columns


def flat(blocks: Iterable[Any]) -> Any:
    """Matrices end to end in one vector, each row by row."""
    return join([block.reshape(-1) for block in blocks])


def basis(matrix: Any) -> Any:
    """Orthonormal columns that span the matrix's columns."""
    return library(matrix).linalg.qr(matrix)[0]
