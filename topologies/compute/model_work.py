"""The properties of a model that the compute and memory models need; `workloads.ModelInfo` has them. All in float32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class PassLike(Protocol):
    """One direction through a module: FLOPs and bytes moved per sample, bytes moved in any batch, and kernels."""

    @property
    def flops(self) -> float: ...
    @property
    def moved_bytes(self) -> float: ...
    @property
    def fixed_bytes(self) -> float: ...
    @property
    def kernels(self) -> int: ...


class RowLike(Protocol):
    """A module: its parameters, the activations that it saves per sample, and its two passes."""

    @property
    def name(self) -> str: ...
    @property
    def parameters(self) -> int: ...
    @property
    def saved_bytes(self) -> float: ...
    @property
    def forward(self) -> PassLike: ...
    @property
    def backward(self) -> PassLike: ...


class WorkLike(Protocol):
    """A model, such as `workloads.ModelInfo`."""

    @property
    def name(self) -> str: ...
    @property
    def family(self) -> str: ...
    @property
    def works(self) -> Sequence[RowLike]: ...
