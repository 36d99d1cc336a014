"""Gradients layer by layer, from within torch's backward pass.

The whole gradient is one new vector, in the order of the parameters, and the gradient of a layer is a slice of it. So
consecutive layers can be joined without a copy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch._utils import _unflatten_dense_tensors

Ready = Callable[[str, Tensor], None]
"""called with a layer's name and its gradient"""


@dataclass(frozen=True, slots=True)
class ParameterPlace:
    """One parameter's place in the flat vector."""

    name: str
    layer: str
    part: slice
    shape: torch.Size


@dataclass(slots=True)
class BackwardPass:
    """A running backward pass: the vector of gradients, the missing gradients of each layer, and the callback."""

    whole: Tensor
    places: Sequence[Tensor]
    """the slice of each parameter"""
    missing: Counter[str]
    ready: Ready


class ByLayer:
    """Calls back with each layer's gradient when those of all its parameters are complete, in any order.

    Args:
        parameters: the parameters of the module.
        pieces: their slices of the vector.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], pieces: Sequence[ParameterPlace]) -> None:
        self._parameters = parameters
        self._size = pieces[-1].part.stop
        self._counts = Counter(piece.layer for piece in pieces)
        self._parts: dict[str, slice] = {}
        self._pass: BackwardPass | None = None
        for place, (parameter, piece) in enumerate(zip(parameters, pieces, strict=True)):
            start = self._parts.get(piece.layer, piece.part).start
            self._parts[piece.layer] = slice(start, piece.part.stop)
            parameter.register_post_accumulate_grad_hook(self._hook(place, piece.layer))

    def run(self, loss: Tensor, ready: Ready) -> None:
        """Runs the backward pass of a loss.

        Args:
            loss: the loss.
            ready: called with each layer's gradient.
        """
        first = self._parameters[0]
        whole = torch.empty(self._size, dtype=first.dtype, device=first.device)
        self._pass = BackwardPass(whole, _unflatten_dense_tensors(whole, self._parameters), self._counts.copy(), ready)
        try:
            loss.backward()
        finally:
            self._pass = None
            for parameter in self._parameters:
                parameter.grad = None

    def _hook(self, place: int, layer: str) -> Callable[[Tensor], None]:
        def arrived(parameter: Tensor) -> None:
            now = self._pass
            if now is None:  # a backward pass outside of `run`
                return
            assert parameter.grad is not None
            now.places[place].copy_(parameter.grad)
            parameter.grad = None
            now.missing[layer] -= 1
            if now.missing[layer] == 0:
                now.ready(layer, now.whole[self._parts[layer]])

        return arrived
