"""Vectors and weights that come in parts: put together, and without a copy where they lie together already."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from paceline.algorithms.core.values import Weights, join


def together(parts: Iterable[Weights]) -> Weights:
    """Weights whose parts were given one by one, first layer first; the version is the oldest part's.

    A part that holds several layers may be given once for each of them.

    >>> import numpy as np
    >>> part = Weights(np.zeros(2), version=3)
    >>> together([Weights(np.ones(1), version=4), part, part])
    Weights(vector=array([1., 0., 0.]), version=3)
    """
    each = list({id(part): part for part in parts}.values())
    return Weights(join([part.vector for part in each]), min(part.version for part in each))


def joined_tensors(parts: Sequence[Any]) -> Any:
    """Tensors end to end."""
    import torch  # is there already, where there are tensors

    found = beside(parts)
    return torch.cat(list(parts)) if found is None else found


def beside(parts: Sequence[Any]) -> Any | None:
    """Tensors that lie end to end in one memory, as the one that they are; None of others."""
    memory, at = parts[0].untyped_storage().data_ptr(), parts[0].storage_offset()
    for part in parts:
        if part.untyped_storage().data_ptr() != memory or part.storage_offset() != at or not part.is_contiguous():
            return None
        at += part.numel()
    return parts[0].as_strided((at - parts[0].storage_offset(),), (1,))
