"""A flat tensor whose parts are concatenated only when needed.

torch computes a gradient parameter by parameter. Concatenating the parts reads and writes all numbers once more,
while a local step needs to read each number only once. So the parts are concatenated at the first operation other
than a step. For 39 MB on two cores, a local step takes 32 ms instead of 35.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

KNOWN = {getattr(Tensor, name).__get__ for name in ("device", "dtype", "shape", "requires_grad")}
"""attributes of the whole that are known without concatenating"""


class Unjoined(Tensor):
    """The parts of a vector. Any torch function other than `taken_from` receives the concatenated vector.

    Args:
        parts: tensors of any shape, in order.

    >>> gradient = Unjoined([torch.ones(1, 2), torch.zeros(1)])
    >>> gradient.nbytes, len(gradient), gradient.apart
    (12, 3, True)
    >>> 2 * gradient, gradient.apart
    (tensor([2., 2., 0.]), False)
    """

    _parts: tuple[Tensor, ...]
    _whole: Tensor | None

    def __new__(cls, parts: Sequence[Tensor]) -> Self:
        count, first = sum(part.numel() for part in parts), parts[0]
        made = Tensor._make_wrapper_subclass(cls, (count,), dtype=first.dtype, device=first.device)
        made._parts, made._whole = tuple(part.reshape(-1) for part in parts), None
        return made

    @property
    def apart(self) -> bool:
        """Whether the parts have not been concatenated yet."""
        return self._whole is None

    def joined(self) -> Tensor:
        """Returns the whole; concatenates it at the first call."""
        if self._whole is None:
            self._whole, self._parts = torch.cat(self._parts), ()
        return self._whole

    def taken_from(self, vector: Tensor, factor: float) -> Tensor:
        """Computes vector − factor · the whole, part by part; the result is the same bit for bit."""
        sizes = [part.numel() for part in self._parts]
        new = torch.empty_like(vector)
        for into, of, part in zip(new.split(sizes), vector.split(sizes), self._parts, strict=True):
            torch.sub(of, part, alpha=factor, out=into)
        return new

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in KNOWN:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args)
        return cls.__torch_dispatch__(func, types, args, kwargs)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch's stub declares an instance method
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        whole, named = tree_map_only(Unjoined, Unjoined.joined, (args, dict(kwargs or {})))
        return func(*whole, **named)

    @property
    def nbytes(self) -> int:  # type: ignore[override]  # a property of Tensor too
        """The size of the whole in bytes."""
        return len(self) * self.dtype.itemsize

    def __len__(self) -> int:
        return int(self.shape[0])

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.joined().__reduce_ex__(protocol)
