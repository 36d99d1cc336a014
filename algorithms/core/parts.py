"""Joins vectors and weights that come in parts, without a copy if the parts are adjacent in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from paceline.algorithms.core.values import Weights, join


def together(parts: Iterable[Weights]) -> Weights:
    """Joins weights that were given in parts, first layer first; the version is that of the oldest part.

    A part with several layers may be repeated for each of them.

    >>> import numpy as np
    >>> part = Weights(np.zeros(2), version=3)
    >>> together([Weights(np.ones(1), version=4), part, part])
    Weights(vector=array([1., 0., 0.]), version=3)
    """
    each = list({id(part): part for part in parts}.values())
    return Weights(join([part.vector for part in each]), min(part.version for part in each))


def joined_tensors(parts: Sequence[Any]) -> Any:
    """Concatenates tensors, without a copy if they are adjacent in memory."""
    import torch  # already imported if there are tensors

    whole = beside(parts)
    return torch.cat(list(parts)) if whole is None else whole


def beside(parts: Sequence[Any]) -> Any | None:
    """Returns adjacent tensors of one storage as one tensor; None if they are not adjacent."""
    memory, at = parts[0].untyped_storage().data_ptr(), parts[0].storage_offset()
    for part in parts:
        if part.untyped_storage().data_ptr() != memory or part.storage_offset() != at or not part.is_contiguous():
            return None
        at += part.numel()
    return parts[0].as_strided((at - parts[0].storage_offset(),), (1,))
